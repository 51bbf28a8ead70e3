"""A message shown in part: which stretches stay, and the notices between them. Pure.

Head and tail stay, and what is rule-like in between. Whatever a text imitates, a reader by count
gets back exactly what was put in: a line that would pass for a notice of its own is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ctxarchive.archive.clipping import cut_at_or_after, cut_at_or_before
from ctxarchive.archive.format import imitations
from ctxarchive.archive.rules import Sentence

Stretch = tuple[int, int]
"""Where a part of a text begins and ends, in code points."""

LEAST_RULES = 200
"""Code points of the rule-like sentences that stay of a message, however little else does."""

Notice = Callable[[int, int], str]
"""The line that stands for the part between two places."""


def gaps(
    text: str, seq: int, keep: int, rules: Sequence[Sentence], notice: Notice
) -> list[Stretch]:
    """What is left out of a message that is too long, in order and apart.

    Nothing is left out where its notice would be longer.

    Args:
        text: the whole message.
        seq: its seq.
        keep: code points of head and tail, each; the rule-like sentences have as much as both.
        rules: its rule-like sentences.
        notice: what stands for a gap.
    """
    shown = [(0, cut_at_or_before(text, keep))]
    shown += _chosen(text, rules, max(2 * keep, LEAST_RULES))
    shown.append((cut_at_or_after(text, len(text) - keep), len(text)))
    left_out: list[Stretch] = []
    place = shown[0][1]
    for start, end in shown[1:]:
        if start > place and len(notice(place, start)) + 2 < start - place:
            left_out.append((place, start))
        place = max(place, end)
    return around_imitations(text, seq, left_out)


def around_imitations(text: str, seq: int, left_out: Iterable[Stretch] = ()) -> list[Stretch]:
    """``left_out`` and every line of a text that a reader would take for its own notice."""
    fakes = [
        (cut_at_or_before(text, start), cut_at_or_after(text, end))
        for start, end in imitations(text, seq)
    ]
    merged: list[Stretch] = []
    for start, end in sorted([*left_out, *fakes]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def rendered(text: str, left_out: Iterable[Stretch], notice: Notice) -> str:
    """The text with a notice in the place of each gap, on a line of its own."""
    parts: list[str] = []
    place = 0
    for start, end in left_out:
        parts.append(f"{text[place:start]}\n{notice(start, end)}\n")
        place = end
    return "".join([*parts, text[place:]])


def _chosen(text: str, rules: Sequence[Sentence], room: int) -> list[Stretch]:
    """The most rule-like sentences that fit, in order; of equal ones the first."""
    found: list[Stretch] = []
    for rule in sorted(rules, key=lambda sentence: (-sentence.score, sentence.start)):
        start, end = cut_at_or_before(text, rule.start), cut_at_or_after(text, rule.end)
        if end - start <= room:
            room -= end - start
            found.append((start, end))
    return sorted(found)
