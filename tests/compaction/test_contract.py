"""The seam's contract: what a compaction writes, what it never touches, and what a reader can tell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from ctxarchive.compaction.basic import BasicCompactionEngine
from ctxarchive.compaction.checkpoint import frame, parse_frame
from ctxarchive.compaction.engine import CompactionEngine, CompactionResult
from ctxarchive.compaction.policy import CompactionPolicy
from ctxarchive.compaction.pruner import PruneSettings, ToolResultPruner
from ctxarchive.compaction.summarizer import INSTRUCTION, ModelSummarizer
from ctxarchive.compaction.transaction import live_bracket
from ctxarchive.errors import ManualCompactionError, SessionError
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.metering.tokenizers import CharacterEstimator
from ctxarchive.session.events import (
    CompactionPrune,
    CompactionSummary,
    Replace,
    UserMessage,
)
from ctxarchive.session.jsonl import read_session, write_session
from ctxarchive.session.log import Session
from ctxarchive.session.messages import checkpoint_source, is_checkpoint_source, text_block
from ctxarchive.testing.engines import GatedCompactionEngine
from ctxarchive.testing.models import ScriptedModel, Stall
from ctxarchive.testing.sessions import IdleAgent, assistant, derived_texts, result, user

pytestmark = pytest.mark.anyio

Make = Callable[..., Session]


async def compacted(session: Session) -> CompactionResult:
    made = await GatedCompactionEngine().compact_now(IdleAgent(session))
    assert made is not None
    return made


async def test_a_success_appends_start_summary_one_replacement_and_end_in_this_order(
    conversation: Make,
) -> None:
    session = conversation()
    before = len(session)
    made = await compacted(session)
    assert [event.type for event in session.events[before:]] == [
        "compaction/start",
        "compaction/summary",
        "user/message",
        "compaction/end",
    ]
    assert (made.start_seq, made.summary_seq, made.checkpoint_seq, made.end_seq) == tuple(
        range(before, before + 4)
    )
    assert [e.surface_op is not None for e in session.events[before:]] == [
        False,
        False,
        True,
        False,
    ]


async def test_only_the_three_message_types_may_and_must_carry_a_surface_operation(
    conversation: Make,
) -> None:
    session = conversation()
    with pytest.raises(SessionError, match="may not carry a surfaceOp"):
        session.append("compaction/end", {"compactionId": "c", "turn": None}, surface_op="append")
    with pytest.raises(SessionError):
        session.append("user/message", {"role": "user", "content": []})


async def test_the_summary_stands_before_the_retained_messages_and_nothing_leaves_the_log(
    conversation: Make,
) -> None:
    session = conversation(3)
    events, texts = list(session.events), derived_texts(session)
    made = await compacted(session)
    assert derived_texts(session) == [frame("checkpoint"), *texts[len(made.shadowed_seqs) :]]
    assert list(session.events[: len(events)]) == events


async def test_a_replay_of_the_stored_log_gives_the_same_view_and_knows_the_checkpoint(
    conversation: Make, tmp_path: Path
) -> None:
    session = conversation(3)
    made = await compacted(session)
    write_session(tmp_path / "s.jsonl", session)
    again = read_session(tmp_path / "s.jsonl").replay()
    assert again.derive_messages() == session.derive_messages()
    assert again.surface.nodes == session.surface.nodes
    checkpoint = again.event_at(made.checkpoint_seq)
    assert isinstance(checkpoint, UserMessage)
    assert checkpoint.is_checkpoint


async def test_a_crash_at_any_event_of_a_bracket_leaves_the_lock_or_nothing(
    conversation: Make,
) -> None:
    session = conversation()
    made = await compacted(session)
    for kept in range(made.start_seq, made.end_seq + 2):
        cut = Session.create("s")
        for event in session.events[:kept]:
            cut.adopt(event)
        open_bracket = made.start_seq < kept <= made.end_seq
        assert (live_bracket(cut) is not None) == open_bracket
        assert (made.shadowed_seqs[0] in cut.surface) == (kept <= made.checkpoint_seq)


async def test_a_pure_reader_can_keep_the_surfaces_price_from_the_events_alone(
    conversation: Make,
) -> None:
    session, meter = conversation(3), TokenMeter(CharacterEstimator())
    assistant(session, "", ("a", "bash", "{}"))
    result(session, "a", "x" * 3_000)
    user(session, "next")
    ToolResultPruner(PruneSettings(max_chars=400, head_chars=100, tail_chars=50)).prune(
        session, meter
    )
    await GatedCompactionEngine(meter=meter).compact_now(IdleAgent(session))
    total = 0
    for event in session.events:
        if event.message is not None:
            total += meter.message(event.message)
        if isinstance(event.surface_op, Replace):
            price = session.event_at(event.seq - 1)
            assert isinstance(price, CompactionSummary | CompactionPrune)
            total -= price.data.shadowed_token_count
    assert total == meter.measure(session).surface


async def test_a_refusal_before_the_start_leaves_no_record(conversation: Make) -> None:
    session = conversation()
    session.append("turn/start", {"turn": 3})
    before = len(session)
    with pytest.raises(ManualCompactionError):
        await GatedCompactionEngine().compact_now(IdleAgent(session))
    assert len(session) == before


async def test_a_model_backed_summary_is_torn_down_by_a_cancellation(conversation: Make) -> None:
    began = anyio.Event()
    model = ScriptedModel(summary=Stall(started=began.set))
    engine = BasicCompactionEngine(
        ModelSummarizer(model),
        policy=CompactionPolicy(min_span_tokens=0),
        meter=TokenMeter(CharacterEstimator()),
    )
    session = conversation()
    async with anyio.create_task_group() as group:
        group.start_soon(engine.compact_now, IdleAgent(session))
        await began.wait()
        group.cancel_scope.cancel()
    assert live_bracket(session) is None
    assert session.events[-1].type == "compaction/end"


async def test_a_summary_request_is_the_conversations_own_with_one_message_more(
    conversation: Make,
) -> None:
    model, session = ScriptedModel(), conversation(3)
    engine = BasicCompactionEngine(
        ModelSummarizer(model),
        policy=CompactionPolicy(min_span_tokens=0),
        meter=TokenMeter(CharacterEstimator()),
    )
    view = session.derive_messages()
    made = await engine.compact_now(IdleAgent(session))
    assert made is not None
    (request,) = model.requests
    assert list(request.messages[:-1]) == view[: len(made.shadowed_seqs)]
    assert request.messages[-1].content == (text_block(INSTRUCTION),)
    assert request.header == session.request_header


async def test_reasoning_in_a_summary_is_kept_as_raw_output_and_never_shown(
    conversation: Make,
) -> None:
    from ctxarchive.session.messages import ReasoningBlock
    from ctxarchive.testing.models import Reply

    thinking = ReasoningBlock(type="reasoning", text="secret thoughts")
    model = ScriptedModel(summary=Reply(content=(thinking, text_block("the summary"))))
    engine = BasicCompactionEngine(
        ModelSummarizer(model),
        policy=CompactionPolicy(min_span_tokens=0),
        meter=TokenMeter(CharacterEstimator()),
    )
    session = conversation()
    made = await engine.compact_now(IdleAgent(session))
    assert made is not None
    assert parse_frame(derived_texts(session)[0]).summary == "the summary"
    summary = session.event_at(made.summary_seq)
    assert isinstance(summary, CompactionSummary)
    assert summary.data.raw_output == (thinking, text_block("the summary"))
    assert summary.data.llm_stream_call is True


def test_a_checkpoint_source_names_its_compaction_and_command_and_cannot_be_changed() -> None:
    source = checkpoint_source("c", "command")
    assert is_checkpoint_source(source)
    assert source.wire() == {
        "kind": "compact-checkpoint",
        "compactionId": "c",
        "sourceCommandId": "command",
    }
    assert "sourceCommandId" not in checkpoint_source("c").wire()
    with pytest.raises(ValueError, match="frozen"):
        source.compaction_id = "d"


def test_a_backend_must_say_what_it_does_on_all_three_entries() -> None:
    assert CompactionEngine.__abstractmethods__ == {
        "compact_if_needed",
        "compact_now",
        "compact_region",
    }


async def test_a_single_unit_is_never_split_and_an_envelope_never_compacted(
    watched: Callable[[Session], Session],
) -> None:
    session = watched(Session.create("s"))
    session.append("request/header", {"header": {"system": "word" * 5_000}})
    user(session, "word" * 5_000)
    assert await GatedCompactionEngine().compact_now(IdleAgent(session)) is None
