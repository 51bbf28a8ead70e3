"""Opening an archive for sessions: the store, with our own way of turning JSON into text."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from ctxarchive.archive.rendering import render
from ctxarchive.knowledge.semantic import SemanticModel
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase


def open_archive(
    path: str | Path,
    *,
    mode: Literal["rw", "ro"] = "rw",
    create: bool = True,
    busy_timeout_ms: int = 5_000,
    semantic: SemanticModel | None = None,
) -> SqliteKnowledgeBase:
    """The archive at ``path``; close it, or use it in a ``with`` block.

    Args:
        path: the records' file; the index lies beside it.
        mode: ``ro`` writes nothing, not even the index.
        create: whether an absent file is made.
        busy_timeout_ms: how long a writer waits for another one, in milliseconds.
        semantic: searches by meaning too, where given.

    Raises:
        KnowledgeError: when it cannot be opened; the message names the file.
    """
    return SqliteKnowledgeBase.open(
        Path(path),
        render=render,
        mode=mode,
        create=create,
        busy_timeout_ms=busy_timeout_ms,
        semantic=semantic,
    )
