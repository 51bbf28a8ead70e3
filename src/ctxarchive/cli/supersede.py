"""``ctxarchive supersede``: takes a message of the user out of view."""

from __future__ import annotations

from pathlib import Path

import click

from ctxarchive.cli.marking import run


@click.command(
    "supersede", help="Take message SEQ of SESSION out of view; it stays in ARCHIVE, marked."
)
@click.argument("archive", type=click.Path(path_type=Path))
@click.argument("session")
@click.argument("seq", type=click.IntRange(min=0))
@click.option(
    "--by", type=click.IntRange(min=0), help="Seq of the later message that took its place."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(archive: Path, session: str, seq: int, by: int | None, as_json: bool) -> None:
    """Supersede one message."""
    from ctxarchive.archive import marking

    run(
        archive,
        session,
        (seq,) if by is None else (seq, by),
        lambda knowledge, of, found: marking.supersede(knowledge, of, seq, by, found),
        as_json=as_json,
    )
