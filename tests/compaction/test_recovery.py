"""Hooks that change a failed summary's input: what they may do, and what follows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from ctxarchive.archive.engine import ArchiveCompactionEngine
from ctxarchive.archive.rendering import render
from ctxarchive.compaction.basic import BasicCompactionEngine
from ctxarchive.compaction.policy import CompactionPolicy
from ctxarchive.compaction.pruner import replace_priced
from ctxarchive.compaction.recovery import MAX_RECOVERIES, SummaryFailure
from ctxarchive.compaction.summarizer import ModelAnswer, ModelRequest, ModelSummarizer
from ctxarchive.errors import CompactionError, ManualCompactionError, ModelError
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.metering.tokenizers import CharacterEstimator
from ctxarchive.session.events import CompactionSummary, UserMessage
from ctxarchive.session.log import Session
from ctxarchive.session.messages import ImageBlock, text_block
from ctxarchive.testing.engines import GatedCompactionEngine
from ctxarchive.testing.sessions import PROMPT, IdleAgent, assistant, user

pytestmark = pytest.mark.anyio

Watch = Callable[[Session], Session]
METER = TokenMeter(CharacterEstimator())


class BlindModel:
    """A model that takes no images."""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Refuse a request with an image, summarize any other."""
        self.requests.append(request)
        if any(isinstance(b, ImageBlock) for message in request.messages for b in message.content):
            raise ModelError("invalid", "images are not supported")
        return ModelAnswer(content=(text_block("a summary"),), provider="p", model="m")


def drop_images(failure: SummaryFailure) -> bool:
    """Replace the selected messages that hold an image by their text."""
    progress = False
    for seq in failure.source_event_seqs:
        event = failure.session.event_at(seq)
        if not isinstance(event, UserMessage):
            continue
        texts = [b for b in event.data.content if not isinstance(b, ImageBlock)]
        if len(texts) < len(event.data.content):
            data = {**event.data.wire(), "content": [block.wire() for block in texts]}
            replace_priced(failure.session, METER, (seq, seq), "user/message", data)
            progress = True
    return progress


def with_image(session: Session) -> Session:
    session.append(
        "user/message",
        {
            "role": "user",
            "content": [
                {"type": "text", "text": PROMPT},
                {"type": "image", "source": {"data": "AAAA", "media_type": "image/png"}},
            ],
            "source": {"kind": "user"},
        },
        surface_op="append",
    )
    assistant(session, "I see")
    user(session, PROMPT)
    assistant(session, "done")
    return session


def engine(
    model: BlindModel, *hooks: Callable[[SummaryFailure], bool], **policy: object
) -> BasicCompactionEngine:
    return BasicCompactionEngine(
        ModelSummarizer(model),
        policy=CompactionPolicy.model_validate(
            {"min_span_tokens": 0, "on_summary_failure": "error", **policy}
        ),
        meter=METER,
        summary_error_hooks=hooks,
    )


async def test_a_hook_that_drops_images_durably_gets_the_summary_retried_and_repriced(
    watched: Watch,
) -> None:
    session, model = watched(with_image(Session.create("s"))), BlindModel()
    image_seq = session.surface[0]
    before = METER.measure(session).span(0, 2)
    made = await engine(model, drop_images).compact_now(IdleAgent(session))
    assert made is not None
    assert len(model.requests) == 2
    assert image_seq not in made.shadowed_seqs
    assert made.shadowed_token_count < before
    summary = session.event_at(made.summary_seq)
    assert isinstance(summary, CompactionSummary)
    assert summary.data.summarizer == "model"
    assert summary.data.shadowed_seqs == made.shadowed_seqs


async def test_hooks_are_asked_in_order_and_the_first_that_helps_wins(watched: Watch) -> None:
    session, asked = watched(with_image(Session.create("s"))), list[str]()

    def declines(failure: SummaryFailure) -> bool:
        asked.append(str(failure.error))
        return False

    def never(_: SummaryFailure) -> bool:
        raise AssertionError

    hooks = (declines, drop_images, never)
    assert await engine(BlindModel(), *hooks).compact_now(IdleAgent(session)) is not None
    assert len(asked) == 1
    assert "images are not supported" in asked[0]


async def test_where_no_hook_helps_the_policy_decides_and_each_is_asked_once(
    watched: Watch,
) -> None:
    asked: list[SummaryFailure] = []

    def declines(failure: SummaryFailure) -> bool:
        asked.append(failure)
        return False

    session = watched(with_image(Session.create("s")))
    with pytest.raises(ManualCompactionError) as caught:
        await engine(BlindModel(), declines).compact_now(IdleAgent(session))
    assert caught.value.code == "summary"
    assert len(asked) == 1
    made = await engine(BlindModel(), declines, on_summary_failure="fallback").compact_now(
        IdleAgent(session)
    )
    assert made is not None
    assert len(asked) == 2
    summary = session.event_at(made.summary_seq)
    assert isinstance(summary, CompactionSummary)
    assert summary.data.summarizer == "extractive"


async def test_a_claim_of_progress_without_any_is_no_reason_to_retry(watched: Watch) -> None:
    session, model = watched(with_image(Session.create("s"))), BlindModel()
    with pytest.raises(ManualCompactionError):
        await engine(model, lambda _: True).compact_now(IdleAgent(session))
    assert len(model.requests) == 1


def breaks(asked: list[SummaryFailure]) -> Callable[[SummaryFailure], bool]:
    """A hook with a bug."""

    def hook(failure: SummaryFailure) -> bool:
        asked.append(failure)
        raise LookupError("a bug\nof the host")

    return hook


