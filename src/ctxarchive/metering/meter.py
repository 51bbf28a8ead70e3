"""The meter: prices a session's request in tokens, and every part of it in the same unit.

Each event is priced once; a measurement after k new events does O(k) work. Changes no session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary

from ctxarchive.errors import SessionError
from ctxarchive.metering.estimate import counted_texts, fixed_tokens, header_texts
from ctxarchive.metering.tokenizers import Estimator, TiktokenEstimator
from ctxarchive.session.events import AssistantMessage, Event, Replace, RequestHeader
from ctxarchive.session.log import Session
from ctxarchive.session.messages import Message
from ctxarchive.session.surface import Surface


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What the next request would cost, in tokens."""

    total: int
    """Header and surface together."""
    header: int
    """The fixed envelope: system prompt and tools, by the estimator."""
    basis: Literal["reported", "estimated"]
    """Whether the total starts from a provider's own count."""
    length: int
    """Surface entries priced."""
    generation: int
    """The surface's replace generation when measured."""
    _sums: list[int]

    def span(self, first: int, last: int) -> int:
        """Tokens of the surface positions ``first`` to ``last``, both included.

        Raises:
            SessionError: ``surface``, when the positions are not on the measured surface.
        """
        if not 0 <= first <= last < self.length:
            raise SessionError(
                "surface", f"positions {first}..{last} of a surface of {self.length} entries"
            )
        return self._sums[last + 1] - self._sums[first]

    @property
    def surface(self) -> int:
        """Tokens of the whole surface, by the estimator."""
        return self._sums[self.length]


class _State:
    """What the meter knows of one session so far."""

    def __init__(self) -> None:
        self.next_seq = 0
        self.prices: dict[int, int] = {}
        self.surface = Surface()
        self.surface_tokens = 0
        self.header_tokens = 0
        self.generation = 0
        self.sums: list[int] = [0]
        self.reported: tuple[int, int] | None = None
        """A provider's total and the estimate at the same moment."""


class TokenMeter:
    """Prices sessions with one estimator.

    Args:
        estimator: how texts are counted; tiktoken by default.
        trust_usage: start from the provider's own counts where a session has them. A replay of
            another harness's log must not: its counts are of a history that no longer is.
    """

    def __init__(self, estimator: Estimator | None = None, *, trust_usage: bool = True) -> None:
        self.estimator: Estimator = estimator or TiktokenEstimator()
        self._trust_usage = trust_usage
        self._states: WeakKeyDictionary[Session, _State] = WeakKeyDictionary()

    def text(self, text: str) -> int:
        """Tokens of a text by itself."""
        return self.estimator.count(text)

    def message(self, message: Message) -> int:
        """Tokens of one message."""
        texts = counted_texts(message.content)
        return fixed_tokens(message) + sum(self.estimator.count(text) for text in texts)

    def price(self, session: Session, seq: int) -> int:
        """Tokens of the message at ``seq``, cached; 0 for an event no model sees."""
        state = self._state(session)
        known = state.prices.get(seq)
        if known is None:
            known = state.prices[seq] = self._price(session.event_at(seq))
        return known

    def measure(self, session: Session) -> Measurement:
        """What the next request of ``session`` costs now."""
        state = self._state(session)
        self._advance(session, state)
        estimate = state.header_tokens + state.surface_tokens
        total, basis = estimate, "estimated"
        if state.reported is not None:
            reported, then = state.reported
            total, basis = max(0, reported + estimate - then), "reported"
        return Measurement(
            total=total,
            header=state.header_tokens,
            basis="reported" if basis == "reported" else "estimated",
            length=len(state.surface),
            generation=state.generation,
            _sums=state.sums,
        )

    def _state(self, session: Session) -> _State:
        state = self._states.get(session)
        if state is None:
            state = self._states[session] = _State()
        return state

    def _advance(self, session: Session, state: _State) -> None:
        for seq in range(state.next_seq, len(session)):
            self._take(session.event_at(seq), state)
            state.next_seq = seq + 1
        if state.surface.replace_generation != state.generation:
            # A new list: a measurement taken before must keep the sums it was made with.
            state.generation = state.surface.replace_generation
            state.sums = [0]
        for seq in state.surface.since(len(state.sums) - 1):
            state.sums.append(state.sums[-1] + state.prices[seq])

    def _take(self, event: Event, state: _State) -> None:
        if isinstance(event, RequestHeader):
            header = event.data.header
            state.header_tokens = sum(self.estimator.count(text) for text in header_texts(header))
            state.reported = None
        elif event.surface_op is not None:
            price = state.prices.setdefault(event.seq, self._price(event))
            state.surface_tokens += price
            if isinstance(event.surface_op, Replace):
                shadowed = state.surface.replace(
                    event.surface_op.start_seq, event.surface_op.end_seq, event.seq
                )
                state.surface_tokens -= sum(state.prices[seq] for seq in shadowed)
            else:
                state.surface.append(event.seq)
            if self._trust_usage and isinstance(event, AssistantMessage):
                total = reported_total(event.data.usage)
                if total is not None:
                    state.reported = (total, state.header_tokens + state.surface_tokens)

    def _price(self, event: Event) -> int:
        message = event.message
        return 0 if message is None else self.message(message)


def reported_total(usage: dict[str, Any] | None) -> int | None:
    """Tokens in context after a call, from the provider's usage; ``None`` where it says nothing.

    Reads ``inputTokens``/``outputTokens`` with the cache counts beside them, in camel case or in
    the Messages API's snake case.
    """
    if not usage:
        return None
    names = (
        ("inputTokens", "input_tokens"),
        ("cacheReadTokens", "cache_read_input_tokens"),
        ("cacheWriteTokens", "cache_creation_input_tokens"),
        ("outputTokens", "output_tokens"),
    )
    counts = [
        next((usage[name] for name in pair if isinstance(usage.get(name), int)), 0)
        for pair in names
    ]
    return sum(counts) or None
