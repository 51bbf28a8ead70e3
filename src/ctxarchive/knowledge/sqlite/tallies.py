"""Counts by session and layer, kept as records come and go, and what is told of a session.

The caller holds the transaction. Nothing here reads a record's content.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final, cast

from ctxarchive.knowledge.records import Layer, Record
from ctxarchive.knowledge.sqlite.connection import Connection, Row, Value, unpack
from ctxarchive.knowledge.store import SessionInfo

COUNTED: Final = (
    "SELECT key >> 32, layer, count(*), sum(chars), min(key & 4294967295),"
    " max(key & 4294967295), min(time), max(time) FROM records"
)
"""What the table of tallies must hold of some records, once they are grouped by 1 and 2."""

_ADD: Final = """
INSERT INTO tallies VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET
    records = records + excluded.records,
    chars = chars + excluded.chars,
    first_seq = min(first_seq, excluded.first_seq),
    last_seq = max(last_seq, excluded.last_seq),
    first_time = min(coalesce(first_time, excluded.first_time),
                     coalesce(excluded.first_time, first_time)),
    last_time = max(coalesce(last_time, excluded.last_time),
                    coalesce(excluded.last_time, last_time))
"""


def add_tallies(connection: Connection, ordinal: int, records: Sequence[Record]) -> None:
    """Count new records of one session, in order of their seqs."""
    connection.many(_ADD, _tallies(ordinal, records))


def recount(connection: Connection, ordinal: int) -> None:
    """Count a session anew, after records of it went."""
    connection.all("DELETE FROM tallies WHERE session = ?", (ordinal,))
    connection.all(
        f"INSERT INTO tallies {COUNTED} WHERE key BETWEEN ? AND ? GROUP BY 1, 2",
        (ordinal << 32, (ordinal + 1 << 32) - 1),
    )


def _tallies(ordinal: int, records: Sequence[Record]) -> Iterator[tuple[Value, ...]]:
    for layer in sorted({record.layer for record in records}):
        of_layer = [record for record in records if record.layer == layer]
        times = [record.time for record in of_layer if record.time is not None]
        yield (
            ordinal,
            layer,
            len(of_layer),
            sum(len(record.text) for record in of_layer),
            of_layer[0].seq,
            of_layer[-1].seq,
            min(times, default=None),
            max(times, default=None),
        )


def session_info(row: Row, tallies: list[Row], filed: int | None) -> SessionInfo:
    """What is told of a session.

    Args:
        row: its ordinal, id, title, parent, inherited seq, meta, time of opening, and how many of
            its records were purged.
        tallies: its rows of tallies.
        filed: when something of it was filed last, where that is known.
    """
    _, session, title, parent, inherited_seq, meta, opened, purged = row
    first_times = [tally[5] for tally in tallies if tally[5] is not None]
    last_times = [tally[6] for tally in tallies if tally[6] is not None]
    return SessionInfo(
        session=unpack(session),
        title=None if title is None else unpack(title),
        records={cast("Layer", tally[1]): tally[2] for tally in tallies},
        first_seq=min((tally[3] for tally in tallies), default=None),
        last_seq=max((tally[4] for tally in tallies), default=None),
        first_time=min(first_times, default=None),
        last_time=max(last_times, default=None),
        parent=None if parent is None else unpack(parent),
        inherited_seq=inherited_seq,
        opened=opened,
        last_filed=filed,
        purged=purged,
        meta=json.loads(meta),
    )
