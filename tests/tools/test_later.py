"""What a result says of later records, of age, and of what does not fit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxarchive.archive.opening import open_archive
from ctxarchive.knowledge.records import Kind, Layer, Record, SourceRef
from ctxarchive.knowledge.sqlite.store import SqliteKnowledgeBase
from ctxarchive.knowledge.store import Scope
from ctxarchive.session.jsontext import dump_json
from ctxarchive.tools import later as later_module
from ctxarchive.tools.ctx_search import CtxSearchTool


def found(
    seq: int,
    text: str,
    *,
    session: str = "s",
    layer: Layer = "finding",
    kind: Kind = "original",
    name: str | None = None,
) -> Record:
    """A record of a text, a minute later with each seq."""
    event = dump_json(
        {"type": "user/message", "data": {"content": [{"type": "text", "text": text}]}}
    )
    return Record(
        session=session,
        seq=seq,
        layer=layer,
        kind=kind,
        role="tool" if name else "assistant",
        name=name,
        time=seq * 60_000,
        event=event,
        text=text,
    )


@pytest.fixture
def knowledge(tmp_path: Path) -> Iterator[SqliteKnowledgeBase]:
    """An empty archive."""
    with open_archive(tmp_path / "a.db") as base:
        yield base


def laters(answer: str) -> list[str]:
    """The lines of an answer that name later records."""
    return [line for line in answer.splitlines() if line.startswith("later: ")]


@pytest.mark.parametrize("indexed", [False, True])
def test_a_result_names_later_records_of_the_same_thing(
    knowledge: SqliteKnowledgeBase, *, indexed: bool
) -> None:
    """By seq, of those that came after it, whoever made them; a checkpoint is no news."""
    knowledge.put(
        [
            found(1, "src/app.py: port = 8080", name="read"),
            found(2, "condensed: src/app.py has port = 8080", kind="checkpoint"),
            found(3, "set the port in /home/me/src/app.py to 8443", name="edit"),
            found(4, "src/app.py is done", layer="narrative"),
            found(5, "src/myapp.py is another file"),
        ]
    )
    if indexed:
        knowledge.index_pending()
    tool = CtxSearchTool(knowledge, session="s")
    assert laters(tool.run({"queries": ['"port = 8080"'], "limit": 1})) == [
        "later: seq 3, 4 mention src/app.py"
    ]
    assert laters(tool.run({"queries": ["src/app.py is done"]})) == []
    # A call's own bounds do not hide that the thing was changed.
    assert laters(tool.run({"queries": ["port"], "before_seq": 2})) == [
        "later: seq 3, 4 mention src/app.py"
    ]


def test_the_rarest_identifier_is_named_and_a_common_one_tells_nothing(
    knowledge: SqliteKnowledgeBase,
) -> None:
    """What eight later records mention is a subject, not a change."""
    knowledge.put([found(0, "load_config calls parse_toml, says zebra")])
    knowledge.put([found(seq, f"load_config again, {seq}") for seq in range(1, 12)])
    tool = CtxSearchTool(knowledge, session="s")
    assert laters(tool.run({"queries": ["zebra"]})) == []
    knowledge.put([found(20, "parse_toml raises now"), found(21, "parse_toml does not")])
    assert laters(tool.run({"queries": ["zebra"]})) == ["later: seq 20, 21 mention parse_toml"]
    knowledge.put([found(seq, f"parse_toml, {seq}") for seq in (22, 23, 24)])
    assert laters(tool.run({"queries": ["zebra"]})) == [
        "later: seq 22, 23, 24 and more mention parse_toml"
    ]


def test_a_key_of_a_call_s_arguments_is_no_identifier(knowledge: SqliteKnowledgeBase) -> None:
    """Every edit has an ``old_string``."""
    knowledge.put(
        [
            found(0, 'Edit {"old_string": "zebra"}', name="Edit"),
            found(1, 'Edit {"old_string": "horse"}', name="Edit"),
        ]
    )
    assert laters(CtxSearchTool(knowledge, session="s").run({"queries": ["zebra"]})) == []


def test_later_records_are_looked_for_within_what_may_be_read(
    knowledge: SqliteKnowledgeBase,
) -> None:
    """A fork's own are later than what it inherited; what its ancestor filed since is not seen."""
    knowledge.register("parent")
    knowledge.register("fork", parent="parent", inherited_seq=5)
    knowledge.put(
        [
            found(1, "src/app.py has zebra", session="parent"),
            found(4, "src/app.py has horses", session="parent"),
            found(9, "src/app.py behind the fork", session="parent"),
            found(7, "src/app.py in the fork", session="fork"),
            found(8, "src/app.py of a stranger", session="other"),
        ]
    )
    fork = CtxSearchTool(knowledge, session="fork")
    assert laters(fork.run({"queries": ["zebra"]})) == [
        "later: seq 4, session/fork seq 7 mention src/app.py"
    ]
    everything = CtxSearchTool(knowledge)
    assert laters(everything.run({"queries": ["zebra"]})) == ["later: seq 4, 9 mention src/app.py"]
    allowed = CtxSearchTool(knowledge, session="other", allowed=["parent"])
    assert laters(allowed.run({"queries": ["zebra"]})) == ["later: seq 4, 9 mention src/app.py"]


