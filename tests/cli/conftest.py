"""The real command line, as a process and inside this one, and small logs of made-up sessions for it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ctxarchive.cli.app import TRACEBACK, main

SENTENCE = "the parser keeps a table of every token it has met and drops none of them"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What one run of the command line gave."""

    code: int
    out: bytes
    err: str

    @property
    def json(self) -> Any:
        """Stdout as one JSON value."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Stdout as one JSON value a line."""
        return [json.loads(line) for line in self.out.decode("utf-8").splitlines()]


Cli = Callable[..., Ran]
WriteLog = Callable[..., Path]


def environment(home: Path) -> dict[str, str]:
    """The environment of a run: a data folder of its own, and no terminal's settings."""
    kept = {
        name: os.environ[name]
        for name in ("PATH", "PYTHONPATH", "SYSTEMROOT", "LD_LIBRARY_PATH")
        if name in os.environ
    }
    folders = {"HOME": str(home), "XDG_DATA_HOME": str(home / "data")}
    return {**kept, **folders, "LC_ALL": "C.UTF-8"}


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """The environment that runs get."""
    return environment(tmp_path / "home")


@pytest.fixture
def cli(env: dict[str, str]) -> Cli:
    """Runs ``python -m ctxarchive`` with arguments."""

    def run(*arguments: str | Path, **options: Any) -> Ran:
        done = subprocess.run(
            [sys.executable, "-m", "ctxarchive", *map(str, arguments)],
            capture_output=True,
            env=env,
            timeout=120,
            check=False,
            **options,
        )
        return Ran(code=done.returncode, out=done.stdout, err=done.stderr.decode())

    return run


@pytest.fixture
def inside(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The same, run in this process: for the many runs of which another test starts a real one."""

    def run(*arguments: str | Path) -> Ran:
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        with monkeypatch.context() as patch:
            patch.setenv("XDG_DATA_HOME", env["XDG_DATA_HOME"])
            patch.setenv(TRACEBACK, "1")
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code = main([str(argument) for argument in arguments])
        streams = []
        for stream in (out, err):
            stream.flush()
            buffer = stream.buffer
            assert isinstance(buffer, io.BytesIO)
            streams.append(buffer.getvalue())
        return Ran(code=code, out=streams[0], err=streams[1].decode())

    return run


def prose(number: int, words: int) -> str:
    """A paragraph of its own of so many words."""
    known = SENTENCE.split()
    said = " ".join(known[(number + place) % len(known)] for place in range(words))
    return f"Part {number}: {said}."


class Talk:
    """A Claude Code session in the making, record by record."""

    def __init__(self, session: str = "talk-1") -> None:
        self.session = session
        self.records: list[dict[str, Any]] = []

    def add(self, kind: str, **more: Any) -> None:
        """Add one record."""
        number = len(self.records)
        self.records.append(
            {
                "type": kind,
                "sessionId": self.session,
                "uuid": f"u{number}",
                "timestamp": f"2026-03-04T{number // 3600:02}:{number // 60 % 60:02}"
                f":{number % 60:02}.000Z",
                **more,
            }
        )

    def user(self, text: str, **more: Any) -> None:
        """What the user says."""
        self.add("user", message={"role": "user", "content": text}, **more)

    def assistant(self, *blocks: dict[str, Any]) -> None:
        """What the assistant says and calls."""
        number = len(self.records)
        message = {
            "id": f"m{number}",
            "role": "assistant",
            "model": "claude-x",
            "content": list(blocks),
        }
        self.add("assistant", message=message)

    def step(self, said: str, command: str, output: str) -> None:
        """A statement, a call and its result."""
        name = f"call-{len(self.records)}"
        self.assistant(
            {"type": "text", "text": said},
            {"type": "tool_use", "id": name, "name": "Bash", "input": {"command": command}},
        )
        block = {"type": "tool_result", "tool_use_id": name, "content": output}
        self.add("user", message={"role": "user", "content": [block]})

    def turns(self, count: int, *, words: int = 60) -> None:
        """So many turns of a prompt, a call and an answer."""
        for _ in range(count):
            number = len(self.records)
            self.user(f"Please look at part {number}. Never touch file_{number}.txt.")
            self.step(
                f"I read src/part_{number}.py.", f"cat src/part_{number}.py", prose(number, words)
            )
            self.assistant({"type": "text", "text": prose(number, words)})

    def compaction(self, summary: str) -> None:
        """A compaction as the harness records it."""
        metadata = {"trigger": "auto", "preTokens": 999}
        self.add("system", subtype="compact_boundary", compactMetadata=metadata)
        self.user(summary, isCompactSummary=True)


def usual_talk(session: str = "talk-1") -> Talk:
    """Twelve turns, a compaction with its summary, and six turns more."""
    talk = Talk(session)
    talk.turns(12)
    talk.compaction("This session is being continued. Summary: parts 0 to 40 were read.")
    talk.turns(6)
    return talk


def write_lines(path: Path, talk: Talk) -> Path:
    """Write a talk as a log."""
    lines = (json.dumps(record) + "\n" for record in talk.records)
    path.write_text("".join(lines), "utf-8", newline="\n")
    return path


@pytest.fixture(scope="session")
def talk() -> Callable[..., Talk]:
    """Makes talks; ``usual=True`` gives one with a recorded compaction."""
    return lambda session="talk-1", usual=False: usual_talk(session) if usual else Talk(session)


@pytest.fixture
def write_log(tmp_path: Path) -> WriteLog:
    """Writes a talk as a log and gives the file."""

    def write(talk: Talk | None = None, name: str = "talk.jsonl") -> Path:
        return write_lines(tmp_path / name, talk or usual_talk())

    return write


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """One log compacted by the real command line, for tests that only read."""

    log: Path
    archive: Path
    out: Path
    report: dict[str, Any]
    ran: Ran

    @property
    def session(self) -> str:
        """The replayed session's id."""
        session: str = self.report["session"]
        return session

    @property
    def stored(self) -> Path:
        """The session as JSONL."""
        (found,) = self.out.glob("*.jsonl")
        return found


@pytest.fixture(scope="session")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Compacted:
    """The usual talk, compacted on pressure in a window of 4,000 tokens."""
    folder = tmp_path_factory.mktemp("compacted")
    log = write_lines(folder / "talk.jsonl", usual_talk())
    archive, out = folder / "a.db", folder / "out"
    arguments = ["compact", log, "--archive", archive, "--window", "4000", "--out", out, "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "ctxarchive", *map(str, arguments)],
        capture_output=True,
        env=environment(folder / "home"),
        timeout=120,
        check=False,
    )
    ran = Ran(code=done.returncode, out=done.stdout, err=done.stderr.decode())
    assert ran.code == 0, ran.err
    return Compacted(log=log, archive=archive, out=out, report=ran.json, ran=ran)
