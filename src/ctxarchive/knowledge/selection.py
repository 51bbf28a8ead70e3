"""Which of a query's words choose the candidates: the rare ones, and together before alone.

Pure. Ranking everything that holds any of the words costs as much as the commonest of them; yet the
best answers hold several of the rarer. So combinations of words are asked for in the order of what
they can be worth, as far as a budget of rows goes, and a word that most records hold chooses
nothing; in the score it still counts. This is the idea of MaxScore (Turtle and Flood, 1995), over
sets of words instead of lists of postings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

COMMON: Final = 8
"""In a search of the whole archive, a word that more than one row in so many holds chooses nothing."""
COMMON_HERE: Final = 2
"""Likewise in a search of some sessions, where few rows are few in fact."""
_CHOOSING: Final = 6
"""At most so many words are combined, the rarest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """Some of a query's terms, all of which a candidate holds."""

    terms: tuple[int, ...]
    """Places of the terms in the query."""
    worth: float
    """The sum of their weights: what a candidate's score is about, and a bound of it in part."""
    rows: float
    """How many rows hold them all, if words were strewn at random."""


def weight(held: int, total: int) -> float:
    """A term's weight in BM25 as FTS5 has it: never below a millionth.

    Args:
        held: rows that hold the term.
        total: rows in all.
    """
    return max(1e-6, math.log((total - held + 0.5) / (held + 0.5))) if held <= total else 1e-6


def combined(frequency: Sequence[int], total: int, common: int = COMMON) -> list[Combination]:
    """Every combination of the terms that choose candidates, the worthiest first.

    Args:
        frequency: for each term, how many rows of the scope hold it.
        total: rows of the scope.
        common: a term that more than one row in so many holds chooses nothing beside rarer ones.
    """
    known = sorted((held, place) for place, held in enumerate(frequency) if held)
    chosen = [(held, place) for held, place in known if held * common <= total] or known[:1]
    chosen = chosen[:_CHOOSING]
    found = []
    for size in range(1, len(chosen) + 1):
        for some in combinations(chosen, size):
            rows = float(total)
            for held, _ in some:
                rows *= held / max(1, total)
            worth = sum(weight(held, total) for held, _ in some)
            places = tuple(place for _, place in some)
            found.append(Combination(terms=places, worth=worth, rows=rows))
    return sorted(found, key=lambda each: (-each.worth, each.terms))


def first_of(combinations: Sequence[Combination], rows: int) -> int:
    """How many of the worthiest combinations are held by about so many rows together; at least one."""
    total = 0.0
    for place, each in enumerate(combinations):
        total += each.rows
        if total > rows and place:
            return place
    return len(combinations)


def minimal(combinations: Sequence[Combination]) -> list[Combination]:
    """Those that no other is a part of: whatever holds more terms is found by the part."""
    sets = [frozenset(each.terms) for each in combinations]
    return [
        each
        for each, terms in zip(combinations, sets, strict=True)
        if not any(other < terms for other in sets)
    ]
