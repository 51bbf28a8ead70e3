"""Sessions on disk: a header line, then one event a line.

Appends and reads; never rewrites an event. A torn last line is cut and reported, damage before it
is an error that names the line.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import Any

import anyio.to_thread
from filelock import FileLock, Timeout
from pydantic import ValidationError

from ctxarchive.errors import SessionError
from ctxarchive.session.events import Event, parse_event
from ctxarchive.session.jsontext import dump_json
from ctxarchive.session.log import Session, SessionHeader

FORMAT = "ctxarchive"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSession:
    """What a file holds."""

    header: SessionHeader
    events: tuple[Event, ...]
    good_bytes: int
    """Length in bytes of the part that is whole."""
    torn_line: int | None
    """1-based line that was cut off in the middle, or ``None``."""

    def replay(self) -> Session:
        """The session exactly as stored, with nothing added."""
        session = Session(self.header)
        for event in self.events:
            session.adopt(event)
        return session


def header_line(header: SessionHeader) -> str:
    """The first line of a session's file."""
    return dump_json({"type": "session", "format": FORMAT, "version": VERSION, **header.wire()})


def write_session(path: Path, session: Session) -> None:
    """Write a whole session to a new file, durably: beside it first, then renamed.

    Raises:
        SessionError: ``storage``, when the file system refuses.
    """
    temporary = path.with_name(path.name + ".part")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.write(header_line(session.header) + "\n")
            file.writelines(event.json_text + "\n" for event in session.events)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise SessionError("storage", f"{path}: {error.strerror or error}") from error


def read_session(path: Path) -> StoredSession:
    """Read a session's file.

    Raises:
        SessionError: ``corrupt`` for damage before the last line, ``event`` for a line that is no
            event, ``storage`` when the file cannot be read. Each names the line.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SessionError("storage", f"{path}: {error.strerror or error}") from error
    lines = data.split(b"\n")
    torn = lines.pop()  # what follows the last newline: empty in a whole file
    torn_line = len(lines) + 1 if torn else None
    if not lines:
        raise SessionError("corrupt", f"{path} line 1: no whole header line")
    header = _header(path, _decode(path, 1, lines[0]))
    events = tuple(
        _event(path, number, _decode(path, number, line), number - 2)
        for number, line in enumerate(lines[1:], 2)
    )
    return StoredSession(
        header=header, events=events, good_bytes=len(data) - len(torn), torn_line=torn_line
    )


def _decode(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line.decode("utf-8"))
    except ValueError as error:
        raise SessionError("corrupt", f"{path} line {number}: not JSON: {error}") from None
    except RecursionError:
        raise SessionError("corrupt", f"{path} line {number}: nested too deeply") from None
    if not isinstance(value, dict):
        raise SessionError("corrupt", f"{path} line {number}: not a JSON object")
    return value


def _header(path: Path, value: dict[str, Any]) -> SessionHeader:
    if value.get("type") != "session" or value.get("format") != FORMAT:
        raise SessionError("corrupt", f"{path} line 1: not the header of a {FORMAT} session")
    if value.get("version") != VERSION:
        raise SessionError(
            "corrupt", f"{path} line 1: version {value.get('version')!r} is not {VERSION}"
        )
    fields = {key: item for key, item in value.items() if key not in {"type", "format", "version"}}
    try:
        return SessionHeader.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise SessionError("corrupt", f"{path} line 1: {first['loc'][0]}: {first['msg']}") from None


def _event(path: Path, number: int, value: dict[str, Any], position: int) -> Event:
    value.setdefault("seq", position)
    if value["seq"] != position:
        raise SessionError(
            "corrupt", f"{path} line {number}: seq {value['seq']!r} where {position} belongs"
        )
    return parse_event(value, where=f"{path} line {number}")


class JsonlSink:
    """Appends a session's events to its file; one writer at a time, readers any time.

    Args:
        path: the file; created with its header where absent, cut back to its whole lines where
            the last one is torn.
        header: what a new file begins with.

    Raises:
        SessionError: ``locked`` when another writer holds the file, ``storage`` when the file
            system refuses.
    """

    def __init__(self, path: Path, header: SessionHeader) -> None:
        self._path = path
        # Not a thread's own: a host may open here and close in a worker thread.
        self._lock = FileLock(str(path) + ".lock", thread_local=False)
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise SessionError("locked", f"{path}: another writer holds the session") from None
        except OSError as error:
            raise SessionError("storage", f"{path}: {error.strerror or error}") from error
        self._pending: list[str] = []
        self._flushing = Lock()
        self._failed_at: int | None = None
        """Where a failed flush began: the next one cuts back to it, so nothing is there twice."""
        try:
            self._file: FileIO = self._open(path, header)
        except BaseException:
            self._lock.release()
            raise

    @staticmethod
    def _open(path: Path, header: SessionHeader) -> FileIO:
        try:
            if path.exists() and path.stat().st_size:
                stored = read_session(path)
                if stored.torn_line is not None:
                    os.truncate(path, stored.good_bytes)
            else:
                # Whole at once: a crash here must not leave half a header that nobody can open.
                write_session(path, Session(header))
            # Unbuffered: a buffer keeps what a failed write left in it, and writes it again.
            return path.open("ab", buffering=0)
        except OSError as error:
            raise SessionError("storage", f"{path}: {error.strerror or error}") from error

    def write(self, event: Event) -> None:
        """Take one event; it reaches the disk with the next flush."""
        self._pending.append(event.json_text)

    async def flush(self) -> None:
        """Write and fsync all that was taken; a cancellation waits for it.

        Raises:
            SessionError: ``storage``; what could not be written is kept for the next flush.
        """
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._flush)

    def _flush(self) -> None:
        with self._flushing:
            pending = tuple(self._pending)
            if not pending:
                return
            data = "".join(line + "\n" for line in pending).encode("utf-8")
            try:
                if self._failed_at is not None:
                    self._file.truncate(self._failed_at)
                self._failed_at = self._file.seek(0, os.SEEK_END)
                self._write_all(data)
                os.fsync(self._file.fileno())
            except OSError as error:
                raise SessionError("storage", f"{self._path}: {error.strerror or error}") from error
            self._failed_at = None
            del self._pending[: len(pending)]

    def _write_all(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]

    def close(self) -> None:
        """Release the file and its lock; events not flushed are written first."""
        try:
            if self._pending:
                self._flush()
        finally:
            self._file.close()
            self._lock.release()
