"""``ctxarchive stats``: how large an archive is."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from ctxarchive.cli.archives import open_existing
from ctxarchive.cli.output import echo_json, line


@click.command("stats", help="Say how large ARCHIVE is.")
@click.argument("archive", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(archive: Path, as_json: bool) -> None:
    """Say how large an archive is."""
    with open_existing(archive) as knowledge:
        stats = asdict(knowledge.stats())
    if as_json:
        echo_json({"archive": str(archive), **stats})
        return
    for name, value in stats.items():
        line(f"{name.replace('_', ' '):>16}  {value:,}")
