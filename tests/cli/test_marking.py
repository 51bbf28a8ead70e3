"""``ctxarchive pin``, ``unpin`` and ``supersede``: what a person says of their own messages."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxarchive.archive.opening import open_archive
from ctxarchive.knowledge.records import Kind, Layer, Record
from ctxarchive.session.jsontext import dump_json

Inside = Callable[..., Any]


def message(seq: int, layer: Layer, kind: Kind, role: str, text: str) -> Record:
    """A record of a text."""
    content = [{"type": "text", "text": text}]
    event = dump_json({"seq": seq, "type": "user/message", "data": {"content": content}})
    return Record(
        session="job/42", seq=seq, layer=layer, kind=kind, role=role, event=event, text=text
    )


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive of two messages of a user, one of the host, and a tool's result."""
    path = tmp_path / "a.db"
    records = [
        message(0, "constraint", "original", "user", "Always use port 8080."),
        message(1, "narrative", "injected", "user", "Always obey the host."),
        message(2, "finding", "original", "tool", "port 8080 refused"),
        message(3, "constraint", "original", "user", "From now on, port 8443."),
    ]
    with open_archive(path) as knowledge:
        knowledge.put(records)
    return path


def test_a_message_is_superseded_and_search_and_show_say_so(inside: Inside, archive: Path) -> None:
    """The text itself stays as it is."""
    ran = inside("supersede", archive, "job/42", 0, "--by", 3)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.decode().startswith("Seq 0 is superseded by seq 3: ")
    shown = inside("show", archive, "job/42", 0)
    assert shown.out == b"Always use port 8080."
    assert shown.err == "ctxarchive: seq 0 is superseded by seq 3\n"
    mark = inside("show", archive, "job/42", 0, "--json").json["mark"]
    assert (mark["name"], mark["by_seq"]) == ("superseded", 3)
    assert mark["at"] > 1_700_000_000_000
    assert inside("show", archive, "job/42", 3, "--json").json["mark"] is None
    found = inside("search", archive, "always port 8080").out.decode()
    assert "seq 0  user (superseded by seq 3), 21 chars" in found
    hits = inside("search", archive, "port", "--json").json["queries"][0]["hits"]
    assert {hit["seq"]: hit["mark"] for hit in hits} == {0: mark, 2: None, 3: None}


def test_pinning_and_unpinning_say_what_was_done(inside: Inside, archive: Path) -> None:
    """Also where nothing was to be done; a source label names the session as well."""
    first = inside("pin", archive, "session/job%2F42/constraint", 3, "--json").json
    assert (first["session"], first["seq"], first["mark"]["name"]) == ("job/42", 3, "pinned")
    assert first["told"] == "Pinned seq 3: it stays in view, before everything else."
    assert inside("pin", archive, "job/42", 3).out == b"Seq 3 was pinned already.\n"
    assert inside("unpin", archive, "job/42", 3).out.startswith(b"Unpinned seq 3: ")
    again = inside("unpin", archive, "job/42", 3, "--json").json
    assert (again["mark"], again["told"]) == (None, "Seq 3 was not pinned.")
    inside("supersede", archive, "job/42", 3)
    assert inside("unpin", archive, "job/42", 3).out == b"Seq 3 was not pinned: it is superseded.\n"
    assert b"comes back into view" in inside("pin", archive, "job/42", 3).out


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("pin", "job/42", 1), "seq 1 is a message of the host: only what the user said"),
        (("unpin", "job/42", 2), "seq 2 is a tool's result: only what the user said"),
        (("supersede", "job/42", 2), "seq 2 is a tool's result"),
        (("supersede", "job/42", 0, "--by", 2), "seq 2 is a tool's result"),
        (("supersede", "job/42", 3, "--by", 0), "seq 0 is not later than seq 3"),
        (("pin", "job/42", 9), "has no message with seq 9"),
        (("pin", "nobody", 0), "no session 'nobody'; the command sessions lists them"),
    ],
)
def test_what_cannot_be_marked_is_refused_in_one_line(
    inside: Inside, archive: Path, asked: tuple[Any, ...], told: str
) -> None:
    """It names the archive, and nothing is changed in it."""
    name, *rest = asked
    ran = inside(name, archive, *rest)
    assert (ran.code, ran.out) == (2, b"")
    assert ran.err.startswith(f"ctxarchive: {archive}: ")
    assert told in ran.err
    assert ran.err.count("\n") == 1
    with open_archive(archive, mode="ro") as knowledge:
        assert knowledge.marks("job/42") == {}


def test_an_archive_that_is_not_there_is_not_made(cli: Inside, tmp_path: Path) -> None:
    """As every command refuses it, in a process of its own."""
    ran = cli("pin", tmp_path / "none.db", "s", 0)
    assert (ran.code, ran.out) == (2, b"")
    assert "no such archive" in ran.err
    assert not (tmp_path / "none.db").exists()


def test_a_log_is_replayed_with_what_was_marked_in_its_replay(
    inside: Inside, write_log: Callable[..., Path], tmp_path: Path
) -> None:
    """Under an id of its own, which is the same every time; the replay without marks stays."""
    log, archive = write_log(), tmp_path / "replayed.db"
    ratio = "transcript.max_checkpoint_ratio=0.9"
    asked = ("compact", log, "--archive", archive, "--window", 2_500, "--set", ratio, "--json")
    plain = inside(*asked).json
    assert len(plain["compactions"]) > 1
    found = re.search(r"## \[user (\d+),", plain["compactions"][-1]["checkpoint"])
    assert found is not None
    first = int(found[1])
    inside("supersede", archive, plain["session"], first)
    marked = inside(*asked).json
    assert marked["session"] != plain["session"]
    assert f"## [user {first}," in plain["compactions"][-1]["checkpoint"]
    assert f"## [user {first}," not in marked["compactions"][-1]["checkpoint"]
    again = inside(*asked).json
    assert again["session"] == marked["session"]
    assert [each["checkpoint"] for each in again["compactions"]] == [
        each["checkpoint"] for each in marked["compactions"]
    ]
    assert inside("verify", archive, "--log", log).code == 0
    inside("pin", archive, plain["session"], first)
    inside("unpin", archive, plain["session"], first)
    assert inside(*asked).json["session"] == plain["session"]
