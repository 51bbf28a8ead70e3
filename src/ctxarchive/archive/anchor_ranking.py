"""Which anchors an agent is likeliest to need again, and which of them fit. Pure.

The ranking is data: weights in the config, over how a token was used and when.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from math import log1p

from ctxarchive.archive.anchors import (
    KINDS,
    AnchorKind,
    bare,
    commands,
    distinct,
    excerpt,
    holds,
    kind_of,
    words,
)
from ctxarchive.archive.settings import AnchorWeights
from ctxarchive.session.events import AssistantMessage, Event, ToolResult, UserMessage
from ctxarchive.session.messages import ToolCallBlock, joined_text

GONE_AFTER = 8
"""Compactions since its last use after which a token is no anchor any more; a search finds it."""

_EDITS = ('"old_string"', '"new_string"', '"content"', '"file_text"', "*** Begin Patch")

_BREAKS: Mapping[AnchorKind, str] = {"commands": ", "}
"""What parts the anchors of a kind, where it is not a blank."""


@dataclass(slots=True)
class Use:
    """How a token was used so far."""

    mentions: int = 0
    """Events that hold it."""
    calls: int = 0
    """Tool calls whose arguments hold it."""
    edits: int = 0
    """Those of them that changed something."""
    asked: int = 0
    """Messages of the user that hold it."""
    failures: int = 0
    """Failed results that hold it."""
    first_asked_seq: int = -1
    last_asked_seq: int = -1
    last_seq: int = -1
    last_call_seq: int = -1


def tally(event: Event, uses: dict[str, Use]) -> None:
    """Count what one event uses."""
    if isinstance(event, AssistantMessage):
        _count(uses, event.seq, distinct(joined_text(event.data.message.content)))
        for block in event.data.message.content:
            if isinstance(block, ToolCallBlock):
                _tally_call(event.seq, block.arguments, uses)
    elif isinstance(event, ToolResult):
        block = event.data.message.block
        found = _count(uses, event.seq, distinct(excerpt(joined_text(block.content))))
        if block.is_error:
            for use in found:
                use.failures += 1
    elif isinstance(event, UserMessage) and not event.is_checkpoint:
        found = _count(uses, event.seq, distinct(joined_text(event.data.content)))
        if event.data.source.kind == "user":
            _tally_asked(event.seq, found)


def _tally_asked(seq: int, found: Iterable[Use]) -> None:
    for use in found:
        use.asked += 1
        use.last_asked_seq = seq
        if use.first_asked_seq < 0:
            use.first_asked_seq = seq


def _tally_call(seq: int, arguments: str, uses: dict[str, Use]) -> None:
    edits = any(mark in arguments for mark in _EDITS)
    for use in _count(uses, seq, distinct(arguments) | commands(arguments)):
        use.calls += 1
        use.edits += edits
        use.last_call_seq = seq


def _count(uses: dict[str, Use], seq: int, found: Iterable[str]) -> list[Use]:
    counted: list[Use] = []
    for token in found:
        use = uses.get(token)
        if use is None:
            use = uses[token] = Use()
        use.mentions += 1
        use.last_seq = seq
        counted.append(use)
    return counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The span at hand, and the compactions before it."""

    first_seq: int
    last_seq: int
    earlier: tuple[int, ...]
    """Last shadowed seq of each earlier compaction, ascending."""
    first_asked: int = -1
    """Seq of the span's first message of the user; -1 where there is none."""
    last_asked: int = -1
    """Seq of its last one."""
    open_items: AbstractSet[str] = frozenset()
    """Tokens of what is still to be done."""
    called_words: AbstractSet[str] = frozenset()
    """Words of the tokens that calls held."""


def score(token: str, use: Use, weights: AnchorWeights, moment: Moment) -> float:
    """How likely a token is to be needed again, for each code point it takes."""
    worth = (
        weights.mentions * log1p(use.mentions)
        + weights.recency * _recency(use.last_seq, moment)
        + weights.open_items * (token in moment.open_items)
    )
    if use.calls:
        worth += weights.called + weights.calls * log1p(use.calls)
        worth += weights.call_recency * _recency(use.last_call_seq, moment)
        worth += weights.edits * log1p(use.edits)
    elif worth > 0 and moment.called_words >= set(words(token)):
        worth += weights.familiar
    if use.asked:
        worth += weights.asked * log1p(use.asked)
        if use.first_asked_seq <= moment.first_asked <= use.last_asked_seq:
            worth += weights.first_asked
        if use.last_asked_seq == moment.last_asked:
            worth += weights.last_asked
    if use.failures:
        worth += weights.failures * log1p(use.failures)
    if " " in token:
        worth *= weights.commands
    faded = len(moment.earlier) - bisect_left(moment.earlier, use.last_seq)
    return float(worth * weights.fade**faded / (len(token) + weights.length_offset))


