"""Sessions whose log must break no invariant when a test is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ctxarchive.compaction.invariants import check_compactions
from ctxarchive.session.log import Session
from ctxarchive.testing.sessions import RefusingSession, closed_conversation


@pytest.fixture
def watched() -> Iterator[Callable[[Session], Session]]:
    """Registers a session whose log must break no invariant when the test is over."""
    sessions: list[Session] = []

    def watch(session: Session) -> Session:
        sessions.append(session)
        return session

    yield watch
    for session in sessions:
        assert check_compactions(session.events) == []


@pytest.fixture
def conversation(watched: Callable[[Session], Session]) -> Callable[..., Session]:
    """Makes a watched session of closed turns."""

    def make(turns: int = 2, **options: object) -> Session:
        return watched(closed_conversation(turns, **options))  # type: ignore[arg-type]

    return make


@pytest.fixture
def refusing(watched: Callable[[Session], Session]) -> RefusingSession:
    """A watched conversation that can be told to refuse events."""
    session = RefusingSession()
    watched(closed_conversation(session=session))
    return session
