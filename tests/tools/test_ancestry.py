"""A fork's search: its own records, and of its ancestors what it inherited."""

from __future__ import annotations

from pathlib import Path

from ctxarchive.archive.opening import open_archive
from ctxarchive.knowledge.records import Record
from ctxarchive.session.jsontext import dump_json
from ctxarchive.tools.ctx_search import CtxSearchTool


def said(session: str, seq: int, text: str) -> Record:
    """What a user said."""
    event = dump_json(
        {"type": "user/message", "data": {"content": [{"type": "text", "text": text}]}}
    )
    return Record(session=session, seq=seq, layer="constraint", role="user", event=event, text=text)


def test_what_an_ancestor_filed_after_the_fork_is_not_seen(tmp_path: Path) -> None:
    """Only what was inherited is the session's; an explicit permission shows the rest too."""
    with open_archive(tmp_path / "a.db") as knowledge:
        knowledge.register("parent")
        knowledge.register("fork", parent="parent", inherited_seq=5)
        knowledge.put(
            [
                said("parent", 0, "asked before the fork"),
                said("parent", 900, "said behind the fork"),
                said("fork", 6, "asked in the fork"),
            ]
        )
        fork = CtxSearchTool(knowledge, session="fork")
        assert "seq 900" not in fork.run({"queries": ["behind the fork"]})
        assert "behind" not in fork.run({"source": "session/parent", "seq": 900})
        assert "behind" not in fork.run({"source": "session/parent", "after_seq": -1})
        assert "asked before the fork" in fork.run({"source": "session/parent", "seq": 0})
        allowed = CtxSearchTool(knowledge, session="fork", allowed=["parent"])
        assert "said behind the fork" in allowed.run({"queries": ['"behind the fork"']})


def test_hits_behind_the_fork_do_not_keep_the_next_way_of_matching_from_being_tried(
    tmp_path: Path,
) -> None:
    """What is filed behind the fork holds all the words, what was inherited some of them."""
    with open_archive(tmp_path / "a.db") as knowledge:
        knowledge.register("parent")
        knowledge.register("fork", parent="parent", inherited_seq=5)
        later = [said("parent", 100 + at, f"retry budget exhausted, {at}") for at in range(30)]
        knowledge.put([said("parent", 0, "the budget is 250 ms"), *later])
        knowledge.put([said("fork", 6, "asked in the fork")])
        for indexed in (False, True):
            if indexed:
                knowledge.index_pending()
            fork = CtxSearchTool(knowledge, session="fork")
            found = fork.run({"queries": ["retry budget exhausted"]})
            assert "1 found, matched by any of the words" in found, found
            assert "the budget is 250 ms" in found
            assert "exhausted, " not in found
            named = fork.run({"queries": ["retry budget"], "source": "session/parent"})
            assert "the budget is 250 ms" in named
        allowed = CtxSearchTool(knowledge, session="fork", allowed=["parent"])
        assert "exhausted, 29" in allowed.run({"queries": ["retry budget exhausted"]})
