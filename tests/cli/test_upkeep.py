"""``purge``, ``export``, ``backup`` and ``optimize``, by the real command line."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxarchive.archive.opening import open_archive
from ctxarchive.knowledge.records import Record

Cli = Callable[..., Any]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Two sessions; one record holds a word that no other does."""
    path = tmp_path / "a.db"
    with open_archive(path) as base:
        for session in ("one", "two"):
            records = []
            for seq in range(20):
                said = f"{'quaggasecret ' * (seq == 7)}word{seq}, “ü” of {session}"
                event = json.dumps(
                    {
                        "seq": seq,
                        "type": "user/message",
                        "data": {"content": [{"type": "text", "text": said}]},
                    }
                )
                records.append(
                    Record(
                        session=session,
                        seq=seq,
                        layer="constraint",
                        role="user",
                        time=86_400_000 * (seq + 1),
                        event=event,
                        text=said,
                    )
                )
            base.put(records)
        base.index_pending()
    return path


def held(path: Path, word: bytes) -> list[str]:
    return [each.name for each in path.parent.glob("a.*") if word in each.read_bytes()]


def test_a_text_in_a_file_is_purged_and_nothing_of_it_is_left(
    cli: Cli, archive: Path, tmp_path: Path
) -> None:
    """The text itself never stands on the command line."""
    wanted = tmp_path / "wanted.txt"
    wanted.write_text("quaggasecret\n", "utf-8")
    tried = cli("purge", archive, "--text-file", wanted, "--dry-run", "--json")
    assert (tried.code, tried.json["records"], tried.json["dry_run"]) == (0, 2, True)
    assert held(archive, b"quagga") != []
    ran = cli("purge", archive, "--text-file", wanted, "--yes", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json == {
        "archive": str(archive),
        "dry_run": False,
        "reason": "text",
        "records": 2,
        "sessions": [
            {"session": name, "records": 1, "first_seq": 7, "last_seq": 7, "chars": chars}
            for name, chars in (("one", 30), ("two", 30))
        ],
        "titles": [],
        "ids": [],
        "scrubbed": True,
    }
    assert held(archive, b"quagga") == []
    assert cli("verify", archive).code == 0
    shown = cli("show", archive, "one", "7")
    assert shown.code == 2
    assert "seq 7: was purged on" in shown.err
    again = cli("purge", archive, "--text-file", wanted)
    assert (again.code, again.out.decode()) == (1, "0 records purged\n")


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (("--session", "one", "--seq", "3..5"), 37),
        (("--session", "one", "--seq", "3"), 39),
        (("--session", "session/one", "--seq", "..5"), 34),
        (("--session", "one", "--seq", "15.."), 35),
        (("--session", "one", "--session", "two"), 0),
        (("--older-than", "1w"), 0),
        (("--session", "two", "--text", "word1"), 29),
    ],
)
def test_records_are_chosen_by_session_seq_age_and_text(
    inside: Cli, archive: Path, options: tuple[str, ...], left: int
) -> None:
    assert inside("purge", archive, *options, "--yes").code == 0
    assert inside("stats", archive, "--json").json["records"] == left


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "nothing is chosen"),
        (("--seq", "1"), "nothing is chosen"),
        (("--session", "x"), "not in this archive"),
        (("--session", "one", "--seq", "5..3"), "ends before it begins"),
        (("--session", "one", "--seq", "a"), "write it as"),
        (("--session", "one", "--session", "two", "--seq", "1"), "takes one --session"),
        (("--older-than", "soon"), "write it as"),
        (("--text", "a", "--text-file", "b"), "one of them"),
        (("--text-file", "-"), "add --yes"),
        (("--text-file", "nowhere"), "No such file"),
        (("--retention",), "keep everything"),
        (("--retention", "--session", "one"), "chooses by itself"),
        (("--session", "one", "--set", "x=1"), "only with --retention"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_changes_nothing(
    inside: Cli, archive: Path, options: tuple[str, ...], told: str
) -> None:
    before = archive.read_bytes()
    ran = inside("purge", archive, *options)
    assert ran.code == 2
    assert told in ran.err
    assert archive.read_bytes() == before


@pytest.mark.parametrize("answer", ["n", "y"])
def test_on_a_terminal_it_is_asked(
    env: dict[str, str], inside: Cli, archive: Path, answer: str
) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "ctxarchive", "purge", str(archive), "--session", "one"]
    with subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    ) as process:
        os.close(theirs)
        os.write(ours, f"{answer}\n".encode())
        _, told = process.communicate(timeout=60)
    os.close(ours)
    assert b"for good?" in told
    code, left = {"n": (1, 40), "y": (0, 20)}[answer]
    assert process.returncode == code
    assert inside("stats", archive, "--json").json["records"] == left


def test_retention_names_what_it_takes(cli: Cli, archive: Path, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text("[retention]\nmax_age_days = 30\nopen_days = 7\n", "utf-8")
    kept = cli("purge", archive, "--retention", "--config", config, "--json")
    assert (kept.code, kept.json["sessions"]) == (0, [])
    ran = cli("purge", archive, "--retention", "--config", config, "--set", "retention.open_days=0")
    told = ran.out.decode().splitlines()
    assert told[0] == "'one': by age, 20 records, last active 1970-01-21"
    assert told[-1].startswith("2 sessions purged; ")


def test_an_export_holds_every_record_in_both_forms(
    cli: Cli, archive: Path, tmp_path: Path
) -> None:
    """As JSON lines on stdout, and as a table in a file for its owner only."""
    lines = cli("export", archive).lines
    assert [(each["session"], each["seq"]) for each in lines] == [
        (session, seq) for session in ("one", "two") for seq in range(20)
    ]
    assert lines[7]["event"]["data"]["content"][0]["text"] == lines[7]["text"]
    out = tmp_path / "a.csv"
    pytest.importorskip("sqlite_utils")
    ran = cli("export", archive, "--format", "csv", "--session", "two", "--out", out)
    assert (ran.code, ran.out) == (0, b"")
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    rows = list(csv.DictReader(io.StringIO(out.read_text("utf-8"), newline="")))
    assert [(row["session"], row["seq"], row["text"]) for row in rows] == [
        (each["session"], str(each["seq"]), each["text"]) for each in lines[20:]
    ]
    again = cli("export", archive, "--out", out)
    assert again.code == 2
    assert "is there already" in again.err
    assert cli("export", archive, "--session", "three").code == 2


def test_a_backup_is_a_whole_archive_and_never_replaces_a_file(cli: Cli, archive: Path) -> None:
    target = archive.with_name("copy.db")
    ran = cli("backup", archive, target, "--json")
    assert (ran.code, ran.json["records"]) == (0, 40)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert cli("verify", target).code == 0
    assert cli("search", target, "word7").code == 0
    refused = cli("backup", archive, target)
    assert refused.code == 2
    assert "is there already" in refused.err
    assert not list(archive.parent.glob("*.part*"))


def test_optimize_says_what_it_saved(inside: Cli, archive: Path) -> None:
    ran = inside("optimize", archive, "--json")
    assert ran.code == 0
    assert ran.json["scrubbed"]
    assert ran.json["bytes_after"] <= ran.json["bytes_before"]
    assert inside("verify", archive).code == 0
