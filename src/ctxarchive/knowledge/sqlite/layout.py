"""How the index file is laid out: its tables, the ids of their rows, and what selects among them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ctxarchive.knowledge.folding import FOLD_VERSION, TOKENIZER
from ctxarchive.knowledge.passages import PASSAGE
from ctxarchive.knowledge.records import KINDS, Kind
from ctxarchive.knowledge.sqlite.connection import Connection

FORMAT: Final = f"2.{FOLD_VERSION}.{PASSAGE}"
"""Of tables, folding and passages; an index of another format is made anew."""

TABLES: Final = ("originals", "derived")
"""Events as they happened, and text derived from them (checkpoints)."""

INJECTED: Final = 4
"""In ``passages.sort``, added to the layer's place in ``LAYERS``: text of the host."""
SEVERAL: Final = 8
"""Likewise: one of several passages of its record."""

_PAGE_BYTES: Final = 16_384


def table_of(kind: Kind) -> str:
    """The table that indexes records of a kind."""
    return "derived" if kind == "checkpoint" else "originals"


def strays(table: str, *, index: str, records: str) -> str:
    """The SQL that selects the rows of an index table whose records are not filed so, or no more."""
    kinds = ", ".join(f"'{kind}'" for kind in KINDS if table_of(kind) == table)
    return (
        f"SELECT d.id FROM {index}.{table}_docsize AS d LEFT JOIN {index}.passages AS p ON p.id = d.id"
        f" LEFT JOIN {records}.records AS r ON r.key = p.key"
        f" WHERE r.key IS NULL OR r.kind NOT IN ({kinds})"
    )


def index_path(records: Path) -> Path:
    """Where the index of an archive is: ``A.db`` has ``A.search.db``."""
    name = records.name.removesuffix(".db")
    return records.with_name(f"{name}.search.db")


def ids_of(first: int, last: int) -> tuple[int, int]:
    """The passages' ids that the sessions of two keys, and all between, may have."""
    return first >> 32 << 32, last | 0xFFFFFFFF


def create_tables(connection: Connection, archive: str) -> None:
    """Make the tables of an empty index.

    Args:
        connection: to a file without any.
        archive: the id of the archive whose records are to be indexed.
    """
    connection.all(f"PRAGMA page_size = {_PAGE_BYTES}")
    connection.value("PRAGMA journal_mode = WAL")
    with connection.writing():
        for table in TABLES:
            connection.all(
                f"CREATE VIRTUAL TABLE {table} USING fts5(words, content = '',"
                f" contentless_delete = 1, tokenize = '{TOKENIZER}')"
            )
        connection.all("CREATE VIRTUAL TABLE vocabulary USING fts5vocab(originals, row)")
        # An id is the session's ordinal * 2**32 + a number that counts up in the session.
        connection.all(
            "CREATE TABLE passages(id INTEGER PRIMARY KEY, key INTEGER NOT NULL,"
            " start INTEGER NOT NULL, sort INTEGER NOT NULL)"
        )
        connection.all(
            "CREATE TABLE state(archive TEXT NOT NULL, format TEXT NOT NULL,"
            " filing INTEGER NOT NULL, token INTEGER NOT NULL, key INTEGER NOT NULL)"
        )
        connection.all("INSERT INTO state VALUES (?, ?, 0, 0, -1)", (archive, FORMAT))
