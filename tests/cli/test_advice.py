"""What a refusal says to do: each message names what is to blame, and the way out."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ctxarchive.knowledge.sqlite.schema import MIGRATIONS

WINDOW = ("--window", "4000")
FIRST = '{"type":"user","sessionId":"s","uuid":"u","message":{"role":"user","content":"hi"}}'


def one_line(ran: Any, code: int = 2) -> str:
    """The only line on stderr of a run that failed."""
    assert ran.code == code, ran
    assert ran.err.count("\n") == 1, ran.err
    told: str = ran.err
    return told


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(
    "command",
    [["compact", "--json"], ["compact"], ["sessions", "--json"], ["sessions"], ["--help"]],
)
def test_output_that_cannot_be_written_is_one_line_and_no_success(
    env: dict[str, str], compacted: Any, tmp_path: Path, command: list[str]
) -> None:
    """As into a file on a full disk; also where stderr cannot be written either."""
    arguments = [sys.executable, "-m", "ctxarchive", *command]
    if command[0] == "compact":
        arguments += [str(compacted.log), "--archive", str(tmp_path / "a.db"), *WINDOW]
    if command[0] == "sessions":
        arguments.append(str(compacted.archive))
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            arguments, stdout=full, stderr=subprocess.PIPE, env=env, text=True, check=False
        )
        silent = subprocess.run(arguments, stdout=full, stderr=full, env=env, check=False)
    assert done.stderr == ("ctxarchive: the output cannot be written: No space left on device\n")
    assert (done.returncode, silent.returncode) == (1, 1)


def test_an_argument_that_begins_with_a_dash_goes_behind_two(
    inside: Callable[..., Any],
    talk: Callable[..., Any],
    write_log: Callable[..., Path],
    tmp_path: Path,
) -> None:
    """The refusal says so, and it works."""
    archive, log = tmp_path / "a.db", write_log(talk("-odd", usual=True))
    session = inside("compact", log, "--archive", archive, *WINDOW, "--json").json["session"]
    assert session.startswith("-odd~")
    for arguments in ((session, "1"), ("s", "-1")):
        told = one_line(inside("show", archive, *arguments))
        assert "No such option" in told
        assert "an argument that begins with - goes behind --" in told
    shown = inside("show", "--json", "--", archive, session, "1")
    assert shown.json["session"] == session


def test_an_archive_of_a_later_version_says_what_to_do(
    inside: Callable[..., Any], tmp_path: Path, write_log: Callable[..., Path]
) -> None:
    """Update, or take another archive."""
    archive, log = tmp_path / "a.db", write_log()
    assert inside("compact", log, "--archive", archive).code == 0
    with closing(sqlite3.connect(archive)) as database:
        database.execute("PRAGMA user_version = 99")
        database.commit()
    told = one_line(inside("sessions", archive))
    assert f"{archive}: schema 99; this program knows up to {len(MIGRATIONS)}: update " in told
    assert "or name another archive" in told


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_a_config_that_is_no_file_is_refused_and_not_waited_for(
    cli: Callable[..., Any], tmp_path: Path, write_log: Callable[..., Path], kind: str
) -> None:
    """A pipe without a writer would hang."""
    config = tmp_path / "c.toml"
    if kind == "folder":
        config.mkdir()
    else:
        os.mkfifo(config)
    told = one_line(cli("compact", write_log(), "--config", config))
    what = "a folder" if kind == "folder" else "not a regular file"
    assert told == f"ctxarchive: {config}: {what}; name a TOML file\n"


def test_settings_of_the_working_folder_and_the_environment_hold_for_compact_too(
    inside: Callable[..., Any],
    write_log: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As for a host; that a file nobody named was read is said, and an unknown variable refused."""
    monkeypatch.chdir(tmp_path)
    log = write_log()
    Path("ctxarchive.toml").write_text('backend = "basic"\n[compaction]\nretain_ratio = 0.9\n')
    arguments = ("compact", log, *WINDOW, "--json")
    told = one_line(inside(*arguments))
    assert "ctxarchive.toml: compaction: retain_ratio 0.9 is not below" in told
    ran = inside(*arguments, "--set", "compaction.retain_ratio=0.1")
    assert (ran.code, ran.json["archive"]) == (0, None)
    assert ran.err == "ctxarchive: settings: ctxarchive.toml\n"
    monkeypatch.setenv("CTXARCHIVE_COMPACTION__THRESHOLD_RATIO", "0.05")
    told = one_line(inside(*arguments, "--set", "compaction.retain_ratio=0.1"))
    assert (
        "retain_ratio: command line, threshold_ratio: environment CTXARCHIVE_COMPACTION__" in told
    )
    monkeypatch.setenv("CTXARCHIVE_BACKENDS", "basic")
    assert "did you mean CTXARCHIVE_BACKEND?" in one_line(inside(*arguments))