@pytest.mark.parametrize("policy", ["error", "fallback"])
@pytest.mark.parametrize("overridden", [False, True])
async def test_a_hook_that_raises_is_a_failed_summary_caused_by_what_it_raised(
    watched: Watch,
    policy: str,
    overridden: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Asked once for one failure; the bracket is closed with both errors."""
    session, asked = watched(with_image(Session.create("s"))), list[SummaryFailure]()
    before = session.surface.nodes
    mounted = engine(BlindModel(), breaks(asked), on_summary_failure=policy)
    if overridden:
        mounted = GatedCompactionEngine(summary_error_hooks=(breaks(asked),))
        mounted.error = RuntimeError("images are not supported")
    with pytest.raises(ManualCompactionError) as caught:
        await mounted.compact_now(IdleAgent(session))
    assert caught.value.code == "summary"
    assert isinstance(caught.value.__cause__, LookupError)
    assert len(asked) == 1
    assert session.surface.nodes == before
    end = session.last("compaction/end")
    assert end is not None
    assert "images are not supported; a recovery hook failed: a bug of the host" in end.data.error


async def test_a_hook_that_raises_fails_an_automatic_compaction_by_its_code(
    watched: Watch,
) -> None:
    session = watched(with_image(Session.create("s")))
    session.append("turn/start", {"turn": 1})
    agent = IdleAgent(session)
    with pytest.raises(CompactionError) as caught:
        await engine(BlindModel(), breaks([])).compact_if_needed(agent, "context-overflow")
    assert caught.value.code == "summary"
    assert isinstance(caught.value.__cause__, LookupError)


async def test_endless_progress_ends_with_the_failure(watched: Watch) -> None:
    session, model = watched(with_image(Session.create("s"))), BlindModel()

    def rewrites(failure: SummaryFailure) -> bool:
        seq = failure.source_event_seqs[-1]
        event = failure.session.event_at(seq)
        replace_priced(failure.session, METER, (seq, seq), event.type, event.wire()["data"])
        return True

    with pytest.raises(ManualCompactionError) as caught:
        await engine(model, rewrites).compact_now(IdleAgent(session))
    assert caught.value.code == "summary"
    assert len(model.requests) == 1 + MAX_RECOVERIES


async def test_a_changed_selection_is_noticed_before_any_hook_is_asked(watched: Watch) -> None:
    session = watched(with_image(Session.create("s")))
    asked: list[SummaryFailure] = []

    def hook(failure: SummaryFailure) -> bool:
        asked.append(failure)
        return False

    gated = GatedCompactionEngine(summary_error_hooks=(hook,))
    gated.error = RuntimeError("failed")

    def rival() -> None:
        seq = session.surface[0]
        data = session.event_at(seq).wire()["data"]
        replace_priced(session, METER, (seq, seq), "user/message", data)

    gated.during = rival
    with pytest.raises(ManualCompactionError) as caught:
        await gated.compact_now(IdleAgent(session))
    assert caught.value.code == "changed"
    assert asked == []


async def test_a_hook_that_replaces_beyond_the_selection_is_refused(watched: Watch) -> None:
    session = watched(with_image(Session.create("s")))

    def overreaches(failure: SummaryFailure) -> bool:
        nodes = failure.session.surface.nodes
        data = failure.session.event_at(nodes[0]).wire()["data"]
        replace_priced(failure.session, METER, (nodes[0], nodes[-1]), "user/message", data)
        return True

    with pytest.raises(ManualCompactionError) as caught:
        await engine(BlindModel(), overreaches).compact_now(IdleAgent(session))
    assert caught.value.code == "changed"


async def test_a_cancellation_is_noticed_before_any_hook_is_asked(watched: Watch) -> None:
    session = watched(with_image(Session.create("s")))

    def never(_: SummaryFailure) -> bool:
        raise AssertionError

    gated = GatedCompactionEngine(summary_error_hooks=(never,))
    gated.error = RuntimeError("failed")
    with anyio.CancelScope() as scope:
        gated.during = scope.cancel
        await gated.compact_now(IdleAgent(session))
    assert scope.cancelled_caught


async def test_a_hooks_decision_outlives_a_later_failure_of_the_summary(watched: Watch) -> None:
    session = watched(with_image(Session.create("s")))
    gated = GatedCompactionEngine(summary_error_hooks=(drop_images,))
    gated.error = RuntimeError("failed")
    with pytest.raises(ManualCompactionError):
        await gated.compact_now(IdleAgent(session))
    assert len(gated.calls) == 2
    first = session.event_at(session.surface[0])
    assert isinstance(first, UserMessage)
    assert first.data.content == (text_block(PROMPT),)


async def test_after_a_recovery_the_archive_still_files_and_points_to_everything(
    watched: Watch, tmp_path: Path
) -> None:
    session = watched(with_image(Session.create("s")))
    originals = list(session.surface)[:-1]
    with SqliteKnowledgeBase.open(tmp_path / "a.db", render=render) as knowledge:
        archive = ArchiveCompactionEngine(
            knowledge,
            summarizer=ModelSummarizer(BlindModel()),
            policy=CompactionPolicy(min_span_tokens=0, on_summary_failure="error"),
            meter=METER,
            summary_error_hooks=(drop_images,),
        )
        made = await archive.compact_now(IdleAgent(session))
        assert made is not None
        assert session.last("archive/failed") is None
        for seq in originals:
            assert knowledge.get("s", seq) is not None
