"""Opening archives from the command line."""

from __future__ import annotations

from pathlib import Path

from ctxarchive.archive.opening import open_archive
from ctxarchive.errors import KnowledgeError
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase


def default_archive() -> Path:
    """Where archives go that nobody names: the user's data folder."""
    from platformdirs import user_data_path

    return user_data_path("ctxarchive", appauthor=False) / "archive.db"


def open_for_writing(path: Path) -> SqliteKnowledgeBase:
    """The archive at ``path``, made where absent.

    Raises:
        KnowledgeError: when it cannot be opened or made; the message names the file.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise KnowledgeError("storage", f"{path.parent}: {error.strerror or error}") from error
    return open_archive(path)


def open_for_reading(path: Path) -> SqliteKnowledgeBase:
    """The archive at ``path``, which must exist; nothing is written.

    Raises:
        KnowledgeError: ``missing``, or whatever makes it unreadable.
    """
    if not path.exists():
        raise KnowledgeError("missing", f"{path}: no such archive")
    return open_archive(path, mode="ro", create=False)
