"""A session that goes on after something of it was purged from its archive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import anyio
import apsw
import pytest

from ctxarchive.archive.engine import ArchiveCompactionEngine
from ctxarchive.archive.opening import open_archive
from ctxarchive.archive.settings import TranscriptConfig
from ctxarchive.compaction.engine import Routing
from ctxarchive.compaction.policy import CompactionPolicy
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase, connection, schema
from ctxarchive.knowledge.store import Selection
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.metering.tokenizers import CharacterEstimator
from ctxarchive.replay.check import check_session
from ctxarchive.session.log import Session
from ctxarchive.tools.ctx_search import CtxSearchTool


@pytest.fixture
def knowledge(tmp_path: Path) -> Iterator[SqliteKnowledgeBase]:
    with open_archive(tmp_path / "a.db") as base:
        yield base


class Host:
    """The owner of a session in which a user talks."""

    def __init__(self) -> None:
        self.session = Session.create("s")
        self.options = Routing(provider="p", model="m", context_window=100_000)

    async def run_maintenance(self, task):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        """Run ``task`` at once."""
        return await task()

    def talk(self) -> None:
        """Four messages, each of which names itself, and a long answer."""
        prose = {"type": "text", "text": "this is the answer, and it goes on. " * 400}
        self.session.append(
            "assistant/message",
            {"message": {"role": "assistant", "content": [prose]}},
            surface_op="append",
        )
        for _ in range(4):
            said = f"message-{len(self.session)} must be kept. " + "so it is " * 60
            self.session.append(
                "user/message",
                {"content": [{"type": "text", "text": said}], "source": {"kind": "user"}},
                surface_op="append",
            )

    def compact(self, knowledge: SqliteKnowledgeBase) -> str:
        """What a new engine adds to the summary."""
        engine = ArchiveCompactionEngine(
            knowledge,
            transcript=TranscriptConfig(max_checkpoint_ratio=0.9),
            policy=CompactionPolicy(min_span_tokens=0, min_reclaim_tokens=0),
            meter=TokenMeter(CharacterEstimator()),
        )
        result = anyio.run(engine.compact_now, self)
        assert result is not None
        content = self.session.event_at(result.checkpoint_seq).wire()["data"]["content"]
        text: str = content[0]["text"]
        return text.partition("</summary>")[2]


def test_a_later_checkpoint_neither_shows_nor_files_what_was_purged(
    knowledge: SqliteKnowledgeBase,
) -> None:
    host = Host()
    host.talk()
    assert "message-1 must" in host.compact(knowledge)
    knowledge.purge(Selection(sessions=("s",), first_seq=1, last_seq=1))
    host.talk()
    added = host.compact(knowledge)
    assert "message-2 must" in added
    assert "message-1 must" not in added
    assert "message-1 " not in added
    filed = host.session.last("archive/filed")
    assert filed is not None
    assert filed.wire()["data"]["purged"] == 1
    found = check_session(knowledge, host.session)
    assert (found.findings, found.purged) == ((), 1)
    assert knowledge.verify() == []


def test_a_pointer_to_a_purged_record_is_answered(knowledge: SqliteKnowledgeBase) -> None:
    """By seq, as part of a range, and as a range of nothing else; for a fork, too."""
    host = Host()
    host.talk()
    host.compact(knowledge)
    knowledge.register("fork", parent="s", inherited_seq=2)
    knowledge.purge(Selection(sessions=("s",), first_seq=1, last_seq=1))
    for session in ("s", "fork"):
        tool = CtxSearchTool(knowledge, session=session)
        assert "was purged" in tool.run({"seq": 1})
    tool = CtxSearchTool(knowledge, session="s")
    assert "[1 record of this range, seq 1..1, purged" in tool.run(
        {"after_seq": 0, "before_seq": 2}
    )
    listed = tool.run({"after_seq": 0, "before_seq": 4})
    assert "message-2 must" in listed
    assert listed.endswith("purged: deleted on purpose]")


@pytest.mark.parametrize("version", range(1, len(schema.MIGRATIONS)))
def test_an_archive_of_every_earlier_schema_is_brought_to_this_one(
    tmp_path: Path, version: int
) -> None:
    """With its records: they are checked, found, and can be purged."""
    path = tmp_path / "old.db"
    path.touch()
    text = '{"type":"user/message","data":{"content":[{"type":"text","text":"an old word"}]}}'
    old = connection.Connection(path, mode="rw", busy_timeout_ms=100)
    for number, migration in enumerate(schema.MIGRATIONS[:version], start=1):
        migration(old)
        old.all("INSERT INTO migrations VALUES (?, 1)", (migration.__name__,))
        old.all(f"PRAGMA user_version = {number}")
    old.close()
    with closing(apsw.Connection(str(path))) as database:
        database.execute("INSERT INTO sessions(id, opened) VALUES ('s', 1)")
        database.execute(
            "INSERT INTO filings(token, first_key, last_key, records) VALUES (9, ?, ?, 1)",
            (1 << 32 | 3, 1 << 32 | 3),
        )
        database.execute(
            "INSERT INTO records(key, filing, layer, kind, role, chars, head, event)"
            " VALUES (?, 1, 'constraint', 'original', 'user', 11, '', ?)",
            (1 << 32 | 3, text),
        )
        database.execute("INSERT INTO tallies VALUES (1, 'constraint', 1, 11, 3, 3, NULL, NULL)")
    with open_archive(path) as base:
        assert base.stats().schema_version == len(schema.MIGRATIONS)
        record = base.get("s", 3)
        assert record is not None
        assert record.text == "an old word"
        assert base.verify() == []
        assert base.purge(Selection(text="old word")).records == 1
        assert base.verify() == []
