"""What the commands ``pin``, ``unpin`` and ``supersede`` have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxarchive.cli.archives import open_existing
from ctxarchive.cli.output import echo_json, line
from ctxarchive.errors import KnowledgeError

if TYPE_CHECKING:
    from ctxarchive.archive.marking import LookUp
    from ctxarchive.knowledge.records import Mark
    from ctxarchive.knowledge.store import KnowledgeBase

Act = Callable[["KnowledgeBase", str, "LookUp"], str]
"""Marks a record of a session, given the records asked for, and says in a sentence what it did."""


def run(archive: Path, session: str, seqs: tuple[int, ...], act: Act, *, as_json: bool) -> None:
    """Mark the first of ``seqs`` in an archive, and print what came of it.

    Raises:
        KnowledgeError: ``missing`` for a session that is not there, and what ``act`` raises; the
            message names the archive.
    """
    from ctxarchive.knowledge.records import parse_source

    with open_existing(archive, mode="rw") as knowledge:
        known = {info.session for info in knowledge.sessions()}
        if session not in known and session.startswith("session/"):
            # A source label, as a search prints it.
            session = parse_source(session).session
        if session not in known:
            raise KnowledgeError(
                "missing", f"{archive}: no session {session!r}; the command sessions lists them"
            )
        found = {seq: knowledge.get(session, seq) for seq in seqs}
        try:
            told = act(knowledge, session, found)
        except KnowledgeError as error:
            if error.code not in {"mark", "missing"}:
                raise
            raise KnowledgeError(error.code, f"{archive}: {error}") from error
        mark = knowledge.marks(session).get(seqs[0])
    if as_json:
        echo_json(
            {
                "archive": str(archive),
                "session": session,
                "seq": seqs[0],
                "mark": mark_json(mark),
                "told": told,
            }
        )
    else:
        line(told)


def mark_json(mark: Mark | None) -> dict[str, Any] | None:
    """A mark as JSON; ``null`` for none."""
    if mark is None:
        return None
    return {"name": mark.name, "by_seq": mark.by_seq, "at": mark.at}
