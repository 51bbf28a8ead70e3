"""In which order the candidates of a search are shown.

Pure. BM25 (Robertson and Zaragoza, 2009) over the statistics of the scope's own candidates, with
what the archive knows besides: an exact hit outranks a scattered one, an original outranks text
derived from it, and of two equals the newer is first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ctxarchive.knowledge.records import Kind

K1: Final = 1.2
B: Final = 0.75
_DERIVED: Final[dict[Kind, float]] = {"original": 1.0, "injected": 0.7, "checkpoint": 0.25}
_NEWEST: Final = 0.05
"""The newest of the candidates gains this share of its score, the oldest nothing."""
EXACT: Final = 1.0
"""What a chunk of the query that stands in the text literally adds, as a share of the score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A passage that matched."""

    key: int
    """The store's key; of one session, a higher one is newer."""
    kind: Kind
    counts: tuple[int, ...]
    """How often each term of the query occurs, in the order of the terms."""
    length: int
    """Words of the passage."""
    start: int = 0
    """Where the passage begins in the record's text, in code points."""


def rank(
    candidates: Sequence[Candidate], frequency: Sequence[int]
) -> list[tuple[float, Candidate]]:
    """Score candidates, best first; ties go to the newer. Of a record, its best passage counts.

    Args:
        candidates: what matched.
        frequency: for each term, how many records of the scope hold it, as far as is known.
    """
    if not candidates:
        return []
    average = max(1.0, sum(each.length for each in candidates) / len(candidates))
    total = max(len(candidates), *frequency) if frequency else len(candidates)
    weights = [math.log(1 + (total - held + 0.5) / (held + 0.5)) for held in frequency]
    order = {key: place for place, key in enumerate(sorted({each.key for each in candidates}))}
    newest = max(1, len(order) - 1)
    best: dict[int, tuple[float, Candidate]] = {}
    for each in candidates:
        norm = K1 * (1 - B + B * each.length / average)
        score = 0.0
        for weight, count in zip(weights, each.counts, strict=True):
            if count:
                score += weight * count * (K1 + 1) / (count + norm)
        score *= _DERIVED[each.kind] * (1 + _NEWEST * order[each.key] / newest)
        if each.key not in best or best[each.key][0] < score:
            best[each.key] = score, each
    return sorted(best.values(), key=lambda pair: (-pair[0], -pair[1].key))


def exactness(text: str, needles: Sequence[str]) -> float:
    """A factor of at least 1 for how many of the query's chunks stand in ``text`` as they are.

    Args:
        text: the record's text in ``plain`` form.
        needles: the chunks in ``plain`` form.
    """
    if not needles:
        return 1.0
    found = sum(_whole(text, needle) for needle in needles)
    return 1 + EXACT * found / len(needles)


def _whole(text: str, needle: str) -> float:
    """1 where the needle stands as a word of its own, half where it is inside one, else 0."""
    at = text.find(needle)
    tries = 0
    while at >= 0 and tries < 64:
        before = text[at - 1 : at]
        after = text[at + len(needle) : at + len(needle) + 1]
        if not (_joins(before) or _joins(after)):
            return 1.0
        at = text.find(needle, at + 1)
        tries += 1
    return 0.5 if tries else 0.0


def _joins(character: str) -> bool:
    return character.isalnum() or character == "_"
