"""``ctxarchive show``: one record's text, exactly, whatever it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ODD = {
    "NUL": "a\x00b",
    "line ends": "one\r\ntwo\rthree\n\n",
    "a lone surrogate": "half \ud83d of it",
    "emoji": "👩‍👩‍👧 🇩🇪 e\u0301",
    "separators": "\u2028\u2029\u0085\x1b[31m",
    "white space": "   \t ",
    "CJK": "不要改动 セッション",
}


@pytest.fixture(scope="module")
def odd_archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, list[int]]:
    """An archive of messages with odd texts, its session, and their seqs."""
    from ctxarchive.archive.opening import open_archive
    from ctxarchive.knowledge.records import Record
    from ctxarchive.session.jsontext import dump_json

    archive, session = tmp_path_factory.mktemp("odd") / "a.db", "a/b \"c' [d] %41 漢\n~1"
    records = []
    for seq, text in enumerate(ODD.values()):
        content = [{"type": "text", "text": text}]
        event = dump_json({"seq": seq, "type": "user/message", "data": {"content": content}})
        records.append(
            Record(
                session=session, seq=seq, layer="constraint", role="user", event=event, text=text
            )
        )
    with open_archive(archive) as knowledge:
        knowledge.put(records)
    return archive, session, list(range(len(records)))


@pytest.mark.parametrize("what", ODD)
def test_a_text_is_printed_exactly(inside: Callable[..., Any], odd_archive: Any, what: str) -> None:
    """Nothing added, nothing lost, not even a newline; a lone surrogate is its three bytes."""
    archive, session, seqs = odd_archive
    text = ODD[what]
    seq = seqs[list(ODD).index(what)]
    ran = inside("show", archive, session, seq)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == text.encode("utf-8", "surrogatepass")
    found = inside("show", archive, session, seq, "--json").json
    assert (found["text"], found["chars"]) == (text, len(text))


def test_a_process_prints_a_text_exactly(cli: Callable[..., Any], odd_archive: Any) -> None:
    """The same through a real pipe, session id with slash, quotes and a newline included."""
    archive, session, _ = odd_archive
    for seq in (1, 2):
        text = list(ODD.values())[seq]
        assert cli("show", archive, session, seq).out == text.encode("utf-8", "surrogatepass")


def test_a_part_is_cut_by_code_points(inside: Callable[..., Any], odd_archive: Any) -> None:
    """Offset and length as a pointer prints them; beyond the end is an empty part."""
    archive, session, _ = odd_archive
    text = ODD["emoji"]
    seq = list(ODD).index("emoji")
    for offset, length in ((0, 1), (2, 3), (4, None), (None, 2), (len(text), 5), (10**20, 1)):
        arguments = [] if offset is None else ["--offset", offset]
        arguments += [] if length is None else ["--length", length]
        start = offset or 0
        wanted = text[start : None if length is None else start + length]
        ran = inside("show", archive, session, seq, *arguments)
        assert ran.out.decode("utf-8") == wanted
        found = inside("show", archive, session, seq, *arguments, "--json").json
        assert found["text"] == wanted
        assert found["offset"] == min(start, len(text))
        assert found["length"] == len(wanted)
        assert found["chars"] == len(text)


def test_the_json_of_a_record_is_the_public_interface(
    inside: Callable[..., Any], compacted: Any
) -> None:
    """Every key that the interface names; the event as archived, its origin included."""
    made = compacted.report["compactions"][0]
    found = inside(
        "show", compacted.archive, compacted.session, made["shadowed_seqs"][2], "--json"
    ).json
    assert list(found)[:8] == [
        "session",
        "seq",
        "layer",
        "offset",
        "length",
        "chars",
        "text",
        "event",
    ]
    assert found["session"] == compacted.session
    assert found["layer"] == "finding"
    assert found["text"].startswith('Bash {"command": "cat src/part_0.py"}\nPart 0: ')
    assert found["event"]["type"] == "tool/result"
    assert found["event"]["seq"] == found["seq"]
    assert found["event"]["origin"]["line"] == 3
    assert found["source"] == f"session/{compacted.session}/finding"
    assert (found["role"], found["name"], found["kind"]) == ("tool", "Bash", "original")


def test_raw_is_the_event_as_the_log_spells_it(inside: Callable[..., Any], compacted: Any) -> None:
    """The very line of the session's JSONL."""
    seq = compacted.report["compactions"][0]["shadowed_seqs"][1]
    raw = inside("show", compacted.archive, compacted.session, seq, "--raw").out
    assert raw == compacted.stored.read_bytes().splitlines()[seq + 1]
    assert json.loads(raw)["seq"] == seq


@pytest.mark.parametrize("option", [["--offset", "1"], ["--length", "1"], ["--json"]])
def test_raw_takes_no_part(inside: Callable[..., Any], compacted: Any, option: list[str]) -> None:
    """Options that it would have to ignore are refused."""
    ran = inside("show", compacted.archive, compacted.session, 1, "--raw", *option)
    assert (ran.code, ran.out) == (2, b"")
    assert ran.err.startswith("ctxarchive: --raw: ")


def test_what_is_not_there_is_named_with_what_is(
    inside: Callable[..., Any], compacted: Any
) -> None:
    """An unknown session and an unknown seq: exit code 2, nothing on stdout."""
    ran = inside("show", compacted.archive, "nobody's", 1)
    assert (ran.code, ran.out) == (2, b"")
    assert 'no session "nobody\'s"' in ran.err
    ran = inside("show", compacted.archive, compacted.session, 0)
    assert (ran.code, ran.out) == (2, b"")
    assert "seq 0; it holds some of seq 1.." in ran.err
