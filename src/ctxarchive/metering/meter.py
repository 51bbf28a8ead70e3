"""The meter: prices a session's request in tokens, and every part of it in the same unit.

Each event is priced once; a measurement after k new events does O(k) work. Changes no session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any, Literal
from weakref import WeakKeyDictionary

from ctxarchive.errors import SessionError
from ctxarchive.metering.estimate import event_tokens, header_texts, message_tokens
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
        """Tokens before each surface position, and of the whole surface."""
        self.reported: tuple[int, int] | None = None
        """A provider's total and the estimate at the same moment."""

    def append(self, seqs: Sequence[int]) -> None:
        """Take priced events that were appended to the surface."""
        self.surface.extend(seqs)
        self.surface_tokens += sum(map(self.prices.__getitem__, seqs))

    def replace(self, operation: Replace, seq: int) -> None:
        """Take a priced event that replaced a run of the surface."""
        shadowed = self.surface.replace(operation.start_seq, operation.end_seq, seq)
        self.surface_tokens += self.prices[seq] - sum(map(self.prices.__getitem__, shadowed))

    def add_up(self) -> None:
        """Bring the sums up to the surface, once for however many replacements."""
        if self.generation != self.surface.replace_generation:
            # A new list: a measurement taken before must keep the sums it was made with.
            self.generation = self.surface.replace_generation
            self.sums = [0]
        seqs = self.surface.since(len(self.sums) - 1)
        prices = map(self.prices.__getitem__, seqs)
        self.sums.extend(islice(accumulate(prices, initial=self.sums[-1]), 1, None))


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
        return message_tokens(message, self.estimator.count)

    def price(self, session: Session, seq: int) -> int:
        """Tokens of the message at ``seq``, cached; 0 for an event no model sees."""
        state = self._state(session)
        known = state.prices.get(seq)
        if known is None:
            known = state.prices[seq] = event_tokens(session.event_at(seq), self.estimator.count)
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
        new = session.since(state.next_seq)
        # Priced before anything is taken: a price that raises must leave no half-taken state.
        headers = self._price_all(new, state)
        appended: list[int] = []
        for event in new:
            operation = event.surface_op
            if operation is None:
                if event.seq in headers:
                    state.header_tokens = headers[event.seq]
                    state.reported = None
                continue
            if operation == "append":
                appended.append(event.seq)
            elif isinstance(operation, Replace):
                state.append(appended)
                appended = []
                state.replace(operation, event.seq)
            if not self._trust_usage or event.type != "assistant/message":
                continue
            if isinstance(event, AssistantMessage) and event.data.usage:
                state.append(appended)
                appended = []
                total = reported_total(event.data.usage)
                if total is not None:
                    state.reported = (total, state.header_tokens + state.surface_tokens)
        state.append(appended)
        state.add_up()
        state.next_seq += len(new)

    def _price_all(self, events: Sequence[Event], state: _State) -> dict[int, int]:
        """Price what enters the surface; the prices of the request headers among the events."""
        count, prices = self.estimator.count, state.prices
        headers: dict[int, int] = {}
        for event in events:
            if event.surface_op is not None:
                if event.seq not in prices:
                    prices[event.seq] = event_tokens(event, count)
            elif isinstance(event, RequestHeader):
                headers[event.seq] = sum(count(text) for text in header_texts(event.data.header))
        return headers


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
