"""What ``compact`` does with its logs, one after the other: read, replay, write, show.

Makes nothing before a log is read: no archive and no folder comes of a mistyped name.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import anyio

from ctxarchive.cli.app import DONE, FAILED
from ctxarchive.cli.archives import open_for_writing
from ctxarchive.cli.output import Advance, echo_json, line, note, progress, table
from ctxarchive.errors import ConfigError, CtxArchiveError, KnowledgeError, SessionError
from ctxarchive.importers.read import read_log
from ctxarchive.knowledge.records import LAYERS, TAKEN
from ctxarchive.replay.run import Replay, Replayer, ReplaySettings, replay_json
from ctxarchive.session.events import ArchiveFailed
from ctxarchive.session.jsonl import write_session

if TYPE_CHECKING:
    from ctxarchive.importers.log import ImportedLog
    from ctxarchive.knowledge.store import KnowledgeBase

LONGEST_NAME = 180
"""Characters of a session's id in a file's name; a longer one ends with a hash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaying:
    """One run of ``compact``."""

    settings: ReplaySettings
    archive: Path | None
    """Where spans are filed; ``None`` where they are not."""
    named: bool
    """Whether the user named the archive; another is told."""
    session_id: str | None
    """The only log's id, in the place of what the log says."""
    out: Path | None
    """Folder of checkpoints and sessions; ``None`` where nothing is written."""
    as_json: bool

    def run(self, logs: tuple[Path, ...]) -> int:
        """Replay each log.

        Returns:
            The exit code: failed where one of several logs did, or where a span was not filed.

        Raises:
            CtxArchiveError: when the only log cannot be replayed, or nothing can be written.
        """
        failed = opened = False
        knowledge: KnowledgeBase | None = None
        only = len(logs) == 1
        with ExitStack() as closing:
            for path in logs:
                try:
                    log = self._read(path)
                except CtxArchiveError as error:
                    failed = _told(error, path, only=only)
                    continue
                if not opened:
                    knowledge, opened = self._open(closing), True
                try:
                    replay = self._replay(log, knowledge)
                except CtxArchiveError as error:
                    failed = _told(error, path, only=only)
                    continue
                failed |= unfiled(replay)
                self._tell_stand_ins(replay)
                self._show(replay)
        return FAILED if failed else DONE

    def _read(self, path: Path) -> ImportedLog:
        log = read_log(path)
        return log if self.session_id is None else replace(log, session_id=self.session_id)

    def _open(self, closing: ExitStack) -> KnowledgeBase | None:
        """Make and open what is written to, before any work is done."""
        if self.out is not None:
            _make_folder(self.out)
        if self.archive is None:
            return None
        knowledge = closing.enter_context(open_for_writing(self.archive))
        if not self.named:
            note(f"archive: {self.archive}")
        return knowledge

    def _replay(self, log: ImportedLog, knowledge: KnowledgeBase | None) -> Replay:
        with (
            Replayer(log, self.settings, knowledge) as replayer,
            progress(log.path.name, len(log.items)) as advance,
        ):
            replay = anyio.run(replayer.run, interruptible(advance))
        if knowledge is not None:
            # Also where nothing had to be filed: the archive then knows that it is nothing.
            header = replay.session.header
            knowledge.register(
                header.id,
                title=header.title,
                parent=header.parent,
                inherited_seq=header.inherited_seq,
            )
            try:
                knowledge.index_pending()
            except KnowledgeError as error:
                # The records are safe, and a search scans what is not indexed.
                note(f"the search index is not up to date: {error}")
        if self.out is not None:
            _write(self.out, replay)
        return replay

    def _tell_stand_ins(self, replay: Replay) -> None:
        """Say on stderr, too, where the log's own summary was asked for and another stands."""
        if self.settings.summarizer != "recorded":
            return
        for index, made in enumerate(replay.compactions):
            if made.summarizer != "recorded":
                note(
                    f"{replay.log.path}: compaction {index}: the log holds no summary; the "
                    f"{made.summarizer} summarizer wrote one instead"
                )

    def _show(self, replay: Replay) -> None:
        if self.as_json:
            archive = None if self.archive is None else str(self.archive)
            echo_json(replay_json(replay, archive=archive))
        else:
            _print(replay)


def _told(error: CtxArchiveError, path: Path, *, only: bool) -> bool:
    """Say what is wrong with one log of several; with the only one it is the command's own error."""
    if str(path) not in str(error):
        error.args = (f"{path}: {error}",)
    if only:
        raise error
    note(str(error))
    return True


def unfiled(replay: Replay) -> bool:
    """Whether a span of this replay is not in the archive; says so."""
    failures = [event for event in replay.session.events if isinstance(event, ArchiveFailed)]
    for event in failures:
        note(
            f"{replay.log.path}: a checkpoint is the plain summary, without its archive "
            f"({event.data.stage}): {event.data.error}{_way_out(event.data.error)}"
        )
    return bool(failures)


def _way_out(error: str) -> str:
    """How two logs that claim one session id come into one archive."""
    return " (give this log an id of its own: --session-id)" if TAKEN in error else ""


def interruptible(advance: Advance | None) -> Advance:
    """Progress that ends the replay between two events after Ctrl-C.

    asyncio turns the first Ctrl-C into a cancellation, which a replay that awaits nothing for a
    while would not meet.
    """

    def step(done: int) -> None:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise KeyboardInterrupt
        if advance is not None:
            advance(done)

    return step


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ConfigError(f"--out {folder}: not a folder; name one, or a new one") from None
    except OSError as error:
        raise ConfigError(
            f"--out {folder}: cannot be made: {error.strerror or error}; name a folder where you "
            "may write"
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"--out {folder}: cannot be written; name a folder where you may write")


def _file_name(session: str) -> str:
    """A file's name for a session: two sessions never share one."""
    name = quote(session, safe="~", errors="surrogatepass")
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.blake2b(session.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{name[:LONGEST_NAME]}-{digest}"


def _write(folder: Path, replay: Replay) -> None:
    name = _file_name(replay.session.id)
    try:
        for index, made in enumerate(replay.compactions):
            page = folder / f"{name}.{index}.md"
            page.write_bytes(made.checkpoint.encode("utf-8", "surrogatepass"))
    except OSError as error:
        raise SessionError("storage", f"{folder}: {error.strerror or error}") from error
    write_session(folder / f"{name}.jsonl", replay.session)


def _print(replay: Replay) -> None:
    line(f"{replay.log.path.name}  {replay.log.format}, session {replay.session.id}")
    line(
        f"window {replay.window:,} tokens; context {replay.tokens_before:,} → "
        f"{replay.tokens_after:,} tokens; {len(replay.compactions)} compactions"
    )
    rows = []
    for index, made in enumerate(replay.compactions):
        filed = sum(made.archived[layer] for layer in LAYERS)
        numbers = (made.shadowed_tokens, made.checkpoint_tokens, filed, made.archived["already"])
        took = f"{made.seconds['total'] * 1_000:.0f}"
        rows.append([str(index), *(f"{n:,}" for n in numbers), str(len(made.pointers)), took])
    if rows:
        titles = ("#", "shadowed", "checkpoint", "filed", "already", "pointers", "ms")
        table(titles, rows, texts=0)
    for warning in replay.warnings:
        line(f"  note: {warning}")
    line("")
