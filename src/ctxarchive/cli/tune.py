"""``ctxarchive tune``: tries settings over a user's own logs, and recommends one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ctxarchive.errors import ConfigError

if TYPE_CHECKING:
    from ctxarchive.replay.scenes import Cuts


@click.command(
    "tune",
    help="Try settings on each LOG's compactions, and recommend one.\n\n"
    "For each setting: what it adds to the summary, how much of what the agent went on to need is in "
    "view, how much of the user's text, and whether what was left out can be fetched.",
)
@click.argument("logs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--at",
    "cuts",
    type=click.Choice(["auto", "recorded", "pressure"]),
    default="auto",
    show_default=True,
    help="Compact where the log's own harness did, or on pressure; auto: on pressure where it never "
    "did.",
)
@click.option(
    "--points",
    metavar="SHARE,…",
    help="Compact at these shares of each log instead, e.g. 0.5,0.8.",
)
@click.option(
    "--window",
    type=click.IntRange(min=1_000, max=1_000_000_000),
    help="Context window in tokens, for pressure. Default: the log's own model's, else 200,000.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="The current settings file. Default: ctxarchive.toml in the working folder, if it is there.",
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="One current setting, over the config's; may be given several times.",
)
@click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="KEY=V1,V2,…",
    help="Try these values of a transcript setting, in place of the default sweep; may be given "
    "several times.",
)
@click.option("--only-curve", is_flag=True, help="Measure the curve over bounds and nothing else.")
@click.option(
    "--rounds",
    type=click.IntRange(min=1, max=5),
    default=1,
    show_default=True,
    help="Sweep again around what was found, up to so many times in all.",
)
@click.option(
    "--fit",
    is_flag=True,
    help="Fit the anchors' weights on one half of the logs, and report on the other.",
)
@click.option(
    "--cross-validate",
    "folds",
    type=click.IntRange(min=2),
    metavar="N",
    help="With --fit: also fit N times, each time leaving out one Nth of the logs, and report on "
    "what was left out.",
)
@click.option(
    "--plot",
    "plots",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Draw the recall-against-tokens curve into this .svg or .png; may be given several times.",
)
@click.option(
    "--write",
    "target",
    type=click.Path(path_type=Path),
    help="Write the recommended setting as a config file.",
)
@click.option("--force", is_flag=True, help="Let --write replace a file.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes to share the logs among.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    logs: tuple[Path, ...],
    cuts: Cuts,
    points: str | None,
    window: int | None,
    config: Path | None,
    assignments: tuple[str, ...],
    sweeps: tuple[str, ...],
    only_curve: bool,
    rounds: int,
    fit: bool,
    folds: int | None,
    plots: tuple[Path, ...],
    target: Path | None,
    force: bool,
    jobs: int,
    as_json: bool,
) -> int:
    """Tune on logs."""
    if only_curve and sweeps:
        raise ConfigError("--only-curve: measures no sweep; leave --sweep out")
    if folds is not None and not fit:
        raise ConfigError("--cross-validate: only with --fit; add it, or leave this out")
    from ctxarchive.cli.compact import settings_given
    from ctxarchive.cli.curve import require_plotting
    from ctxarchive.cli.output import note
    from ctxarchive.cli.tuning import Tuning
    from ctxarchive.config.layers import file_here, resolve_settings
    from ctxarchive.config.writing import refuse_existing
    from ctxarchive.replay.scenes import Occasion

    settings = resolve_settings(
        settings_given(list(assignments)), file=config, where="command line"
    )
    if config is None and (here := file_here()) is not None:
        note(f"settings: {here}")
    require_plotting(plots)
    if target is not None:
        refuse_existing(target, force=force)
    job = Tuning(
        settings=settings,
        occasion=Occasion(cuts=cuts, points=_points(points), window=window),
        sweeps=tuple(_sweep(text) for text in sweeps),
        only_curve=only_curve,
        rounds=rounds,
        fit=fit,
        folds=folds,
        plots=plots,
        target=target,
        jobs=jobs,
        as_json=as_json,
    )
    return job.run(logs)


def _points(text: str | None) -> tuple[float, ...]:
    """Shares of a log, each above 0 and below 1."""
    if text is None:
        return ()
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(0 < point < 1 for point in found):
        raise ConfigError(f"--points {text!r}: shares between 0 and 1 with commas, such as 0.5,0.8")
    return found


def _sweep(text: str) -> tuple[str, tuple[object, ...]]:
    """A key of the section ``[transcript]`` and the values to try."""
    from ctxarchive.cli.compact import toml_value

    key, equals, values = text.partition("=")
    key = key.strip().removeprefix("transcript.")
    if not (key and equals and values.strip()):
        raise ConfigError(f"--sweep {text!r}: write it as KEY=VALUE,VALUE")
    found = (toml_value(part.strip()) for part in values.split(","))
    return key, tuple(None if value == "none" else value for value in found)
