"""A check that every agent's log is valid when a test is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ctxarchive.compaction.invariants import check_compactions
from ctxarchive.session.log import Session
from ctxarchive.testing.validity import request_faults


@pytest.fixture
def watched() -> Iterator[Callable[[Session], Session]]:
    """Registers a session that must be sound, closed and fit to be sent when the test is over."""
    sessions: list[Session] = []

    def watch(session: Session) -> Session:
        sessions.append(session)
        return session

    yield watch
    for session in sessions:
        assert check_compactions(session.events) == []
        assert request_faults(session.derive_messages()) == []
        assert session.open_turn is None
