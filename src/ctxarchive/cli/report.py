"""``ctxarchive report``: one HTML file that shows what compaction did to a session.

A log is replayed into an archive of the moment; an archive is only read. Either stays as it is.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ctxarchive.errors import ConfigError, KnowledgeError

if TYPE_CHECKING:
    from ctxarchive.replay.report.values import Report
    from ctxarchive.replay.run import ReplaySettings, SummarizerName, When

SQLITE = b"SQLite format 3\x00"
"""What an archive's file begins with."""

FOR_LOGS = ("at", "summarizer", "window", "config", "assignments")
"""Parameters that say how a log is replayed."""


@click.command(
    "report",
    help="Show the life of a session as one HTML file: its context over time, each compaction, and "
    "the checkpoint with what it left out beside it.\n\nINPUT is a log, which is replayed as "
    "compact does, or an archive.",
)
@click.argument("path", metavar="INPUT", type=click.Path(path_type=Path))
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path),
    help="The file to write. Default: the input's name with .html, in the current folder.",
)
@click.option(
    "--at",
    type=click.Choice(["pressure", "recorded", "end"]),
    default="pressure",
    show_default=True,
    help="Of a log: compact on pressure, where its own harness did, or once at the end.",
)
@click.option(
    "--summarizer",
    type=click.Choice(["extractive", "recorded"]),
    default="extractive",
    show_default=True,
    help="Of a log: a deterministic summarizer, or its own summaries (--at recorded).",
)
@click.option(
    "--window",
    type=click.IntRange(min=1_000),
    help="Of a log: the context window in tokens. Default: its own model's, else 200,000.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Of a log: a settings file. Default: ctxarchive.toml in the working folder, if it is there.",
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Of a log: one setting, over the config's; may be given several times.",
)
@click.option(
    "--session",
    "sessions",
    multiple=True,
    metavar="ID",
    help="Of an archive: only this session; may be given several times. Default: all of them.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def command(
    ctx: click.Context,
    path: Path,
    out: Path | None,
    at: When,
    summarizer: SummarizerName,
    window: int | None,
    config: Path | None,
    assignments: tuple[str, ...],
    sessions: tuple[str, ...],
    as_json: bool,
) -> int:
    """Write a report."""
    started = time.perf_counter()
    target = _target(path, out)
    if _is_archive(path):
        _refuse(ctx, FOR_LOGS, f"{path} is an archive: it is shown as it was filed")
        made = _Made(report=_of_archive(path, sessions))
    else:
        _refuse(ctx, ("sessions",), f"{path} is a log: it has one session")
        made = _of_log(path, _settings(at, summarizer, window, config, assignments))
    return _finish(made, target, started, as_json=as_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    report: Report
    unfiled: bool = False
    """Whether a span could not be filed, so that a checkpoint promises nothing."""


def _is_archive(path: Path) -> bool:
    if not path.exists():
        raise ConfigError(f"{path}: no such file; name a log or an archive")
    if not path.is_file():
        raise ConfigError(f"{path}: not a file; name a log or an archive")
    with path.open("rb") as file:
        return file.read(len(SQLITE)) == SQLITE


def _refuse(ctx: click.Context, parameters: tuple[str, ...], reason: str) -> None:
    """Refuse options that would be ignored."""
    given = click.core.ParameterSource.DEFAULT
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if name in parameters and ctx.get_parameter_source(name) is not given:
            raise ConfigError(f"{parameter.opts[0]}: {reason}; leave it out")


def _settings(
    at: When,
    summarizer: SummarizerName,
    window: int | None,
    config: Path | None,
    assignments: tuple[str, ...],
) -> ReplaySettings:
    from ctxarchive.cli.compact import refuse_contradiction, settings_given
    from ctxarchive.cli.output import note
    from ctxarchive.config.layers import file_here, resolve_settings
    from ctxarchive.replay.run import ReplaySettings

    refuse_contradiction(at, summarizer)
    given = settings_given(list(assignments))
    settings = resolve_settings(given, file=config, where="command line")
    if config is None and (here := file_here()) is not None:
        note(f"settings: {here}")
    return ReplaySettings(at=at, summarizer=summarizer, window=window, settings=settings)


def _of_log(path: Path, settings: ReplaySettings) -> _Made:
    import anyio

    from ctxarchive.cli.archives import open_for_writing
    from ctxarchive.cli.output import progress
    from ctxarchive.cli.replaying import interruptible, unfiled
    from ctxarchive.importers.read import read_log
    from ctxarchive.metering.meter import TokenMeter
    from ctxarchive.metering.tokenizers import estimator
    from ctxarchive.replay.report.gather import Thresholds, replayed_session
    from ctxarchive.replay.run import Replayer

    log = read_log(path)
    with ExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="ctxarchive-")))
        knowledge = None
        if settings.settings.backend == "archive":
            knowledge = closing.enter_context(open_for_writing(folder / "archive.db"))
        replayer = closing.enter_context(Replayer(log, settings, knowledge))
        with progress(path.name, len(log.items)) as advance:
            replay = anyio.run(replayer.run, interruptible(advance))
        policy = settings.settings.compaction
        budget = policy.resolve(log.provider or "", log.model or "", replay.window)
        view = replayed_session(
            replay,
            knowledge,
            TokenMeter(estimator(settings.settings.estimator)),
            Thresholds(window=budget.window, threshold=budget.threshold),
        )
    return _Made(report=_report(path, "log", (view,)), unfiled=unfiled(replay))


