"""Compactions as OpenTelemetry spans, taken up by the real SDK in memory."""

from __future__ import annotations

import anyio
import pytest

from ctxarchive.errors import ManualCompactionError
from ctxarchive.testing.engines import GatedCompactionEngine
from ctxarchive.testing.sessions import IdleAgent, closed_conversation

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from ctxarchive.integrations.otel import SPAN, OpenTelemetryObserver


@pytest.fixture
def exported() -> InMemorySpanExporter:
    """What has been exported."""
    return InMemorySpanExporter()


@pytest.fixture
def engine(exported: InMemorySpanExporter) -> GatedCompactionEngine:
    """An engine that is watched."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exported))
    return GatedCompactionEngine(observer=OpenTelemetryObserver(provider.get_tracer("test")))


def test_a_compaction_is_one_span_with_its_stages_and_numbers(
    engine: GatedCompactionEngine, exported: InMemorySpanExporter
) -> None:
    made = anyio.run(engine.compact_now, IdleAgent(closed_conversation(3)))
    assert made is not None
    (span,) = exported.get_finished_spans()
    assert span.name == SPAN
    assert [event.name for event in span.events] == ["before", "committed"]
    assert span.attributes is not None
    assert span.attributes[f"{SPAN}.id"] == made.compaction_id
    assert span.attributes[f"{SPAN}.before.shadowed_tokens"] == made.shadowed_token_count
    assert span.attributes[f"{SPAN}.after.checkpoint_tokens"] == made.checkpoint_token_count
    assert span.status.status_code is StatusCode.UNSET


def test_a_failure_ends_the_span_with_an_error(
    engine: GatedCompactionEngine, exported: InMemorySpanExporter
) -> None:
    engine.error = RuntimeError("no luck")
    with pytest.raises(ManualCompactionError):
        anyio.run(engine.compact_now, IdleAgent(closed_conversation(3)))
    (span,) = exported.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "no summary: no luck"
    engine.error = None
    session = closed_conversation(3)
    anyio.run(engine.compact_now, IdleAgent(session))
    assert len(exported.get_finished_spans()) == 2
