"""Fits the ranking's weights over prepared logs, and says how they do where they were not fitted.

Whatever comes of it is told for both; whether to take it is a rule of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ctxarchive.archive.settings import AnchorWeights, TranscriptConfig
from ctxarchive.replay.measuring import Measurer, PreparedLog
from ctxarchive.replay.weights import FIT_CHARS, ROUNDS, fit_weights, folds, halves

CLEARLY = 0.005
"""Recall that fitted weights must gain on logs they were not fitted on, to be recommended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Weights that were fitted, and how they do where they were and were not fitted."""

    weights: AnchorWeights
    fitted_on: tuple[Path, ...]
    reported_on: tuple[Path, ...]
    recall: dict[str, dict[str, float]]
    """Of the current and the fitted weights, for each half: the mean over ``FIT_CHARS``."""
    crossed: dict[str, float] | None
    """Of the current weights, and of those fitted to the other folds."""
    folds: int | None

    @property
    def holds(self) -> bool:
        """Whether the fitted weights do clearly better wherever they were not fitted."""
        told = [self.recall["reported_on"], *([] if self.crossed is None else [self.crossed])]
        return all(each["fitted"] >= each["current"] + CLEARLY for each in told)


class Fitter:
    """Fits on some of the logs and scores on others.

    Args:
        measurer: has the logs prepared.
        config: the configuration whose weights are fitted.
        start: the weights to start from and to compare with.
        advance: told how many turns are done, at most :func:`turns`.
    """

    def __init__(
        self,
        measurer: Measurer,
        config: TranscriptConfig,
        *,
        start: AnchorWeights,
        advance: Callable[[int], None] | None = None,
    ) -> None:
        self._measurer = measurer
        self._config = config
        self._start = start
        self._advance = advance
        self._turns = 0

    def fit(self, logs: Mapping[int, PreparedLog], *, folds: int | None) -> Fit:
        """Fit on one half, report on both; and cross-validate where a number of folds is given.

        Args:
            logs: those that tell what was needed, by their numbers.
            folds: parts to cross-validate in; ``None`` not to.
        """
        numbers = list(logs)
        names = [log.session for log in logs.values()]
        half, other = halves(numbers, names)
        weights = self._search(half)
        recall = {}
        for name, part in (("fitted_on", half), ("reported_on", other)):
            before, after = self._scores(part, [self._start, weights])
            recall[name] = {"current": before, "fitted": after}
        return Fit(
            weights=weights,
            fitted_on=tuple(logs[number].path for number in half),
            reported_on=tuple(logs[number].path for number in other),
            recall=recall,
            crossed=None if folds is None else self._cross(numbers, names, folds),
            folds=folds,
        )

    def _search(self, numbers: Sequence[int]) -> AnchorWeights:
        return fit_weights(self._start, lambda tried: self._scores(numbers, tried))

    def _scores(self, numbers: Sequence[int], tried: Sequence[AnchorWeights]) -> list[float]:
        """For each weighting, the mean recall over the bounds at which weights matter."""
        return [_mean_recall(each) for each in self._hits(numbers, tried)]

    def _hits(
        self, numbers: Sequence[int], tried: Sequence[AnchorWeights]
    ) -> list[list[tuple[int, int]]]:
        """For each weighting, a pair for each bound: what is in view of what was needed."""
        configs = [
            self._config.model_copy(update={"anchor_weights": weights, "max_addition_chars": chars})
            for weights in tried
            for chars in FIT_CHARS
        ]
        measured = self._measurer.measure(configs, numbers, follow=False)
        self._turns += 1
        if self._advance is not None:
            self._advance(self._turns)
        pairs = [(sum(m.in_view for m in each), sum(m.needed for m in each)) for each in measured]
        width = len(FIT_CHARS)
        return [pairs[start : start + width] for start in range(0, len(pairs), width)]

    def _cross(self, numbers: list[int], names: list[str], count: int) -> dict[str, float]:
        """Recall on each fold of the weights that were fitted to the others, put together."""
        pooled: list[list[list[tuple[int, int]]]] = []
        for part in folds(numbers, names, count):
            rest = [number for number in numbers if number not in part]
            pooled.append(self._hits(part, [self._start, self._search(rest)]))
        current, fitted = (
            _mean_recall(
                [
                    (sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs))
                    for pairs in zip(*(fold[which] for fold in pooled), strict=True)
                ]
            )
            for which in range(2)
        )
        return {"current": current, "fitted": fitted}


def _mean_recall(pairs: Sequence[tuple[int, int]]) -> float:
    return sum(seen / max(1, needed) for seen, needed in pairs) / len(pairs)


def turns(folds: int | None) -> int:
    """The most turns that a fit takes, each the scoring of some weightings."""
    search = 1 + ROUNDS * len(AnchorWeights.model_fields)
    return search + 2 + (folds or 0) * (search + 1)