def _of_archive(path: Path, chosen: tuple[str, ...]) -> Report:
    from ctxarchive.cli.archives import open_existing
    from ctxarchive.metering.meter import TokenMeter
    from ctxarchive.replay.report.gather import MAX_RECORDS, archived_session

    with open_existing(path) as knowledge:
        known = {info.session: info for info in knowledge.sessions()}
        for name in chosen:
            if name not in known:
                raise KnowledgeError(
                    "missing",
                    f"--session {name!r}: not in this archive; the command sessions lists them",
                )
        infos = [known[name] for name in dict.fromkeys(chosen)] or list(known.values())
        if not infos:
            raise KnowledgeError("missing", f"{path}: no session in it; file some with compact")
        records = sum(sum(info.records.values()) for info in infos)
        if records > MAX_RECORDS:
            raise KnowledgeError(
                "scope",
                f"{path}: {records:,} records in {_counted(len(infos), 'session')}, a page takes "
                f"{MAX_RECORDS:,}; choose with --session",
            )
        meter = TokenMeter()
        views = tuple(archived_session(knowledge, info, meter) for info in infos)
    return _report(path, "archive", views)


def _report(path: Path, origin: Any, sessions: tuple[Any, ...]) -> Report:
    from importlib.metadata import version

    from ctxarchive.replay.report.values import Report

    return Report(name=path.name, origin=origin, version=version("ctxarchive"), sessions=sessions)


def _target(path: Path, out: Path | None) -> Path:
    """Where the page goes; what is there already must be a report.

    Raises:
        ConfigError: for a folder, or a file that is none of ours.
    """
    from ctxarchive.replay.report.page import FIRST_LINE

    target = out
    if target is None:
        name = path.name.removesuffix(".gz").removesuffix(".zst")
        target = Path(f"{name.rpartition('.')[0] or name}.html")
    if target.is_dir():
        raise ConfigError(f"--out {target}: a folder; name a file in it")
    if not target.parent.is_dir():
        raise ConfigError(f"--out {target}: no folder {target.parent}; make it first")
    if target.exists():
        with target.open("rb") as file:
            if file.read(len(FIRST_LINE)) != FIRST_LINE.encode():
                raise ConfigError(
                    f"--out {target}: is there already and is no report; name another file"
                )
    return target


def _finish(made: _Made, target: Path, started: float, *, as_json: bool) -> int:
    from ctxarchive.cli.app import DONE, FAILED
    from ctxarchive.cli.output import echo_json, line
    from ctxarchive.replay.report.page import page

    content = page(made.report).encode()
    _write(target, content)
    seconds = time.perf_counter() - started
    if as_json:
        echo_json(
            {
                "report": str(target),
                "bytes": len(content),
                "seconds": round(seconds, 6),
                "sessions": [
                    {
                        "session": view.session,
                        "title": view.title,
                        "events": len(view.points),
                        "compactions": len(view.compactions),
                        "records": len(view.records),
                        "pointers": sum(len(c.checkpoint.pointers) for c in view.compactions),
                        "warnings": list(view.warnings),
                    }
                    for view in made.report.sessions
                ],
            }
        )
    else:
        line(f"{target}  {len(content) / 1e6:.1f} MB; {seconds:.1f} s")
        for view in made.report.sessions:
            line(
                f"  {view.title or view.session}: "
                f"{_counted(len(view.compactions), 'compaction')}, "
                f"{_counted(len(view.records), 'record')}"
            )
            for warning in view.warnings:
                line(f"  note: {warning}")
    return FAILED if made.unfiled else DONE


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _write(target: Path, content: bytes) -> None:
    """The whole page or none: a report that is there stays until the new one is complete."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
