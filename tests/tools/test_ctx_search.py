"""``ctx_search``: what it takes, what it answers, and that its answers keep within their bound."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxarchive.archive.rendering import render
from ctxarchive.errors import KnowledgeError, ToolInputError
from ctxarchive.knowledge.records import Kind, Layer, Record, source_label
from ctxarchive.knowledge.sqlite.store import SqliteKnowledgeBase
from ctxarchive.tools.arguments import CtxSearchInput, parse_input
from ctxarchive.tools.ctx_search import DESCRIPTION, MAX_OUTPUT_CHARS, CtxSearchTool

DAY = 86_400_000


def rec(
    seq: int,
    text: str,
    *,
    session: str = "s",
    layer: Layer = "finding",
    kind: Kind = "original",
    name: str | None = None,
    images: tuple[str, ...] = (),
) -> Record:
    """A record whose JSON renders to ``text``; one day passes from seq to seq."""
    content = [{"type": "text", "text": text}] if text else []
    role = "tool" if name else "user" if layer == "constraint" else "assistant"
    return Record(
        session=session,
        seq=seq,
        layer=layer,
        kind=kind,
        role=role,
        name=name,
        time=seq * DAY,
        event=json.dumps({"type": "user/message", "data": {"content": content}}),
        text=text,
        images=images,
    )


LONG = "".join(f"line {number} of many\n" for number in range(2_000))

RECORDS = [
    rec(0, "never touch Z", layer="constraint"),
    rec(1, "I shall look at getUserById", layer="narrative"),
    rec(2, LONG, name="bash"),
    rec(3, "", layer="narrative"),
    rec(4, "condensed", layer="narrative", kind="checkpoint"),
    rec(5, "see the picture", layer="constraint", images=("image/png, 1234 bytes", "image/gif")),
    rec(6, "error E1234 in src/app.py at line 7"),
    rec(7, "the host says hello", layer="narrative", kind="injected"),
    rec(8, "", layer="constraint", images=("image/png, 9 bytes",)),
]


@pytest.fixture(scope="module")
def knowledge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteKnowledgeBase]:
    """An archive with a session, its parent, a stranger, and one of 450 records."""
    path = tmp_path_factory.mktemp("archive") / "a.db"
    with SqliteKnowledgeBase.open(path, render=render) as base:
        base.register("parent")
        base.register("s", parent="parent")
        base.put(RECORDS)
        base.put([rec(0, "asked before the fork", session="parent", layer="constraint")])
        base.put([rec(1, "a secret of others", session="other", layer="constraint")])
        base.put([rec(seq, f"record {seq}", session="many") for seq in range(450)])
        base.index_pending()
        yield base


@pytest.fixture(scope="module")
def tool(knowledge: SqliteKnowledgeBase) -> CtxSearchTool:
    """The tool as a host of session ``s`` mounts it."""
    return CtxSearchTool(knowledge, session="s")


CONTINUE = re.compile(r"\[(\d+)\.\.(\d+) of (\d+)\] continue with (ctx_search\(.*\))\Z")
MORE = re.compile(r"\[more records follow\] continue with (ctx_search\(.*\))\Z")


def arguments(call: str) -> dict[str, Any]:
    """A printed call as the arguments a model would send."""
    inside = call.removeprefix("ctx_search(").removesuffix(")")
    return json.loads("{" + re.sub(r"(\w+): ", r'"\1": ', inside) + "}")  # type: ignore[no-any-return]


def whole(tool: CtxSearchTool, call: dict[str, Any]) -> str:
    """The text that a call and its continuations return."""
    parts: list[str] = []
    for _ in range(1_000):
        answer = tool.run(call)
        heading, _, rest = answer.partition("\n")
        more = CONTINUE.search(rest)
        if more is None:
            parts.append(rest)
            return "".join(parts)
        start, end = int(more[1]), int(more[2])
        assert heading.endswith(f"[{start}..{end} of {more[3]}]")
        parts.append(rest[: end - start])
        assert rest[end - start :] == "\n" + more[0]
        call = arguments(more[4])
    raise AssertionError("the continuations do not end")


# --- the definition --------------------------------------------------------------------------


def test_the_definition_is_what_the_messages_api_takes(tool: CtxSearchTool) -> None:
    """Name, description and schema, word for word."""
    definition = tool.definition
    assert set(definition) == {"name", "description", "input_schema"}
    assert definition["name"] == "ctx_search"
    assert definition["description"] == DESCRIPTION == DESCRIPTION_READS
    properties = definition["input_schema"]["properties"]
    told = {name: field["description"] for name, field in properties.items()}
    assert told == PARAMETERS_READ
    assert definition["input_schema"]["additionalProperties"] is False
    assert definition["input_schema"]["type"] == "object"
    assert "required" not in definition["input_schema"]
    strings = {"type": "array", "items": {"type": "string"}}
    shapes = {
        name: {key: value for key, value in field.items() if key != "description"}
        for name, field in properties.items()
    }
    assert shapes == {
        "queries": {**strings, "minItems": 1, "maxItems": 8},
        "source": strings,
        "seq": {"type": "integer", "minimum": 0},
        "offset": {"type": "integer", "minimum": 0},
        "length": {"type": "integer", "minimum": 0},
        "after_seq": {"type": "integer", "minimum": -1},
        "before_seq": {"type": "integer", "minimum": 0},
        "after": {"type": "string"},
        "before": {"type": "string"},
        "order": {"type": "string", "enum": ["best", "newest", "oldest"]},
        "limit": {"type": "integer", "minimum": 1, "maximum": 50},
    }


DESCRIPTION_READS = """\
Read back the earlier parts of this conversation that are no longer in view; all of it is archived \
word for word. Use it before you guess, redo work or ask the user again: when a checkpoint says \
that something was elided, or when you need a path, an identifier, an error text, a value, a \
decision, or what the user asked exactly. To get an original text, pass `seq` (with `offset` and \
`length`) or `after_seq`/`before_seq` exactly as a checkpoint or a result prints them. To search, \
pass `queries`: concrete tokens that you expect in the original find more than a paraphrase, though \
a whole question works too. Results carry seq and date; a higher seq is later, and what a result \
says may have changed since: then it names later records of the same thing."""

PARAMETERS_READ = {
    "queries": "1 to 8 searches, each answered on its own: identifiers, paths, error texts, "
    'words, a question; "exact phrase" in double quotes; word* for a prefix.',
    "source": "Where to look, as printed: session/<id>/<layer> or session/<id>; or one layer of"
    " this conversation: constraint (what the user said), finding (tool results, "
    "conclusions), narrative. Default: all of this conversation.",
    "seq": "Instead of queries: fetch the record with this seq, exactly.",
    "offset": "With seq: start at this character.",
    "length": "With seq: return this many characters.",
    "after_seq": "Only records after this seq. Without queries: list whole records in order.",
    "before_seq": "Only records before this seq.",
    "after": "Only records from this date or time on: 2026-03-31 or 2026-03-31T14:00, UTC "
    "unless it names a zone.",
    "before": "Only records before it (a date: before that day begins).",
    "order": "Of results: best (default), newest or oldest first.",
    "limit": "Most results a query; default 5.",
}


def test_a_host_may_give_the_tool_another_name(knowledge: SqliteKnowledgeBase) -> None:
    """The definition carries it."""
    assert CtxSearchTool(knowledge, name="archive_find").definition["name"] == "archive_find"


# --- arguments -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "meant"),
    [
        ({"queries": "one"}, {"queries": ["one"]}),
        ({"queries": '["a", "b"]'}, {"queries": ["a", "b"]}),
        ({"queries": "[not json"}, {"queries": ["[not json"]}),
        ({"queries": [404, "x"]}, {"queries": ["404", "x"]}),
        ({"queries": "null"}, {"queries": ["null"]}),
        ({"source": "session/s", "seq": "12"}, {"source": ["session/s"], "seq": 12}),
        ({"seq": 12.0, "offset": "3.0"}, {"seq": 12, "offset": 3}),
        ({"seq": 3, "queries": [], "after": ""}, {"seq": 3}),
        ({"seq": 3, "queries": None, "source": "null", "after": "None"}, {"seq": 3}),
        ({"seq": 3, "after_seq": "null", "length": "null"}, {"seq": 3}),
    ],
)
def test_types_are_set_right_where_the_intent_is_plain(
    given_: dict[str, Any], meant: dict[str, Any]
) -> None:
    """Strings for lists and numbers, and the ways in which models leave an argument out."""
    assert parse_input(given_) == CtxSearchInput.model_validate(meant)


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"query": "x"}, "unknown parameter 'query'; did you mean 'queries'?"),
        ({"zzz": 1}, "unknown parameter 'zzz'; known are queries, source, seq"),
        ({"seq": "twelve"}, "seq: Input should be a valid integer"),
        ({"seq": -1}, "seq: Input should be greater than or equal to 0"),
        ({"queries": ["x"] * 9}, "queries: List should have at most 8 items"),
        ({"queries": {"a": 1}}, "queries: Input should be a valid list"),
        ({"queries": "x", "limit": 51}, "limit: Input should be less than or equal to 50"),
        ({"seq": 1, "queries": ["x"]}, "either seq or queries"),
        ({"seq": 1, "after_seq": 0}, "either seq, or after_seq and before_seq"),
        ({"queries": ["x"], "offset": 3}, "offset and length go with seq"),
        ({"length": 3}, "offset and length go with seq"),
        ({}, "give queries to search, seq to fetch a record, or after_seq and before_seq"),
        ({"queries": ["x"], "after": "yesterday"}, "after: 'yesterday' is not an ISO 8601 date"),
    ],
)
def test_what_it_does_not_take_is_named(
    tool: CtxSearchTool, given_: dict[str, Any], message: str
) -> None:
    """One line that says which argument is wrong and what to do."""
    with pytest.raises(ToolInputError) as error:
        tool.run(given_)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_arguments_that_are_no_object_are_refused() -> None:
    """A model may send a bare string."""
    with pytest.raises(ToolInputError, match="must be an object, not str"):
        parse_input("x")  # type: ignore[arg-type]


# --- fetching --------------------------------------------------------------------------------


def test_a_record_is_fetched_whole_under_its_heading(tool: CtxSearchTool) -> None:
    """Source, seq, role, time, size; then the text and nothing else."""
    assert tool.run({"source": "session/s/constraint", "seq": 0}) == (
        "[session/s/constraint seq 0] user, 1970-01-01 00:00:00 UTC, 13 chars\nnever touch Z"
    )


def test_a_part_says_which_part_it_is(tool: CtxSearchTool) -> None:
    """Offset and length count characters; beyond the end there is nothing, and it says so."""
    part = tool.run({"source": "session/s", "seq": 0, "offset": 6, "length": 5})
    assert part.partition("\n")[0].endswith("[6..11 of 13]")
    assert part.endswith("\ntouch")
    assert tool.run({"seq": 0, "offset": 99}).endswith("[13..13 of 13]\n")
    assert tool.run({"seq": 0, "offset": 2, "length": 0}).endswith("[2..2 of 13]\n")


def test_a_long_record_is_returned_by_exact_continuations(tool: CtxSearchTool) -> None:
    """The bodies put together are the text, whichever part was asked for."""
    assert len(LONG) > 3 * MAX_OUTPUT_CHARS
    assert whole(tool, {"source": "session/s/finding", "seq": 2}) == LONG
    part = {"source": "session/s/finding", "seq": 2, "offset": 77, "length": 20_001}
    assert whole(tool, part) == LONG[77 : 77 + 20_001]


def test_what_is_not_there_is_said_with_what_is(tool: CtxSearchTool) -> None:
    """The layers that exist, and the layer that holds the seq."""
    answer = tool.run({"source": "session/s/finding", "seq": 0})
    assert answer.startswith('No record with seq 0 in "session/s/finding".')
    assert 'seq 0 is in source "session/s/constraint".' in answer
    assert '"session/s" holds 3 constraint (seq 0..8), 2 finding (seq 2..6), ' in answer
    assert 'No record with seq 99 in "session/s", "session/parent".' in tool.run({"seq": 99})


def test_an_ancestor_s_record_is_found_where_the_session_has_none(
    knowledge: SqliteKnowledgeBase,
) -> None:
    """The session itself comes first; its parent may be named, a stranger may not."""
    fork = CtxSearchTool(knowledge, session="s")
    assert "never touch Z" in fork.run({"seq": 0})
    assert "asked before the fork" in fork.run({"source": "session/parent", "seq": 0})
    found = fork.run({"queries": ["fork"]})
    assert found.startswith("From session/parent, times in UTC:")
    assert "[constraint seq 0]" in found


def test_images_are_named_with_kind_and_size(tool: CtxSearchTool) -> None:
    """The first one, and how many more."""
    heading = tool.run({"seq": 5}).partition("\n")[0]
    assert heading.endswith("15 chars, with image/png, 1234 bytes and 1 more")


# --- scope -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call", [{"seq": 1}, {"queries": ["secret"]}, {"after_seq": 0}], ids=["seq", "search", "list"]
)
def test_a_source_outside_is_refused_not_empty(tool: CtxSearchTool, call: dict[str, Any]) -> None:
    """Whichever form asks for it, alone or beside one that is allowed."""
    for source in ("session/other", ["session/s", "session/other/constraint"]):
        with pytest.raises(KnowledgeError, match="outside what this tool may read") as error:
            tool.run({**call, "source": source})
        assert error.value.code == "scope"


def test_an_unrestricted_search_stays_in_its_session(tool: CtxSearchTool) -> None:
    """Without a source, other sessions do not answer."""
    assert "a secret of others" not in tool.run({"queries": ["secret of others"]})


def test_a_host_may_allow_a_set_or_the_whole_archive(knowledge: SqliteKnowledgeBase) -> None:
    """A set beside the session; no session and no set is everything."""
    both = CtxSearchTool(knowledge, session="s", allowed=["other"])
    assert "a secret of others" in both.run({"source": "session/other", "seq": 1})
    everything = CtxSearchTool(knowledge)
    assert "a secret of others" in everything.run({"queries": ["secret"]})
    assert "a secret of others" in everything.run({"source": "session/other", "seq": 1})
    with pytest.raises(ToolInputError, match="name the source"):
        everything.run({"seq": 1})
    only = CtxSearchTool(knowledge, allowed=["other"])
    with pytest.raises(KnowledgeError, match="outside"):
        only.run({"source": "session/s", "seq": 1})


def test_a_malformed_source_is_an_error(tool: CtxSearchTool) -> None:
    """It names the form that is expected."""
    with pytest.raises(KnowledgeError, match="expected session/<id>"):
        tool.run({"source": "results", "seq": 1})


# --- listing ---------------------------------------------------------------------------------

HEADING = re.compile(r"\[(session/\S+) seq (\d+)\] .*, (\d+) chars.*")


def listed(tool: CtxSearchTool, call: dict[str, Any]) -> list[tuple[int, str]]:
    """Seq and text of every record that a listing and its continuations return, in order."""
    found: list[tuple[int, str]] = []
    for _ in range(1_000):
        answer = tool.run(call)
        follow: dict[str, Any] | None = None
        place = 0
        while place < len(answer):
            if more := MORE.match(answer, place):
                follow = arguments(more[1])
                break
            heading = HEADING.match(answer, place)
            assert heading is not None, answer[place : place + 80]
            assert "continue with" not in answer[heading.end() : heading.end() + int(heading[3])]
            body = answer[heading.end() + 1 : heading.end() + 1 + int(heading[3])]
            found.append((int(heading[2]), body))
            place = heading.end() + 1 + int(heading[3]) + 2
        if follow is None:
            return found
        call = follow
    raise AssertionError("the listing does not end")


def test_whole_records_are_listed_in_order(tool: CtxSearchTool) -> None:
    """Bounds are exclusive; no checkpoint, and nothing that holds neither text nor image."""
    assert [seq for seq, _ in listed(tool, {"after_seq": 2})] == [5, 6, 7, 8]
    assert [seq for seq, _ in listed(tool, {"after_seq": 2, "before_seq": 7})] == [5, 6]
    named = {"source": "session/s/constraint", "after_seq": -1}
    assert listed(tool, named) == [(0, "never touch Z"), (5, "see the picture"), (8, "")]


def test_a_listing_goes_on_across_batches_and_answers(knowledge: SqliteKnowledgeBase) -> None:
    """More records than are read at once, in answers of a few each."""
    tool = CtxSearchTool(knowledge, session="many", max_output_chars=900)
    found = listed(tool, {"after_seq": -1})
    assert found == [(seq, f"record {seq}") for seq in range(450)]


def test_a_listed_record_longer_than_an_answer_is_cut_with_both_ways_on(
    tool: CtxSearchTool,
) -> None:
    """How to go on in it, and how to go on behind it; nothing behind it, no second call."""
    answer = tool.run({"after_seq": 1})
    inside, _, behind = answer.rpartition("\n\n")
    assert len(answer) <= MAX_OUTPUT_CHARS
    more, follow = CONTINUE.search(inside), MORE.search(behind)
    assert more is not None
    assert follow is not None
    body = inside.partition("\n")[2][: int(more[2])]
    assert body + whole(tool, arguments(more[4])) == LONG
    assert [seq for seq, _ in listed(tool, arguments(follow[1]))] == [5, 6, 7, 8]
    alone = tool.run({"after_seq": 1, "before_seq": 3})
    assert "more records follow" not in alone


def test_dates_bound_a_listing_and_a_search(tool: CtxSearchTool) -> None:
    """``after`` from that moment on, ``before`` up to it; a continuation keeps them."""
    assert [s for s, _ in listed(tool, {"after": "1970-01-06", "before": "1970-01-08"})] == [5, 6]
    at = {"after": "1970-01-06T00:00:00.001Z", "before": "1970-01-07T01:00:00+01:00"}
    assert tool.run(at).startswith("No records in that range.")
    found = tool.run({"queries": ["E1234"], "after": "1970-01-08"})
    assert "nothing found" in found
    answer = tool.run({"after": "1970-01-02", "before": "1970-01-07"})
    assert 'after: "1970-01-02", before: "1970-01-07"' in answer or "before_seq" in answer


def test_an_empty_listing_says_what_there_is(tool: CtxSearchTool) -> None:
    """And one of several sessions is refused."""
    answer = tool.run({"after_seq": 900})
    assert answer.startswith("No records in that range.")
    assert '"session/s" holds 3 constraint (seq 0..8), ' in answer
    assert answer.endswith("of 1970-01-01 to 1970-01-09")
    with pytest.raises(ToolInputError, match="sources of one session"):
        tool.run({"source": ["session/s/finding", "session/parent"], "after_seq": 0})


# --- searching -------------------------------------------------------------------------------


def test_each_query_is_answered_on_its_own(tool: CtxSearchTool) -> None:
    """With the tier that matched, a snippet, and the call that fetches the record."""
    answer = tool.run({"queries": ["E1234", "qqqq"]})
    head, first, second = answer.split("\n\n# ")
    assert head == "From session/s, times in UTC:"
    assert first == (
        "'E1234': 1 found, matched by all words, best first\n\n"
        "[finding seq 6] assistant, 1970-01-07 00:00, 35 chars\n"
        "error E1234 in src/app.py at line 7"
    )
    assert second.startswith("'qqqq': nothing found (tried ")
    assert '"session/s" holds 3 constraint (seq 0..8), 2 finding (seq 2..6), ' in second


def test_a_hit_in_a_long_record_is_fetched_around_the_match(tool: CtxSearchTool) -> None:
    """The printed call returns the place that matched, not the beginning."""
    answer = tool.run({"queries": ["1777"]})
    call = re.search(r"→ (ctx_search\(.*\))", answer)
    assert call is not None
    assert "line 1777 of many" in tool.run(arguments(call[1]))


def test_a_question_of_ten_words_finds_what_one_of_them_names(tool: CtxSearchTool) -> None:
    """Any of the words will do where all of them do not, and the answer says so."""
    asked = "what did the tool say about error E1234 yesterday afternoon please"
    answer = tool.run({"queries": [asked]})
    assert "matched by any of the words" in answer
    assert "E1234 in src/app.py" in answer


# --- the bound -------------------------------------------------------------------------------

words = st.text(st.characters(), max_size=300)
calls = st.one_of(
    st.fixed_dictionaries({"queries": st.lists(words, min_size=1, max_size=8)}),
    st.fixed_dictionaries(
        {
            "queries": st.lists(
                st.sampled_from(["line", "record", "e", "the", "picture hello", "x" * 900]),
                min_size=1,
                max_size=8,
            ),
            "limit": st.integers(1, 50),
        }
    ),
    st.fixed_dictionaries(
        {"seq": st.integers(0, 9)},
        optional={"offset": st.integers(0, 50_000), "length": st.integers(0, 50_000)},
    ),
    st.fixed_dictionaries(
        {"after_seq": st.integers(-1, 10)},
        optional={
            "before_seq": st.integers(0, 12),
            "source": st.just(["session/s/finding", "session/s/narrative"]),
        },
    ),
)


@given(call=calls, most=st.integers(500, 9_000), session=st.sampled_from(["s", "many", "parent"]))
def test_no_answer_is_longer_than_it_may_be(
    knowledge: SqliteKnowledgeBase, call: dict[str, Any], most: int, session: str
) -> None:
    """Whatever is asked, and however small the bound."""
    if "source" in call and session != "s":
        call = {**call, "source": f"session/{session}"}
    tool = CtxSearchTool(knowledge, session=session, max_output_chars=most)
    assert len(tool.run(call)) <= most


@given(most=st.integers(500, 3_000), offset=st.integers(0, 40_000), length=st.integers(0, 9_000))
def test_continuations_return_exactly_what_was_asked_whatever_the_bound(
    knowledge: SqliteKnowledgeBase, most: int, offset: int, length: int
) -> None:
    """Nothing twice, nothing left out."""
    tool = CtxSearchTool(knowledge, session="s", max_output_chars=most)
    call = {"source": "session/s/finding", "seq": 2, "offset": offset, "length": length}
    assert whole(tool, call) == LONG[offset : offset + length]


def test_what_a_record_s_maker_wrote_does_not_break_a_heading(tmp_path: Path) -> None:
    """A tool's name or an image's kind may be any text, and any length."""
    odd = rec(1, "x" * 900, name="a\nb] " * 500, images=("image/\nweird " * 900,))
    with SqliteKnowledgeBase.open(tmp_path / "a.db", render=render) as base:
        base.put([odd])
        tool = CtxSearchTool(base, session="s", max_output_chars=600)
        answer = tool.run({"seq": 1})
        assert len(answer) <= 600
        assert whole(tool, {"source": source_label("s", "finding"), "seq": 1}) == "x" * 900
        assert len(tool.run({"queries": ["xxx"]})) <= 600
