"""What stays of a user's message that is left out or clipped: its rule-like sentences. Pure.

The message itself is counted and pointed to where it stood; a quote says which part of which message
it is, so that a reader by count gets it back and never takes it for the whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from ctxarchive.archive.clipping import cut_at_or_after, cut_at_or_before
from ctxarchive.archive.format import quote_heading
from ctxarchive.archive.transcript import rules_of
from ctxarchive.knowledge.records import Record

NEAR = 30
"""Code points between two sentences that are quoted with them: a second heading would be longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A part of a user's message."""

    score: float
    """That of its most rule-like sentence."""
    part: str
    shown: str
    """Its heading and the part itself."""


def quotes_of(record: Record) -> tuple[Quote, ...]:
    """The rule-like parts of a user's message, in order."""
    found: list[tuple[int, int, float]] = []
    for rule in rules_of(record):
        start = cut_at_or_before(record.text, rule.start)
        end = cut_at_or_after(record.text, rule.end)
        if found and start - found[-1][1] <= NEAR:
            start, _, score = found.pop()
            found.append((start, end, max(score, rule.score)))
        else:
            found.append((start, end, rule.score))
    quotes = []
    for start, end, score in found:
        part = record.text[start:end]
        shown = f"{quote_heading(record.seq, start, end)}\n{part}"
        quotes.append(Quote(score=score, part=part, shown=shown))
    return tuple(quotes)
