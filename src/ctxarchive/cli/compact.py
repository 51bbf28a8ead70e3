"""``ctxarchive compact``: replays logs, files what disappears, shows each checkpoint."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click

from ctxarchive.cli.app import one_line
from ctxarchive.cli.archives import default_archive, open_for_writing
from ctxarchive.cli.output import console, echo_json, note, progress
from ctxarchive.config.settings import Settings, load_settings
from ctxarchive.errors import ConfigError, CtxArchiveError, SessionError
from ctxarchive.importers.read import read_log
from ctxarchive.replay.run import (
    Replay,
    Replayer,
    ReplaySettings,
    SummarizerName,
    When,
    replay_json,
)
from ctxarchive.session.jsonl import write_session

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from ctxarchive.knowledge.store import KnowledgeBase


@click.command(
    "compact",
    help="Replay each LOG, compact it, and print what every checkpoint keeps.\n\n"
    "A LOG is a Claude Code, pi, DSH or Codex session, or a list of chat messages; .gz and .zst "
    "are read as they are.",
)
@click.argument("logs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--archive",
    type=click.Path(path_type=Path),
    help="File what disappears here. Default: the archive in your data folder.",
)
@click.option(
    "--at",
    type=click.Choice(["pressure", "recorded", "end"]),
    default="pressure",
    show_default=True,
    help="Compact on pressure, where the log's own harness did, or once at the end.",
)
@click.option(
    "--summarizer",
    type=click.Choice(["extractive", "recorded"]),
    default="extractive",
    show_default=True,
    help="Who writes the summary: a deterministic summarizer, or the log's own (--at recorded).",
)
@click.option(
    "--backend",
    type=click.Choice(["archive", "basic"]),
    help="Keep and point to what disappears, or only summarize. Default: the config's.",
)
@click.option(
    "--window",
    type=click.IntRange(min=1_000),
    help="Context window in tokens. Default: the log's own model's, else 200,000.",
)
@click.option(
    "--max-addition-chars",
    type=click.IntRange(min=0),
    help="Bound of all that is added to the summary, in characters. Default: the config's.",
)
@click.option("--config", type=click.Path(path_type=Path), help="A ctxarchive.toml.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Write each checkpoint as Markdown and the compacted session as JSONL into this folder.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a log, one a line.")
def command(
    logs: tuple[Path, ...],
    archive: Path | None,
    at: When,
    summarizer: SummarizerName,
    backend: str | None,
    window: int | None,
    max_addition_chars: int | None,
    config: Path | None,
    out: Path | None,
    as_json: bool,
) -> int:
    """Replay and compact logs."""
    if summarizer == "recorded" and at != "recorded":
        raise ConfigError("--summarizer recorded: only with --at recorded")
    settings = _override(load_settings(config), backend, max_addition_chars)
    replay = ReplaySettings(at=at, summarizer=summarizer, window=window, settings=settings)
    job = _Job(settings=replay, out=out, as_json=as_json)
    if settings.backend == "basic":
        return job.run(logs, None, None)
    path = archive or default_archive()
    with open_for_writing(path) as knowledge:
        if archive is None:
            note(f"archive: {path}")
        return job.run(logs, path, knowledge)


def _override(settings: Settings, backend: str | None, max_addition_chars: int | None) -> Settings:
    """The file's settings with what the command line says on top."""
    values = settings.model_dump()
    if backend is not None:
        values["backend"] = backend
    if max_addition_chars is not None:
        values["transcript"]["max_addition_chars"] = max_addition_chars
    return Settings.model_validate(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    settings: ReplaySettings
    out: Path | None
    as_json: bool

    def run(
        self, logs: tuple[Path, ...], archive: Path | None, knowledge: KnowledgeBase | None
    ) -> int:
        if self.out is not None:
            _make_folder(self.out)
        failed = 0
        with progress() as bar:
            for path in logs:
                try:
                    replay = self._replay(path, knowledge, bar)
                except CtxArchiveError as error:
                    if len(logs) == 1:
                        raise
                    failed += 1
                    note(one_line(error))
                    continue
                self._show(replay, archive)
        return 1 if failed else 0

    def _replay(self, path: Path, knowledge: KnowledgeBase | None, bar: Progress | None) -> Replay:
        log = read_log(path)
        replayer = Replayer(log, self.settings, knowledge)
        task: TaskID | None = None
        if bar is not None:
            task = bar.add_task(path.name, total=len(log.items))

        def advance(done: int) -> None:
            if bar is not None and task is not None:
                bar.update(task, completed=done)

        replay = anyio.run(replayer.run, advance)
        if knowledge is not None:
            knowledge.index_pending()
        if bar is not None and task is not None:
            bar.remove_task(task)
        if self.out is not None:
            _write(self.out, replay)
        return replay

    def _show(self, replay: Replay, archive: Path | None) -> None:
        if self.as_json:
            echo_json(replay_json(replay, archive=None if archive is None else str(archive)))
            return
        _print(replay)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {folder}: {error.strerror or error}") from error


def _write(folder: Path, replay: Replay) -> None:
    name = re.sub(r"[^\w.~-]+", "_", replay.session.id)
    try:
        for index, made in enumerate(replay.compactions):
            page = folder / f"{name}.{index}.md"
            page.write_bytes(made.checkpoint.encode("utf-8", "surrogatepass"))
    except OSError as error:
        raise SessionError("storage", f"{folder}: {error.strerror or error}") from error
    write_session(folder / f"{name}.jsonl", replay.session)


def _print(replay: Replay) -> None:
    from rich.table import Table

    out = console()
    out.print(
        f"[bold]{replay.log.path.name}[/bold]  {replay.log.format}, session {replay.session.id}"
    )
    out.print(
        f"window {replay.window:,} tokens; context {replay.tokens_before:,} → "
        f"{replay.tokens_after:,} tokens; {len(replay.compactions)} compactions"
    )
    table = Table(box=None, pad_edge=False)
    for title in ("#", "shadowed", "checkpoint", "filed", "pointers", "ms"):
        table.add_column(title, justify="right")
    for index, made in enumerate(replay.compactions):
        filed = sum(made.archived[layer] for layer in ("constraint", "finding", "narrative"))
        table.add_row(
            str(index),
            f"{made.shadowed_tokens:,}",
            f"{made.checkpoint_tokens:,}",
            str(filed),
            str(len(made.pointers)),
            f"{made.seconds['total'] * 1_000:.0f}",
        )
    if replay.compactions:
        out.print(table)
    for warning in replay.warnings:
        out.print(f"  note: {warning}", markup=False)
    out.print()
