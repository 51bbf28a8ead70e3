"""``ctxarchive rebuild``: makes an archive's search index anew."""

from __future__ import annotations

from pathlib import Path

import click

from ctxarchive.cli.archives import open_existing
from ctxarchive.cli.output import echo_json, line


@click.command(
    "rebuild",
    help="Make the search index of ARCHIVE anew from its records.\n\n"
    "The records themselves are not touched.",
)
@click.argument("archive", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(archive: Path, as_json: bool) -> None:
    """Make a search index anew."""
    with open_existing(archive, "rw") as knowledge:
        indexed = knowledge.rebuild()
    if as_json:
        echo_json({"archive": str(archive), "indexed": indexed})
    else:
        line(f"{indexed:,} records indexed")
