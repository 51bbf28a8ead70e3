"""Which anchors an agent is likeliest to need again, and which of them fit. Pure.

The ranking is data: weights in the config, over how a token was used and when.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import log1p

from ctxarchive.archive.anchors import KINDS, AnchorKind, excerpt, kind_of, parts, tokens
from ctxarchive.archive.settings import AnchorWeights
from ctxarchive.session.events import AssistantMessage, Event, ToolResult, UserMessage
from ctxarchive.session.messages import ToolCallBlock, joined_text

GONE_AFTER = 8
"""Compactions since its last use after which a token is no anchor any more; a search finds it."""

_EDITS = ('"old_string"', '"new_string"', '"content"', '"file_text"', "*** Begin Patch")


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
    last_seq: int = -1
    last_call_seq: int = -1


def tally(event: Event, uses: dict[str, Use]) -> None:
    """Count what one event uses."""
    if isinstance(event, AssistantMessage):
        _count(uses, event.seq, tokens(joined_text(event.data.message.content)))
        for block in event.data.message.content:
            if isinstance(block, ToolCallBlock):
                edits = any(mark in block.arguments for mark in _EDITS)
                for use in _count(uses, event.seq, tokens(block.arguments)):
                    use.calls += 1
                    use.edits += edits
                    use.last_call_seq = event.seq
    elif isinstance(event, ToolResult):
        block = event.data.message.block
        for use in _count(uses, event.seq, tokens(excerpt(joined_text(block.content)))):
            use.failures += block.is_error
    elif isinstance(event, UserMessage) and not event.is_checkpoint:
        own = event.data.source.kind == "user"
        for use in _count(uses, event.seq, tokens(joined_text(event.data.content))):
            use.asked += own


def _count(uses: dict[str, Use], seq: int, found: Iterable[str]) -> list[Use]:
    counted: list[Use] = []
    for token in set(found):
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


def score(token: str, use: Use, weights: AnchorWeights, moment: Moment) -> float:
    """How likely a token is to be needed again, for each code point it takes."""
    worth = (
        weights.called * (use.calls > 0)
        + weights.calls * log1p(use.calls)
        + weights.call_recency * _recency(use.last_call_seq, moment)
        + weights.recency * _recency(use.last_seq, moment)
        + weights.edits * log1p(use.edits)
        + weights.asked * log1p(use.asked)
        + weights.failures * log1p(use.failures)
    )
    faded = len(moment.earlier) - bisect_left(moment.earlier, use.last_seq)
    return float(worth * weights.fade**faded / (len(token) + weights.length_offset))


def _recency(seq: int, moment: Moment) -> float:
    """Where in the span a token was used last: 0 at its beginning or before, 1 at its end."""
    length = max(1, moment.last_seq - moment.first_seq)
    return max(0.0, min(1.0, (seq - moment.first_seq + 1) / length))


def ranked(uses: Mapping[str, Use], weights: AnchorWeights, moment: Moment) -> list[str]:
    """The tokens that are worth anything, the likeliest first; equal ones in order of their text."""
    gone = moment.earlier[-GONE_AFTER] if len(moment.earlier) >= GONE_AFTER else -1
    scores = {
        token: score(token, use, weights, moment)
        for token, use in uses.items()
        if use.last_seq > gone
    }
    worthy = [token for token, value in scores.items() if value > 0]
    return sorted(worthy, key=lambda token: (-scores[token], token))


def select(
    candidates: Iterable[str],
    shown: set[str],
    fits: Callable[[str], bool],
    *,
    misses: int = 12,
) -> list[str]:
    """The best tokens that fit, each once, and none that is in view already.

    Args:
        candidates: the likeliest first.
        shown: what is in view already, in all its parts.
        fits: takes a token into account if there is room for it, and says whether there was.
        misses: how many that do not fit end the search: what follows is worth less.
    """
    chosen: dict[str, None] = {}
    seen = set(shown)
    for token in candidates:
        if token in seen:
            continue
        if not fits(token):
            misses -= 1
            if misses == 0:
                break
            continue
        inside = parts(token)
        for covered in inside & chosen.keys():
            del chosen[covered]
        seen |= inside
        chosen[token] = None
    return list(chosen)


def grouped(chosen: Iterable[str]) -> str:
    """The anchors as lines, one a kind, bare and whole; empty where there are none."""
    groups: dict[AnchorKind, list[str]] = {}
    for token in chosen:
        groups.setdefault(kind_of(token), []).append(token)
    return "\n".join(f"{kind}: {' '.join(groups[kind])}" for kind in KINDS if kind in groups)
