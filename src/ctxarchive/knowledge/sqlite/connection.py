"""The only door to SQLite: opening files, running statements, and what went wrong in our words.

Nothing else imports apsw. A file is never opened by any other means while it may be open here:
closing a second descriptor drops the process's locks, which is how databases are corrupted.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, cast
from urllib.parse import quote

import apsw

from ctxarchive.errors import KnowledgeError

Value = str | bytes | int | float | None
Row = tuple[Any, ...]
Bindings = Sequence[Value] | Mapping[str, Value]
Mode = Literal["rw", "ro"]

SQLITE_VERSION: Final = apsw.sqlite_lib_version()
_OWNER_ONLY: Final = 0o600
_NO_SPACE: Final = 1 << 20
_WRITING: Final = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READWRITE
_creating = threading.Lock()

_CAUSES: Final[tuple[tuple[tuple[type[apsw.Error], ...], KnowledgeError.Code, str], ...]] = (
    (
        (apsw.BusyError, apsw.LockedError),
        "locked",
        "another writer held it for {timeout} ms",
    ),
    (
        (apsw.ReadOnlyError, apsw.PermissionsError),
        "read-only",
        "cannot be written: {reason}",
    ),
    ((apsw.FullError,), "full", "no space left"),
    ((apsw.NotADBError,), "foreign", "not an SQLite database"),
    ((apsw.CorruptError,), "corrupt", "damaged: {reason}"),
    ((apsw.ConnectionClosedError,), "storage", "is closed"),
)
"""SQLite's errors in our words: which ones, our code, and what is said of the file."""


def create_file(path: Path) -> bool:
    """Make an empty file that only its owner may read; whether it was this call that made it."""
    with _creating:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, _OWNER_ONLY))
        except FileExistsError:
            return False
        except OSError as error:
            raise _refusal(path, error) from error
    return True


def remove_file(path: Path) -> None:
    """Remove a database with its log; another process that has it open keeps its own copy.

    The database goes first: without its log it might pass for an older state of itself.
    """
    if path.is_dir():
        raise KnowledgeError("storage", f"{path}: a folder where a file is needed; move it away")
    for suffix in ("", "-wal", "-shm", "-journal"):
        try:
            Path(f"{path}{suffix}").unlink()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _refusal(path, error) from error


def move_file(source: Path, target: Path) -> None:
    """Put a closed database where another was."""
    try:
        source.replace(target)
    except OSError as error:
        raise _refusal(target, error) from error


def _refusal(path: Path, error: OSError) -> KnowledgeError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return KnowledgeError("missing", f"{path}: the folder does not exist")
    if isinstance(error, PermissionError) or error.errno == 30:  # EROFS
        return KnowledgeError("read-only", f"{path}: cannot be written: {error.strerror}")
    if error.errno == 28:  # ENOSPC
        return KnowledgeError("full", f"{path}: no space left")
    return KnowledgeError("storage", f"{path}: {error.strerror}")


def pack(text: str) -> str | bytes:
    """Text as it is stored: SQLite's text is UTF-8, which has no lone surrogates; those are bytes."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def unpack(value: str | bytes) -> str:
    """The text that ``pack`` was given."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file a path names now; ``None`` where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino)


