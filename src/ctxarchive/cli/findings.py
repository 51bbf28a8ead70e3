"""What ``tune`` found, told: as a table, as JSON, as a picture, as a file's first lines.

Changes and measures nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ctxarchive.cli.curve import Picture, Point
from ctxarchive.cli.output import line, table
from ctxarchive.replay.fitting_weights import Fit
from ctxarchive.replay.measuring import PreparedLog
from ctxarchive.replay.tuning import RULE, Result, spelt
from ctxarchive.replay.weights import FIT_CHARS


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


def comments(findings: Findings) -> list[str]:
    """What a written file says of itself."""
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


def picture_of(findings: Findings) -> Picture:
    """The curve, with the current and the recommended setting on it."""
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


def findings_json(findings: Findings, target: Path | None, plots: Sequence[Path]) -> dict[str, Any]:
    """The public JSON of a run.

    Args:
        findings: what it found.
        target: the file that was written, or ``None``.
        plots: the pictures that were drawn.
    """
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


def print_findings(findings: Findings) -> None:
    """All of it for a person, on stdout."""
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
