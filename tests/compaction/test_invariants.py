"""The checker of logs: what it accepts, and that each promise, once broken, is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ctxarchive.compaction.invariants import check_compactions, require_sound
from ctxarchive.errors import SessionError
from ctxarchive.session.log import Session
from ctxarchive.session.repair import close_open, interrupted
from ctxarchive.testing.engines import GatedCompactionEngine
from ctxarchive.testing.sessions import IdleAgent, closed_conversation, user

FRAME: dict[str, Any] = {"compactionId": "c", "turn": None}


def conversation() -> Session:
    return closed_conversation(3)


def start(session: Session, **fields: Any) -> None:
    session.append("compaction/start", {**FRAME, **fields})


def end(session: Session, **fields: Any) -> None:
    session.append("compaction/end", {**FRAME, **fields})


def summary(session: Session, **fields: Any) -> tuple[int, ...]:
    run = session.surface.nodes[:2]
    session.append(
        "compaction/summary",
        {
            "compactionId": "c",
            "summary": [{"type": "text", "text": "s"}],
            "shadowedRange": {"start": run[0], "end": run[-1]},
            "shadowedSeqs": list(run),
            "shadowedTokenCount": 10,
            "provider": "p",
            "model": "m",
            **fields,
        },
    )
    return run


def checkpoint(session: Session, run: tuple[int, ...], **source: Any) -> None:
    session.append(
        "user/message",
        {
            "role": "user",
            "content": [{"type": "text", "text": "s"}],
            "source": {"kind": "compact-checkpoint", "compactionId": "c", **source},
        },
        surface_op={"op": "replace", "startSeq": run[0], "endSeq": run[-1]},
        source_event_seqs=run,
    )


def whole(session: Session) -> None:
    start(session)
    checkpoint(session, summary(session))
    end(session)


def rules(session: Session) -> list[str]:
    return [found.rule for found in check_compactions(session.events)]


def test_a_whole_compaction_an_error_close_and_an_open_start_are_sound() -> None:
    session = conversation()
    whole(session)
    start(session, compactionId="d")
    end(session, compactionId="d", error="no summary")
    start(session, compactionId="e")
    assert rules(session) == []
    require_sound(session.events)


def test_an_empty_id_is_found() -> None:
    session = conversation()
    start(session, compactionId="")
    assert rules(session) == ["id"]


def test_an_id_that_changes_within_a_transaction_is_found() -> None:
    session = conversation()
    start(session)
    end(session, compactionId="other", error="e")
    assert rules(session) == ["id"]


def test_a_command_id_that_is_lost_within_a_transaction_is_found() -> None:
    session = conversation()
    start(session, sourceCommandId="command")
    end(session, error="e")
    assert rules(session) == ["id"]


def test_an_owner_outside_its_exact_turn_is_found() -> None:
    session = conversation()
    start(session, turn=3)
    assert rules(session) == ["owner"]
    session = conversation()
    session.append("turn/start", {"turn": 4})
    start(session)
    assert rules(session) == ["owner"]
    session = conversation()
    session.append("turn/start", {"turn": 4})
    start(session, turn=5)
    assert rules(session) == ["owner"]


def test_an_end_whose_owner_is_not_the_starts_is_found() -> None:
    session = conversation()
    session.append("turn/start", {"turn": 4})
    start(session, turn=4)
    end(session, turn=None, error="e")
    assert rules(session) == ["owner"]


def test_a_turn_boundary_that_crosses_a_live_bracket_is_found() -> None:
    session = conversation()
    start(session)
    session.append("turn/start", {"turn": 4})
    assert rules(session) == ["boundary"]


def test_a_turn_boundary_across_an_inherited_orphan_is_sound() -> None:
    session = conversation()
    start(session)
    session.append("turn/start", {"turn": 4})
    session.append("turn/end", {"turn": 4})
    session.append("session/end-seed", {})
    start(session, compactionId="d")
    end(session, compactionId="d", error="e")
    assert rules(session) == []


def test_a_second_summary_is_found() -> None:
    session = conversation()
    start(session)
    summary(session)
    checkpoint(session, summary(session))
    end(session)
    assert rules(session) == ["summary"]


def test_a_summary_or_an_end_without_a_start_is_found() -> None:
    session = conversation()
    summary(session)
    end(session, error="e")
    assert rules(session) == ["bracket", "bracket"]


def test_a_start_within_an_open_bracket_is_found() -> None:
    session = conversation()
    start(session)
    start(session, compactionId="d")
    assert rules(session) == ["bracket"]


def test_a_range_that_is_not_the_first_and_last_shadowed_seq_is_found() -> None:
    session = conversation()
    start(session)
    run = session.surface.nodes
    summary(session, shadowedRange={"start": run[0], "end": run[2]})
    assert rules(session) == ["range"]
    session = conversation()
    start(session)
    summary(session, shadowedSeqs=[])
    assert rules(session) == ["range"]


def test_a_negative_count_is_found() -> None:
    session = conversation()
    start(session)
    summary(session, shadowedTokenCount=-1)
    assert rules(session) == ["count"]


def test_success_without_a_summary_or_without_a_checkpoint_is_found() -> None:
    session = conversation()
    start(session)
    end(session)
    assert rules(session) == ["success"]
    session = conversation()
    start(session)
    summary(session)
    end(session)
    assert rules(session) == ["success"]


@pytest.mark.parametrize("source", [{"compactionId": "other"}, {"sourceCommandId": "command"}])
def test_a_checkpoint_that_is_not_its_open_compactions_is_found(source: dict[str, str]) -> None:
    session = conversation()
    start(session)
    checkpoint(session, summary(session), **source)
    end(session)
    assert rules(session) == ["checkpoint"]


def test_a_checkpoint_outside_any_compaction_is_found() -> None:
    session = conversation()
    checkpoint(session, session.surface.nodes[:2])
    assert rules(session) == ["metering", "checkpoint"]


def test_a_checkpoint_that_replaces_nothing_is_found() -> None:
    session = conversation()
    whole(session)
    source = {"kind": "compact-checkpoint", "compactionId": "c"}
    content = [{"type": "text", "text": "s"}]
    message = {"role": "user", "content": content, "source": source}
    session.append("user/message", message, surface_op="append")
    assert rules(session) == ["checkpoint"]


def test_a_checkpoint_that_a_prune_prices_is_found() -> None:
    session = conversation()
    start(session)
    run = summary(session)
    price = {"shadowedRange": {"start": run[0], "end": run[-1]}, "shadowedSeqs": list(run)}
    session.append("compaction/prune", {**price, "shadowedTokenCount": 5})
    checkpoint(session, run)
    end(session)
    assert rules(session) == ["metering"]


def test_a_replacement_that_does_not_directly_follow_its_price_is_found() -> None:
    session = conversation()
    start(session)
    run = summary(session)
    user(session, "in between")
    checkpoint(session, run)
    end(session)
    assert rules(session) == ["metering"]


def prune(session: Session, position: int = 0) -> int:
    """The price of one message; returns the message's seq."""
    seq = session.surface[position]
    price = {"shadowedRange": {"start": seq, "end": seq}, "shadowedSeqs": [seq]}
    session.append("compaction/prune", {**price, "shadowedTokenCount": 5})
    return seq


