"""Automatic compaction as a host's loop asks for it: before a step, and after a failed request.

A compaction that fails leaves the session as it was; the host goes on, with a warning.
"""

from __future__ import annotations

import logging

from ctxarchive.compaction.basic import BasicCompactionEngine
from ctxarchive.compaction.engine import AutomaticTrigger, CompactionAgent, CompactionEngine
from ctxarchive.errors import CompactionError, ConfigError, ModelError, SummaryError

_LOG = logging.getLogger(__name__)


class AutomaticCompaction:
    """What a host calls at the two moments at which history may have to shrink.

    Args:
        engine: what compacts.
        max_overflow_retries: how often one request may be tried again after an overflow.
    """

    def __init__(self, engine: CompactionEngine, *, max_overflow_retries: int = 1) -> None:
        self._engine = engine
        self._max = max_overflow_retries

    async def pre_step(self, agent: CompactionAgent) -> None:
        """Compact where the request has grown to the threshold."""
        await self._relieve(agent, "pressure")

    async def request_error(self, agent: CompactionAgent, error: ModelError, attempt: int) -> bool:
        """Compact after a provider's overflow.

        Args:
            agent: whose request failed.
            error: why.
            attempt: how often this request has been tried again already.

        Returns:
            Whether to try again: only once the surface has really shrunk.
        """
        if error.code != "context-overflow" or attempt >= self._max:
            return False
        generation = agent.session.surface.replace_generation
        await self._relieve(agent, "context-overflow")
        return agent.session.surface.replace_generation > generation

    async def _relieve(self, agent: CompactionAgent, trigger: AutomaticTrigger) -> None:
        try:
            await self._engine.compact_if_needed(agent, trigger)
        except (CompactionError, SummaryError, ConfigError) as error:
            _LOG.warning("session %s: %s not relieved: %s", agent.session.id, trigger, error)


def automatic(engine: CompactionEngine | None) -> tuple[AutomaticCompaction, ...]:
    """What an engine needs called; nothing without one, or where its policy says ``auto: false``."""
    if engine is None:
        return ()
    if not isinstance(engine, BasicCompactionEngine):
        return (AutomaticCompaction(engine),)
    if not engine.policy.auto:
        return ()
    return (AutomaticCompaction(engine, max_overflow_retries=engine.policy.max_overflow_retries),)
