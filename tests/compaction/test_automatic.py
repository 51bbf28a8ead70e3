"""Automatic compaction: when it runs, how far, and how it ends when it cannot help."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from pydantic import ValidationError

from ctxarchive.compaction.basic import BasicCompactionEngine
from ctxarchive.compaction.engine import Routing, StageReport
from ctxarchive.compaction.policy import CompactionPolicy, PolicyOverride
from ctxarchive.compaction.pruner import PruneSettings, ToolResultPruner
from ctxarchive.compaction.summarizer import ModelSummarizer
from ctxarchive.errors import CompactionError, ConfigError, ModelError, SummaryError
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.metering.tokenizers import CharacterEstimator
from ctxarchive.session.events import CompactionSummary
from ctxarchive.session.log import Session
from ctxarchive.testing.engines import GatedCompactionEngine
from ctxarchive.testing.models import Fail, ScriptedModel, Stall, say
from ctxarchive.testing.sessions import IdleAgent, assistant, result, user

pytestmark = pytest.mark.anyio

Watch = Callable[[Session], Session]
EAGER = CompactionPolicy(min_span_tokens=0, min_reclaim_tokens=0, on_summary_failure="error")


def turn(session: Session, *sizes: int) -> Session:
    """An open turn with one exchange a size: prompts of so many tokens, by characters/4."""
    session.append("turn/start", {"turn": 1})
    for size in sizes:
        user(session, "word" * size)
        assistant(session, "done")
    return session


def agent(session: Session, window: int | None = 1_000, model: str = "m") -> IdleAgent:
    return IdleAgent(session, options=Routing(provider="p", model=model, context_window=window))


def starts(session: Session) -> int:
    return sum(event.type == "compaction/start" for event in session.events)


@pytest.fixture
def opened(watched: Watch) -> Callable[..., Session]:
    """Makes a watched session with an open turn."""
    return lambda *sizes: turn(watched(Session.create("s")), *sizes)


async def test_below_the_threshold_nothing_happens(opened: Callable[..., Session]) -> None:
    engine, session = GatedCompactionEngine(EAGER), opened(300, 300)
    assert await engine.compact_if_needed(agent(session), "pressure") is None
    assert starts(session) == 0


async def test_at_the_threshold_the_head_is_replaced_and_the_tail_kept(
    opened: Callable[..., Session],
) -> None:
    engine, session = GatedCompactionEngine(EAGER), opened(300, 300, 150, 150)
    tail = session.surface.nodes[-2:]
    made = await engine.compact_if_needed(agent(session), "pressure")
    assert made is not None
    assert made.trigger == "pressure"
    assert session.surface.nodes[-2:] == tail
    kept = sum(engine.meter.price(session, seq) for seq in session.surface.nodes[1:])
    assert 160 <= kept <= 160 + 160  # retain_ratio 0.16, and at most one message more
    start = session.event_at(made.start_seq)
    assert start.data.turn == 1


async def test_without_an_open_turn_an_automatic_compaction_is_refused(watched: Watch) -> None:
    session = watched(Session.create("s"))
    user(session, "word" * 900)
    user(session, "next")
    with pytest.raises(CompactionError, match="no turn is open") as caught:
        await GatedCompactionEngine(EAGER).compact_if_needed(agent(session), "pressure")
    assert caught.value.code == "turn"


async def test_auto_false_compacts_neither_on_pressure_nor_on_overflow(
    opened: Callable[..., Session],
) -> None:
    engine = GatedCompactionEngine(EAGER.model_copy(update={"auto": False}))
    session = opened(900, 900)
    assert await engine.compact_if_needed(agent(session), "pressure") is None
    assert await engine.compact_if_needed(agent(session), "context-overflow") is None
    assert starts(session) == 0


async def test_no_second_compaction_for_less_than_min_reclaim_tokens(
    opened: Callable[..., Session],
) -> None:
    update = {"min_reclaim_tokens": 100, "compaction_retries": 0, "retain_tokens": 0}
    policy = EAGER.model_copy(update=update)
    engine, session = GatedCompactionEngine(policy), opened(200, 700)
    user(session, "word" * 20)
    engine.text = "c" * 900  # a checkpoint that alone is over the threshold
    with pytest.raises(CompactionError) as caught:
        await engine.compact_if_needed(agent(session, 300), "pressure")
    assert caught.value.code == "stuck"
    user(session, "word" * 20)  # some 30 tokens could be freed, not 100
    assert await engine.compact_if_needed(agent(session, 300), "pressure") is None
    assert starts(session) == 1
    user(session, "word" * 100)
    user(session, "word" * 100)
    with pytest.raises(CompactionError):
        await engine.compact_if_needed(agent(session, 300), "pressure")
    assert starts(session) == 2


async def test_a_result_that_is_still_too_big_ends_in_stuck_after_the_retries(
    opened: Callable[..., Session],
) -> None:
    engine, session = GatedCompactionEngine(EAGER), opened(300, 300, 300)
    user(session, "word" * 900)
    with pytest.raises(CompactionError, match=r"still \d+ tokens: the threshold is 800") as caught:
        await engine.compact_if_needed(agent(session), "pressure")
    assert caught.value.code == "stuck"
    assert starts(session) <= 1 + EAGER.compaction_retries


async def test_a_checkpoint_that_does_not_shrink_is_tried_again_and_ends_in_growth(
    opened: Callable[..., Session],
) -> None:
    engine, session = GatedCompactionEngine(EAGER), opened(300, 300, 150, 150)
    engine.text = "c" * 9_000
    before = session.surface.nodes
    with pytest.raises(CompactionError, match="the checkpoint has") as caught:
        await engine.compact_if_needed(agent(session), "pressure")
    assert caught.value.code == "growth"
    assert starts(session) == 1 + EAGER.compaction_retries
    assert session.surface.nodes == before


async def test_a_retry_after_growth_may_succeed(opened: Callable[..., Session]) -> None:
    engine, session = GatedCompactionEngine(EAGER), opened(300, 300, 150, 150)
    engine.text = "c" * 9_000

    def relent() -> None:
        if len(engine.calls) == 2:
            engine.text = "short"

    engine.during = relent
    made = await engine.compact_if_needed(agent(session), "pressure")
    assert made is not None
    assert starts(session) == 2


async def test_a_target_without_capacity_is_warned_about_once(
    opened: Callable[..., Session], caplog: pytest.LogCaptureFixture
) -> None:
    engine, session = GatedCompactionEngine(EAGER), opened(900, 900)
    with caplog.at_level(logging.WARNING, "ctxarchive"):
        for _ in range(3):
            assert await engine.compact_if_needed(agent(session, None), "pressure") is None
    assert [record.getMessage() for record in caplog.records] == [
        "no compaction on pressure: the capacity of p/m is unknown"
    ]
    assert starts(session) == 0


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (Routing(), "the default model"),
        (Routing(model="m"), "m"),
        (Routing(provider="p"), "p"),
    ],
)
async def test_a_target_without_a_name_is_called_by_what_is_known_of_it(
    opened: Callable[..., Session],
    caplog: pytest.LogCaptureFixture,
    options: Routing,
    name: str,
) -> None:
    async def silent(provider: str, model: str) -> int:
        raise ConnectionError(f"no answer for {provider!r} {model!r}")

    engine = GatedCompactionEngine(EAGER, capacity=silent)
    owner = IdleAgent(opened(900, 900), options=options)
    assert await engine.compact_if_needed(owner, "pressure") is None
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        f"the capacity of {name} was not to be had",
        "no compaction on pressure",
    ]
    assert caplog.records[1].getMessage().endswith(f"the capacity of {name} is unknown")
    with pytest.raises(ConfigError, match=f"tokens of {name}\\)"):
        CompactionPolicy(retain_tokens=900).resolve(options.provider, options.model, 1_000)


async def test_capacity_is_asked_of_the_provider_once_a_target(
    opened: Callable[..., Session],
) -> None:
    asked: list[tuple[str, str]] = []

    async def capacity(provider: str, model: str) -> int:
        asked.append((provider, model))
        return 1_000

    engine, session = GatedCompactionEngine(EAGER, capacity=capacity), opened(300, 300, 150, 150)
    assert await engine.compact_if_needed(agent(session, None), "pressure") is not None
    assert await engine.compact_if_needed(agent(session, None), "pressure") is None
    assert asked == [("p", "m")]


async def test_the_logs_capacity_counts_only_for_the_model_it_names(
    opened: Callable[..., Session],
) -> None:
    engine, session = GatedCompactionEngine(EAGER), opened(300, 300, 150, 150)
    named = {"provider": "p", "model": "other", "contextWindow": 1_000}
    session.append("request/context", named)
    assert await engine.compact_if_needed(agent(session, None), "pressure") is None
    session.append("request/context", {**named, "model": "m"})
    assert await engine.compact_if_needed(agent(session, None), "pressure") is not None


async def test_an_envelope_over_the_threshold_is_refused_once_and_never_looped(
    opened: Callable[..., Session],
) -> None:
    engine, session = GatedCompactionEngine(EAGER), opened(900, 900)
    session.append("request/header", {"header": {"system": "word" * 850}})
    with pytest.raises(CompactionError, match="no compaction can help") as caught:
        await engine.compact_if_needed(agent(session), "pressure")
    assert caught.value.code == "capacity"
    for _ in range(3):
        assert await engine.compact_if_needed(agent(session), "pressure") is None
    assert starts(session) == 0


async def test_a_retained_tail_that_reaches_the_threshold_is_refused_once_a_target(
    opened: Callable[..., Session],
) -> None:
    engine = GatedCompactionEngine(EAGER.model_copy(update={"retain_tokens": 900}))
    session = opened(900, 900)
    with pytest.raises(ConfigError, match="not below the threshold of 800"):
        await engine.compact_if_needed(agent(session), "pressure")
    assert await engine.compact_if_needed(agent(session), "pressure") is None
    assert starts(session) == 0


async def test_a_policy_of_one_exact_model_overrides_the_general_one(
    opened: Callable[..., Session],
) -> None:
    override = PolicyOverride(provider="p", model="small", threshold_ratio=0.3)
    engine = GatedCompactionEngine(EAGER.model_copy(update={"model_policies": (override,)}))
    session = opened(200, 200)
    assert await engine.compact_if_needed(agent(session), "pressure") is None
    assert await engine.compact_if_needed(agent(session, model="small"), "pressure") is not None


async def test_an_overflow_ignores_threshold_and_tail_and_needs_no_capacity(
    opened: Callable[..., Session],
) -> None:
    engine, session = GatedCompactionEngine(EAGER), opened(100, 100)
    newest = session.surface.nodes[-1]
    made = await engine.compact_if_needed(agent(session, None), "context-overflow")
    assert made is not None
    assert session.surface.nodes == (made.checkpoint_seq, newest)


async def test_pruning_before_a_summary_can_make_it_needless(watched: Watch) -> None:
    session = watched(Session.create("s"))
    session.append("turn/start", {"turn": 1})
    user(session, "run it")
    assistant(session, "", ("a", "bash", "{}"))
    result(session, "a", "x" * 3_600)
    assistant(session, "word" * 200)
    pruner = ToolResultPruner(PruneSettings(max_chars=400, head_chars=100, tail_chars=50))
    engine = GatedCompactionEngine(EAGER, pruner=pruner)
    assert await engine.compact_if_needed(agent(session), "pressure") is None
    assert engine.calls == []
    assert engine.meter.measure(session).total < 800
    assert session.surface.replace_generation == 1


async def test_the_retained_tail_is_not_pruned_on_pressure_but_is_after_an_overflow(
    watched: Watch,
) -> None:
    session = watched(Session.create("s"))
    session.append("turn/start", {"turn": 1})
    user(session, "word" * 400)
    assistant(session, "", ("a", "bash", "{}"))
    result(session, "a", "x" * 2_000)
    pruner = ToolResultPruner(PruneSettings(max_chars=400, head_chars=100, tail_chars=50))
    engine = GatedCompactionEngine(EAGER, pruner=pruner)
    assert await engine.compact_if_needed(agent(session), "pressure") is not None
    assert len(session.derive_messages()[-1].content) == 1
    assert session.last("compaction/prune") is None
    await engine.compact_if_needed(agent(session), "context-overflow")
    assert session.last("compaction/prune") is not None


async def test_a_failed_summary_falls_back_to_the_extractive_one_which_is_marked(
    opened: Callable[..., Session],
) -> None:
    model = ScriptedModel(summary=Fail(error=ModelError("context-overflow", "too long")))
    engine = BasicCompactionEngine(
        ModelSummarizer(model),
        policy=EAGER.model_copy(update={"on_summary_failure": "fallback"}),
        meter=TokenMeter(CharacterEstimator()),
    )
    session = opened(300, 300, 150, 150)
    assert await engine.compact_if_needed(agent(session), "pressure") is not None
    summary = session.last("compaction/summary")
    assert isinstance(summary, CompactionSummary)
    assert summary.data.summarizer == "extractive"
    assert summary.data.llm_stream_call is None


async def test_a_failed_summary_is_the_error_where_the_policy_says_so(
    opened: Callable[..., Session],
) -> None:
    model = ScriptedModel(summary=say("   "))
    engine = BasicCompactionEngine(
        ModelSummarizer(model), policy=EAGER, meter=TokenMeter(CharacterEstimator())
    )
    session = opened(300, 300, 150, 150)
    with pytest.raises(SummaryError) as caught:
        await engine.compact_if_needed(agent(session), "pressure")
    assert caught.value.code == "empty"


async def test_a_summarizer_that_hangs_is_given_up_after_its_timeout(
    opened: Callable[..., Session],
) -> None:
    model = ScriptedModel(summary=Stall())
    engine = BasicCompactionEngine(
        ModelSummarizer(model),
        policy=EAGER.model_copy(update={"summary_timeout_s": 0.01}),
        meter=TokenMeter(CharacterEstimator()),
    )
    with pytest.raises(SummaryError, match=r"no summary within 0\.01 s"):
        await engine.compact_if_needed(agent(opened(300, 300, 150, 150)), "pressure")


async def test_a_model_summary_keeps_the_whole_output_and_names_its_one_call(
    opened: Callable[..., Session],
) -> None:
    model = ScriptedModel(summary=say("a summary", usage={"inputTokens": 7}))
    engine = BasicCompactionEngine(
        ModelSummarizer(model), policy=EAGER, meter=TokenMeter(CharacterEstimator())
    )
    session = opened(300, 300, 150, 150)
    header = {"config": {"provider": "p"}, "system": "be brief", "tools": [{"name": "bash"}]}
    session.append("request/header", {"header": header})
    assert await engine.compact_if_needed(agent(session), "pressure") is not None
    summary = session.last("compaction/summary")
    assert isinstance(summary, CompactionSummary)
    assert summary.data.llm_stream_call is True
    assert summary.data.raw_output is not None
    assert summary.data.usage == {"inputTokens": 7}
    assert summary.data.max_tokens == EAGER.max_tokens
    assert model.requests[0].header == header


async def test_a_summarization_route_is_asked_instead_of_the_conversations_model(
    opened: Callable[..., Session],
) -> None:
    model = ScriptedModel()
    engine = BasicCompactionEngine(
        ModelSummarizer(model, route=("cheap", "tiny")),
        policy=EAGER,
        meter=TokenMeter(CharacterEstimator()),
    )
    session = opened(300, 300, 150, 150)
    session.append("request/header", {"header": {"config": {"provider": "p"}, "system": "s"}})
    await engine.compact_if_needed(agent(session), "pressure")
    assert model.requests[0].header == {
        "config": {"provider": "cheap", "model": "tiny"},
        "system": "s",
    }


async def test_an_observer_is_told_of_every_stage_with_its_numbers(
    opened: Callable[..., Session],
) -> None:
    reports: list[StageReport] = []
    engine = BasicCompactionEngine(
        policy=EAGER, meter=TokenMeter(CharacterEstimator()), observer=reports.append
    )
    session = opened(300, 300, 150, 150)
    before = engine.meter.measure(session).total
    made = await engine.compact_if_needed(agent(session), "pressure")
    assert made is not None
    assert [report.stage for report in reports] == ["before", "summarized", "committed"]
    assert {report.compaction_id for report in reports} == {made.compaction_id}
    assert reports[0].numbers == {
        "total_tokens": before,
        "threshold_tokens": 800,
        "shadowed_tokens": made.shadowed_token_count,
        "shadowed_entries": len(made.shadowed_seqs),
    }
    assert reports[-1].numbers == {
        "total_tokens": engine.meter.measure(session).total,
        "shadowed_tokens": made.shadowed_token_count,
        "checkpoint_tokens": made.checkpoint_token_count,
    }
    assert all(report.seconds >= 0 for report in reports)


async def test_an_observer_is_told_of_a_failure(opened: Callable[..., Session]) -> None:
    reports: list[StageReport] = []
    engine = GatedCompactionEngine(EAGER, observer=reports.append)
    engine.error = RuntimeError("no luck")
    with pytest.raises(SummaryError, match="no luck"):
        await engine.compact_if_needed(agent(opened(300, 300, 150, 150)), "pressure")
    assert [(report.stage, report.error) for report in reports] == [
        ("before", None),
        ("failed", "no summary: no luck"),
    ]


@pytest.mark.parametrize("stage", ["before", "committed", "failed"])
async def test_an_observer_that_raises_changes_nothing_and_is_warned_of_once(
    opened: Callable[..., Session], caplog: pytest.LogCaptureFixture, stage: str
) -> None:
    """What was committed stays committed, and what failed fails with its own error."""
    seen: list[str] = []

    def observe(report: StageReport) -> None:
        seen.append(report.stage)
        if report.stage == stage:
            raise LookupError("a bug\nof the dashboard")

    engine = GatedCompactionEngine(EAGER, observer=observe)
    for turn in range(2):
        session = opened(300, 300, 150, 150)
        if stage == "failed":
            engine.error = RuntimeError("no luck")
            with pytest.raises(SummaryError, match="no luck"):
                await engine.compact_if_needed(agent(session), "pressure")
        else:
            assert await engine.compact_if_needed(agent(session), "pressure") is not None
        end = session.last("compaction/end")
        assert end is not None
        assert (end.data.error is None) == (stage != "failed")
        assert seen == ["before", "failed" if stage == "failed" else "committed"] * (turn + 1)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith(f"the observer of compactions failed at {stage!r}, which changes")
    assert warning.endswith(" nothing: LookupError: a bug of the dashboard")


async def test_regions_with_bad_edges_are_refused_before_anything_is_written(
    watched: Watch,
) -> None:
    session = watched(Session.create("s"))
    session.append("turn/start", {"turn": 1})
    first = user(session, "word" * 400).seq
    call = assistant(session, "", ("a", "bash", "{}")).seq
    answer = result(session, "a", "x").seq
    engine, owner, before = GatedCompactionEngine(EAGER), agent(session), len(session)
    for start, end in ((first, call), (answer, answer), (answer, first), (first, 999)):
        with pytest.raises(CompactionError) as caught:
            await engine.compact_region(start, end, owner)
        assert caught.value.code == "range"
    assert len(session) == before
    assert (await engine.compact_region(first, answer, owner)).shadowed_range == (first, answer)


async def test_a_checkpoints_place_on_the_surface_decides_not_its_seq(
    opened: Callable[..., Session],
) -> None:
    engine, session = GatedCompactionEngine(EAGER), opened(300, 300, 150, 150)
    owner = agent(session)
    first = await engine.compact_if_needed(owner, "pressure")
    assert first is not None
    second = await engine.compact_region(session.surface[0], session.surface[1], owner)
    start, end = second.shadowed_range
    assert start > end
    assert second.shadowed_seqs[0] == first.checkpoint_seq


def test_unknown_keys_and_contradictions_of_a_policy_are_refused() -> None:
    for wrong in (
        {"threshold": 0.5},
        {"retain_ratio": 0.8},
        {"summarization_model": "m"},
        {"model_policies": [{"provider": "p", "model": "m", "auto": False}]},
    ):
        with pytest.raises(ValidationError):
            CompactionPolicy.model_validate(wrong)
