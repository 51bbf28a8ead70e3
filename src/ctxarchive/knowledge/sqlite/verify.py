"""Everything that is stored, checked against itself. It reports and repairs nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from ctxarchive.errors import KnowledgeError
from ctxarchive.knowledge.folding import fold
from ctxarchive.knowledge.passages import passages
from ctxarchive.knowledge.query import Document
from ctxarchive.knowledge.records import KINDS, LAYERS, SEQ_LIMIT
from ctxarchive.knowledge.sqlite.checksums import checksum
from ctxarchive.knowledge.sqlite.connection import Row, unpack
from ctxarchive.knowledge.sqlite.index import Index
from ctxarchive.knowledge.sqlite.layout import TABLES, ids_of, strays, table_of
from ctxarchive.knowledge.sqlite.records import COLUMNS, Records
from ctxarchive.knowledge.sqlite.tallies import COUNTED
from ctxarchive.knowledge.sqlite.vocabulary import varints
from ctxarchive.knowledge.store import Finding

_STEP: Final = 500
_MOST_LINES: Final = 100


def verify(records: Records, index: Index) -> list[Finding]:
    """Check both files.

    Codes: ``records-damaged`` and ``index-damaged`` (SQLite's own check), ``session`` (records of
    an unknown session), ``tally`` (a count is wrong), ``filing`` (a filing lacks records),
    ``checksum`` (a record is not what was filed), ``json`` and ``text`` (it cannot be read as it was
    filed), ``tombstone`` (a purged record that is there all the same), ``purge`` (one that was broken
    off: what it deleted is still in the files), ``unindexed``, ``stray`` and ``stale`` (a record that the index lacks, has too much, or holds
    with another text).
    """
    findings: list[Finding] = []
    with records.connection.held():
        # FTS5's own check trusts what this connection remembers of an index that another wrote.
        index.detach()
        attached = index.attach(repair=False)
        if not attached and index.path.exists():
            findings.append(_damaged_index(index, "not to be trusted"))
        with records.connection.reading():
            try:
                findings.extend(_integrity(records, "main", "records-damaged"))
                findings.extend(_counts(records))
                findings.extend(_purges(records))
                findings.extend(_each_record(records))
            except KnowledgeError as error:
                if error.code != "corrupt":
                    raise
                findings.append(Finding(code="records-damaged", message=str(error)))
                return findings
            if attached:
                try:
                    findings.extend(_integrity(records, "search", "index-damaged"))
                    findings.extend(_strays(records, index))
                    findings.extend(_each_indexed(records, index))
                except KnowledgeError as error:
                    if error.code != "corrupt":
                        raise
                    findings.append(_damaged_index(index, str(error)))
    return findings


def _damaged_index(index: Index, reason: str) -> Finding:
    return Finding(code="index-damaged", message=f"{index.path}: {reason}")


def _integrity(records: Records, schema: str, code: str) -> Iterator[Finding]:
    rows = records.connection.all(f"PRAGMA {schema}.integrity_check({_MOST_LINES})")
    for (line,) in rows:
        if line != "ok":
            yield Finding(code=code, message=" ".join(str(line).split()))


def _counts(records: Records) -> Iterator[Finding]:
    connection = records.connection
    for (ordinal,) in connection.all(
        "SELECT DISTINCT key >> 32 FROM records EXCEPT SELECT ordinal FROM sessions"
    ):
        yield Finding(code="session", message=f"records of a session {ordinal} that is not known")
    counted = f"{COUNTED} GROUP BY 1, 2"
    for first, second in ((counted, "tallies"), ("SELECT * FROM tallies", f"({counted})")):
        for row in connection.all(f"SELECT * FROM ({first} EXCEPT SELECT * FROM {second})"):
            yield Finding(
                code="tally",
                message=f"layer {row[1]}: {row[2]} records counted otherwise than stored",
                session=records.session(row[0]),
            )
    for number, noted, held in connection.all(
        "SELECT f.number, f.records, count(r.key) FROM filings f LEFT JOIN records r"
        " ON r.key BETWEEN f.first_key AND f.last_key AND r.filing = f.number"
        " GROUP BY f.number HAVING f.records <> count(r.key)"
    ):
        yield Finding(code="filing", message=f"filing {number}: {held} of {noted} records")


def _purges(records: Records) -> Iterator[Finding]:
    connection = records.connection
    for number, count in connection.all(
        "SELECT number, records FROM purges WHERE scrubbed = 0 ORDER BY number"
    ):
        yield Finding(
            code="purge",
            message=f"purge {number} was broken off: what was in {count} records is still in the"
            " files until optimize has run",
        )
    for (key,) in connection.all("SELECT key FROM tombstones INTERSECT SELECT key FROM records"):
        session, seq = records.session(key >> 32), key & SEQ_LIMIT - 1
        yield Finding(code="tombstone", message="purged, and yet filed", session=session, seq=seq)
    for (key,) in connection.all("SELECT key FROM checksums EXCEPT SELECT key FROM records"):
        yield Finding(
            code="checksum",
            message=f"of seq {key & SEQ_LIMIT - 1} of session {key >> 32}, which is not filed",
        )


def _strays(records: Records, index: Index) -> Iterator[Finding]:
    """What the index holds and the records do not, or in another table."""
    for table in TABLES:
        rows = records.connection.all(strays(table, index="search", records="main"))
        for (number,) in rows:
            yield Finding(
                code="stray",
                message=f"{index.path}: {table} holds passage {number & 0xFFFFFFFF} of session"
                f" {number >> 32}, whose record is not filed so",
            )


def _each_record(records: Records) -> Iterator[Finding]:
    for rows in _steps(records):
        sums: dict[int, int] = dict(
            records.connection.all(
                "SELECT key, sum FROM main.checksums WHERE key BETWEEN ? AND ?",
                (rows[0][0], rows[-1][0]),
            )
        )
        for row in rows:
            if sums.get(row[0]) != checksum(row[1:10]):
                yield Finding(
                    code="checksum",
                    message="is not what was filed",
                    session=records.session(row[0] >> 32),
                    seq=row[0] & SEQ_LIMIT - 1,
                )
            yield from _one(records, row)


def _each_indexed(records: Records, index: Index) -> Iterator[Finding]:
    """What the index should hold of each record below its watermark."""
    pending = {
        (stretch.filing, stretch.first, stretch.last) for stretch in index.stretches(attached=True)
    }
    for rows in _steps(records):
        sizes = _sizes(records, rows)
        for row in rows:
            waits = any(
                filing == row[10] and first <= row[0] <= last for filing, first, last in pending
            )
            if not waits:
                yield from _indexed(records, index, row, sizes)


def _steps(records: Records) -> Iterator[list[Row]]:
    key = -1
    while rows := records.connection.all(
        f"SELECT {COLUMNS}, filing FROM main.records WHERE key > ? ORDER BY key LIMIT {_STEP}",
        (key,),
    ):
        yield rows
        key = rows[-1][0]


def _one(records: Records, row: Row) -> Iterator[Finding]:
    key, layer, kind, _, _, chars, _, _, head, event, _ = row
    session, seq = records.session(key >> 32), key & SEQ_LIMIT - 1
    if kind not in KINDS or layer not in LAYERS:
        yield Finding(
            code="record", message=f"kind {kind!r}, layer {layer!r}", session=session, seq=seq
        )
    try:
        json.loads(unpack(event))
    except ValueError as error:
        yield Finding(code="json", message=f"not JSON: {error}", session=session, seq=seq)
        return
    try:
        text = records.text(key, event, head)
    except KnowledgeError as error:
        yield Finding(code="text", message=str(error), session=session, seq=seq)
        return
    if len(text) != chars:
        yield Finding(
            code="text",
            message=f"renders to {len(text)} characters, {chars} were filed",
            session=session,
            seq=seq,
        )


def _sizes(records: Records, rows: list[Row]) -> dict[tuple[str, int], int]:
    """How many words the index holds of each record between the first and the last of ``rows``."""
    sizes: dict[tuple[str, int], int] = {}
    first, last = rows[0][0], rows[-1][0]
    for table in TABLES:
        for key, packed in records.connection.all(
            f"SELECT p.key, d.sz FROM search.passages AS p JOIN search.{table}_docsize AS d"
            " ON d.id = p.id WHERE p.id BETWEEN ? AND ? AND p.key BETWEEN ? AND ?",
            (*ids_of(first, last), first, last),
        ):
            sizes[table, key] = sizes.get((table, key), 0) + sum(varints(packed))
    return sizes


def _indexed(
    records: Records, index: Index, row: Row, sizes: dict[tuple[str, int], int]
) -> Iterator[Finding]:
    key, _, kind, _, _, _, _, _, head, event, _ = row
    session, seq = records.session(key >> 32), key & SEQ_LIMIT - 1
    held = sizes.get((table_of(kind), key))
    if held is None:
        yield Finding(
            code="unindexed",
            message=f"{index.path}: lacks a record below its watermark",
            session=session,
            seq=seq,
        )
        return
    parts = passages(records.readable(event, head))
    words = sum(Document(fold(part.text)).length for part in parts)
    if held != words:
        yield Finding(
            code="stale",
            message=f"{index.path}: holds {held} words of a record of {words}",
            session=session,
            seq=seq,
        )