def _recency(seq: int, moment: Moment) -> float:
    """Where in the span a token was used last: 0 at its beginning or before, 1 at its end."""
    length = max(1, moment.last_seq - moment.first_seq)
    return max(0.0, min(1.0, (seq - moment.first_seq + 1) / length))


def ranked(uses: Mapping[str, Use], weights: AnchorWeights, moment: Moment) -> list[str]:
    """The tokens that are worth anything, the likeliest first; equal ones in order of their text."""
    gone = moment.earlier[-GONE_AFTER] if len(moment.earlier) >= GONE_AFTER else -1
    called = {word for token, use in uses.items() if use.calls for word in words(token)}
    moment = replace(moment, called_words=called)
    scores = {
        token: score(token, use, weights, moment)
        for token, use in uses.items()
        if use.last_seq > gone
    }
    worthy = [token for token, value in scores.items() if value > 0]
    return sorted(worthy, key=lambda token: (-scores[token], token))


class Room:
    """What is left for anchors.

    Args:
        tokens: how many the anchors may take.
        chars: how many code points; ``None`` for no bound.
        price: tokens of a text.
    """

    def __init__(self, tokens: int, chars: int | None, price: Callable[[str], int]) -> None:
        self._tokens = tokens
        self._chars = chars
        self._price = price

    def take(self, token: str) -> bool:
        """Use what a token and the blank behind it take, if there is so much."""
        price, length = self._price(token) + 1, _width(token)
        if price > self._tokens or (self._chars is not None and length > self._chars):
            return False
        self._tokens -= price
        if self._chars is not None:
            self._chars -= length
        return True

    def give_back(self, token: str) -> None:
        """Free what a token took."""
        self._tokens += self._price(token) + 1
        if self._chars is not None:
            self._chars += _width(token)


def _width(token: str) -> int:
    """Code points of a token and what parts it from the next."""
    return len(token) + len(_BREAKS.get(kind_of(token), " "))


def select(candidates: Iterable[str], shown: str, room: Room, *, misses: int = 12) -> list[str]:
    """The best tokens that fit, each once, and none that is in view already.

    Args:
        candidates: the likeliest first.
        shown: the text that is in view already.
        room: what they may take.
        misses: how many that do not fit end the search: what follows is worth less.
    """
    chosen = _Chosen()
    for token in candidates:
        spelt = token.removeprefix("\\")
        if chosen.holds(spelt) or (spelt in shown and holds(shown, spelt)):
            continue
        if not room.take(token):
            misses -= 1
            if misses == 0:
                break
            continue
        for covered in chosen.inside(spelt):
            room.give_back(covered)
            chosen.drop(covered)
        chosen.add(token, spelt)
    return chosen.tokens


class _Chosen:
    """The anchors so far, by the words they are made of."""

    def __init__(self) -> None:
        self._spelt: dict[str, str] = {}
        """Each anchor as printed, by what stands in it for a reader by words."""
        self._by_word: dict[str, list[str]] = {}
        """What shows a word: anchors, and the names in those behind an escape."""
        self._by_first: dict[str, list[str]] = {}

    @property
    def tokens(self) -> list[str]:
        """The anchors as printed, in the order in which they were chosen."""
        return list(self._spelt.values())

    def add(self, token: str, spelt: str) -> None:
        """Take one in."""
        self._spelt[spelt] = token
        inner = words(spelt)
        self._by_first.setdefault(inner[0], []).append(spelt)
        for word in set(inner):
            self._by_word.setdefault(word, []).append(spelt)
        if token != spelt:
            for word in set(words(bare(token))):
                self._by_word.setdefault(word, []).append(bare(token))

    def holds(self, spelt: str) -> bool:
        """Whether one of them shows this token."""
        return any(holds(held, spelt) for held in self._by_word.get(words(spelt)[0], ()))

    def inside(self, spelt: str) -> list[str]:
        """Those that stand whole inside this token, as printed."""
        return [
            self._spelt[held]
            for word in set(words(spelt))
            for held in self._by_first.get(word, ())
            if holds(spelt, held)
        ]

    def drop(self, token: str) -> None:
        """Leave one out that a longer one shows."""
        spelt = token.removeprefix("\\")
        del self._spelt[spelt]
        self._by_first[words(spelt)[0]].remove(spelt)


def grouped(chosen: Iterable[str]) -> str:
    """The anchors as lines, one a kind, bare and whole; empty where there are none."""
    groups: dict[AnchorKind, list[str]] = {}
    for token in chosen:
        groups.setdefault(kind_of(token), []).append(token)
    return "\n".join(
        f"{kind}: {_BREAKS.get(kind, ' ').join(groups[kind])}" for kind in KINDS if kind in groups
    )
