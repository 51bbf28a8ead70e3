"""Where a host may step in: before a step, after a failed request, before a tool runs."""

from __future__ import annotations

from ctxarchive.compaction.engine import CompactionAgent
from ctxarchive.errors import ModelError
from ctxarchive.session.messages import ToolCallBlock


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