def shorten(session: Session, seq: int) -> None:
    """The replacement of one message."""
    session.append(
        "user/message",
        {"role": "user", "content": [{"type": "text", "text": "short"}]},
        surface_op={"op": "replace", "startSeq": seq, "endSeq": seq},
        source_event_seqs=(seq,),
    )


def test_a_price_without_its_replacement_directly_behind_it_is_found() -> None:
    session = conversation()
    price = len(session)
    seq = prune(session)
    user(session, "in between")
    shorten(session, seq)
    found = check_compactions(session.events)
    assert [(one.seq, one.rule) for one in found] == [(price, "metering"), (price + 2, "metering")]
    assert found[0].message == (
        "compaction/prune: no replacement directly behind it, but user/message"
    )


def test_the_first_of_two_prices_before_one_replacement_is_found() -> None:
    session = conversation()
    price = len(session)
    prune(session)
    shorten(session, prune(session))
    assert [(one.seq, one.rule) for one in check_compactions(session.events)] == [
        (price, "metering")
    ]


def test_a_price_that_a_crash_parted_from_its_replacement_is_sound() -> None:
    """At the end of a log, and where the reopened log closed what was open behind it."""
    session = conversation()
    session.append("turn/start", {"turn": 4})
    session.append("step/start", {"turn": 4, "step": 1})
    prune(session)
    assert rules(session) == []
    close_open(session, reason={"kind": "interrupted"}, answer=interrupted)
    reopened = Session.create("s", session.events)
    user(reopened, "go on")
    assert rules(reopened) == []
    user(session, "go on")  # the same process: nothing died
    session.append("session/end-seed", {})
    assert rules(session) == ["metering"]


def test_a_replacement_of_another_run_than_was_priced_is_found() -> None:
    session = conversation()
    start(session)
    summary(session)
    checkpoint(session, session.surface.nodes[:3])
    end(session)
    assert rules(session) == ["metering"]


def test_the_first_finding_is_raised_with_its_seq_and_the_number_of_others() -> None:
    session = conversation()
    start(session, compactionId="")
    end(session)
    with pytest.raises(SessionError, match=r"seq \d+: id: .*an empty id \(and 2 more\)") as caught:
        require_sound(session.events)
    assert caught.value.code == "corrupt"


@pytest.mark.anyio
async def test_the_older_spelling_of_a_checkpoint_source_is_recognized(
    watched: Callable[[Session], Session],
) -> None:
    session = watched(conversation())
    await GatedCompactionEngine().compact_now(IdleAgent(session))
    old = [
        event.wire() | {"data": {**event.wire()["data"], "source": _older(event.wire()["data"])}}
        if event.type == "user/message"
        else event.wire()
        for event in session.events
    ]
    again = Session.create("older")
    for value in old:
        from ctxarchive.session.events import parse_event

        again.adopt(parse_event(value))
    assert rules(again) == []


def _older(data: dict[str, Any]) -> dict[str, Any]:
    source: dict[str, Any] = data["source"]
    if source["kind"] != "compact-checkpoint":
        return source
    return {**source, "kind": "plugin", "plugin": "compact"}
