"""``ctxarchive show``: one record's text, exactly."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ctxarchive.cli.archives import open_for_reading
from ctxarchive.cli.output import echo_json, write
from ctxarchive.errors import KnowledgeError
from ctxarchive.knowledge.records import source_label


@click.command("show", help="Print the text of record SEQ of SESSION in ARCHIVE, exactly.")
@click.argument("archive", type=click.Path(path_type=Path))
@click.argument("session")
@click.argument("seq", type=click.IntRange(min=0))
@click.option("--offset", type=click.IntRange(min=0), default=0, help="Start at this character.")
@click.option("--length", type=click.IntRange(min=0), help="Print this many characters.")
@click.option("--raw", is_flag=True, help="Print the event's JSON as archived instead.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    archive: Path,
    session: str,
    seq: int,
    offset: int,
    length: int | None,
    raw: bool,
    as_json: bool,
) -> None:
    """Print one record."""
    with open_for_reading(archive) as knowledge:
        record = knowledge.get(session, seq)
    if record is None:
        raise KnowledgeError("missing", f"{archive}: no record {session!r} seq {seq}")
    end = len(record.text) if length is None else offset + length
    text = record.text[offset:end]
    if as_json:
        echo_json(
            {
                "session": record.session,
                "seq": record.seq,
                "layer": record.layer,
                "offset": offset,
                "length": len(text),
                "chars": len(record.text),
                "text": text,
                "event": json.loads(record.event),
                "source": source_label(record.session, record.layer),
                "kind": record.kind,
                "role": record.role,
                "name": record.name,
                "time": record.time,
            }
        )
    else:
        write(record.event if raw else text)
