"""``ctxarchive backup``: copies an archive while it is in use."""

from __future__ import annotations

from pathlib import Path

import click

from ctxarchive.cli.archives import open_existing
from ctxarchive.cli.output import echo_json, line


@click.command("backup", help="Copy the records of ARCHIVE into the new file TARGET.")
@click.argument("archive", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(archive: Path, target: Path, as_json: bool) -> None:
    """Copy an archive."""
    with open_existing(archive) as knowledge:
        knowledge.backup(target)
    with open_existing(target) as copy:
        stats = copy.stats()
    if as_json:
        echo_json(
            {
                "archive": str(archive),
                "target": str(target),
                "records": stats.records,
                "bytes": stats.record_bytes,
            }
        )
    else:
        line(f"{stats.records:,} records, {stats.record_bytes:,} bytes in {target}")