def test_the_look_ups_of_a_call_are_bounded(
    knowledge: SqliteKnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many results there are to look behind."""
    knowledge.put(
        [found(seq, f"zebra in file_{seq}_a, file_{seq}_b, file_{seq}_c") for seq in range(60)]
    )
    knowledge.index_pending()
    asked: list[str] = []
    behind = later_module.LaterMentions._behind

    def counted(self: later_module.LaterMentions, *given: object) -> object:
        asked.append(str(given[1]))
        return behind(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(later_module.LaterMentions, "_behind", counted)
    CtxSearchTool(knowledge, session="s").run({"queries": ["zebra", "file"], "limit": 50})
    assert len(asked) == later_module.LOOKUPS


def test_newest_and_oldest_look_at_all_that_matches(knowledge: SqliteKnowledgeBase) -> None:
    """Also where more match than one search returns."""
    knowledge.put([found(seq, f"zebra {'zebra ' * (seq % 7)}{seq}") for seq in range(230)])
    knowledge.index_pending()
    tool = CtxSearchTool(knowledge, session="s", max_output_chars=50_000)

    def seqs(**more: object) -> list[int]:
        answer = tool.run({"queries": ["zebra"], **more})
        assert "not shown" not in answer
        return [int(seq) for seq in re.findall(r"(?m)^\[finding seq (\d+)\]", answer)]

    assert seqs(order="newest", limit=4) == [229, 228, 227, 226]
    assert seqs(order="oldest", limit=3) == [0, 1, 2]
    assert seqs(order="newest", limit=50) == [*range(229, 179, -1)]
    assert seqs(order="oldest", limit=50) == [*range(50)]
    assert seqs(order="Newest", limit=2, before_seq=100) == [99, 98]
    assert seqs(order="newest", before="1970-01-01T00:50Z", limit=1) == [49]
    assert seqs(order="oldest", after="1970-01-01 00:50 UTC", limit=1) == [50]
    assert len(seqs(order="best")) == 5


def test_what_does_not_fit_is_named_by_seq_and_can_be_asked_for(
    knowledge: SqliteKnowledgeBase,
) -> None:
    """Nothing that was found is left unsaid."""
    knowledge.put([found(seq, f"zebra {seq} {'stripes ' * 60}") for seq in range(40)])
    knowledge.index_pending()
    tool = CtxSearchTool(knowledge, session="s", max_output_chars=1_500)
    answer = tool.run({"queries": ["zebra"], "limit": 20})
    shown = re.findall(r"(?m)^\[finding seq (\d+)\]", answer)
    rest = re.search(r"(?m)^\[(\d+) more, not shown: seq ([\d, ]+)\]$", answer)
    assert rest is not None
    assert len(shown) + int(rest[1]) == 20
    assert len({*shown, *rest[2].split(", ")}) == 20
    assert answer.splitlines()[2].endswith("; more with limit: 40")
    many = [f"zebra {number}" for number in range(8)]
    cramped = tool.run({"queries": many, "limit": 20})
    assert len(cramped) <= 1_500
    assert cramped.count("1 more, not shown: seq ") >= 4
    long = [f"{word} zebra stripes" for word in ("one", "two", "three", "four")]
    least = CtxSearchTool(knowledge, session="s", max_output_chars=900)
    call = 'continue with ctx_search(queries: ["one zebra stripes"], after_seq: -1, limit: 50)]'
    assert call[:-1] in least.run({"queries": long, "after_seq": -1, "limit": 50})


def test_what_was_shown_already_is_not_shown_again(knowledge: SqliteKnowledgeBase) -> None:
    """By an earlier query of the call, or the same passage in another record."""
    passage = "the zebra crossing is at Abbey Road, and that is all there is to say of it"
    knowledge.put([found(0, passage), found(1, passage), found(2, "a horse")])
    answer = CtxSearchTool(knowledge, session="s").run({"queries": ["zebra", "Abbey"]})
    assert answer.count(passage) == 1
    assert "[finding seq 0] assistant, 1970-01-01 00:00, 74 chars: the same passage as" in answer
    assert answer.count(": shown above") == 2


def test_a_query_that_finds_nothing_within_its_bounds_is_told_what_is_outside(
    knowledge: SqliteKnowledgeBase,
) -> None:
    """With the call that finds it."""
    knowledge.put([found(3, "the zebra"), found(9, "a horse")])
    tool = CtxSearchTool(knowledge, session="s")
    answer = tool.run({"queries": ["zebra"], "after_seq": 5})
    assert (
        'Outside these bounds: seq 3 (finding 1970-01-01). Try ctx_search(queries: ["zebra"])'
        in answer
    )
    assert "Outside" not in tool.run({"queries": ["unicorn"], "after_seq": 5})


def test_what_a_fork_may_not_see_is_not_counted_where_nothing_was_found(
    knowledge: SqliteKnowledgeBase,
) -> None:
    """What an ancestor filed behind the fork is not there for it."""
    knowledge.register("parent")
    knowledge.register("fork", parent="parent", inherited_seq=5)
    knowledge.put([found(seq, f"said {seq}", session="parent") for seq in (1, 3, 800, 900)])
    answer = CtxSearchTool(knowledge, session="fork").run({"queries": ["zebra"]})
    assert '"session/parent" holds 2 finding (seq 1..3)' in answer
    assert "800" not in answer
    assert "900" not in answer


@pytest.mark.parametrize("indexed", [False, True])
def test_a_mention_is_the_word_itself_however_json_spells_what_is_around_it(
    knowledge: SqliteKnowledgeBase, *, indexed: bool
) -> None:
    """The newest first; no part of a longer word, and nothing outside the scope."""
    knowledge.put(
        [
            found(0, "load_config"),
            found(1, "reload_configs"),
            found(2, "first line\nload_config\tand more"),
            found(3, "load_config", kind="injected"),
            found(4, 'a "load_config" in C:\\load_config'),
            found(5, "load_config", session="other"),
            found(6, "load_config", layer="narrative"),
        ]
    )
    if indexed:
        knowledge.index_pending()
    scope = Scope(sources=(SourceRef(session="s"),))
    assert knowledge.mentions("load_config", scope, 9) == [
        ("s", 6),
        ("s", 4),
        ("s", 2),
        ("s", 0),
    ]
    assert knowledge.mentions("load_config", scope, 2) == [("s", 6), ("s", 4)]
    bounded = Scope(sources=(SourceRef(session="s", layer="finding"),), after_seq=1)
    assert knowledge.mentions("load_config", bounded, 9) == [("s", 4), ("s", 2)]
    assert knowledge.mentions("load_config", Scope(sources=()), 9) == []
    assert knowledge.mentions("load_config", Scope(), 9)[0] == ("other", 5)
    assert knowledge.mentions('"load_config"', scope, 9) == [("s", 4)]
