"""The recall-against-tokens curve as a picture. Needs the ``plot`` extra, and only when it draws.

The same figures give the same file, byte for byte: no date, no random name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ctxarchive.errors import ConfigError

FORMATS = (".svg", ".png")

INK, MUTED, LINE, MARK, PICK = "#1f2328", "#6e7781", "#2f6f9f", "#c4432b", "#2c7a4b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One setting on the picture."""

    label: str
    tokens: float
    """Tokens added to the summary, the mean a checkpoint."""
    recall: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What is drawn."""

    curve: Sequence[Point]
    """The current setting under each bound, the tightest first."""
    current: Point
    recommended: Point | None
    compactions: int
    needed: int


def require_plotting(paths: Sequence[Path]) -> None:
    """Check, before any work is done, that pictures can be drawn into these files.

    Raises:
        ConfigError: naming the file that is no picture, or what to install.
    """
    for path in paths:
        if path.suffix.lower() not in FORMATS:
            raise ConfigError(f"--plot {path}: end it in {' or '.join(FORMATS)}")
        if not path.parent.is_dir():
            raise ConfigError(f"--plot {path}: there is no folder {path.parent}; make it first")
    if paths and find_spec("matplotlib") is None:
        raise ConfigError(
            "--plot: matplotlib is missing; install it with: pip install 'ctxarchive[plot]'"
        )


def draw(picture: Picture, path: Path) -> None:
    """Draw ``picture`` into a file, SVG or PNG by its ending.

    Raises:
        OSError: when the file cannot be written.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    style: Any = {
        "svg.hashsalt": "ctxarchive",
        "svg.fonttype": "path",
        "font.family": "DejaVu Sans",
        "font.size": 10,
    }
    with rc_context(style):
        figure = Figure(figsize=(7.2, 4.4), layout="constrained")
        FigureCanvasAgg(figure)
        _compose(figure.subplots(), picture)
        metadata: dict[str, Any] = (
            {"Date": None, "Creator": None} if path.suffix.lower() == ".svg" else {"Software": None}
        )
        figure.savefig(path, dpi=160, facecolor="white", metadata=metadata)


def _compose(axes: Any, picture: Picture) -> None:
    axes.plot(
        [point.tokens for point in picture.curve],
        [point.recall for point in picture.curve],
        color=LINE,
        linewidth=1.8,
        marker="o",
        markersize=5,
        label="additions bounded at so many characters",
        zorder=3,
    )
    for place, point in enumerate(picture.curve):
        # On alternate sides, since neighbours may lie close together.
        below = place % 2 == 0 and point.recall > 0.1
        axes.annotate(
            point.label,
            (point.tokens, point.recall),
            textcoords="offset points",
            xytext=(5, -12) if below else (-5, 6) if point.recall > 0.1 else (5, 6),
            ha="left" if below else "right",
            fontsize=8.5,
            color=MUTED,
            zorder=5,
        )
    marks = [("current", picture.current, {"color": MARK, "marker": "D", "markersize": 6})]
    if picture.recommended is not None:
        ring = {"color": PICK, "marker": "s", "markersize": 12, "fillstyle": "none"}
        marks.append(("recommended", picture.recommended, {**ring, "markeredgewidth": 1.8}))
    for name, point, look in marks:
        told = f"{name} setting: {point.recall:.2f} at {point.tokens:,.0f} tokens"
        axes.plot([point.tokens], [point.recall], linestyle="none", label=told, zorder=4, **look)
    _scale(axes, [*picture.curve, *(point for _, point, _ in marks)])
    axes.set_ylim(0, 1.05)
    axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    axes.set_xlabel("tokens added to the summary, mean a checkpoint (square-root scale)", color=INK)
    axes.set_ylabel("share of needed identifiers in view", color=INK)
    axes.set_title(
        f"{picture.needed:,} identifiers that agents went on to need and the summary dropped, "
        f"{picture.compactions:,} compactions",
        fontsize=10,
        color=INK,
        loc="left",
    )
    axes.legend(loc="lower right", frameon=False, fontsize=9, labelcolor=INK)
    axes.grid(visible=True, color="#e3e6ea", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED)
    for side, spine in axes.spines.items():
        spine.set_visible(side in {"left", "bottom"})
        spine.set_color("#c8cdd3")


def _scale(axes: Any, points: Sequence[Point]) -> None:
    """A horizontal axis from 0 on which small budgets have room, with round numbers written out."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    most = max(100.0, *(point.tokens for point in points)) * 1.12
    # The axis is asked for places left of 0, too.
    axes.set_xscale("function", functions=(lambda x: abs(x) ** 0.5, lambda x: x**2))
    axes.set_xlim(0, most)
    power = 10 ** (len(str(int(most))) - 1)
    base = power * (10 if most / power > 5 else 5 if most / power > 2 else 2) // 10
    shares = (0, 1, 2, 5, 10, 15, 20) if base >= power / 2 else (0, 1, 2, 4, 6, 8, 10)
    axes.xaxis.set_major_locator(
        FixedLocator([share * base / 2 for share in shares if share * base / 2 <= most])
    )
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
