"""``ctxarchive report``: the file it writes, what it refuses, and its JSON."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WINDOW = ("--window", "4000")


def data(path: Path) -> Any:
    """What a report's file holds."""
    found = re.search(r'id="data">([A-Za-z0-9+/=]*)</script>', path.read_text("utf-8"))
    assert found is not None
    return json.loads(zlib.decompress(base64.b64decode(found[1])))


def test_a_log_becomes_one_file(
    cli: Callable[..., Any], write_log: Callable[..., Path], env: dict[str, str], tmp_path: Path
) -> None:
    """The checkpoint that compact makes of it, its records and its life; no archive is left."""
    log, out = write_log(), tmp_path / "r.html"
    ran = cli("report", log, "-o", out, *WINDOW, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert list(ran.json) == ["report", "bytes", "seconds", "sessions"]
    assert ran.json["report"] == str(out)
    assert ran.json["bytes"] == out.stat().st_size
    (told,) = ran.json["sessions"]
    assert list(told) == [
        "session",
        "title",
        "events",
        "compactions",
        "records",
        "pointers",
        "warnings",
    ]
    made = cli("compact", log, "--archive", tmp_path / "a.db", *WINDOW, "--json").json
    assert told["session"] == made["session"]
    assert told["compactions"] == len(made["compactions"]) == 1
    assert told["records"] == len(made["compactions"][0]["shadowed_seqs"])
    assert told["pointers"] == len(made["compactions"][0]["pointers"])
    (session,) = data(out)["sessions"]
    assert session["compactions"][0]["checkpoint"]["text"] == made["compactions"][0]["checkpoint"]
    assert (session["window"], session["threshold"]) == (4_000, 3_200)
    assert not Path(env["XDG_DATA_HOME"]).exists()
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".html") == ["r.html"]


def test_an_archive_is_shown_as_it_was_filed(
    inside: Callable[..., Any], write_log: Callable[..., Path], tmp_path: Path
) -> None:
    """Every session in order, or those that were chosen; the archive stays as it is."""
    archive, out = tmp_path / "a.db", tmp_path / "r.html"
    log = write_log()
    ids = [
        inside("compact", log, "--archive", archive, "--window", size, "--json").json["session"]
        for size in (4_000, 2_000)
    ]
    before = archive.read_bytes()
    assert inside("report", archive, "-o", out).code == 0
    assert archive.read_bytes() == before
    shown = data(out)
    assert (shown["origin"], shown["name"]) == ("archive", "a.db")
    assert [session["id"] for session in shown["sessions"]] == ids
    # The second session was compacted several times: all its checkpoints but the newest are there.
    assert len(shown["sessions"][1]["compactions"]) >= 1
    chosen = inside("report", archive, "-o", out, "--session", ids[1], "--json").json
    assert [session["session"] for session in chosen["sessions"]] == ids[1:]
    told = chosen["sessions"][0]
    assert told["records"] == len(shown["sessions"][1]["records"])


def test_the_file_is_named_after_the_input(
    inside: Callable[..., Any],
    write_log: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the current folder; a report that is there is replaced, and said on stdout."""
    monkeypatch.chdir(tmp_path)
    log = write_log(name="night.jsonl")
    for _ in range(2):
        ran = inside("report", log, *WINDOW)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.decode().startswith("night.html  0.")
        assert "1 compaction, " in ran.out.decode()
    assert (tmp_path / "night.html").exists()


def test_no_other_file_is_ever_overwritten(
    inside: Callable[..., Any], write_log: Callable[..., Path], tmp_path: Path
) -> None:
    """A log named by mistake as the output stays what it is, as does everything but a report."""
    log = write_log()
    kept = log.read_bytes()
    ran = inside("report", log, "-o", log)
    assert (ran.code, ran.out) == (2, b"")
    assert (
        ran.err
        == f"ctxarchive: --out {log}: is there already and is no report; name another file\n"
    )
    assert log.read_bytes() == kept
    for wrong, told in (
        (tmp_path, "a folder; name a file in it"),
        (tmp_path / "no" / "r.html", "no folder"),
    ):
        ran = inside("report", log, "-o", wrong)
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert told in ran.err


def test_what_would_be_ignored_is_refused(
    inside: Callable[..., Any], compacted: Any, tmp_path: Path
) -> None:
    """A log's options with an archive, an archive's with a log; nothing is written."""
    out = tmp_path / "r.html"
    for arguments, told in (
        ((compacted.archive, "--at", "end"), "--at: "),
        ((compacted.archive, "--window", "4000"), "--window: "),
        ((compacted.archive, "--set", "backend=basic"), "--set: "),
        ((compacted.log, "--session", "talk-1"), "--session: "),
        ((compacted.log, "--summarizer", "recorded"), "--summarizer recorded: "),
        ((compacted.archive, "--session", "nobody"), "--session 'nobody': not in this archive"),
        ((tmp_path / "none.jsonl",), "no such file; name a log or an archive"),
        ((tmp_path,), "not a file; name a log or an archive"),
    ):
        ran = inside("report", *arguments, "-o", out)
        assert (ran.code, ran.out) == (2, b"")
        assert told in ran.err
        assert ran.err.count("\n") == 1
    assert not out.exists()


def test_a_log_is_replayed_as_compact_does(
    inside: Callable[..., Any], write_log: Callable[..., Path], tmp_path: Path
) -> None:
    """Where its own harness compacted, with its own summary; and without an archive."""
    log, out = write_log(), tmp_path / "r.html"
    recorded = ("--at", "recorded", "--summarizer", "recorded")
    assert inside("report", log, "-o", out, *recorded).code == 0
    (made,) = data(out)["sessions"][0]["compactions"]
    assert (made["trigger"], made["summarizer"]) == ("recorded", "recorded")
    assert "Summary: parts 0 to 40 were read." in made["checkpoint"]["summary"]
    ran = inside("report", log, "-o", out, *WINDOW, "--set", "backend=basic", "--json")
    assert ran.json["sessions"][0]["records"] == 0
    assert data(out)["sessions"][0]["compactions"][0]["checkpoint"]["entries"] == []


def test_a_page_that_no_browser_could_open_is_refused(
    inside: Callable[..., Any], compacted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says how many records there are and how to choose."""
    monkeypatch.setattr("ctxarchive.replay.report.gather.MAX_RECORDS", 10)
    ran = inside("report", compacted.archive, "-o", tmp_path / "r.html")
    assert ran.code == 2
    assert "records in 1 session, a page takes 10; choose with --session" in ran.err