class Connection:
    """One SQLite connection, usable from several threads, one at a time."""

    def __init__(self, path: Path, *, mode: Mode, busy_timeout_ms: int) -> None:
        self.path = path
        self.mode = mode
        self._timeout = busy_timeout_ms
        self._lock = threading.RLock()
        flags = _WRITING if mode == "rw" else apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READONLY
        with self._translated():
            self._db = apsw.Connection(_uri(path, mode), flags=flags)
            self._db.setbusytimeout(busy_timeout_ms)
        self._file = _identity(path)

    def all(self, sql: str, bindings: Bindings = ()) -> list[Row]:
        """Run statements; all rows."""
        with self._lock, self._translated():
            return list(self._db.execute(sql, bindings))

    def one(self, sql: str, bindings: Bindings = ()) -> Row | None:
        """Run a statement; its first row."""
        with self._lock, self._translated():
            cursor = self._db.execute(sql, bindings)
            row: Row | None = cursor.fetchone()
            cursor.close(True)
            return row

    def value(self, sql: str, bindings: Bindings = ()) -> Any:
        """Run a statement; the first column of its first row, ``None`` without a row."""
        row = self.one(sql, bindings)
        return row[0] if row else None

    def many(self, sql: str, rows: Iterable[Bindings]) -> None:
        """Run a statement once for each row."""
        with self._lock, self._translated():
            self._db.executemany(sql, rows)

    def insert_texts(self, sql: str, texts: Sequence[str]) -> None:
        """Run a statement that takes ``texts`` as an array (``carray(:texts)``), in one go.

        Python is not needed meanwhile, so another thread may go on; and the lock is not taken, so
        that this may be the other thread: the caller holds it, and does nothing else here till then.
        """
        array = apsw.carray(tuple(texts), flags=apsw.SQLITE_CARRAY_TEXT)
        with self._translated():
            self._db.execute(sql, {"texts": array})

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """A transaction that holds the write lock from its start; any error undoes it.

        Raises:
            KnowledgeError: ``missing``, when the file was removed or replaced since it was opened:
                what is written to it would be gone with this connection.
        """
        if self._file is not None and _identity(self.path) != self._file:
            raise KnowledgeError(
                "missing", f"{self.path}: removed or replaced while it was open; open it again"
            )
        with self._transaction("BEGIN IMMEDIATE", "COMMIT"):
            yield

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """One state of the database for several statements. May be nested in another."""
        with self._lock:
            if self._db.in_transaction:
                yield
                return
            with self._transaction("BEGIN", "ROLLBACK"):
                yield

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep other threads away from this connection for several statements."""
        with self._lock:
            yield

    @contextlib.contextmanager
    def _transaction(self, begin: str, end: str) -> Iterator[None]:
        with self._lock:
            with self._translated():
                self._db.execute(begin)
            try:
                yield
                with self._translated():
                    self._db.execute(end)
            except BaseException:
                if self._db.in_transaction:
                    with self._translated():
                        self._db.execute("ROLLBACK")
                raise

    def attach(self, path: Path, name: str, *, mode: Mode) -> None:
        """Attach another file under a name."""
        self.all(f"ATTACH ? AS {name}", (_uri(path, mode),))

    def attached(self, name: str) -> bool:
        """Whether a file is attached under this name."""
        return any(row[1] == name for row in self.all("PRAGMA database_list"))

    def detach(self, name: str) -> None:
        """Detach what is attached under this name, if anything."""
        if self.attached(name):
            self.all(f"DETACH {name}")

    def writable(self) -> bool:
        """Whether SQLite could open the file for writing."""
        return not self._db.readonly("main")

    def forget_securely(self) -> None:
        """Overwrite with zeros what is deleted from now on."""
        self.all("PRAGMA main.secure_delete = ON")

    def compact(self) -> bool:
        """Write the whole file anew, without what was deleted; whether nothing of it is left.

        As ``truncate_log``, it is left where another process reads all the time.
        """
        self.all("VACUUM main")
        return self.truncate_log()

    def truncate_log(self) -> bool:
        """Move the write-ahead log into the file and empty it; whether nobody was reading from it."""
        try:
            return not self.value("PRAGMA main.wal_checkpoint(TRUNCATE)")
        except KnowledgeError as error:
            if error.code != "locked":
                raise
            return False

    def copy_to(self, target: Path) -> None:
        """Copy the whole database into an empty file, as it is at one moment.

        In one step: a copy in several would begin anew with each commit of another process, and a
        reader holds up no writer.
        """
        with self._lock, self._translated():
            copy = apsw.Connection(_uri(target, "rw"), flags=_WRITING)
            try:
                with copy.backup("main", self._db, "main") as backup:
                    backup.step(-1)
                # So that the copy is one file, whole and on disk, before it is called done.
                copy.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                copy.close()

    def described(self, sql: str, bindings: Bindings = ()) -> tuple[tuple[str, ...], list[Row]]:
        """Run one statement; the names of its columns, none for one that gives no rows, and its rows."""
        names: list[str] = []

        def note(cursor: apsw.Cursor, *_: object) -> bool:
            names[:] = [name for name, *_ in cursor.get_description()]
            return True

        with self._lock, self._translated():
            cursor = self._db.cursor()
            cursor.exec_trace = note
            rows = list(cursor.execute(sql, bindings))
        return tuple(names), rows

    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._db.in_transaction

    def add_function(self, name: str, arguments: int, function: Callable[..., Value]) -> None:
        """Make a function of ours known to SQL."""
        self._db.create_scalar_function(name, function, arguments)

    def count_phrases(self, name: str) -> None:
        """Add an FTS5 function of a number: a byte for each of so many phrases, then the length.

        The byte is how often the phrase occurs; the length is four bytes, big-endian: the words of
        the row.
        """

        def counts(api: apsw.FTS5ExtensionApi, *phrases: Value) -> bytes:
            found = api.phrase_locations
            first = range(cast("int", phrases[0]))
            occurrences = [min(255, sum(map(len, found(phrase)))) for phrase in first]
            return bytes(occurrences) + api.column_size(-1).to_bytes(4, "big")

        self._db.register_fts5_function(name, counts)

    def close(self) -> None:
        """Close the connection; closing twice is no error."""
        with self._lock, self._translated():
            self._db.close()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            raise self._translate(error) from error

    def _translate(self, error: apsw.Error) -> KnowledgeError:
        path = self.path
        reason = " ".join(str(error).split())
        if isinstance(error, apsw.CantOpenError):
            return self._cannot_open(reason)
        if isinstance(error, apsw.IOError) and shutil.disk_usage(path.parent).free < _NO_SPACE:
            return KnowledgeError("full", f"{path}: no space left")
        for kinds, code, message in _CAUSES:
            if isinstance(error, kinds):
                told = message.format(reason=reason, timeout=self._timeout)
                return KnowledgeError(code, f"{path}: {told}")
        return KnowledgeError("storage", f"{path}: {reason}")

    def _cannot_open(self, reason: str) -> KnowledgeError:
        path = self.path
        if not path.exists():
            return KnowledgeError("missing", f"{path}: no such file")
        if path.is_dir():
            return KnowledgeError("foreign", f"{path}: is a folder")
        if not os.access(path.parent, os.W_OK) or not os.access(path, os.R_OK):
            return KnowledgeError("read-only", f"{path}: file or folder cannot be written")
        return KnowledgeError("storage", f"{path}: {reason}")


def _uri(path: Path, mode: Mode) -> str:
    """The file as an SQLite URI. Read-only, on what nobody can write, it is taken as immutable."""
    sealed = (
        mode == "ro"
        and not os.access(path.parent, os.W_OK)
        and not _holds(Path(f"{path}-wal"))
        and path.exists()
    )
    absolute = quote(str(path.absolute()), errors="surrogateescape")
    return f"file:{absolute}?mode={mode}{'&immutable=1' if sealed else ''}"


def _holds(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0
