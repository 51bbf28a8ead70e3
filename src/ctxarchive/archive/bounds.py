"""The bounds of the additions, and what of them is kept for the user's words. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ctxarchive.archive.quotes import quotes_of
from ctxarchive.archive.transcript import Entry

RULE_SHARE, NEWEST_SHARE = 0.35, 0.125
"""Shares of a bound that rules and the newest message may take from the anchors; pinned messages
may take more."""

SAID_SHARE, SMALL_CHARS = 0.15, 6_000
"""Share of a bound that all of the user's messages may take, rules or not, and the bound from which it
is kept: under it anchors and rules have the room, and the index is its short form."""

NEWEST_CHARS, NOTICE_CHARS = 500, 170
"""What the newest message takes at most of its share, and a line beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of the additions."""

    tokens: int
    chars: int | None
    """Code points of all of it; ``None`` for no bound."""
    transcript_chars: int
    talk_tokens: int | None = None
    """Tokens of assistant prose and tool lines; ``None`` for no bound of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What the user's words take that should stay whatever else goes, with the lines beside them."""

    pinned: int
    """Code points of pinned messages."""
    newest: int
    """Code points of the newest message."""
    rules: int
    """Code points of rules."""
    pinned_tokens: int
    """Tokens of pinned messages."""
    said: int
    """Code points of all messages that are not pinned."""

    def within(self, chars: int) -> int:
        """Code points kept of a bound: pinned ones first, of the others a share of it."""
        newest = min(self.newest, int(chars * NEWEST_SHARE))
        least = newest + min(self.rules, int(chars * RULE_SHARE))
        said = min(self.said, int(chars * SAID_SHARE)) if chars >= SMALL_CHARS else 0
        return self.pinned + max(least, said)

    def within_tokens(self, tokens: int) -> int:
        """The same in tokens."""
        newest = min(self.newest // 3, int(tokens * NEWEST_SHARE))
        return self.pinned_tokens + newest + min(self.rules // 3, int(tokens * RULE_SHARE))


def needed(entries: Iterable[Entry], price: Callable[[str], int]) -> Need:
    """What pinned messages, the newest one and rules among ``entries`` take."""
    users = [entry for entry in entries if entry.kind == "user"]
    pinned = [entry for entry in users if entry.pinned]
    rules = [
        len(quote.shown) + 1
        for entry in users
        if entry.record is not None and not entry.pinned
        for quote in quotes_of(entry.record)
    ]
    return Need(
        pinned=sum(len(entry.shown) + NOTICE_CHARS for entry in pinned),
        # A line stands before it and another behind.
        newest=sum(min(len(entry.shown), NEWEST_CHARS) for entry in users[-1:]) + 2 * NOTICE_CHARS,
        rules=sum(rules),
        pinned_tokens=sum(price(entry.shown) + NOTICE_CHARS // 3 for entry in pinned),
        said=sum(len(entry.shown) + NOTICE_CHARS for entry in users if not entry.pinned),
    )


def is_crowded(need: Need, index: str, whole: Limits, price: Callable[[str], int]) -> bool:
    """Whether ``index`` stands in the way of what the user's words need."""
    words = need.pinned + need.newest + need.rules
    if whole.chars is not None and len(index) + words > whole.chars:
        return True
    words = need.pinned_tokens + (need.newest + need.rules) // 3
    return price(index) + words > whole.tokens


def with_room_for_rules(
    rest: Limits, whole: Limits, need: Need, index: str, price: Callable[[str], int]
) -> Limits:
    """``rest`` with room for pinned messages, and for the newest and rules up to their shares.

    Args:
        rest: what is left for all but the anchors.
        whole: what the anchors have a part of.
        need: what the user's words take.
        index: the index, which stands beside them.
        price: tokens of a text.
    """
    tokens = need.within_tokens(whole.tokens) + price(index)
    rest = replace(rest, tokens=max(rest.tokens, min(tokens, whole.tokens)))
    if rest.chars is None or whole.chars is None:
        return rest
    chars = need.within(whole.chars) + len(index)
    return replace(rest, chars=max(rest.chars, min(chars, whole.chars)))
