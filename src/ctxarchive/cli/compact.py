"""``ctxarchive compact``: replays logs, files what disappears, shows each checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ctxarchive.errors import ConfigError

if TYPE_CHECKING:
    from ctxarchive.config.settings import Settings
    from ctxarchive.replay.run import SummarizerName, When


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
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="One setting, over the config's, e.g. transcript.user_clip_at=2000; may be given several "
    "times.",
)
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
    assignments: tuple[str, ...],
    out: Path | None,
    as_json: bool,
) -> int:
    """Replay and compact logs."""
    if summarizer == "recorded" and at != "recorded":
        raise ConfigError(
            "--summarizer recorded: only with --at recorded; add it, or leave --summarizer out"
        )
    from ctxarchive.cli.archives import default_archive
    from ctxarchive.cli.replaying import Replaying
    from ctxarchive.config.settings import load_settings
    from ctxarchive.replay.run import ReplaySettings

    given = list(assignments)
    if backend is not None:
        given.append(f"backend={backend}")
    if max_addition_chars is not None:
        given.append(f"transcript.max_addition_chars={max_addition_chars}")
    settings = override(load_settings(config), given)
    job = Replaying(
        settings=ReplaySettings(at=at, summarizer=summarizer, window=window, settings=settings),
        archive=None if settings.backend == "basic" else archive or default_archive(),
        named=archive is not None,
        out=out,
        as_json=as_json,
    )
    return job.run(logs)


def override(settings: Settings, assignments: list[str]) -> Settings:
    """The file's settings with what the command line says on top."""
    from ctxarchive.config.settings import parse_settings

    values = settings.model_dump()
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not (key and equals):
            raise ConfigError(f"--set {assignment!r}: write it as KEY=VALUE")
        place = values
        *sections, last = key.strip().split(".")
        for section in sections:
            inner = place.setdefault(section, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"--set {assignment!r}: {section} is no section")
            place = inner
        place[last] = toml_value(text.strip())
    return parse_settings(values, where="command line")


def toml_value(text: str) -> Any:
    """A value as TOML spells it; what TOML does not know is text."""
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text
