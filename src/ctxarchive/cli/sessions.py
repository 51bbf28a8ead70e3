"""``ctxarchive sessions``: what an archive holds, session by session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ctxarchive.cli.archives import open_for_reading
from ctxarchive.cli.output import console, echo_json
from ctxarchive.knowledge.records import LAYERS
from ctxarchive.knowledge.store import SessionInfo


@click.command("sessions", help="List the sessions of ARCHIVE.")
@click.argument("archive", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(archive: Path, as_json: bool) -> None:
    """List sessions."""
    with open_for_reading(archive) as knowledge:
        found = knowledge.sessions()
    if as_json:
        echo_json({"sessions": [_session_json(info) for info in found]})
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("session", overflow="fold")
    table.add_column("title", overflow="fold")
    for title in (*LAYERS, "seqs"):
        table.add_column(title, justify="right")
    for info in found:
        counts = [str(info.records.get(layer, 0)) for layer in LAYERS]
        table.add_row(info.session, info.title or "", *counts, f"{info.first_seq}..{info.last_seq}")
    console().print(table)


def _session_json(info: SessionInfo) -> dict[str, Any]:
    return {
        "session": info.session,
        "title": info.title,
        "records": {layer: info.records.get(layer, 0) for layer in LAYERS},
        "first_seq": info.first_seq,
        "last_seq": info.last_seq,
        "first_time": info.first_time,
        "last_time": info.last_time,
        "parent": info.parent,
    }
