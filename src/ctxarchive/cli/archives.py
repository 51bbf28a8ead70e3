"""Opening archives from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ctxarchive.errors import KnowledgeError

if TYPE_CHECKING:
    from ctxarchive.knowledge.semantic import SemanticModel
    from ctxarchive.knowledge.sqlite.store import SqliteKnowledgeBase


def default_archive() -> Path:
    """Where archives go that nobody names: the user's data folder."""
    from platformdirs import user_data_path

    return user_data_path("ctxarchive", appauthor=False) / "archive.db"


def open_for_writing(path: Path) -> SqliteKnowledgeBase:
    """The archive at ``path``, made where absent, with the folder it lies in.

    Raises:
        KnowledgeError: when it cannot be opened or made; the message names the file.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise KnowledgeError(
            "storage", f"{path}: {path.parent} is not a folder; name an archive inside one"
        ) from None
    except OSError as error:
        raise KnowledgeError(
            "storage",
            f"{path}: its folder cannot be made: {error.strerror or error}; name an archive "
            "where you may write",
        ) from error
    return _open(path, mode="rw", create=True)


def open_existing(
    path: Path, mode: Literal["ro", "rw"] = "ro", *, semantic: SemanticModel | None = None
) -> SqliteKnowledgeBase:
    """The archive at ``path``, which must exist; by default nothing is written.

    Raises:
        KnowledgeError: ``missing``, or whatever makes it unreadable.
    """
    if not path.exists():
        raise KnowledgeError(
            "missing", f"{path}: no such archive; check the path, or make one with compact"
        )
    return _open(path, mode=mode, create=False, semantic=semantic)


def _open(
    path: Path,
    *,
    mode: Literal["ro", "rw"],
    create: bool,
    semantic: SemanticModel | None = None,
) -> SqliteKnowledgeBase:
    from ctxarchive.archive.opening import open_archive

    try:
        return open_archive(path, mode=mode, create=create, semantic=semantic)
    except KnowledgeError as error:
        if error.code != "foreign":
            raise
        raise KnowledgeError(
            "foreign", f"{error}; nothing was changed in it, name another file"
        ) from error
