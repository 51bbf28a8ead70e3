"""An archive's tables as sqlite-utils takes a database: enough of the DB-API over our own connection.

So that sqlite-utils, which knows the standard library's SQLite only, never opens our files through it:
two copies of SQLite on one file in one process damage it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from ctxarchive.knowledge.sqlite.connection import Bindings, Connection, Row, Value


class Cursor:
    """The rows of one statement, all of them fetched."""

    rowcount = -1
    lastrowid = None

    def __init__(self, names: Sequence[str], rows: Sequence[Row]) -> None:
        self.description = [(name, *[None] * 6) for name in names] or None
        self._rows = iter(rows)

    def __iter__(self) -> Iterator[Row]:
        return self._rows

    def fetchone(self) -> Row | None:
        """The next row, or ``None``."""
        return next(self._rows, None)

    def fetchall(self) -> list[Row]:
        """All rows that are left."""
        return list(self._rows)

    def close(self) -> None:
        """Nothing is held."""


class Tables:
    """What ``sqlite_utils.Database`` takes as its connection; good for as long as its archive is open."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.row_factory: Any = None
        self.isolation_level: str | None = None

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._connection.in_transaction()

    def execute(self, sql: str, parameters: Bindings = ()) -> Cursor:
        """Run one statement."""
        return Cursor(*self._connection.described(sql, parameters))

    def executescript(self, sql: str) -> Cursor:
        """Run several statements."""
        return self.execute(sql)

    def executemany(self, sql: str, rows: Sequence[Bindings]) -> Cursor:
        """Run one statement for each row."""
        self._connection.many(sql, rows)
        return Cursor((), ())

    def cursor(self) -> Tables:
        """Something that executes."""
        return self

    def create_function(
        self,
        name: str,
        narg: int,
        func: Callable[..., Value],
        *,
        deterministic: bool = False,
    ) -> None:
        """Make a function known to SQL."""
        del deterministic
        self._connection.add_function(name, narg, func)

    def commit(self) -> None:
        """Commit what is open."""
        if self.in_transaction:
            self.execute("COMMIT")

    def rollback(self) -> None:
        """Undo what is open."""
        if self.in_transaction:
            self.execute("ROLLBACK")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.commit()
        else:
            self.rollback()
