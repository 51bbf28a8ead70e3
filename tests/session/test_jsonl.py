"""Sessions on disk: the same view after a replay, every text, torn and damaged files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ctxarchive.errors import SessionError
from ctxarchive.session.jsonl import JsonlSink, header_line, read_session, write_session
from ctxarchive.session.log import Session, SessionHeader
from ctxarchive.session.pairing import open_calls

TEXT = st.text(st.characters(exclude_categories=()), max_size=30)
"""Any characters at all, lone surrogates among them."""


def _user(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "source": {"kind": "user"}}


def _small(count: int = 4) -> Session:
    session = Session.create("small", clock=lambda: 1_700_000_000_000)
    for index in range(count):
        session.append("user/message", _user(f"text {index} é\r\n"), surface_op="append")
    return session


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["user", "call", "result", "other", "replace", "start"]),
        TEXT,
        st.integers(0, 30),
    ),
    max_size=20,
)


def _take(session: Session, kind: str, text: str, number: int) -> None:
    nodes = session.surface.nodes
    if kind == "user":
        session.append("user/message", _user(text), surface_op="append")
    elif kind == "call":
        call = {"type": "tool-call", "id": f"c{len(session)}", "name": text, "arguments": text}
        message = {"role": "assistant", "content": [{"type": "text", "text": text}, call]}
        session.append("assistant/message", {"message": message}, surface_op="append")
    elif kind == "result" and open_calls(session):
        data = {"message": {"toolCallId": min(open_calls(session)), "content": []}}
        session.append("tool/result", data, surface_op="append")
    elif kind == "other":
        session.append(f"x/{text}", {text: [number, text, None]})
    elif kind == "start":
        session.append("turn/start", {"turn": number})
    elif kind == "replace" and not open_calls(session) and nodes:
        # The whole surface: a replay does not mind, and pairing stays whole for open_calls.
        session.append(
            "user/message",
            _user(text),
            surface_op={"op": "replace", "startSeq": nodes[0], "endSeq": nodes[-1]},
            source_event_seqs=nodes,
        )


@given(title=TEXT, steps=STEPS)
def test_replay_of_the_stored_log_gives_the_same_view(
    tmp_path_factory: pytest.TempPathFactory, title: str, steps: list[tuple[str, str, int]]
) -> None:
    """Events, messages and surface after write, read and replay are those of the live session."""
    session = Session(SessionHeader(id="id/é", title=title))
    for step in steps:
        _take(session, *step)
    path = tmp_path_factory.getbasetemp() / "replay.jsonl"
    write_session(path, session)
    stored = read_session(path)
    replayed = stored.replay()
    assert stored.torn_line is None
    assert stored.good_bytes == path.stat().st_size
    assert replayed.header == session.header
    assert list(replayed.events) == list(session.events)
    assert [event.json_text for event in replayed.events] == [
        event.json_text for event in session.events
    ]
    assert replayed.derive_messages() == session.derive_messages()
    assert replayed.surface.nodes == session.surface.nodes
    assert replayed.surface.replace_generation == session.surface.replace_generation


@settings(max_examples=50)
@given(text=TEXT)
@example("\r\n and \r and \n")
@example("\x00 NUL \x1a")
@example("\ud800 lone \udfff reversed \udc00\ud800")
@example("👩‍👩‍👧‍👦 🇩🇪 é")
@example("\u2028 \u2029 \x85 \x0b \x0c \x1c \ufeff")
@example('{"seq":3}\n{"type":"session"}\\u0000')
def test_any_text_comes_back_from_disk(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """Not one character is changed on the way to the disk and back, and a line stays a line."""
    session = Session(SessionHeader(id="text", cwd=text))
    session.append("user/message", _user(text), surface_op="append")
    session.append("x/other", {text: text})
    path = tmp_path_factory.getbasetemp() / "text.jsonl"
    write_session(path, session)
    assert path.read_bytes().count(b"\n") == 3
    back = read_session(path)
    assert back.header.cwd == text
    assert back.events[0].data.content[0].text == text
    assert back.events[1].data == {text: text}


def test_a_line_of_a_megabyte_comes_back(tmp_path: Path) -> None:
    """Length is no matter."""
    session = Session.create("long")
    text = "0123456789abcdé\n" * 65_536
    session.append("user/message", _user(text), surface_op="append")
    write_session(tmp_path / "long.jsonl", session)
    assert read_session(tmp_path / "long.jsonl").events[0].data.content[0].text == text


def test_a_torn_last_line_is_cut_and_reported_at_every_byte(tmp_path: Path) -> None:
    """Whole lines are kept, the torn one is named, and a writer goes on behind the whole ones."""
    session = _small()
    path = tmp_path / "s.jsonl"
    write_session(path, session)
    data = path.read_bytes()
    header = data.index(b"\n") + 1
    for length in range(header, len(data)):
        path.write_bytes(data[:length])
        stored = read_session(path)
        whole = data.count(b"\n", 0, length)
        torn = not data[:length].endswith(b"\n")
        assert list(stored.events) == list(session.events)[: whole - 1]
        assert stored.torn_line == (whole + 1 if torn else None)
        assert stored.good_bytes == data.rindex(b"\n", 0, length) + 1
        if length % 16 == 0:
            JsonlSink(path, session.header).close()
            assert path.read_bytes() == data[: stored.good_bytes]


@pytest.mark.parametrize("length", [0, 1, 30])
def test_a_file_without_a_whole_header_is_an_error(tmp_path: Path, length: int) -> None:
    """Where not even the first line is whole, there is no session to guess at."""
    path = tmp_path / "s.jsonl"
    path.write_text(header_line(SessionHeader(id="s"))[:length])
    with pytest.raises(SessionError, match=r"s\.jsonl line 1: no whole header line") as caught:
        read_session(path)
    assert caught.value.code == "corrupt"


DAMAGE = {
    "not JSON": b"{broken",
    "empty line": b"",
    "not UTF-8": b'{"type":"x","a":"\xff"}',
    "NUL bytes": b"\x00\x00\x00",
    "no object": b"[1]",
    "nested too deeply": b'{"type":"x","data":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "other seq": b'{"seq":7,"type":"x"}',
    "number too long": b'{"type":"x","data":' + b"1" * 5000 + b"}",
}


@pytest.mark.parametrize("line", DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_before_the_last_line_is_an_error_that_names_the_line(
    tmp_path: Path, line: bytes
) -> None:
    """A line in the middle is never skipped."""
    path = tmp_path / "s.jsonl"
    write_session(path, _small())
    lines = path.read_bytes().split(b"\n")
    lines[2] = line
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(SessionError, match=r"s\.jsonl line 3: ") as caught:
        read_session(path)
    assert caught.value.code == "corrupt"
    assert "\n" not in str(caught.value)
    with pytest.raises(SessionError, match="line 3"):
        JsonlSink(path, SessionHeader(id="small"))
    assert path.read_bytes() == b"\n".join(lines)


def test_a_line_that_is_no_event_names_line_and_field(tmp_path: Path) -> None:
    """A well-formed line of the wrong shape says where and what."""
    path = tmp_path / "s.jsonl"
    write_session(path, _small(1))
    with path.open("ab") as file:
        file.write(b'{"seq":1,"type":"turn/start","data":{"turn":"first"}}\n')
    with pytest.raises(SessionError, match=r"s\.jsonl line 3: .*data\.turn") as caught:
        read_session(path)
    assert caught.value.code == "event"


HEADERS = {
    "no header": '{"type":"user/message"}',
    "other format": '{"type":"session","format":"other","version":1,"id":"s"}',
    "other version": '{"type":"session","format":"ctxarchive","version":2,"id":"s"}',
    "no id": '{"type":"session","format":"ctxarchive","version":1}',
    "bad field": '{"type":"session","format":"ctxarchive","version":1,"id":"s","inheritedSeq":"x"}',
}


@pytest.mark.parametrize("line", HEADERS.values(), ids=HEADERS.keys())
def test_a_file_of_another_kind_is_refused_at_line_1(tmp_path: Path, line: str) -> None:
    """What is not a session of this version is not read as one."""
    path = tmp_path / "s.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(SessionError, match=r"s\.jsonl line 1: ") as caught:
        read_session(path)
    assert caught.value.code == "corrupt"


def test_a_header_keeps_fields_it_does_not_know(tmp_path: Path) -> None:
    """What another version wrote into the header is still there after a rewrite."""
    path = tmp_path / "s.jsonl"
    line = '{"type":"session","format":"ctxarchive","version":1,"id":"s","x-more":{"a":[1]}}'
    path.write_text(line + "\n")
    write_session(path, read_session(path).replay())
    assert path.read_text() == line + "\n"


def test_a_stored_event_without_seq_has_its_position(tmp_path: Path) -> None:
    """Older logs leave seq out; the line says it."""
    path = tmp_path / "s.jsonl"
    lines = [header_line(SessionHeader(id="s")), '{"type":"x/a"}', '{"type":"x/b","seq":1}']
    path.write_text("".join(line + "\n" for line in lines))
    assert [event.seq for event in read_session(path).events] == [0, 1]


def test_an_absent_file_and_a_folder_are_storage_errors(tmp_path: Path) -> None:
    """The file system's refusals name the path."""
    for path in (tmp_path / "absent.jsonl", tmp_path):
        with pytest.raises(SessionError, match=str(path)) as caught:
            read_session(path)
        assert caught.value.code == "storage"
    with pytest.raises(SessionError) as caught:
        write_session(tmp_path / "no" / "folder.jsonl", _small())
    assert caught.value.code == "storage"


def test_a_write_that_fails_leaves_the_older_file(tmp_path: Path) -> None:
    """A session is written beside its file first, so the old one stays whole until the new is."""
    path = tmp_path / "s.jsonl"
    write_session(path, _small())
    before = path.read_bytes()
    (tmp_path / "s.jsonl.part").mkdir()
    with pytest.raises(SessionError):
        write_session(path, _small(9))
    assert path.read_bytes() == before


def test_every_line_of_a_file_is_json_for_any_reader(tmp_path: Path) -> None:
    """The format is JSON lines: a reader of ours is not needed."""
    path = tmp_path / "s.jsonl"
    write_session(path, _small())
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [row["type"] for row in rows] == ["session"] + ["user/message"] * 4
