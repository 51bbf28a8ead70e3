"""``ctxarchive compact``: replays logs, files what disappears, shows each checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ctxarchive.errors import ConfigError

if TYPE_CHECKING:
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
    metavar="NAME",
    help="archive keeps and points to what disappears, basic only summarizes; or the name of an "
    "installed one. Default: the config's.",
)
@click.option(
    "--session-id",
    metavar="ID",
    help="The session's id, instead of the log's own; for one LOG only.",
)
@click.option(
    "--window",
    type=click.IntRange(min=1_000, max=1_000_000_000),
    help="Context window in tokens. Default: the log's own model's, else 200,000.",
)
@click.option(
    "--max-addition-chars",
    type=click.IntRange(min=0),
    help="Bound of all that is added to the summary, in characters. Default: the config's.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="A settings file. Default: ctxarchive.toml in the working folder, if it is there.",
)
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
    session_id: str | None,
    window: int | None,
    max_addition_chars: int | None,
    config: Path | None,
    assignments: tuple[str, ...],
    out: Path | None,
    as_json: bool,
) -> int:
    """Replay and compact logs."""
    refuse_contradiction(at, summarizer)
    if session_id is not None and (len(logs) > 1 or not session_id.strip()):
        raise ConfigError("--session-id: takes one LOG and an id that is not blank")
    from ctxarchive.cli.archives import default_archive
    from ctxarchive.cli.output import note
    from ctxarchive.cli.replaying import Replaying
    from ctxarchive.config.layers import file_here, resolve_settings
    from ctxarchive.config.mounting import OURS
    from ctxarchive.replay.run import ReplaySettings

    given = list(assignments)
    if max_addition_chars is not None:
        given.append(f"transcript.max_addition_chars={max_addition_chars}")
    arguments = settings_given(given)
    if backend is not None:
        arguments["backend"] = backend
    settings = resolve_settings(arguments, file=config, where="command line")
    if archive is not None and settings.backend not in OURS:
        # Another package's backend opens what it files into by itself.
        settings = settings.model_copy(update={"archive": archive})
    if config is None and (here := file_here()) is not None:
        note(f"settings: {here}")
    job = Replaying(
        settings=ReplaySettings(at=at, summarizer=summarizer, window=window, settings=settings),
        archive=archive or default_archive() if settings.backend == "archive" else None,
        named=archive is not None,
        session_id=session_id,
        out=out,
        as_json=as_json,
    )
    return job.run(logs)


def refuse_contradiction(at: When, summarizer: SummarizerName) -> None:
    """A log's own summaries are of its own compactions only.

    Raises:
        ConfigError: for them at any other place.
    """
    if summarizer == "recorded" and at != "recorded":
        raise ConfigError(
            "--summarizer recorded: only with --at recorded; add it, or leave --summarizer out"
        )


def settings_given(assignments: list[str]) -> dict[str, Any]:
    """What the command line says, nested as in the file."""
    from ctxarchive.config.settings import is_known, is_section

    values: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not (key and equals):
            raise ConfigError(f"--set {assignment!r}: write it as KEY=VALUE")
        place = values
        *sections, last = key.strip().split(".")
        for depth, section in enumerate(sections, 1):
            at = tuple(sections[:depth])
            inner = place.setdefault(section, {})
            if not isinstance(inner, dict) or (is_known(at) and not is_section(at)):
                raise ConfigError(f"--set {assignment!r}: {section} is no section")
            place = inner
        place[last] = toml_value(text.strip())
    return values


def toml_value(text: str) -> Any:
    """A value as TOML spells it; what TOML does not know is text."""
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text
