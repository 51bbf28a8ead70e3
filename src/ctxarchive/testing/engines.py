"""Engines under a test's control."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio

from ctxarchive.compaction.basic import BasicCompactionEngine
from ctxarchive.compaction.policy import CompactionPolicy
from ctxarchive.compaction.summarizer import Summary, SummaryInput
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.metering.tokenizers import CharacterEstimator
from ctxarchive.session.messages import ContentBlock


class GatedCompactionEngine(BasicCompactionEngine):
    """An engine whose summaries wait, fail, or meddle, as told.

    Args:
        policy: when and how far; by default the smallest span is worth compacting.
        options: see the basic engine.
    """

    def __init__(self, policy: CompactionPolicy | None = None, **options: Any) -> None:
        options.setdefault("meter", TokenMeter(CharacterEstimator()))
        super().__init__(
            policy=policy
            or CompactionPolicy(
                min_span_tokens=0, min_reclaim_tokens=0, on_summary_failure="error"
            ),
            **options,
        )
        self.text = "checkpoint"
        self.raw_output: tuple[ContentBlock, ...] | None = None
        self.usage: dict[str, Any] | None = None
        self.error: Exception | None = None
        """Raised instead of a summary."""
        self.gate: anyio.Event | None = None
        """Waited for before each summary."""
        self.during: Callable[[], None] | None = None
        """Called while each summary is written."""
        self.calls: list[SummaryInput] = []

    async def summarize(self, input: SummaryInput) -> Summary:
        """The text it was told to give.

        Raises:
            Exception: what :attr:`error` says.
        """
        self.calls.append(input)
        if self.during is not None:
            self.during()
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        return Summary(
            text=self.text,
            summarizer="model",
            provider="summary-provider",
            model="summary-model",
            raw_output=self.raw_output,
            usage=self.usage,
        )
