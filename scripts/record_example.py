"""Records the example session: a scripted model over real commands on a copy of this repository.

usage: python scripts/record_example.py [--output FILE]

What the tools return is what the commands printed; only names and paths of the machine are
replaced. Nothing outside a temporary folder is written but the output file.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ctxarchive.metering.tokenizers import TiktokenEstimator
from ctxarchive.session.jsonl import write_session
from ctxarchive.session.log import Session, SessionHeader
from example.moves import Call, Say, User
from example.story import story

ROOT = Path(__file__).resolve().parents[1]
START_MS = 1_767_258_000_000  # 2026-01-01 09:00:00 UTC
SYSTEM = (
    "You are a coding agent in the repository at /repo. Look before you change anything, keep to "
    "what the user asked, run the tests after every change, and say what you found with its "
    "numbers and paths."
)
TOOLS: dict[str, tuple[str, dict[str, str]]] = {
    "bash": ("Run a command in /repo; prints output and exit code.", {"command": "string"}),
    "read": (
        "Read a text file, or `limit` lines of it from line `offset`.",
        {"path": "string", "offset": "integer", "limit": "integer"},
    ),
    "edit": (
        "Replace `old`, which must occur once, by `new`; without `old` write the whole file.",
        {"path": "string", "old": "string", "new": "string"},
    ),
    "todo": ("Set the list of things to do.", {"items": "array"}),
}


class ToolError(Exception):
    """A tool of the scripted agent refused; its text is the tool's result."""


