"""``ctxarchive export``: an archive's records as JSON lines, or as a table."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ctxarchive.cli.archives import open_existing
from ctxarchive.cli.output import note, write
from ctxarchive.errors import ConfigError, KnowledgeError

if TYPE_CHECKING:
    from ctxarchive.knowledge.records import Record
    from ctxarchive.knowledge.sqlite.store import SqliteKnowledgeBase

_BATCH = 500
COLUMNS = ("session", "seq", "layer", "kind", "role", "name", "time", "chars", "text", "event")
"""Of the table."""


@click.command("export", help="Write the records of ARCHIVE, by session and seq.")
@click.argument("archive", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv"]),
    default="jsonl",
    show_default=True,
    help="One JSON object a record, or a table (needs the extra sqlite-utils).",
)
@click.option(
    "--session",
    "sessions",
    multiple=True,
    metavar="ID",
    help="Only this; may be given several times.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Write into this new file instead of stdout."
)
def command(archive: Path, form: str, sessions: tuple[str, ...], out: Path | None) -> None:
    """Export records."""
    with open_existing(archive) as knowledge:
        known = [info.session for info in knowledge.sessions()]
        for session in sessions:
            if session not in known:
                raise KnowledgeError(
                    "missing",
                    f"{archive}: no session {session!r}; the command sessions lists them",
                )
        chosen = [session for session in known if not sessions or session in sessions]
        parts = _lines(knowledge, chosen) if form == "jsonl" else _table(knowledge, chosen)
        if out is None:
            for text in parts:
                write(text)
            return
        _into(out, parts)


def _into(out: Path, parts: Iterator[str]) -> None:
    """Write a new file for its owner only; none is left of a failure."""
    try:
        descriptor = os.open(out, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise ConfigError(f"--out {out}: is there already; name a new file") from None
    count = 0
    try:
        with os.fdopen(descriptor, "wb") as file:
            for text in parts:
                count += file.write(text.encode("utf-8", "surrogatepass"))
    except BaseException:
        out.unlink()
        raise
    note(f"{count:,} bytes in {out}")


def _lines(knowledge: SqliteKnowledgeBase, sessions: list[str]) -> Iterator[str]:
    from ctxarchive.session.jsontext import dump_json

    for session in sessions:
        for record in _records(knowledge, session):
            yield dump_json(_json(record)) + "\n"


def _records(knowledge: SqliteKnowledgeBase, session: str) -> Iterator[Record]:
    from ctxarchive.knowledge.records import SourceRef
    from ctxarchive.knowledge.store import Scope

    after: int | None = None
    while True:
        scope = Scope(sources=(SourceRef(session=session),), after_seq=after)
        batch = knowledge.range(scope, _BATCH)
        yield from batch
        if len(batch) < _BATCH:
            return
        after = batch[-1].seq


def _json(record: Record) -> dict[str, Any]:
    return {
        "session": record.session,
        "seq": record.seq,
        "layer": record.layer,
        "kind": record.kind,
        "role": record.role,
        "name": record.name,
        "time": record.time,
        "chars": len(record.text),
        "text": record.text,
        "event": json.loads(record.event),
        "head": record.head,
        "images": list(record.images),
    }


def _table(knowledge: SqliteKnowledgeBase, sessions: list[str]) -> Iterator[str]:
    try:
        from sqlite_utils import Database
    except ImportError:
        raise ConfigError(
            "--format csv: needs the extra: pip install 'ctxarchive[sqlite-utils]'"
        ) from None
    from ctxarchive.archive.rendering import render
    from ctxarchive.knowledge.sqlite.connection import unpack

    database = Database(knowledge.tables())  # type: ignore[arg-type]
    ordinals = {
        unpack(row["id"]): row["ordinal"]
        for row in database.query("SELECT ordinal, id FROM sessions")
    }
    yield _csv([dict(zip(COLUMNS, COLUMNS, strict=True))])
    for session in sessions:
        key = (ordinals[session] << 32) - 1
        while rows := list(
            database.query(
                "SELECT key, layer, kind, role, name, time, chars, event, head FROM records"
                " WHERE key > ? AND key >> 32 = ? ORDER BY key LIMIT ?",
                [key, ordinals[session], _BATCH],
            )
        ):
            key = rows[-1]["key"]
            for row in rows:
                event, head = unpack(row.pop("event")), unpack(row.pop("head"))
                row["name"] = "" if row["name"] is None else unpack(row["name"])
                row["seq"] = row.pop("key") & 0xFFFFFFFF
                row |= {"session": session, "event": event, "text": render(event, head)}
            yield _csv(rows)


def _csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO(newline="")
    csv.DictWriter(text, COLUMNS).writerows(rows)
    return text.getvalue()
