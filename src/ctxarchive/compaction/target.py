"""What a policy means for the model an agent talks to: capacity asked once, contradictions told once.

Decides nothing about spans; a target that no compaction can help is named, and never tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, runtime_checkable

from ctxarchive.compaction.engine import CompactionAgent
from ctxarchive.compaction.policy import Budget, CompactionPolicy, target_name
from ctxarchive.errors import CompactionError, ConfigError
from ctxarchive.metering.meter import Measurement
from ctxarchive.session.events import RequestContext

_LOG = logging.getLogger(__name__)

CapacitySource = Callable[[str, str], Awaitable[int | None]]
"""Says how many tokens a provider's model can hold; ``None`` where it does not know."""


@runtime_checkable
class CapacityModel(Protocol):
    """A model that knows what it can hold."""

    async def capacity(self, provider: str, model: str) -> int | None:
        """Tokens ``model`` can hold; ``None`` where that is not known."""


class Capacities:
    """What each target can hold, asked until there is an answer.

    Args:
        source: who is asked; ``None`` knows of no target.
    """

    def __init__(self, source: CapacitySource | None) -> None:
        self._source = source
        self._known: dict[tuple[str, str], int | None] = {}
        self._failed: set[tuple[str, str]] = set()

    def known(self, provider: str, model: str) -> int | None:
        """What was answered, in tokens; ``None`` for a target nobody asked of or knows."""
        return self._known.get((provider, model))

    async def ask(self, provider: str, model: str) -> int | None:
        """The capacity in tokens; ``None`` where it is not to be had."""
        if self._source is not None and (provider, model) not in self._known:
            try:
                self._known[provider, model] = await self._source(provider, model)
            except Exception as error:  # noqa: BLE001 - a failing endpoint leaves it unknown
                # No answer: it is asked again, for one failure must not end compaction for good.
                if (provider, model) not in self._failed:
                    name = target_name(provider, model)
                    _LOG.warning("the capacity of %s was not to be had: %s", name, error)
                self._failed.add((provider, model))
        return self.known(provider, model)


class Targets:
    """The models a policy has met.

    Args:
        policy: what is resolved.
        capacity: asked once a target whose capacity neither agent nor log says.
    """

    def __init__(self, policy: CompactionPolicy, capacity: CapacitySource | None = None) -> None:
        self._policy = policy
        self._capacities = Capacities(capacity)
        self._told: set[tuple[str, ...]] = set()

    async def budget(self, agent: CompactionAgent) -> Budget | None:
        """The policy's numbers for an automatic compaction; ``None`` where there are none.

        Raises:
            ConfigError: once a target, when the policy contradicts itself for its capacity.
        """
        name = (agent.options.provider, agent.options.model)
        window = self._window(agent)
        if window is None:
            window = await self._capacities.ask(*name)
        if window is None:
            if self._first_time("capacity", *name):
                _LOG.warning(
                    "no compaction on pressure: the capacity of %s is unknown", target_name(*name)
                )
            return None
        try:
            return self._policy.resolve(*name, window)
        except ConfigError:
            if self._first_time("policy", *name, str(window)):
                raise
            return None

    def known(self, agent: CompactionAgent) -> Budget | None:
        """The numbers for a compaction that was asked for, which needs no threshold to happen."""
        window = self._window(agent)
        if window is None:
            return None
        try:
            return self._policy.resolve(agent.options.provider, agent.options.model, window)
        except ConfigError:
            return None  # the automatic path tells of it

    def possible(self, agent: CompactionAgent, budget: Budget, measurement: Measurement) -> bool:
        """Whether compaction can bring a request under its threshold at all.

        Raises:
            CompactionError: ``capacity``, once a target, when the fixed envelope alone exceeds it.
        """
        if measurement.header < budget.threshold:
            return True
        if self._first_time(
            "envelope", agent.options.provider, agent.options.model, str(budget.threshold)
        ):
            raise CompactionError(
                "capacity",
                f"system prompt and tools take {measurement.header} tokens, the threshold is "
                f"{budget.threshold}: no compaction can help",
            )
        return False

    def _window(self, agent: CompactionAgent) -> int | None:
        options = agent.options
        if options.context_window is not None:
            return options.context_window
        event = agent.session.last("request/context")
        if isinstance(event, RequestContext) and event.data.context_window is not None:
            target = (options.provider, options.model)
            unnamed = not options.model or not event.data.model
            if unnamed or target == (event.data.provider, event.data.model):
                return event.data.context_window
        return self._capacities.known(options.provider, options.model)

    def _first_time(self, *what: str) -> bool:
        first = what not in self._told
        self._told.add(what)
        return first
