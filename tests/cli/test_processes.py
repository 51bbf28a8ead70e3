"""The command line as a process: start, terminal, broken pipe, Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxarchive.cli.replaying import interruptible

HEAVY = {"pydantic", "apsw", "tiktoken", "rich", "regex", "sqlite3"}
COMMANDS = ["compact", "search", "show", "sessions", "stats", "verify", "rebuild"]


def heed_ctrl_c() -> None:
    """Take Ctrl-C as a program at a terminal does."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def long_log(write_log: Callable[..., Path], talk: Callable[..., Any]) -> Path:
    """A log whose replay takes long enough to be interrupted, and compacts many times."""
    made = talk("long")
    made.turns(250, words=80)
    return write_log(made, "long.jsonl")


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_loads_nothing_heavy(env: dict[str, str], command: str | None) -> None:
    """Help is there at once: no database, no tokenizer, no validation library is loaded for it."""
    arguments = ["--help"] if command is None else [command, "--help"]
    code = (
        "import sys\n"
        "from ctxarchive.cli.app import main\n"
        f"code = main({arguments!r})\n"
        f"print(code, sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True
    )
    assert done.stderr == "0 []\n"
    assert "Usage: ctxarchive" in done.stdout


def test_help_names_every_command(cli: Callable[..., Any]) -> None:
    """With one line each; no command at all prints it on stderr and is bad usage."""
    ran = cli("--help")
    assert (ran.code, ran.err) == (0, "")
    for command in COMMANDS:
        assert f"\n  {command} " in ran.out.decode()
    bare = cli()
    assert (bare.code, bare.out) == (2, b"")
    assert bare.err == ran.out.decode()


def test_a_missing_extra_says_what_to_install(env: dict[str, str]) -> None:
    """Without click: one line and exit code 2."""
    code = "import sys; sys.modules['click'] = None\nfrom ctxarchive.__main__ import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 2
    assert done.stderr == (
        "ctxarchive: click is missing; install it with: pip install 'ctxarchive[cli]'\n"
    )


def test_progress_is_for_terminals(
    env: dict[str, str], write_log: Callable[..., Path], tmp_path: Path, cli: Callable[..., Any]
) -> None:
    """A bar on a terminal's stderr; nothing at all in a pipe, and stdout is the same."""
    arguments = ["compact", write_log(), "--archive", tmp_path / "a.db", "--json"]
    piped = cli(*arguments)
    assert (piped.code, piped.err) == (0, "")
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "ctxarchive", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**env, "TERM": "xterm", "COLUMNS": "100"},
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                read = os.read(ours, 4_096)
            except OSError:  # Linux says so when the other side of a terminal is closed
                break
            if not read:
                break
            shown += read
        assert process.stdout is not None
        out = process.stdout.read()
    os.close(ours)
    assert process.returncode == 0
    assert b"talk.jsonl" in shown
    assert out == piped.out


def test_a_reader_that_goes_away_is_no_error_message(
    env: dict[str, str], write_log: Callable[..., Path], tmp_path: Path
) -> None:
    """As with ``| head -1``: the process ends, quietly."""
    log = write_log()
    arguments = ["compact", *([log] * 40), "--archive", tmp_path / "a.db", "--window", "4000"]
    with subprocess.Popen(
        [sys.executable, "-m", "ctxarchive", *map(str, arguments), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(10) == b'{"session"'
        process.stdout.close()
        told = process.stderr.read()
    assert process.returncode == 1
    assert told == b""


def test_ctrl_c_is_met_between_two_events() -> None:
    """A replay that awaits nothing does not run to its end first: progress raises."""
    seen: list[int] = []

    async def replay() -> None:
        step = interruptible(seen.append)
        step(1)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()  # what asyncio makes of Ctrl-C
        step(2)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(replay())
    assert seen == [1]


@pytest.mark.parametrize("window", ["6000", "200000"])
def test_ctrl_c_ends_a_replay_and_leaves_a_sound_archive(
    env: dict[str, str], inside: Callable[..., Any], long_log: Path, tmp_path: Path, window: str
) -> None:
    """Half way through: one line, exit code 130; also where nothing is compacted meanwhile."""
    archive = tmp_path / "a.db"
    logs = [long_log] * 20
    arguments = ["compact", *logs, "--archive", archive, "--window", window, "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "ctxarchive", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        # A suite that runs in the background has Ctrl-C ignored, and its children inherit that.
        preexec_fn=heed_ctrl_c,  # noqa: PLW1509 - this process starts no threads of its own
    ) as process:
        until = time.monotonic() + 60
        while not archive.exists() and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(0.4)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, told = process.communicate(timeout=60)
    # CPython ends itself by the signal where it struck inside exec, as of a dataclass being made;
    # a shell sees 130 either way.
    assert process.returncode in {130, -signal.SIGINT}, told
    assert told == b"ctxarchive: interrupted\n"
    assert out.count(b"\n") < len(logs)
    assert inside("verify", archive).code == 0
    again = inside("compact", long_log, "--archive", archive, "--window", window, "--json")
    assert (again.code, again.json["warnings"]) == (0, [])
    assert inside("verify", archive, "--log", long_log).code == 0
