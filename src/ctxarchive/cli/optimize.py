"""``ctxarchive optimize``: makes an archive's files as small as they can be."""

from __future__ import annotations

from pathlib import Path

import click

from ctxarchive.cli.app import DONE, FAILED
from ctxarchive.cli.archives import open_existing
from ctxarchive.cli.output import echo_json, line, note

STILL_READ = (
    "another process was reading all the time: deleted bytes are still in the files; run optimize "
    "when it has finished"
)
"""What is told where the files could not be written anew as a whole."""


@click.command("optimize", help="Write both files of ARCHIVE anew, as small as they can be.")
@click.argument("archive", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(archive: Path, as_json: bool) -> int:
    """Make an archive small, and finish a purge that was broken off."""
    with open_existing(archive, "rw") as knowledge:
        before = knowledge.stats()
        scrubbed = knowledge.optimize()
        after = knowledge.stats()
    sizes = [stats.record_bytes + stats.index_bytes for stats in (before, after)]
    if as_json:
        echo_json(
            {
                "archive": str(archive),
                "bytes_before": sizes[0],
                "bytes_after": sizes[1],
                "scrubbed": scrubbed,
            }
        )
    else:
        line(f"{sizes[0]:,} bytes before, {sizes[1]:,} after")
    if not scrubbed:
        note(f"{archive}: {STILL_READ}")
    return DONE if scrubbed else FAILED
