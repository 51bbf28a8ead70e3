"""Measures checkpoints under many configurations, over logs that are prepared once.

A log belongs to one worker process, which keeps it ready; what is measured does not depend on how
many there are. Writes only into the folder it is given.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from ctxarchive.archive.format import parse_additions
from ctxarchive.archive.opening import open_archive
from ctxarchive.archive.settings import TranscriptConfig
from ctxarchive.compaction.checkpoint import frame
from ctxarchive.config.settings import Settings
from ctxarchive.errors import CtxArchiveError
from ctxarchive.importers.read import read_log
from ctxarchive.replay.needs import in_view
from ctxarchive.replay.reaching import NOTHING, Follower, Reach, reach
from ctxarchive.replay.scenes import Occasion, Scene, scenes
from ctxarchive.session.messages import Message, text_block
from ctxarchive.tools.ctx_search import CtxSearchTool

BATCH = 6
"""Configurations measured at once, between two reports of progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One checkpoint under one configuration."""

    needed: int
    """Identifiers that the agent went on to need and the summary does not hold."""
    in_view: int
    """Those of them that the additions show."""
    addition_chars: int
    """In code points."""
    checkpoint_tokens: int = 0
    addition_tokens: int = 0
    reach: Reach = NOTHING
    """What is shown, and what its pointers return; nothing, where they were not followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedLog:
    """What a log has to measure."""

    path: Path
    format: str
    session: str
    compacted_at: str
    """``recorded``, ``pressure`` or ``points``."""
    compactions: int
    measured: int
    """Those of them with enough behind them to tell what was needed."""
    needed: int
    warnings: tuple[str, ...]


class Desk:
    """One log, ready to be measured.

    Args:
        path: the log.
        settings: the current ones.
        occasion: where to compact it.
        archive: a new file for its records.
    """

    def __init__(self, path: Path, settings: Settings, occasion: Occasion, archive: Path) -> None:
        self._opened = ExitStack()
        log = read_log(path)
        knowledge = self._opened.enter_context(open_archive(archive))
        replay, self._scenes = scenes(log, settings, occasion, knowledge)
        tool = CtxSearchTool(knowledge, session=replay.session.id)
        records = (record for scene in self._scenes for record in scene.records)
        self._follower = Follower(tool, {record.seq: record.text for record in records})
        self._told = [scene for scene in self._scenes if scene.needed is not None]
        where = "points" if occasion.points else occasion.settings(log, settings).at
        self.prepared = PreparedLog(
            path=path,
            format=log.format,
            session=log.session_id,
            compacted_at=where,
            compactions=len(self._scenes),
            measured=len(self._told),
            needed=sum(len(scene.needed or ()) for scene in self._told),
            warnings=replay.warnings,
        )

    def measure(self, config: TranscriptConfig, *, follow: bool) -> tuple[Measured, ...]:
        """Each measurable compaction under ``config``.

        Args:
            config: what to build the additions under.
            follow: whether to follow the pointers; and to count tokens; a fit needs neither.
        """
        return tuple(self._measure(scene, config, follow=follow) for scene in self._told)

    def _measure(self, scene: Scene, config: TranscriptConfig, *, follow: bool) -> Measured:
        additions = scene.additions(config)
        words = scene.needed or frozenset()
        seen = sum(in_view(word, additions) for word in words)
        measured = Measured(needed=len(words), in_view=seen, addition_chars=len(additions))
        if not follow:
            return measured
        bare, tokens = (
            scene.meter.message(Message(role="user", content=(text_block(text),)))
            for text in (frame(scene.summary), frame(scene.summary, additions))
        )
        entries, _ = parse_additions(additions)
        return replace(
            measured,
            checkpoint_tokens=tokens,
            addition_tokens=tokens - bare,
            reach=reach(entries, scene.records, self._follower),
        )

    def close(self) -> None:
        """Close its archive."""
        self._opened.close()


_DESKS: dict[int, Desk] = {}
"""The logs of this worker process, by their number."""


