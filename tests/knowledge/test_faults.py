"""A file system that refuses, at each single write of a filing, by a VFS of SQLite's own kind."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import apsw
import pytest

from ctxarchive.archive.engine import ArchiveCompactionEngine
from ctxarchive.archive.opening import open_archive as open_ours
from ctxarchive.compaction.engine import Routing
from ctxarchive.compaction.policy import CompactionPolicy
from ctxarchive.errors import KnowledgeError
from ctxarchive.knowledge.records import Record
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase
from ctxarchive.knowledge.store import Selection
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.metering.tokenizers import CharacterEstimator
from ctxarchive.session.log import Session

Make = Callable[..., Record]
Open = Callable[..., SqliteKnowledgeBase]

CAUSES: dict[str, type[apsw.Error]] = {
    "full": apsw.FullError,
    "read-only": apsw.ReadOnlyError,
    "storage": apsw.IOError,
}


USUAL = apsw.vfs_names()[0]


class Disk(apsw.VFS):
    """The usual file system, but that it refuses all writes and syncs from the n-th on."""

    def __init__(self) -> None:
        super().__init__("refusing", base=USUAL, makedefault=True)
        self.left: int | None = None
        """How many are still let through; ``None`` for all."""
        self.done = 0
        self.cause: type[apsw.Error] = apsw.FullError

    def xOpen(self, name: object, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        """A file on this disk."""
        return File(self, name, flags)

    def step(self) -> None:
        """One write is about to happen."""
        self.done += 1
        if self.left is None:
            return
        if self.left <= 0:
            raise self.cause
        self.left -= 1


class File(apsw.VFSFile):
    """A file on that disk."""

    def __init__(self, disk: Disk, name: object, flags: list[int]) -> None:
        super().__init__(USUAL, name, flags)  # type: ignore[arg-type]
        self._disk = disk

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        """Write, if the disk lets it."""
        self._disk.step()
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        """Sync, if the disk lets it."""
        self._disk.step()
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        """Truncate, if the disk lets it."""
        self._disk.step()
        super().xTruncate(newsize)


@pytest.fixture
def disk() -> Iterator[Disk]:
    made = Disk()
    yield made
    made.unregister()


def indexed(archive: SqliteKnowledgeBase) -> None:
    """Index what is pending; a file that the disk refused to close refuses once more."""
    try:
        archive.index_pending()
    except KnowledgeError as error:
        assert error.code == "storage"  # noqa: PT017
        archive.index_pending()


@pytest.mark.parametrize("code", CAUSES)
def test_a_filing_refused_at_any_write_leaves_what_was_there(
    tmp_path: Path, open_archive: Open, make: Make, disk: Disk, code: str
) -> None:
    """A typed error, the archive as it was or with the whole filing, and the next try works."""
    disk.cause = CAUSES[code]
    step = refused = 0
    while True:
        path = tmp_path / f"{step}.db"
        with open_archive(path) as archive:
            archive.put([make("s", seq, f"before {seq} " * 50) for seq in range(20)])
            archive.index_pending()
            disk.left = step
            try:
                archive.put([make("s", seq, f"after {seq} " * 200) for seq in range(20, 60)])
                archive.index_pending()
                ended = True
            except KnowledgeError as error:
                assert error.code == code  # noqa: PT017
                assert "\n" not in str(error)  # noqa: PT017
                refused += 1
                ended = False
            disk.left = None
            assert len(archive.archived("s")) in {20, 60}
            assert archive.verify() == []
            again = archive.put([make("s", seq, f"after {seq} " * 200) for seq in range(20, 60)])
            assert again.already + sum(again.added.values()) == 40
            indexed(archive)
            assert archive.verify() == []
        if ended:
            break
        # Each write of the commit once; the rest, and for the other causes, every fourth.
        step += 1 if step < 25 and code == "full" else 4
    assert refused > 5


def test_a_purge_refused_at_any_write_is_whole_or_not_at_all_and_can_be_finished(
    tmp_path: Path, open_archive: Open, make: Make, disk: Disk
) -> None:
    step = refused = 0
    while True:
        path = tmp_path / f"{step}.db"
        with open_archive(path) as archive:
            archive.put([make("s", seq, f"quagga{seq} " * 30) for seq in range(12)])
            archive.index_pending()
            disk.left = step
            try:
                ended = archive.purge(Selection(text="quagga5")).scrubbed
            except KnowledgeError as error:
                assert error.code == "full"  # noqa: PT017
                refused += 1
                ended = False
            disk.left = None
            assert {each.code for each in archive.verify()} <= {"purge", "stray"}
            assert archive.purge(Selection(text="quagga5")).scrubbed
            assert len(archive.archived("s")) == 11
            assert archive.verify() == []
            for file in tmp_path.glob(f"{step}.*"):
                assert b"quagga5" not in file.read_bytes(), file.name
        if ended:
            break
        step += 3
    assert refused > 5


class Host:
    """The owner of a session."""

    def __init__(self) -> None:
        self.session = Session.create("s")
        self.options = Routing(provider="p", model="m", context_window=100_000)
        for number in range(6):
            text = [{"type": "text", "text": f"message {number} " * 300}]
            source = {"kind": "user"}
            self.session.append(
                "user/message", {"content": text, "source": source}, surface_op="append"
            )

    async def run_maintenance(self, task):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        """Run ``task`` at once."""
        return await task()


@pytest.mark.parametrize("code", CAUSES)
def test_a_compaction_on_a_disk_that_refuses_makes_no_promise(
    tmp_path: Path, disk: Disk, code: str
) -> None:
    """At the first, the second … write of its filing: the checkpoint is the plain summary."""
    disk.cause = CAUSES[code]
    policy = CompactionPolicy(min_span_tokens=0, min_reclaim_tokens=0)
    plain = promised = 0
    for step in range(40):
        with open_ours(tmp_path / f"{step}.db") as knowledge:
            engine = ArchiveCompactionEngine(
                knowledge, policy=policy, meter=TokenMeter(CharacterEstimator()), index="later"
            )
            host = Host()
            disk.left = step
            result = anyio.run(engine.compact_now, host)
            disk.left = None
            assert result is not None
            text = json.dumps(host.session.event_at(result.checkpoint_seq).wire())
            failed = host.session.last("archive/failed")
            assert ("ctx_search" in text) == (failed is None)
            plain += failed is not None
            promised += failed is None
            if failed is None:
                assert len(knowledge.archived("s")) >= 5
            assert knowledge.verify() == []
    assert plain > 3
    assert promised > 3
