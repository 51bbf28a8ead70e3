"""``ctxarchive stats``: how large an archive is."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from ctxarchive.cli.archives import open_for_reading
from ctxarchive.cli.output import console, echo_json


@click.command("stats", help="Say how large ARCHIVE is.")
@click.argument("archive", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(archive: Path, as_json: bool) -> None:
    """Say how large an archive is."""
    with open_for_reading(archive) as knowledge:
        stats = asdict(knowledge.stats())
    if as_json:
        echo_json({"archive": str(archive), **stats})
        return
    for name, value in stats.items():
        console().print(f"{name.replace('_', ' '):>16}  {value:,}")
