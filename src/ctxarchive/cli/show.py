"""``ctxarchive show``: one record's text, exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ctxarchive.cli.archives import open_existing
from ctxarchive.cli.marking import mark_json
from ctxarchive.cli.output import echo_json, note, write
from ctxarchive.errors import ConfigError, KnowledgeError

if TYPE_CHECKING:
    from ctxarchive.knowledge.store import KnowledgeBase


@click.command("show", help="Print the text of record SEQ of SESSION in ARCHIVE, exactly.")
@click.argument("archive", type=click.Path(path_type=Path))
@click.argument("session")
@click.argument("seq", type=click.IntRange(min=0))
@click.option("--offset", type=click.IntRange(min=0), help="Start at this character. Default: 0.")
@click.option(
    "--length",
    type=click.IntRange(min=0),
    help="Print this many characters. Default: all that follow.",
)
@click.option("--raw", is_flag=True, help="Print the event's JSON as archived instead.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    archive: Path,
    session: str,
    seq: int,
    offset: int | None,
    length: int | None,
    raw: bool,
    as_json: bool,
) -> None:
    """Print one record."""
    if raw and (offset is not None or length is not None or as_json):
        raise ConfigError(
            "--raw: prints the whole event; leave out --offset, --length and --json, whose object "
            "holds the event"
        )
    from ctxarchive.knowledge.records import parse_source, source_label

    with open_existing(archive) as knowledge:
        record = knowledge.get(session, seq)
        if record is None and session.startswith("session/"):
            # A source label, as a search prints it.
            session = parse_source(session).session
            record = knowledge.get(session, seq)
        if record is None:
            raise KnowledgeError("missing", f"{archive}: {_absence(knowledge, session, seq)}")
        mark = knowledge.marks(session).get(seq)
    start = min(offset or 0, len(record.text))
    text = record.text[start:] if length is None else record.text[start : start + length]
    if as_json:
        echo_json(
            {
                "session": record.session,
                "seq": record.seq,
                "layer": record.layer,
                "offset": start,
                "length": len(text),
                "chars": len(record.text),
                "text": text,
                "event": json.loads(record.event),
                "source": source_label(record.session, record.layer),
                "kind": record.kind,
                "role": record.role,
                "name": record.name,
                "time": record.time,
                "mark": mark_json(mark),
            }
        )
    else:
        if mark is not None:
            note(f"seq {seq} is {mark.told()}")
        write(record.event if raw else text)


def _absence(knowledge: KnowledgeBase, session: str, seq: int) -> str:
    """What is there, where a record is not."""
    info = next((info for info in knowledge.sessions() if info.session == session), None)
    if info is None:
        return f"no session {session!r}; the command sessions lists them"
    return (
        f"no record {session!r} seq {seq}; it holds some of seq {info.first_seq}..{info.last_seq}"
    )