def test_a_tail_that_fills_the_window_names_the_key(
    inside: Callable[..., Any], write_log: Callable[..., Path], tmp_path: Path
) -> None:
    """And no provider where none is known."""
    arguments = ("compact", write_log(), "--archive", tmp_path / "a.db", *WINDOW)
    told = one_line(inside(*arguments, "--set", "compaction.retain_tokens=50000"))
    assert "compaction.retain_tokens: retained tail of 50000 tokens is not below" in told
    assert "threshold of 3200 tokens (threshold_ratio 0.8 of the window of 4000 tokens" in told
    assert "for /" not in told


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("[" * 3_000 + "]" * 3_000, "not JSON that can be read: nested too deeply"),
        ("9" * 5_000, "not JSON that can be read: a whole number of more than 4300 digits"),
    ],
)
def test_what_is_more_than_can_be_read_is_named_by_its_line(
    inside: Callable[..., Any], tmp_path: Path, value: str, told: str, *, last: bool
) -> None:
    """Also in the last line, which is then not called cut off; and in a list of messages."""
    log, archive = tmp_path / "log.jsonl", tmp_path / "a.db"
    much = FIRST.replace('"uuid"', f'"extra":{value},"uuid"')
    log.write_text("\n".join([FIRST, much] if last else [FIRST, much, FIRST]), "utf-8")
    said = one_line(inside("compact", log, "--archive", archive))
    assert (
        said == f"ctxarchive: {log} line 2: {told}; restore that line from a copy, or take it out\n"
    )
    log.write_text(f'[{{"role":"user","content":"hi","extra":{value}}}]', "utf-8")
    said = one_line(inside("compact", log, "--archive", archive))
    assert said == f"ctxarchive: {log}: {told}; take that value out\n"


@pytest.mark.parametrize("number", ["9" * 400, "-5", "99999999999"])
def test_a_window_that_no_model_has_is_not_believed(
    inside: Callable[..., Any], tmp_path: Path, number: str
) -> None:
    """The default stands in its place."""
    log = tmp_path / "chat.json"
    log.write_text(
        f'{{"context_window":{number},"messages":[{{"role":"user","content":"hi"}}]}}', "utf-8"
    )
    ran = inside("compact", log, "--archive", tmp_path / "a.db", "--json")
    assert (ran.code, ran.json["window"]) == (0, 200_000)
    told = one_line(inside("compact", log, "--window", number if number != "-5" else "9" * 12))
    assert "--window" in told


def chat(path: Path, answer: str) -> Path:
    """A chat log of its own answers that begins as every other."""
    messages = [{"role": "user", "content": "Fix the build."}]
    for number in range(40):
        messages.append({"role": "assistant", "content": f"{answer} {number} " * 30})
        messages.append({"role": "user", "content": f"Go on with {answer} {number}."})
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(messages), "utf-8")
    return path


def test_two_logs_that_claim_one_session_are_told_apart_by_an_id_for_one_of_them(
    inside: Callable[..., Any], tmp_path: Path
) -> None:
    """The refusal names the option; with it, both are in the archive, and both verify."""
    one, two = (
        chat(tmp_path / "x" / "chat.json", "parser"),
        chat(tmp_path / "y" / "chat.json", "lexer"),
    )
    archive = tmp_path / "a.db"
    assert inside("compact", one, "--archive", archive, *WINDOW).code == 0
    clash = inside("compact", two, "--archive", archive, *WINDOW, "--json")
    assert clash.code == 1
    assert "filed with other content already" in clash.err
    assert "(give this log an id of its own: --session-id)" in clash.err
    named = ("compact", two, "--archive", archive, *WINDOW, "--session-id", "second", "--json")
    ran = inside(*named)
    assert (ran.code, ran.json["warnings"]) == (0, [])
    assert ran.json["session"].startswith("second~")
    checked = ("verify", archive, "--log", two)
    assert inside(*checked, "--session-id", "second").code == 0
    assert inside("verify", archive, "--log", one).code == 0
    several = inside("compact", one, two, "--archive", archive, "--session-id", "third")
    assert "--session-id: takes one LOG" in one_line(several)
    assert "only with --log" in one_line(inside("verify", archive, "--session-id", "second"))


def damage_records(source: Path, target: Path) -> None:
    """A copy of an archive whose middle pages are no pages."""
    with closing(sqlite3.connect(source)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (size,) = database.execute("PRAGMA page_size").fetchone()
    content = bytearray(source.read_bytes())
    pages = len(content) // size
    for page in range(pages // 3, 2 * pages // 3):
        content[page * size : page * size + 8] = b"\xff" * 8
    target.write_bytes(content)


def test_damaged_records_are_not_blamed_on_the_index(
    inside: Callable[..., Any],
    talk: Callable[..., Any],
    write_log: Callable[..., Path],
    tmp_path: Path,
) -> None:
    """Rebuilding reads them; the message names their file."""
    made = talk()
    made.turns(60)
    whole, damaged = tmp_path / "whole.db", tmp_path / "d.db"
    assert inside("compact", write_log(made), "--archive", whole, *WINDOW).code == 0
    damage_records(whole, damaged)
    told = one_line(inside("rebuild", damaged))
    assert told.startswith(f"ctxarchive: {damaged}: damaged: ")
    assert "search.db" not in told


def test_a_folder_in_the_place_of_the_index_is_named_with_what_to_do(
    inside: Callable[..., Any], write_log: Callable[..., Path], tmp_path: Path
) -> None:
    """Reading does without the index; making one is refused."""
    archive, folder = tmp_path / "a.db", tmp_path / "a.search.db"
    assert inside("compact", write_log(), "--archive", archive, *WINDOW).code == 0
    for file in tmp_path.glob("a.search.db*"):
        file.unlink()
    folder.mkdir()
    assert inside("search", archive, "parser").code == 0
    told = one_line(inside("rebuild", archive))
    assert f"{folder}: a folder where a file is needed; move it away" in told
