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
from ctxarchive.cli.curve import draw
from ctxarchive.cli.findings import (
    Findings,
    comments,
    findings_json,
    picture_of,
    print_findings,
)
from ctxarchive.cli.output import echo_json, line, note, progress
from ctxarchive.config.settings import Settings
from ctxarchive.config.writing import settings_toml
from ctxarchive.errors import ConfigError, CtxArchiveError
from ctxarchive.replay.fitting_weights import Fit, Fitter, turns
from ctxarchive.replay.measuring import Measurer, PreparedLog
from ctxarchive.replay.scenes import Occasion
from ctxarchive.replay.tuning import (
    CURVE_CHARS,
    Result,
    Setting,
    curve,
    recommend,
    setting,
    sweep,
)


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
        least = max(2, self.folds or 0)
        if len(logs) < least:
            raise ConfigError(
                f"--fit: {len(logs)} of the logs tell what was needed; give at least {least}"
            )
        start = self.settings.transcript.anchor_weights
        with progress("fitting", turns(self.folds)) as advance:
            fitter = Fitter(measurer, around.config, start=start, advance=advance)
            return fitter.fit(logs, folds=self.folds)

    def _hand_over(self, findings: Findings) -> None:
        """Write the files, then tell."""
        if self.target is not None:
            chosen = self.settings.model_copy(
                update={"transcript": findings.recommended.setting.config}
            )
            text = settings_toml(chosen, comments=comments(findings))
            self.target.write_text(text, "utf-8")
        for path in self.plots:
            draw(picture_of(findings), path)
        if self.as_json:
            echo_json(findings_json(findings, self.target, self.plots))
            return
        print_findings(findings)
        for path in (*self.plots, *(() if self.target is None else (self.target,))):
            line(f"written: {path}")


def _changed(base: Any, weights: AnchorWeights) -> dict[str, float]:
    old = base.anchor_weights.model_dump()
    return {name: value for name, value in weights.model_dump().items() if value != old[name]}
