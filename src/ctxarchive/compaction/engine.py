"""The seam: what compaction does, never how. Hosts call it; backends implement it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

from ctxarchive.session.log import Session
from ctxarchive.session.messages import ContentBlock

Trigger = Literal["pressure", "context-overflow", "manual", "region"]
"""What asked for a compaction."""

AutomaticTrigger = Literal["pressure", "context-overflow"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """Which model an agent talks to, and what it can hold."""

    provider: str = ""
    model: str = ""
    context_window: int | None = None
    """Capacity in tokens; ``None`` asks the session's newest ``request/context``."""


class CompactionAgent(Protocol):
    """The owner of a session that may be compacted."""

    @property
    def session(self) -> Session:
        """The session."""

    @property
    def options(self) -> Routing:
        """Where its requests go."""


class ManualCompactionAgent(CompactionAgent, Protocol):
    """An agent that can hold back its turns while something else runs."""

    async def run_maintenance(self, task: Callable[[], Awaitable[T]]) -> T:
        """Run ``task`` while idle and keep later input waiting until it settles.

        Raises:
            ManualCompactionError: ``busy``, before anything ran, when the agent is active;
                ``cancelled``, when the agent itself cancelled the task.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """A successful compaction."""

    compaction_id: str
    source_command_id: str | None
    trigger: Trigger
    start_seq: int
    summary_seq: int
    checkpoint_seq: int
    """The message that replaced the span."""
    end_seq: int
    summary: tuple[ContentBlock, ...]
    """The checkpoint's text, additions included."""
    shadowed_range: tuple[int, int]
    """First and last shadowed seq in surface order; the first may be the greater."""
    shadowed_seqs: tuple[int, ...]
    shadowed_token_count: int
    checkpoint_token_count: int


Stage = Literal["before", "filed", "summarized", "built", "committed", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReport:
    """One stage of one compaction, for whoever watches."""

    compaction_id: str
    stage: Stage
    seconds: float
    """Wall time of the stage."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """Counts, e.g. records filed by layer, or tokens shadowed."""
    error: str | None = None
    final: bool = False
    """Whether the compaction is over with this stage; a filing that failed ends none."""


Observer = Callable[[StageReport], None]
"""Told of each stage. It changes nothing: what it raises is warned of once and goes no further."""


class CompactionEngine(ABC):
    """Replaces an older span of a session by one summary message.

    All entries share one lock, which is on the log; two of them never run on one session at once.
    """

    @abstractmethod
    async def compact_if_needed(
        self, agent: CompactionAgent, trigger: AutomaticTrigger
    ) -> CompactionResult | None:
        """Consider an automatic compaction inside the open turn.

        Args:
            agent: whose session.
            trigger: ``pressure`` applies threshold and retained tail; ``context-overflow`` takes
                whatever balanced span is useful.

        Returns:
            The compaction, or ``None`` when there is no need or no safe span.

        Raises:
            CompactionError: when one was begun and failed; ``stuck`` when it succeeded and the
                request is still over the threshold; ``capacity`` once a target, when no
                compaction can ever bring it below.
            SummaryError: when there is no summary and the policy forbids the fallback.
            ConfigError: once a target, when the policy contradicts itself for its capacity.
        """

    @abstractmethod
    async def compact_now(
        self, agent: ManualCompactionAgent, source_command_id: str | None = None
    ) -> CompactionResult | None:
        """Compact all but the newest indivisible unit of an idle agent's session.

        Returns:
            The compaction, flushed, or ``None`` when no useful span exists; then nothing was
            written.

        Raises:
            ManualCompactionError: for every expected failure, classified by its code.
        """

    @abstractmethod
    async def compact_region(
        self, start: int, end: int, agent: CompactionAgent
    ) -> CompactionResult:
        """Compact the surface from seq ``start`` to seq ``end``, both included.

        Raises:
            CompactionError: when the range is no balanced span of the surface, no turn is open,
                another compaction holds the lock, or this one fails.
            SummaryError: when there is no summary and the policy forbids the fallback.
        """