class Workspace:
    """A copy of the repository in a neutral place, and the tools that work on it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.repo = folder / "repo"
        for name in ("home", "tmp"):
            (folder / name).mkdir()
        self._environment = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}/usr/bin{os.pathsep}/bin",
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "USER": "dev",
            "LOGNAME": "dev",
            "TZ": "UTC",
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": "src",
            "PYTHONDONTWRITEBYTECODE": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "Dev",
            "GIT_AUTHOR_EMAIL": "dev@example.invalid",
            "GIT_COMMITTER_NAME": "Dev",
            "GIT_COMMITTER_EMAIL": "dev@example.invalid",
        }
        clone = ["git", "clone", "--quiet", str(ROOT), str(self.repo)]
        subprocess.run(clone, check=True)
        subprocess.run(["git", "remote", "remove", "origin"], cwd=self.repo, check=True)

    def run(self, call: Call) -> tuple[str, bool]:
        """What the tool answers, and whether that is an error."""
        tools: dict[str, Callable[..., str]] = {
            "bash": self._bash,
            "read": self._read,
            "edit": self._edit,
            "todo": self._todo,
        }
        try:
            return self.neutral(tools[call.tool](**call.arguments)), False
        except ToolError as error:
            return self.neutral(str(error)), True

    def _bash(self, command: str) -> str:
        ran = subprocess.run(
            ["bash", "-c", command],
            cwd=self.repo,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
            check=False,
        )
        output = ran.stdout.decode("utf-8", "replace").rstrip("\n")
        if ran.returncode:
            raise ToolError(f"{output}\n[exit code: {ran.returncode}]".lstrip("\n"))
        return output or "[no output]"

    def _read(self, path: str, offset: int = 1, limit: int | None = None) -> str:
        file = self.repo / path
        if not file.is_file():
            raise ToolError(f"{path}: no such file")
        lines = file.read_text("utf-8").split("\n")
        end = None if limit is None else offset - 1 + limit
        return "\n".join(lines[offset - 1 : end])

    def _edit(self, path: str, new: str, old: str | None = None) -> str:
        file = self.repo / path
        if old is None:
            file.write_text(new, "utf-8")
            return f"wrote {path}: {new.count(chr(10))} lines, {len(new.encode())} bytes"
        text = file.read_text("utf-8")
        found = text.count(old)
        if found != 1:
            raise ToolError(f"{path}: `old` occurs {found} times, not once; nothing was changed")
        line = text[: text.index(old)].count("\n") + 1
        file.write_text(text.replace(old, new), "utf-8")
        return f"edited {path} at line {line}"

    @staticmethod
    def _todo(items: list[dict[str, str]]) -> str:
        marks = {"done": "x", "doing": "~", "open": " "}
        done = sum(item["status"] == "done" for item in items)
        lines = [f"[{marks[item['status']]}] {item['text']}" for item in items]
        return "\n".join([*lines, f"{done} of {len(items)} done"])

    def neutral(self, text: str) -> str:
        """``text`` without a path or name of this machine."""
        places = {
            str(self.repo): "/repo",
            str(ROOT): "/repo",
            str(self._folder): "/scratch",
            str(self._folder.resolve()): "/scratch",
            sys.prefix: "/usr",
            str(Path(sys.prefix).resolve()): "/usr",
            sys.base_prefix: "/usr",
            str(Path(sys.base_prefix).resolve()): "/usr",
            str(Path.home()): "/scratch/home",
        }
        for place in sorted(places, key=len, reverse=True):
            text = re.sub(re.escape(place) + r"(?![\w-])", places[place], text)
        for name in (socket.gethostname(), getpass.getuser()):
            text = re.sub(rf"(?<=[/@]){re.escape(name)}\b", "dev", text)
        return text


class Recorder:
    """Turns the scripted model's moves into the events of one session."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._ids = Counter[str]()
        self._now = START_MS
        self._turn = 0
        self._step = 0
        self.session = Session(
            SessionHeader(
                id="example", created_at=START_MS, title="session_stats for /repo", cwd="/repo"
            ),
            clock=self._clock,
        )

    def _clock(self) -> int:
        self._now += 1_000
        return self._now

    def _id(self, kind: str) -> str:
        self._ids[kind] += 1
        return f"{kind}-{self._ids[kind]:03}"

    @property
    def _place(self) -> dict[str, int]:
        return {"turn": self._turn, "step": self._step}

    def user(self, text: str) -> None:
        """A new turn begins with what the user says."""
        self.end_turn()
        self._turn, self._step = self._turn + 1, 1
        self._now += 60_000
        self.session.append("turn/start", {"turn": self._turn})
        self.session.append("step/start", self._place)
        if self._turn == 1:
            self._request()
        data = {
            "role": "user",
            "content": [{"type": "text", "text": text}],
            "source": {"kind": "user"},
            "id": self._id("message"),
        }
        self.session.append("user/message", data, surface_op="append")

    def _request(self) -> None:
        config = {"provider": "scripted", "model": "scripted"}
        tools = [
            {
                "name": name,
                "description": description,
                "parameters": {
                    "type": "object",
                    "properties": {key: {"type": kind} for key, kind in fields.items()},
                },
            }
            for name, (description, fields) in TOOLS.items()
        ]
        header = {"config": config, "system": SYSTEM, "tools": tools}
        self.session.append("request/header", {"header": header})
        self.session.append("request/context", {**config, "contextWindow": 40_000})

    def say(self, move: Say) -> list[str]:
        """One step: the model's message, its calls, and their results, which are returned."""
        if self.session.events[-1].type == "step/end":
            self._step += 1
            self.session.append("step/start", self._place)
        blocks: list[dict[str, Any]] = [{"type": "text", "text": move.text}] if move.text else []
        ids = [self._id("call") for _ in move.calls]
        calls = [
            {"name": call.tool, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
            for call in move.calls
        ]
        blocks += [
            {"type": "tool-call", "id": call_id, **call}
            for call_id, call in zip(ids, calls, strict=True)
        ]
        message = {
            "role": "assistant",
            "content": blocks,
            "source": {"kind": "model", "provider": "scripted", "model": "scripted"},
            "id": self._id("message"),
        }
        self.session.append(
            "assistant/message", {**self._place, "message": message}, surface_op="append"
        )
        for call_id, wire in zip(ids, calls, strict=True):
            self.session.append("tool/call", {**self._place, "callId": call_id, **wire})
        results = [self._result(*pair) for pair in zip(ids, move.calls, strict=True)]
        self.session.append("step/end", self._place)
        return results

    def _result(self, call_id: str, call: Call) -> str:
        text, is_error = self._workspace.run(call)
        block = {
            "type": "tool-result",
            "toolCallId": call_id,
            "content": [{"type": "text", "text": text}],
            "isError": is_error,
        }
        message = {
            "role": "user",
            "source": {"kind": "tool", "callId": call_id},
            "content": [block],
            "id": self._id("message"),
        }
        data = {**self._place, "name": call.tool, "message": message}
        self.session.append("tool/result", data, surface_op="append")
        return text

    def end_turn(self) -> None:
        """The turn that is open, if any, is complete."""
        if self.session.open_turn is not None:
            reason = {"kind": "completed"}
            self.session.append("turn/end", {"turn": self._turn, "reason": reason})


def record(folder: Path) -> Session:
    """The session that the story gives over a fresh copy of the repository in ``folder``."""
    recorder = Recorder(Workspace(folder))
    moves = story()
    move = next(moves)
    while True:
        results: list[str] = []
        if isinstance(move, User):
            recorder.user(move.text)
        else:
            results = recorder.say(move)
        try:
            move = moves.send(results)
        except StopIteration:
            break
    recorder.end_turn()
    return recorder.session


def _texts(session: Session) -> Iterator[str]:
    for message in session.derive_messages():
        for block in message.content:
            yield json.dumps(block.wire(), ensure_ascii=False)


def main() -> None:
    """Record, write, and print the figures."""
    parser = argparse.ArgumentParser(description="Record the example session.")
    parser.add_argument(
        "--output", type=Path, default=ROOT / "scripts" / "example" / "session.jsonl"
    )
    output: Path = parser.parse_args().output
    with tempfile.TemporaryDirectory() as folder:
        session = record(Path(folder))
    write_session(output, session)
    tokens = sum(map(TiktokenEstimator().count, _texts(session)))
    print(f"{output.name}: {len(session)} events, {tokens} tokens, {output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
