"""What a model may send: anything at all. It gets an answer within the bound, or one line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxarchive.archive.opening import open_archive
from ctxarchive.errors import ConfigError, CtxArchiveError, KnowledgeError, ToolInputError
from ctxarchive.knowledge.records import Layer, Record
from ctxarchive.knowledge.sqlite.store import SqliteKnowledgeBase
from ctxarchive.knowledge.store import Selection
from ctxarchive.session.jsontext import dump_json
from ctxarchive.tools.arguments import CtxSearchInput, moment, parse_input
from ctxarchive.tools.ctx_search import LEAST_OUTPUT_CHARS, CtxSearchTool


def said(seq: int, text: str, session: str = "s", layer: Layer = "finding") -> Record:
    """A record of a text."""
    event = dump_json(
        {"type": "user/message", "data": {"content": [{"type": "text", "text": text}]}}
    )
    return Record(
        session=session,
        seq=seq,
        layer=layer,
        role="assistant",
        time=seq * 86_400_000,
        event=event,
        text=text,
    )


@pytest.fixture(scope="module")
def knowledge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteKnowledgeBase]:
    """An archive of a session and its parent."""
    with open_archive(tmp_path_factory.mktemp("archive") / "a.db") as base:
        base.register("s", parent="p", inherited_seq=3)
        base.put([said(seq, f"src/app.py, line {seq} zebra " * seq) for seq in range(4, 30)])
        base.put([said(seq, f"src/app.py was {seq}", "p") for seq in range(8)])
        base.put([said(1, "never log a password", layer="constraint")])
        base.index_pending()
        yield base


RIGHT_CALL = re.compile(r"; a right call: ctx_search\(.*\)\Z|\? A right call: ctx_search\(.*\)\Z")


def arguments(call: str) -> dict[str, Any]:
    """A printed call as the arguments a model would send."""
    inside = call.removeprefix("ctx_search(").removesuffix(")")
    spelt = re.sub(r'("(?:[^"\\]|\\.)*")|(\w+): ', lambda m: m[1] or f'"{m[2]}": ', inside)
    return json.loads("{" + spelt + "}")  # type: ignore[no-any-return]


# --- anything --------------------------------------------------------------------------------

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-2, 12),
    st.just(10**400),
    st.floats(),
    st.text(st.characters(), max_size=40),
    st.sampled_from(
        [
            *("session/s", "session/p/finding", "finding", "session/other", "zebra", "src/app.py"),
            *("null", "12", "12.0", "[1]", '["a", null]', "[[", "9" * 5_000, "2026-02-30", "0001"),
            *("1970-01-05", "0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00", "newest", "a*"),
        ]
    ),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
names = st.sampled_from([*CtxSearchInput.model_fields, "query", "q", "\n", "x" * 900])
objects = st.dictionaries(names, values, max_size=4)


@given(call=st.one_of(objects, values, objects.map(json.dumps)), most=st.integers(500, 3_000))
def test_any_input_is_answered_within_the_bound_or_refused_in_one_line(
    knowledge: SqliteKnowledgeBase, call: Any, most: int
) -> None:
    """And a refusal of arguments shows a call that is taken."""
    tool = CtxSearchTool(knowledge, session="s", max_output_chars=most)
    answer = answered(tool, call)
    if isinstance(answer, str):
        assert len(answer) <= most
        return
    assert len(str(answer).splitlines()) == 1
    assert len(str(answer)) < 700
    if isinstance(answer, ToolInputError):
        assert RIGHT_CALL.search(str(answer)), str(answer)
    else:
        assert isinstance(answer, KnowledgeError)
        assert answer.code == "scope"


def answered(tool: CtxSearchTool, call: Any) -> str | CtxArchiveError:
    """The answer, or the error that we raise on purpose; no other passes."""
    try:
        return tool.run(call)
    except CtxArchiveError as error:
        return error


def test_every_call_that_a_refusal_shows_is_taken() -> None:
    """Whatever was wrong."""
    wrong: list[Any] = [
        {name: {"a": [1, {}]}} for name in CtxSearchInput.model_fields if name != "queries"
    ]
    wrong += [{}, {"offset": 3}, {"seq": 1, "queries": "x"}, {"order": "newest", "after_seq": 3}]
    wrong += [7, "x", "{", {"seq": 1, "after": "2026-01-01"}, {"queries": {}}, {"zzz": 1}]
    for call in wrong:
        with pytest.raises(ToolInputError) as error:
            CtxSearchTool.__new__(CtxSearchTool).run(call) if call == {} else parse_input(call)
        shown = re.search(r"ight call: (ctx_search\(.*\))\Z", str(error.value))
        assert shown is not None, str(error.value)
        parse_input(arguments(shown[1]))


# --- records of any size ---------------------------------------------------------------------


@given(
    text=st.text(st.characters(), max_size=4_000) | st.text("ab\n", min_size=3_000, max_size=9_000),
    most=st.integers(LEAST_OUTPUT_CHARS, 1_500),
    session=st.text(st.characters(), min_size=1, max_size=8),
    start=st.integers(0, 5_000),
    listed=st.booleans(),
)
def test_following_the_printed_calls_reads_a_record_to_its_end(
    knowledge: SqliteKnowledgeBase,
    *,
    text: str,
    most: int,
    session: str,
    start: int,
    listed: bool,
) -> None:
    """Put together, the parts are the text, whatever it holds and whoever the session is."""
    session = f"{session}-{len(knowledge.sessions())}"
    knowledge.put([said(3, text, session)])
    tool = CtxSearchTool(knowledge, session=session, max_output_chars=most)
    call: dict[str, Any] = {"after_seq": 2} if listed else {"seq": 3, "offset": start}
    offset = 0 if listed else min(start, len(text))
    if listed and not text:
        assert tool.run(call).startswith("No records in that range.")
        return
    parts: list[str] = []
    for _ in range(len(text) + 1):
        answer = tool.run(call)
        assert len(answer) <= most
        heading, _, rest = answer.partition("\n")
        cut = re.search(r" \[(\d+)\.\.(\d+) of (\d+)\]\Z", heading)
        end = int(cut[2]) if cut else len(text)
        assert cut is None or (int(cut[1]), int(cut[3])) == (offset, len(text))
        parts.append(rest[: end - offset])
        more = rest[end - offset :]
        offset = end
        if not more:
            break
        assert more.startswith(f"\n{cut[0][1:] if cut else ''} continue with ctx_search(")
        call = arguments(more.partition(" continue with ")[2])
    assert "".join(parts) == text[0 if listed else start :]


# --- what is set right -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "meant"),
    [
        ('{"queries": ["a"]}', {"queries": ["a"]}),
        ({"queries": 404}, {"queries": ["404"]}),
        ({"queries": ["a", None]}, {"queries": ["a"]}),
        ({"queries": "a", "offset": 0, "limit": "10"}, {"queries": ["a"], "limit": 10}),
        ({"queries": "a", "order": " NEWEST "}, {"queries": ["a"], "order": "newest"}),
        ({"queries": "a", "after": "undefined", "before": " "}, {"queries": ["a"]}),
        ({"seq": [12]}, {"seq": 12}),
        ({"seq": "12", "offset": " 5 "}, {"seq": 12, "offset": 5}),
    ],
)
def test_what_is_plainly_meant_is_set_right(given_: Any, meant: dict[str, Any]) -> None:
    """Arguments as one text, one item for a list, defaults filled in."""
    assert parse_input(given_) == CtxSearchInput.model_validate(meant)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("query", "queries"),
        ("q", "queries"),
        ("afterSeq", "after_seq"),
        ("before-seq", "before_seq"),
        ("since", "after"),
        ("until", "before"),
        ("top_k", "limit"),
        ("sources", "source"),
        ("sort", "order"),
        ("id", "seq"),
    ],
)
def test_an_unknown_parameter_is_named_with_the_nearest(name: str, near: str) -> None:
    """By spelling, or by what others call it."""
    with pytest.raises(ToolInputError) as error:
        parse_input({name: "x"})
    assert f"unknown parameter {name!r}; did you mean {near!r}? A right call:" in str(error.value)


@pytest.mark.parametrize("flag", [True, False])
def test_true_and_false_are_no_numbers(*, flag: bool) -> None:
    """A flag in the place of a seq means nothing plain."""
    with pytest.raises(ToolInputError, match="seq: Input should be a number, not true or false"):
        parse_input({"seq": flag})


@pytest.mark.parametrize(
    "spelt",
    [
        "2026-02-06T22:55",
        "2026-02-06 22:55",
        "2026-02-06 22:55:00 UTC",
        "2026-02-06T22:55Z",
        "2026-02-06T22:55:00.000+00:00",
        "2026-02-07T00:55+02:00",
        " 20260206T2255Z ",
    ],
)
def test_a_time_may_be_spelt_in_any_usual_way(spelt: str) -> None:
    """Without a zone it is UTC, as all that is printed."""
    assert moment(spelt, "after", 0) == 1_770_418_500_000


def test_a_date_is_the_beginning_of_its_day() -> None:
    """So ``after`` one day and ``before`` the next is that day."""
    assert moment("2026-02-06", "after", 0) == 1_770_336_000_000
    assert moment("20260206", "after", -1) == 1_770_336_000_000 - 1


def test_a_layer_alone_is_one_of_this_conversation(knowledge: SqliteKnowledgeBase) -> None:
    """As headings print it; of what was inherited too."""
    tool = CtxSearchTool(knowledge, session="s")
    assert "never log" in tool.run({"source": "constraint", "seq": 1})
    assert "src/app.py was 2" in tool.run({"source": "finding", "seq": 2})
    assert "[constraint seq 1]" in tool.run({"queries": ["password"], "source": "Constraint"})
    assert tool.run({"source": "constraint", "after_seq": -1}).endswith("never log a password")
    with pytest.raises(KnowledgeError, match="expected session/<id>"):
        CtxSearchTool(knowledge).run({"source": "finding", "seq": 2})


def test_a_source_that_may_not_be_read_is_refused_with_what_may(
    knowledge: SqliteKnowledgeBase,
) -> None:
    """So that the next call is right."""
    with pytest.raises(KnowledgeError) as error:
        CtxSearchTool(knowledge, session="s").run({"queries": ["x"], "source": "session/other"})
    assert str(error.value).endswith('may read; it may read "session/s", "session/p"')


def test_a_list_is_as_long_as_asked(knowledge: SqliteKnowledgeBase) -> None:
    """And goes on with the same bound."""
    tool = CtxSearchTool(knowledge, session="s")
    answer = tool.run({"after_seq": 3, "limit": 2})
    assert re.findall(r" seq (\d+)\]", answer) == ["4", "5"]
    last = answer.splitlines()[-1]
    assert last.endswith('continue with ctx_search(source: "session/s", after_seq: 5, limit: 2)')


def test_a_bound_in_which_nothing_can_be_said_is_refused(knowledge: SqliteKnowledgeBase) -> None:
    """When the tool is made, not when it is called."""
    with pytest.raises(ConfigError, match="max_output_chars: 499 is under 500"):
        CtxSearchTool(knowledge, max_output_chars=499)


def test_a_record_that_was_purged_is_told_as_such(tmp_path: Path) -> None:
    """With the day, alone and in a list; the archive's file is not named."""
    with open_archive(tmp_path / "a.db") as base:
        base.put([said(1, "one"), said(2, "a secret"), said(3, "three")])
        base.purge(Selection(sessions=("s",), first_seq=2, last_seq=2))
        tool = CtxSearchTool(base, session="s")
        answer = tool.run({"source": "session/s/finding", "seq": 2})
        today = datetime.now(UTC).date()
        assert answer.startswith('seq 2 of "session/s": this record was purged on ')
        assert re.findall(r"\d{4}-\d\d-\d\d", answer)[0] in {
            str(today),
            str(today - timedelta(days=1)),
        }
        assert "a.db" not in answer
        assert "1 record of this range, seq 2..2, purged" in tool.run({"after_seq": -1})
        assert "secret" not in tool.run({"queries": ["secret"]}).partition("\n")[2]
        assert tool.run({"seq": 1}).endswith("\none")
