"""Where a host may step in: before a step, after a failed request, before a tool runs.

Compaction itself is installed as such hooks; the loop knows no trigger.
"""

from __future__ import annotations

import logging

from ctxarchive.compaction.basic import BasicCompactionEngine
from ctxarchive.compaction.engine import CompactionAgent, CompactionEngine
from ctxarchive.errors import CompactionError, ConfigError, ModelError, SummaryError
from ctxarchive.session.messages import ToolCallBlock

_LOG = logging.getLogger(__name__)


class AgentHooks:
    """What a host may override; every hook does nothing by itself."""

    async def pre_step(self, agent: CompactionAgent) -> None:
        """Called in an open turn, before each step's request is made."""

    async def request_error(self, agent: CompactionAgent, error: ModelError, attempt: int) -> bool:
        """Called after a request failed.

        Args:
            agent: whose request.
            error: why it failed.
            attempt: how often this step's request has been tried again already.

        Returns:
            Whether to try again; the first hook that says so wins. Else ``error`` ends the turn.
        """
        del agent, error, attempt
        return False

    async def authorize(self, agent: CompactionAgent, call: ToolCallBlock) -> str | None:
        """Called before a tool runs; a text denies it and says why, ``None`` lets it run."""
        del agent, call
        return None


class CompactionHooks(AgentHooks):
    """Compacts on pressure before a step, and on a provider's overflow after a request.

    A compaction that fails leaves the session as it was: the step goes on, with a warning.

    Args:
        engine: what compacts.
        max_overflow_retries: how often one request may be tried again after an overflow.
    """

    def __init__(self, engine: CompactionEngine, *, max_overflow_retries: int = 1) -> None:
        self._engine = engine
        self._max = max_overflow_retries

    async def pre_step(self, agent: CompactionAgent) -> None:
        """Compact where the request has grown to the threshold."""
        try:
            await self._engine.compact_if_needed(agent, "pressure")
        except (CompactionError, SummaryError, ConfigError) as error:
            _LOG.warning("session %s: not relieved: %s", agent.session.id, error)

    async def request_error(self, agent: CompactionAgent, error: ModelError, attempt: int) -> bool:
        """Try again after an overflow, once the surface has really shrunk."""
        if error.code != "context-overflow" or attempt >= self._max:
            return False
        generation = agent.session.surface.replace_generation
        try:
            await self._engine.compact_if_needed(agent, "context-overflow")
        except (CompactionError, SummaryError, ConfigError) as failure:
            _LOG.warning("session %s: overflow not relieved: %s", agent.session.id, failure)
        return agent.session.surface.replace_generation > generation


def compaction_hooks(engine: CompactionEngine | None) -> tuple[AgentHooks, ...]:
    """The hooks an engine needs; none where there is no engine, or its policy says ``auto: false``."""
    if engine is None:
        return ()
    if not isinstance(engine, BasicCompactionEngine):
        return (CompactionHooks(engine),)
    if not engine.policy.auto:
        return ()
    return (CompactionHooks(engine, max_overflow_retries=engine.policy.max_overflow_retries),)
