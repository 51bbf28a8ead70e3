"""``ctxarchive sessions``: what an archive holds, session by session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ctxarchive.cli.archives import open_existing
from ctxarchive.cli.output import echo_json, table

if TYPE_CHECKING:
    from ctxarchive.knowledge.store import SessionInfo


@click.command("sessions", help="List the sessions of ARCHIVE.")
@click.argument("archive", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(archive: Path, as_json: bool) -> None:
    """List sessions."""
    from ctxarchive.knowledge.records import LAYERS

    with open_existing(archive) as knowledge:
        found = knowledge.sessions()
    if as_json:
        echo_json({"sessions": [_session_json(info) for info in found]})
        return
    rows = [
        [
            info.session,
            info.title or "",
            *(str(info.records.get(layer, 0)) for layer in LAYERS),
            "" if info.first_seq is None else f"{info.first_seq}..{info.last_seq}",
        ]
        for info in found
    ]
    table(("session", "title", *LAYERS, "seqs"), rows, texts=2)


def _session_json(info: SessionInfo) -> dict[str, Any]:
    from ctxarchive.knowledge.records import LAYERS

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
