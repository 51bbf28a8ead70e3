"""``ctxarchive pin``: keeps a message of the user in view."""

from __future__ import annotations

from pathlib import Path

import click

from ctxarchive.cli.marking import run


@click.command("pin", help="Keep message SEQ of SESSION in view from the next compaction on.")
@click.argument("archive", type=click.Path(path_type=Path))
@click.argument("session")
@click.argument("seq", type=click.IntRange(min=0))
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(archive: Path, session: str, seq: int, as_json: bool) -> None:
    """Pin one message."""
    from ctxarchive.archive import marking

    run(
        archive,
        session,
        (seq,),
        lambda knowledge, of, found: marking.pin(knowledge, of, seq, found),
        as_json=as_json,
    )