def _prepare(
    number: int, path: Path, settings: Settings, occasion: Occasion, archive: Path
) -> PreparedLog:
    try:
        desk = Desk(path, settings, occasion, archive)
    except CtxArchiveError as error:
        # As its base: an error with a code cannot be sent to another process.
        told = str(error) if str(path) in str(error) else f"{path}: {error}"
        raise CtxArchiveError(told) from None
    _DESKS[number] = desk
    return desk.prepared


def _measure(
    number: int, configs: Sequence[TranscriptConfig], *, follow: bool
) -> list[tuple[Measured, ...]]:
    try:
        return [_DESKS[number].measure(config, follow=follow) for config in configs]
    except CtxArchiveError as error:
        raise CtxArchiveError(f"{_DESKS[number].prepared.path}: {error}") from None


def _close() -> None:
    while _DESKS:
        _DESKS.popitem()[1].close()


P = ParamSpec("P")
T = TypeVar("T")


class _Here(Executor):
    """Runs everything at once, in this process."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run ``fn`` now."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - handed to whoever asks for the result
            future.set_exception(error)
        return future


class Measurer:
    """Prepares logs and measures them; a context manager, which ends its workers.

    Args:
        logs: their paths.
        settings: the current ones.
        occasion: where to compact.
        folder: an empty one, for archives that are of no use afterwards.
        jobs: how many processes; with 1, this one.
    """

    def __init__(
        self,
        logs: Sequence[Path],
        *,
        settings: Settings,
        occasion: Occasion,
        folder: Path,
        jobs: int = 1,
    ) -> None:
        self._logs = list(logs)
        self._settings = settings
        self._occasion = occasion
        self._folder = folder
        count = max(1, min(jobs, len(self._logs)))
        self._workers: list[Executor] = [_Here()]
        if count > 1:
            context = multiprocessing.get_context("spawn")
            self._workers = [
                ProcessPoolExecutor(1, mp_context=context, initializer=_ignore_interrupts)
                for _ in range(count)
            ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self._workers:
            if isinstance(worker, ProcessPoolExecutor):
                if kind is None:
                    worker.submit(_close)
                worker.shutdown(wait=True, cancel_futures=kind is not None)
            else:
                _close()

    def prepare(self) -> Iterator[tuple[int, PreparedLog | CtxArchiveError]]:
        """Read and replay every log; each is told with its number as it is done."""
        waiting = {}
        for number, path in enumerate(self._logs):
            archive = self._folder / f"{number}.db"
            task = self._worker(number).submit(
                _prepare, number, path, self._settings, self._occasion, archive
            )
            waiting[task] = number
        for task in as_completed(waiting):
            try:
                yield waiting[task], task.result()
            except CtxArchiveError as error:
                yield waiting[task], error

    def measure(
        self,
        configs: Sequence[TranscriptConfig],
        numbers: Sequence[int],
        *,
        follow: bool = True,
        advance: Callable[[int], None] | None = None,
    ) -> list[list[Measured]]:
        """Every measurable compaction of some logs, a list a configuration.

        Args:
            configs: what to measure.
            numbers: of the logs, as they were prepared.
            follow: whether to follow pointers and count tokens, too.
            advance: told how many pairs of log and configuration are newly done.

        Raises:
            CtxArchiveError: when a log could not be measured, which is a defect.
        """
        tasks: dict[Future[list[tuple[Measured, ...]]], tuple[int, int]] = {}
        for number in numbers:
            for start in range(0, len(configs), BATCH):
                batch = configs[start : start + BATCH]
                task = self._worker(number).submit(_measure, number, batch, follow=follow)
                tasks[task] = (number, start)
        found: dict[tuple[int, int], tuple[Measured, ...]] = {}
        for task in as_completed(tasks):
            number, start = tasks[task]
            for place, measured in enumerate(task.result()):
                found[number, start + place] = measured
            if advance is not None:
                advance(len(task.result()))
        return [
            [each for number in numbers for each in found[number, place]]
            for place in range(len(configs))
        ]

    def _worker(self, number: int) -> Executor:
        return self._workers[number % len(self._workers)]


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the process that can tell the user."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
