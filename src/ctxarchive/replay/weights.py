"""Fits the weights that rank anchors, on one half of the logs, for the other half to judge. Pure.

A coordinate search: one weight after the other takes the value that scores best. Deterministic; the
scores come from whoever measures.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from ctxarchive.archive.settings import AnchorWeights
from ctxarchive.replay.tuning import steps

FIT_CHARS = (2_000, 4_000, 8_000)
"""Bounds of the additions at which weights are scored: with more room, any ranking will do."""

ROUNDS = 2
"""How often each weight has its turn."""

Scores = Callable[[Sequence[AnchorWeights]], Sequence[float]]
"""Gives the score of each weighting, the higher the better."""

T = TypeVar("T")


def fit_weights(start: AnchorWeights, scores: Scores, *, rounds: int = ROUNDS) -> AnchorWeights:
    """The weights that a coordinate search finds.

    Args:
        start: where it starts; where nothing scores better, this is the answer.
        scores: scores some weightings.
        rounds: how often each weight has its turn; fewer where a whole round changes nothing.
    """
    best = start
    (highest,) = scores([start])
    for _ in range(rounds):
        before = best
        for name in AnchorWeights.model_fields:
            tried = [best.model_copy(update={name: value}) for value in steps(best, name)]
            for weights, score in zip(tried, scores(tried), strict=True):
                if score > highest:
                    best, highest = weights, score
        if best == before:
            break
    return best


def halves(items: Sequence[T], names: Sequence[str]) -> tuple[list[T], list[T]]:
    """Some logs in two halves, by a hash of their names: no order of theirs decides."""
    first, second = folds(items, names, 2)
    return first, second


def folds(items: Sequence[T], names: Sequence[str], count: int) -> list[list[T]]:
    """Some logs in so many parts of about equal size, by a hash of their names."""
    keys = [hashlib.blake2b(name.encode("utf-8", "surrogatepass")).digest() for name in names]
    order = sorted(range(len(items)), key=lambda place: (keys[place], place))
    return [[items[place] for place in order[part::count]] for part in range(count)]
