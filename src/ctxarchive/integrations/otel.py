"""Compactions as OpenTelemetry spans: one a compaction, one event a stage (extra ``otel``).

Only tells; decides nothing and changes nothing.
"""

from __future__ import annotations

from opentelemetry import trace

from ctxarchive.compaction.engine import StageReport

SPAN = "ctxarchive.compaction"
"""The name of a compaction's span."""


class OpenTelemetryObserver:
    """An observer for an engine: ``BasicCompactionEngine(observer=OpenTelemetryObserver())``.

    A span begins before the summary is asked for and ends with the commit or the failure. It holds
    the compaction's id, each stage as an event with its seconds and numbers, and the numbers of
    the first and the last stage as attributes.

    Args:
        tracer: whose spans; the global provider's by default.
    """

    def __init__(self, tracer: trace.Tracer | None = None) -> None:
        self._tracer = tracer or trace.get_tracer("ctxarchive")
        self._spans: dict[str, trace.Span] = {}

    def __call__(self, report: StageReport) -> None:
        """Take one stage's report."""
        span = self._spans.get(report.compaction_id)
        if span is None:
            span = self._spans[report.compaction_id] = self._tracer.start_span(
                SPAN, attributes={f"{SPAN}.id": report.compaction_id}
            )
        told: dict[str, str | int | float] = {"seconds": report.seconds, **report.numbers}
        if report.error is not None:
            told["error"] = report.error
        span.add_event(report.stage, told)
        if report.stage == "before" or report.final:
            when = "before" if report.stage == "before" else "after"
            for name, number in report.numbers.items():
                span.set_attribute(f"{SPAN}.{when}.{name}", number)
        if report.final:
            if report.error is not None:
                span.set_status(trace.StatusCode.ERROR, report.error)
            span.end()
            del self._spans[report.compaction_id]
