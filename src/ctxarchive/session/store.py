"""A folder of sessions: one JSONL log each, one writer at a time, mended when reopened.

Never changes what was written: a repair only appends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from ctxarchive.errors import SessionError
from ctxarchive.session.ids import new_session_id
from ctxarchive.session.jsonl import JsonlSink, StoredSession, read_session
from ctxarchive.session.log import Session, SessionHeader, now_ms
from ctxarchive.session.repair import Closed, close_open, interrupted

SUFFIX = ".jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSession:
    """A session that is being written, and what opening it had to mend."""

    session: Session
    path: Path
    torn_line: int | None
    """1-based line that a crash cut in the middle, and that is gone now; ``None`` for none."""
    closed: Closed
    """What the crash had left open."""
    _sink: JsonlSink

    def close(self) -> None:
        """Write what is pending, release the file and its lock."""
        self._sink.close()


class SessionStore:
    """Sessions in one folder.

    Args:
        folder: where; made at the first write.
        clock: gives the time of appended events in milliseconds since the epoch.
    """

    def __init__(self, folder: Path, *, clock: Callable[[], int] = now_ms) -> None:
        self.folder = folder
        self._clock = clock

    def path(self, session_id: str) -> Path:
        """The file of a session; its id is percent-encoded where a file name could not hold it."""
        name = quote(session_id, safe=" ~@+,=").replace("%20", " ")
        if not session_id or name.startswith("."):
            name = name.replace(".", "%2E", 1)
        return self.folder / f"{name}{SUFFIX}"

    def ids(self) -> list[str]:
        """The ids of all sessions here, sorted."""
        if not self.folder.is_dir():
            return []
        return sorted(
            unquote(path.name.removesuffix(SUFFIX)) for path in self.folder.glob(f"*{SUFFIX}")
        )

    def read(self, session_id: str) -> StoredSession:
        """A session as its file has it, without opening it for writing.

        Raises:
            SessionError: as :func:`~ctxarchive.session.jsonl.read_session`.
        """
        return read_session(self.path(session_id))

    @contextmanager
    def create(
        self, session_id: str | None = None, *, title: str | None = None, cwd: str | None = None
    ) -> Iterator[OpenSession]:
        """A new session, open for writing within the context.

        Args:
            session_id: its id; a random one by default.
            title: what to call it.
            cwd: the folder it works in.

        Raises:
            SessionError: ``locked`` when another writer holds it, ``storage`` when there already
                is one, or the file system refuses.
        """
        named = {"title": title, "cwd": cwd}
        header = SessionHeader(
            id=session_id or new_session_id(),
            created_at=self._clock(),
            **{key: value for key, value in named.items() if value is not None},  # type: ignore[arg-type]
        )
        with self._opened(self._new(header), Session(header, clock=self._clock)) as opened:
            yield opened

    @contextmanager
    def open(self, session_id: str) -> Iterator[OpenSession]:
        """An existing session, mended and open for writing within the context.

        A torn last line is cut. A tool call without its result gets a synthetic one that says
        whether the tool had started; an open step and an open turn are closed as interrupted. The
        seed then ends with one ``session/end-seed``; opening an untouched session again adds
        nothing.

        Raises:
            SessionError: ``locked`` when another writer holds it, ``corrupt`` or ``event`` for a
                damaged log, ``storage`` when there is none, or the file system refuses.
        """
        path = self.path(session_id)
        if not path.exists():
            raise SessionError("storage", f"{path}: no such session")
        torn = read_session(path).torn_line
        header = SessionHeader(id=session_id)
        sink = JsonlSink(path, header)
        try:
            stored = read_session(path)  # as it is under the lock, its torn line cut
            session = Session(stored.header, clock=self._clock)
            for event in stored.events:
                session.adopt(event)
        except BaseException:
            sink.close()
            raise
        with self._opened(sink, session, torn_line=torn) as opened:
            yield opened

    @contextmanager
    def fork(self, parent: str, session_id: str | None = None) -> Iterator[OpenSession]:
        """A new session that begins with all of ``parent``, and remembers it.

        Raises:
            SessionError: as :meth:`open` and :meth:`create`.
        """
        stored = read_session(self.path(parent))
        header = SessionHeader(
            id=session_id or new_session_id(),
            created_at=self._clock(),
            parent=parent,
            inherited_seq=len(stored.events) - 1,
        )
        session = Session(header, clock=self._clock)
        sink = self._new(header)
        for event in stored.events:
            session.adopt(event)
            sink.write(event)
        with self._opened(sink, session) as opened:
            yield opened

    def _new(self, header: SessionHeader) -> JsonlSink:
        path = self.path(header.id)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SessionError("storage", f"{self.folder}: {error.strerror or error}") from error
        if path.exists():
            raise SessionError("storage", f"{path}: there already is such a session")
        return JsonlSink(path, header)

    @contextmanager
    def _opened(
        self, sink: JsonlSink, session: Session, *, torn_line: int | None = None
    ) -> Iterator[OpenSession]:
        try:
            session.attach(sink)
            closed = close_open(session, reason={"kind": "interrupted"}, answer=interrupted)
            if len(session) and session.events[-1].type != "session/end-seed":
                session.append("session/end-seed", {})
            yield OpenSession(
                session=session,
                path=self.path(session.id),
                torn_line=torn_line,
                closed=closed,
                _sink=sink,
            )
        finally:
            sink.close()
