"""What ``tune`` does: prepares logs, measures settings, recommends one, tells, draws, writes.

Writes nothing but the files it was asked for; records are filed in a folder that does not stay.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ctxarchive.archive.settings import AnchorWeights
from ctxarchive.cli.app import DONE, FAILED
from ctxarchive.cli.curve import Picture, Point, draw
from ctxarchive.cli.output import echo_json, line, note, progress, table
from ctxarchive.config.settings import Settings
from ctxarchive.config.writing import settings_toml
from ctxarchive.errors import ConfigError, CtxArchiveError
from ctxarchive.replay.measuring import Measurer, PreparedLog
from ctxarchive.replay.scenes import Occasion
from ctxarchive.replay.tuning import (
    CURVE_CHARS,
    RULE,
    Result,
    Setting,
    curve,
    recommend,
    setting,
    spelt,
    sweep,
)
from ctxarchive.replay.weights import FIT_CHARS, fit_weights, folds, halves

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """All that a run found."""

    logs: tuple[PreparedLog, ...]
    current: Result
    curve: tuple[Result, ...]
    results: tuple[Result, ...]
    """Every setting that was measured, the current one first."""
    recommended: Result
    fit: Fit | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """One run of ``tune``."""

    settings: Settings
    occasion: Occasion
    sweeps: tuple[tuple[str, tuple[object, ...]], ...]
    """Keys and values to try in place of the default sweep."""
    only_curve: bool
    rounds: int
    fit: bool
    folds: int | None
    plots: tuple[Path, ...]
    target: Path | None
    """Where the recommended setting goes; ``None`` for nowhere."""
    jobs: int
    as_json: bool

    def run(self, logs: tuple[Path, ...]) -> int:
        """Tune on some logs.

        Returns:
            The exit code: failed where one of several logs did, or where no log tells anything.

        Raises:
            CtxArchiveError: when the only log cannot be replayed, or nothing can be written.
        """
        asked = self._asked()  # a key that is unknown is told before any log is read
        with tempfile.TemporaryDirectory(prefix="ctxarchive-") as folder:
            measurer = Measurer(
                logs,
                settings=self.settings,
                occasion=self.occasion,
                folder=Path(folder),
                jobs=self.jobs,
            )
            with measurer:
                prepared = self._prepare(measurer, logs)
                useful = {number: log for number, log in prepared.items() if log.needed}
                if not useful:
                    note(
                        "nothing to measure: no compaction with enough behind it to tell what was "
                        "needed; try --points 0.5, or a smaller --window"
                    )
                    return FAILED
                findings = self._find(measurer, useful, asked)
        self._hand_over(findings)
        return DONE if len(prepared) == len(logs) else FAILED

    def _prepare(self, measurer: Measurer, logs: tuple[Path, ...]) -> dict[int, PreparedLog]:
        found: dict[int, PreparedLog] = {}
        with progress("replaying", len(logs)) as advance:
            for done, (number, log) in enumerate(measurer.prepare(), start=1):
                if advance is not None:
                    advance(done)
                if isinstance(log, CtxArchiveError):
                    if len(logs) == 1:
                        raise log
                    note(str(log))
                    continue
                found[number] = log
                if not log.needed:
                    told = "; ".join(log.warnings[-1:])
                    note(
                        f"{log.path}: tells nothing: {log.compactions} compactions, "
                        f"{log.measured} with enough behind them, nothing needed"
                        + (f" ({told})" if told else "")
                    )
        return dict(sorted(found.items()))

    def _asked(self) -> list[Setting]:
        """The settings that were asked for by name, and those of the curve."""
        base = self.settings.transcript
        tried = [setting(base, {key: value}) for key, values in self.sweeps for value in values]
        return [*curve(base), *tried]

    def _find(
        self, measurer: Measurer, logs: dict[int, PreparedLog], asked: Sequence[Setting]
    ) -> Findings:
        base = self.settings.transcript
        now = setting(base, {}, name="current")
        wanted = [now, *asked]
        if not self.only_curve and not self.sweeps:
            known = [each.config for each in wanted]
            wanted += [each for each in sweep(base, now) if each.config not in known]
        results = self._measure(measurer, wanted, list(logs), "measuring")
        current, best = results[0], recommend(results[0], results[1:])
        for _ in range(self.rounds - 1):
            known = [each.setting.config for each in results]
            around = [each for each in sweep(base, best.setting) if each.config not in known]
            if self.only_curve or self.sweeps or best is current or not around:
                break
            results += self._measure(measurer, around, list(logs), "around the best")
            before, best = best, recommend(current, results[1:])
            if best is before:
                break
        fit = self._fit(measurer, logs, best.setting) if self.fit else None
        if fit is not None and fit.holds:
            config = best.setting.config.model_copy(update={"anchor_weights": fit.weights})
            weights = {f"anchor_weights.{k}": v for k, v in _changed(base, fit.weights).items()}
            changes = {**best.setting.changes, **weights}
            fitted = Setting(name="fitted weights", config=config, changes=changes)
            (best,) = self._measure(measurer, [fitted], list(logs), "fitted")
            results.append(best)
        return Findings(
            logs=tuple(logs.values()),
            current=current,
            curve=tuple(results[1 : 1 + len(CURVE_CHARS)]),
            results=tuple(results),
            recommended=best,
            fit=fit,
        )

    def _measure(
        self, measurer: Measurer, wanted: Sequence[Setting], numbers: Sequence[int], name: str
    ) -> list[Result]:
        with progress(name, len(wanted) * len(numbers)) as advance:
            done = 0

            def step(more: int) -> None:
                nonlocal done
                done += more
                if advance is not None:
                    advance(done)

            measured = measurer.measure([each.config for each in wanted], numbers, advance=step)
        return [
            Result(setting=each, measured=tuple(found))
            for each, found in zip(wanted, measured, strict=True)
        ]

    def _fit(self, measurer: Measurer, logs: dict[int, PreparedLog], around: Setting) -> Fit:
        numbers = list(logs)
        names = [log.session for log in logs.values()]
        least = max(2, self.folds or 0)
        if len(numbers) < least:
            raise ConfigError(
                f"--fit: {len(numbers)} of the logs tell what was needed; give at least {least}"
            )
        half, other = halves(numbers, names)
        start = self.settings.transcript.anchor_weights
        weights = self._search(measurer, around, half)
        recall = {}
        for name, part in (("fitted_on", half), ("reported_on", other)):
            before, after = self._scores(measurer, around, part, [start, weights])
            recall[name] = {"current": before, "fitted": after}
        return Fit(
            weights=weights,
            fitted_on=tuple(logs[number].path for number in half),
            reported_on=tuple(logs[number].path for number in other),
            recall=recall,
            crossed=self._cross(measurer, around, numbers, names),
            folds=self.folds,
        )

    def _search(self, measurer: Measurer, around: Setting, numbers: list[int]) -> AnchorWeights:
        return fit_weights(
            self.settings.transcript.anchor_weights,
            lambda tried: self._scores(measurer, around, numbers, tried),
        )

    def _scores(
        self,
        measurer: Measurer,
        around: Setting,
        numbers: Sequence[int],
        tried: Sequence[AnchorWeights],
    ) -> list[float]:
        """For each weighting, the mean recall over the bounds at which weights matter."""
        hits = self._hits(measurer, around, numbers, tried)
        return [sum(seen / max(1, needed) for seen, needed in each) / len(each) for each in hits]

    def _hits(
        self,
        measurer: Measurer,
        around: Setting,
        numbers: Sequence[int],
        tried: Sequence[AnchorWeights],
    ) -> list[list[tuple[int, int]]]:
        """For each weighting, a pair for each bound: what is in view of what was needed."""
        configs = [
            around.config.model_copy(
                update={"anchor_weights": weights, "max_addition_chars": chars}
            )
            for weights in tried
            for chars in FIT_CHARS
        ]
        measured = measurer.measure(configs, numbers, follow=False)
        pairs = [(sum(m.in_view for m in each), sum(m.needed for m in each)) for each in measured]
        width = len(FIT_CHARS)
        return [pairs[start : start + width] for start in range(0, len(pairs), width)]

    def _cross(
        self, measurer: Measurer, around: Setting, numbers: list[int], names: list[str]
    ) -> dict[str, float] | None:
        """Recall on each fold of the weights that were fitted to the others, put together."""
        if self.folds is None:
            return None
        totals = [[[0, 0] for _ in FIT_CHARS] for _ in range(2)]
        start = self.settings.transcript.anchor_weights
        parts = folds(numbers, names, self.folds)
        with progress("cross-validating", len(parts)) as advance:
            for done, part in enumerate(parts, start=1):
                rest = [number for number in numbers if number not in part]
                weights = self._search(measurer, around, rest)
                for total, hits in zip(
                    totals, self._hits(measurer, around, part, [start, weights]), strict=True
                ):
                    for sums, pair in zip(total, hits, strict=True):
                        sums[0] += pair[0]
                        sums[1] += pair[1]
                if advance is not None:
                    advance(done)
        current, fitted = (
            sum(seen / max(1, needed) for seen, needed in total) / len(total) for total in totals
        )
        return {"current": current, "fitted": fitted}

    def _hand_over(self, findings: Findings) -> None:
        """Write the files, then tell."""
        if self.target is not None:
            chosen = self.settings.model_copy(
                update={"transcript": findings.recommended.setting.config}
            )
            text = settings_toml(chosen, comments=_comments(findings))
            self.target.write_text(text, "utf-8")
        picture = _picture(findings)
        for path in self.plots:
            draw(picture, path)
        if self.as_json:
            echo_json(_json(findings, self.target, self.plots))
            return
        _print(findings)
        for path in (*self.plots, *(() if self.target is None else (self.target,))):
            line(f"written: {path}")


def _changed(base: Any, weights: AnchorWeights) -> dict[str, float]:
    old = base.anchor_weights.model_dump()
    return {name: value for name, value in weights.model_dump().items() if value != old[name]}


def _comments(findings: Findings) -> list[str]:
    best = findings.recommended
    compactions = sum(log.measured for log in findings.logs)
    measured_on = f"{compactions} compactions of {len(findings.logs)} logs"
    seen = f"{best.recall:.3f} of {best.needed} needed identifiers in view"
    return [
        f"Recommended by ctxarchive tune, measured on {measured_on}:",
        f"{seen}, {best.mean('addition_tokens'):.0f} tokens added a checkpoint.",
    ]


def _point(result: Result, label: str) -> Point:
    return Point(label=label, tokens=result.mean("addition_tokens"), recall=result.recall)


def _picture(findings: Findings) -> Picture:
    best = findings.recommended
    return Picture(
        curve=[
            _point(result, f"{result.setting.changes['max_addition_chars']:,}")
            for result in findings.curve
        ],
        current=_point(findings.current, "current"),
        recommended=None if best is findings.current else _point(best, "recommended"),
        compactions=sum(log.measured for log in findings.logs),
        needed=findings.current.needed,
    )


def _json(findings: Findings, target: Path | None, plots: Sequence[Path]) -> dict[str, Any]:
    best = findings.recommended
    return {
        "logs": [
            {
                "log": str(log.path),
                "format": log.format,
                "session": log.session,
                "compacted_at": log.compacted_at,
                "compactions": log.compactions,
                "measured": log.measured,
                "needed": log.needed,
                "warnings": list(log.warnings),
            }
            for log in findings.logs
        ],
        "settings": [_result_json(result, findings.current, best) for result in findings.results],
        "curve": [
            {
                "max_addition_chars": result.setting.changes["max_addition_chars"],
                "addition_tokens": round(result.mean("addition_tokens"), 1),
                "recall": round(result.recall, 6),
            }
            for result in findings.curve
        ],
        "rule": RULE,
        "recommended": {
            "name": best.setting.name,
            "changes": dict(best.setting.changes),
            "transcript": best.setting.config.model_dump(mode="json"),
        },
        "fit": None if findings.fit is None else _fit_json(findings.fit),
        "written": None if target is None else str(target),
        "plots": [str(path) for path in plots],
    }


def _result_json(result: Result, current: Result, best: Result) -> dict[str, Any]:
    sizes = {
        name: {"mean": round(result.mean(name), 1), "median": result.median(name)}
        for name in ("checkpoint_tokens", "addition_tokens", "addition_chars")
    }
    return {
        "name": result.setting.name,
        "changes": dict(result.setting.changes),
        "current": result is current,
        "recommended": result is best,
        "needed": result.needed,
        "in_view": result.in_view,
        "recall": round(result.recall, 6),
        "user_text": round(result.user_text, 6),
        "reachable": round(result.reachable, 6),
        "elided_chars": sum(each.reach.elided for each in result.measured),
        **sizes,
    }


def _fit_json(fit: Fit) -> dict[str, Any]:
    return {
        "weights": fit.weights.model_dump(),
        "at_chars": list(FIT_CHARS),
        "fitted_on": [str(path) for path in fit.fitted_on],
        "reported_on": [str(path) for path in fit.reported_on],
        "recall": fit.recall,
        "taken": fit.holds,
        "cross_validated": None if fit.crossed is None else {"folds": fit.folds, **fit.crossed},
    }


def _print(findings: Findings) -> None:
    compactions = sum(log.measured for log in findings.logs)
    line(
        f"{len(findings.logs)} logs, {compactions} compactions measured, "
        f"{findings.current.needed} identifiers needed that no summary holds"
    )
    rows = [
        [
            _mark(result, findings) + result.setting.name,
            f"{result.mean('checkpoint_tokens'):,.0f}",
            f"{result.mean('addition_tokens'):,.0f}",
            f"{result.median('addition_chars'):,.0f}",
            f"{result.recall:.3f}",
            f"{result.user_text:.3f}",
            f"{result.reachable:.3f}",
        ]
        for result in findings.results
    ]
    titles = (
        "setting", "checkpoint", "added", "chars", "recall", "user text", "reachable",
    )  # fmt: skip
    table(titles, rows, texts=1)
    line("")
    line("checkpoint, added: tokens, mean a checkpoint; chars: characters added, median")
    if findings.fit is not None:
        _print_fit(findings.fit)
    best = findings.recommended
    told = spelt(best.setting.changes) or "the current setting"
    line(f"recommended (*): {told}")
    line(f"rule: {RULE}")


def _mark(result: Result, findings: Findings) -> str:
    return "* " if result is findings.recommended else "  "


def _print_fit(fit: Fit) -> None:
    chars = ", ".join(f"{each:,}" for each in FIT_CHARS)
    line(f"weights fitted on {len(fit.fitted_on)} logs, mean recall at {chars} characters:")
    for name, told in (("fitted_on", "fitted half"), ("reported_on", "other half")):
        recall = fit.recall[name]
        line(f"  {told}: current {recall['current']:.3f}, fitted {recall['fitted']:.3f}")
    if fit.crossed is not None:
        line(
            f"  cross-validated in {fit.folds} folds: current {fit.crossed['current']:.3f}, "
            f"fitted {fit.crossed['fitted']:.3f}"
        )
    line(f"  fitted: {spelt(fit.weights.model_dump())}")
    if not fit.holds:
        line("  not taken: they do not clearly better where they were not fitted")
