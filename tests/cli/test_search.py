"""``ctxarchive search``, ``sessions``, ``stats`` and ``rebuild``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxarchive.archive.opening import open_archive
from ctxarchive.knowledge.records import Record, source_label
from ctxarchive.session.jsontext import dump_json

SESSION = "a/b \"c' [d] %41 漢"


def put(archive: Path, session: str, *texts: str, title: str | None = None) -> None:
    """File user messages."""
    with open_archive(archive) as knowledge:
        knowledge.register(session, title=title)
        knowledge.put(
            Record(
                session=session,
                seq=seq,
                layer="constraint",
                role="user",
                event=dump_json(
                    {"type": "user/message", "data": {"content": [{"type": "text", "text": text}]}}
                ),
                text=text,
            )
            for seq, text in enumerate(texts)
        )
        knowledge.index_pending()


def test_the_json_of_a_search_is_the_public_interface(
    cli: Callable[..., Any], compacted: Any
) -> None:
    """One entry a query, each with its tier and its hits, best first."""
    ran = cli("search", compacted.archive, "part_8 cat", "zebra", "--json")
    assert (ran.code, ran.err) == (0, "")
    found, nothing = ran.json["queries"]
    assert list(found) == ["query", "tier", "hits"]
    assert (found["query"], found["tier"]) == ("part_8 cat", "strict")
    hit = found["hits"][0]
    assert list(hit)[:9] == [
        "session",
        "source",
        "seq",
        "layer",
        "role",
        "name",
        "chars",
        "score",
        "snippet",
    ]
    assert hit["session"] == compacted.session
    assert hit["source"] == f"session/{compacted.session}/{hit['layer']}"
    assert (hit["layer"], hit["role"], hit["name"]) == ("finding", "tool", "Bash")
    assert "part_8" in hit["snippet"]
    assert isinstance(hit["score"], float)
    scores = [hit["score"] for hit in found["hits"]]
    assert scores == sorted(scores, reverse=True)
    assert nothing == {"query": "zebra", "tier": "none", "hits": []}


def test_finding_nothing_is_exit_code_1(inside: Callable[..., Any], compacted: Any) -> None:
    """Unless another query of the same run finds something."""
    ran = inside("search", compacted.archive, "zebra", "giraffe")
    assert (ran.code, ran.err) == (1, "")
    assert ran.out.decode().splitlines() == ["'zebra': 0 hits (none)", "'giraffe': 0 hits (none)"]
    assert inside("search", compacted.archive, "zebra", "parser").code == 0


@pytest.mark.parametrize(
    "query", ["", " ", '"', "'", "*", "a AND", "NEAR(", "-x", "\x00", "\ud800", "漢", "{}:^"]
)
def test_no_query_fails(inside: Callable[..., Any], compacted: Any, query: str) -> None:
    """Whatever the text, it is searched for or not found."""
    ran = inside("search", compacted.archive, "--json", "--", query)
    assert ran.code in {0, 1}
    assert ran.json["queries"][0]["query"] == query


def test_a_scope_holds(inside: Callable[..., Any], compacted: Any) -> None:
    """Session, layer, seqs and limit."""

    def seqs(*options: str | int) -> list[int]:
        ran = inside("search", compacted.archive, "part", "--limit", 100, "--json", *options)
        return [hit["seq"] for hit in ran.json["queries"][0]["hits"]]

    everything = seqs()
    assert seqs("--session", compacted.session) == everything
    label = f"session/{compacted.session}/constraint"
    users = seqs("--source", label)
    assert users
    assert set(users) < set(everything)
    both = seqs("--source", label, "--source", f"session/{compacted.session}/finding")
    assert sorted(both) == sorted(everything)
    assert set(seqs("--after-seq", 20, "--before-seq", 40)) == {
        seq for seq in everything if 20 < seq < 40
    }
    limited = inside("search", compacted.archive, "part", "--limit", 2, "--json").json
    assert len(limited["queries"][0]["hits"]) == 2


def test_any_session_id_can_be_asked_for(
    inside: Callable[..., Any], cli: Callable[..., Any], tmp_path: Path
) -> None:
    """An id with a slash, quotes, brackets and a percent sign works everywhere."""
    archive = tmp_path / "a.db"
    put(archive, SESSION, "the needle", title="[/red] title\x1b[31m\nof two lines")
    put(archive, "other", "the needle")
    (hit,) = cli("search", archive, "needle", "--session", SESSION, "--json").json["queries"][0][
        "hits"
    ]
    assert hit["session"] == SESSION
    assert hit["source"] == source_label(SESSION, "constraint")
    again = inside("search", archive, "needle", "--source", hit["source"], "--json").json
    assert again["queries"][0]["hits"] == [hit]
    assert inside("show", archive, SESSION, 0).out == b"the needle"
    first, _ = inside("sessions", archive, "--json").json["sessions"]
    assert first["session"] == SESSION
    lines = inside("sessions", archive).out.decode().splitlines()
    assert len(lines) == 3
    assert SESSION in lines[1]
    assert r"[/red] title\x1b[31m of two lines" in lines[1]


def test_an_unknown_or_contradictory_scope_is_refused(
    inside: Callable[..., Any], compacted: Any
) -> None:
    """It is not answered with nothing: exit code 2 and one line."""
    label = f"session/{compacted.session}/finding"
    for options in (
        ["--session", "nobody"],
        ["--source", "session/nobody/finding"],
        ["--source", "nonsense"],
        ["--source", f"session/{compacted.session}/nonsense"],
        ["--session", compacted.session, "--source", "session/nobody"],
    ):
        ran = inside("search", compacted.archive, "part", *options)
        assert (ran.code, ran.out) == (2, b""), options
        assert ran.err.count("\n") == 1
    assert inside("search", compacted.archive, "part", "--source", label).code == 0


def test_sessions_are_listed_with_what_they_hold(
    inside: Callable[..., Any], compacted: Any
) -> None:
    """Counts by layer, first and last seq, times, parent."""
    (info,) = inside("sessions", compacted.archive, "--json").json["sessions"]
    made = compacted.report["compactions"][0]
    assert list(info) == [
        "session",
        "title",
        "records",
        "first_seq",
        "last_seq",
        "first_time",
        "last_time",
        "parent",
    ]
    layers = ("constraint", "finding", "narrative")
    assert info["records"] == {layer: made["archived"][layer] for layer in layers}
    assert (info["first_seq"], info["last_seq"]) == (
        made["shadowed_seqs"][0],
        made["shadowed_seqs"][-1],
    )
    assert info["first_time"] < info["last_time"]


def test_stats_count_records_sessions_and_bytes(inside: Callable[..., Any], compacted: Any) -> None:
    """As JSON and as lines."""
    stats = inside("stats", compacted.archive, "--json").json
    assert stats["archive"] == str(compacted.archive)
    assert stats["sessions"] == 1
    assert stats["records"] == len(compacted.report["compactions"][0]["shadowed_seqs"])
    assert stats["unindexed"] == 0
    assert stats["record_bytes"] > 0
    assert stats["index_bytes"] > 0
    lines = inside("stats", compacted.archive).out.decode().splitlines()
    assert [line.split()[-1].replace(",", "") for line in lines] == [
        str(value) for key, value in stats.items() if key != "archive"
    ]


def test_rebuild_makes_the_index_anew(
    cli: Callable[..., Any], inside: Callable[..., Any], tmp_path: Path
) -> None:
    """Also where it is lost, or is no database at all; the records stay as they are."""
    archive = tmp_path / "a.db"
    put(archive, "one", "the needle", "the hay")
    index = tmp_path / "a.search.db"
    for damage in (None, b"garbage" * 1_000):
        index.unlink()
        if damage is not None:
            index.write_bytes(damage)
        ran = cli("rebuild", archive, "--json")
        assert (ran.code, ran.err) == (0, "")
        assert ran.json == {"archive": str(archive), "indexed": 2}
        assert inside("verify", archive).code == 0
        assert inside("search", archive, "needle").code == 0
    assert inside("rebuild", archive).out == b"2 records indexed\n"
    absent = inside("rebuild", tmp_path / "absent.db")
    assert absent.code == 2
    assert not (tmp_path / "absent.db").exists()
