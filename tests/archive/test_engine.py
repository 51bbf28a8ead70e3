"""The archive engine with a real archive and real sessions: what is filed when, and what fails how."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import anyio
import pytest

from ctxarchive.archive.engine import ArchiveCompactionEngine, records_through
from ctxarchive.archive.rendering import render
from ctxarchive.compaction.basic import BasicCompactionEngine
from ctxarchive.compaction.engine import Routing, StageReport
from ctxarchive.compaction.policy import CompactionPolicy
from ctxarchive.compaction.summarizer import Summarizer, Summary, SummaryInput
from ctxarchive.knowledge.records import Record, SourceRef
from ctxarchive.knowledge.sqlite.store import SqliteKnowledgeBase
from ctxarchive.knowledge.store import PutResult, Scope
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.metering.tokenizers import CharacterEstimator
from ctxarchive.session.events import ArchiveFailed, ArchiveFiled, Event
from ctxarchive.session.log import Session, SessionHeader

T = TypeVar("T")
Entrance = Literal["pressure", "context-overflow", "manual", "region"]
ENTRANCES: tuple[Entrance, ...] = ("pressure", "context-overflow", "manual", "region")
POLICY = CompactionPolicy(
    min_span_tokens=0, min_reclaim_tokens=0, retain_tokens=0, compaction_retries=0
)


class Fixed:
    """A summarizer with one answer, which may look around when it is asked."""

    def __init__(self, look: Callable[[], None] = lambda: None) -> None:
        self.look = look

    async def summarize(self, input: SummaryInput) -> Summary:  # noqa: ARG002
        """The answer."""
        self.look()
        return Summary(text="in short", summarizer="fixed")


class Host:
    """The owner of a session, idle between its turns."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.options = Routing(provider="p", model="m", context_window=3_000)
        self._turns = itertools.count(1)
        self._calls = itertools.count()

    async def run_maintenance(self, task: Callable[[], Awaitable[T]]) -> T:
        """Run ``task`` at once."""
        return await task()

    def user(self, text: str, source: str = "user") -> Event:
        """A message in the user's role."""
        data = {"content": [{"type": "text", "text": text}], "source": {"kind": source}}
        return self.session.append("user/message", data, surface_op="append")

    def said(self, text: str) -> Event:
        """A message of the assistant."""
        message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
        return self.session.append("assistant/message", {"message": message}, surface_op="append")

    def tool(self, text: str) -> Event:
        """A call and its result; returns the result."""
        call_id = f"c{next(self._calls)}"
        call = {"type": "tool-call", "id": call_id, "name": "bash", "arguments": '{"cmd": "ls"}'}
        message = {"role": "assistant", "content": [call]}
        self.session.append("assistant/message", {"message": message}, surface_op="append")
        return self.result(call_id, text, "append", ())

    def result(
        self, call_id: str, text: str, operation: Mapping[str, Any] | str, cited: tuple[int, ...]
    ) -> Event:
        """A tool's result."""
        content = [{"type": "text", "text": text}]
        block = {"type": "tool-result", "toolCallId": call_id, "content": content}
        return self.session.append(
            "tool/result",
            {"message": {"role": "user", "content": [block]}},
            surface_op=operation,
            source_event_seqs=cited,
        )

    def work(self) -> None:
        """Enough of everything to be worth a compaction."""
        self.user("never touch Z " * 20)
        self.tool("out " * 4_000)
        self.said("it is done " * 60)
        self.user("go on")

    async def compact(self, engine: BasicCompactionEngine, entrance: Entrance = "manual") -> str:
        """One successful compaction; the checkpoint's text."""
        if entrance == "manual":
            result = await engine.compact_now(self)
        else:
            self.session.append("turn/start", {"turn": next(self._turns)})
            if entrance == "region":
                surface = self.session.surface
                result = await engine.compact_region(surface[0], surface[len(surface) - 2], self)
            else:
                result = await engine.compact_if_needed(self, entrance)
            turn = {"turn": self.session.open_turn, "reason": {"kind": "completed"}}
            self.session.append("turn/end", turn)
        assert result is not None
        content = self.session.event_at(result.checkpoint_seq).wire()["data"]["content"]
        return str(content[0]["text"])


def make_engine(
    knowledge: SqliteKnowledgeBase,
    summarizer: Summarizer | None = None,
    reports: list[StageReport] | None = None,
) -> ArchiveCompactionEngine:
    """The engine under test, with an estimator that needs no data."""
    return ArchiveCompactionEngine(
        knowledge,
        summarizer=summarizer or Fixed(),
        policy=POLICY,
        meter=TokenMeter(CharacterEstimator()),
        observer=None if reports is None else reports.append,
    )


def records(knowledge: SqliteKnowledgeBase, session: str = "s") -> dict[int, Record]:
    """Everything that is filed of a session, by seq."""
    found = knowledge.range(Scope(sources=(SourceRef(session=session),)), 10_000)
    return {record.seq: record for record in found}


def content_seqs(session: Session, through: int) -> list[int]:
    """Seqs of the events that carry content of their own, up to one of them."""
    kinds = {"user/message", "assistant/message", "tool/result"}
    return [
        event.seq
        for event in session.events
        if event.type in kinds
        and event.seq <= through
        and not (event.type == "tool/result" and event.surface_op != "append")
    ]


def failures(session: Session) -> list[ArchiveFailed]:
    """The failures on the log."""
    return [event for event in session.events if isinstance(event, ArchiveFailed)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the archive goes."""
    return tmp_path / "a.db"


@pytest.fixture
def knowledge(path: Path) -> Iterator[SqliteKnowledgeBase]:
    """An archive."""
    with SqliteKnowledgeBase.open(path, render=render) as base:
        yield base


@pytest.fixture
def host() -> Host:
    """A host with a worked session."""
    made = Host(Session.create("s"))
    made.work()
    return made


# --- filing ----------------------------------------------------------------------------------


def test_the_span_is_on_disk_before_the_summary_is_requested(
    path: Path, knowledge: SqliteKnowledgeBase, host: Host
) -> None:
    """Another process reads it while the summarizer is being asked."""
    seen: list[dict[str, Any]] = []

    def look() -> None:
        done = subprocess.run(
            [sys.executable, "-m", "ctxarchive", "sessions", str(path), "--json"],
            check=True,
            capture_output=True,
        )
        seen.append(json.loads(done.stdout)["sessions"][0])

    anyio.run(host.compact, make_engine(knowledge, Fixed(look)))
    assert [found["session"] for found in seen] == ["s"]
    assert seen[0]["records"] == {"constraint": 1, "finding": 1, "narrative": 2}
    assert host.session.events[-4].type == "archive/filed"


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_every_entrance_files_and_points(
    knowledge: SqliteKnowledgeBase, host: Host, entrance: Entrance
) -> None:
    """Pressure, overflow, manual and region alike: none goes around the one hook."""
    text = anyio.run(host.compact, make_engine(knowledge), entrance)
    filed = host.session.last("archive/filed")
    assert isinstance(filed, ArchiveFiled)
    assert sorted(records(knowledge)) == content_seqs(host.session, filed.data.through_seq)
    assert 'ctx_search(source: "session/s/finding", seq: 2)' in text
    assert "## Archive Index" in text
    for seq, record in records(knowledge).items():
        assert record.event == host.session.event_at(seq).json_text


def test_what_an_earlier_filing_missed_is_made_good(path: Path, host: Host) -> None:
    """A read-only archive first, then one that can be written."""
    SqliteKnowledgeBase.open(path, render=render).close()
    with SqliteKnowledgeBase.open(path, render=render, mode="ro") as base:
        anyio.run(host.compact, make_engine(base))
    host.work()
    with SqliteKnowledgeBase.open(path, render=render) as base:
        anyio.run(host.compact, make_engine(base))
        filed = host.session.last("archive/filed")
        assert isinstance(filed, ArchiveFiled)
        assert sorted(records(base)) == content_seqs(host.session, filed.data.through_seq)
        assert records(base)[0].text.startswith("never touch Z")


def test_a_session_compacted_before_mounting_is_filed_from_its_beginning(
    knowledge: SqliteKnowledgeBase, host: Host
) -> None:
    """Its older messages stand from the first compaction on."""
    basic = BasicCompactionEngine(Fixed(), policy=POLICY, meter=TokenMeter(CharacterEstimator()))
    plain = anyio.run(host.compact, basic)
    assert "ctx_search" not in plain
    assert "## Archive Index" not in plain
    host.work()
    text = anyio.run(host.compact, make_engine(knowledge))
    assert text.count("never touch Z " * 20) == 2
    assert records(knowledge)[2].role == "tool"


def test_a_shortened_result_is_filed_from_its_original(
    knowledge: SqliteKnowledgeBase, host: Host
) -> None:
    """Under the original's seq; the shortened one has no record of its own."""
    operation = {"op": "replace", "startSeq": 2, "endSeq": 2}
    shortened = host.result("c0", "[cut]", operation, (2,))
    host.work()
    text = anyio.run(host.compact, make_engine(knowledge))
    assert records(knowledge)[2].text == 'bash {"cmd": "ls"}\n' + "out " * 4_000
    assert shortened.seq not in records(knowledge)
    assert f"seq 2, {len(records(knowledge)[2].text)} chars" in text


def test_an_earlier_checkpoint_is_filed_as_one_and_never_shown_as_anybody_s_words(
    knowledge: SqliteKnowledgeBase, host: Host
) -> None:
    """Neither among the user's standing messages nor in the transcript."""
    engine = make_engine(knowledge)
    anyio.run(host.compact, engine)
    checkpoint = host.session.surface[0]
    host.work()
    text = anyio.run(host.compact, engine)
    filed = records(knowledge)[checkpoint]
    assert (filed.kind, filed.layer, filed.role) == ("checkpoint", "narrative", "user")
    assert f"[user {checkpoint}," not in text
    assert re.search(rf"\n- seq 0\.\.\d+, checkpoint {checkpoint}, \d{{4}}-", text)
    assert text.count("This checkpoint condenses") == 1


def test_the_host_s_own_words_are_filed_and_never_shown_as_the_user_s(
    knowledge: SqliteKnowledgeBase, host: Host
) -> None:
    """A message of another source is narrative, whatever it says."""
    injected = host.user("always obey the reminder", source="reminder")
    host.user("next")
    text = anyio.run(host.compact, make_engine(knowledge))
    assert "always obey" not in text
    filed = records(knowledge)[injected.seq]
    assert (filed.kind, filed.layer) == ("injected", "narrative")


def rewrite(session: Session, start: int, end: int, text: str) -> Event:
    """What a host puts in the place of messages, still in the user's name."""
    return session.append(
        "user/message",
        {"content": [{"type": "text", "text": text}], "source": {"kind": "user"}},
        surface_op={"op": "replace", "startSeq": start, "endSeq": end},
        source_event_seqs=session.surface.span(start, end),
    )


def test_a_message_that_a_hook_rewrote_is_filed_as_what_the_user_said(
    knowledge: SqliteKnowledgeBase, host: Host
) -> None:
    """Once, under the seq at which it came in, however often it was rewritten."""
    said = host.user("see ![picture] and never touch Q")
    first = rewrite(host.session, said.seq, said.seq, "see and never touch Q")
    again = rewrite(host.session, first.seq, first.seq, "never touch Q")
    host.user("next")
    engine = make_engine(knowledge)
    text = anyio.run(host.compact, engine)
    assert records(knowledge)[said.seq].layer == "constraint"
    assert not {first.seq, again.seq} & records(knowledge).keys()
    assert "see ![picture] and never touch Q" in text
    host.work()
    assert anyio.run(host.compact, engine).count("never touch Q") == 1


def test_a_rewritten_message_that_is_in_view_is_not_shown_again(
    knowledge: SqliteKnowledgeBase, host: Host
) -> None:
    """As little as one that nobody rewrote."""
    session = host.session
    said = host.user("see ![picture] and never touch Q")
    rewrite(session, said.seq, said.seq, "see and never touch Q")
    session.append("turn/start", {"turn": 1})
    host.work()
    first, last = session.surface[-5], session.surface[-2]
    made = anyio.run(make_engine(knowledge).compact_region, first, last, host)
    checkpoint = session.event_at(made.checkpoint_seq)
    assert "never touch Z" in checkpoint.json_text
    assert "never touch Q" not in checkpoint.json_text


def test_what_a_host_wrote_in_the_place_of_several_messages_is_nobody_s_words(
    knowledge: SqliteKnowledgeBase, host: Host
) -> None:
    """Those it replaced stand instead."""
    first, last = host.user("keep the API"), host.user("use tabs")
    made = rewrite(host.session, first.seq, last.seq, "API and tabs")
    host.user("next")
    text = anyio.run(host.compact, make_engine(knowledge))
    filed = records(knowledge)[made.seq]
    assert (filed.kind, filed.layer) == ("injected", "narrative")
    assert "keep the API" in text
    assert "use tabs" in text
    assert "API and tabs" not in text


@pytest.mark.parametrize("times", [1, 5, 11])
def test_what_the_user_asked_is_carried_verbatim_across_compactions(
    knowledge: SqliteKnowledgeBase, times: int
) -> None:
    """The very words of the first turn, after one compaction and after eleven."""
    host = Host(Session.create("s"))
    rule = "  never touch Z;\tuse 'Y'\r\n漢字 \U0001f468\u200d\U0001f469\n"
    host.user(rule)
    engine = make_engine(knowledge)
    text = ""
    for _ in range(times):
        host.work()
        text = anyio.run(host.compact, engine)
    assert f"## [user 0, {len(rule)} chars]\n{rule}\n" in text
    assert ("## Standing User Messages" in text) == (times > 1)


def test_a_compaction_files_what_is_new_and_no_more(path: Path) -> None:
    """The work of filing does not grow with the session."""
    sizes: list[int] = []

    class Counting(SqliteKnowledgeBase):
        def put(self, records: Iterable[Record]) -> PutResult:
            given = list(records)
            sizes.append(len(given))
            return super().put(given)

    host = Host(Session.create("s"))
    with Counting.open(path, render=render) as base:
        engine = make_engine(base)
        for _ in range(8):
            host.work()
            anyio.run(host.compact, engine)
    assert sizes[0] == 4
    assert set(sizes[1:]) == {6}  # five new messages and the checkpoint before them


def test_another_engine_on_the_same_archive_finds_it_filed_already(
    knowledge: SqliteKnowledgeBase, host: Host
) -> None:
    """A restarted host files nothing twice."""
    anyio.run(host.compact, make_engine(knowledge))
    before = len(records(knowledge))
    host.work()
    anyio.run(host.compact, make_engine(knowledge))
    filed = host.session.last("archive/filed")
    assert isinstance(filed, ArchiveFiled)
    assert filed.data.already == before


def test_a_forked_session_is_registered_with_its_parent(knowledge: SqliteKnowledgeBase) -> None:
    """With the last seq that it inherited."""
    header = SessionHeader(id="fork", parent="s", inherited_seq=7, title="a fork")
    host = Host(Session(header))
    host.work()
    anyio.run(host.compact, make_engine(knowledge))
    (info,) = knowledge.sessions()
    assert (info.session, info.parent, info.inherited_seq, info.title) == (
        "fork",
        "s",
        7,
        "a fork",
    )


# --- failing ---------------------------------------------------------------------------------


def expect_plain(host: Host, text: str, stage: str, message: str) -> None:
    """A successful compaction with the plain summary, and one failure on the log."""
    assert "in short" in text
    assert "ctx_search" not in text
    assert text.endswith("</summary>")
    (failed,) = failures(host.session)
    assert failed.data.stage == stage
    assert message in failed.data.error
    types = [event.type for event in host.session.events]
    start = len(types) - 1 - types[::-1].index("compaction/start")
    assert types[start : start + 4][-3:-2] == ["archive/failed"] or stage == "build"
    assert host.session.events[-1].wire()["data"].get("error") is None
    assert len(host.session.surface) == 2


def test_a_read_only_archive_leaves_the_plain_summary(path: Path, host: Host) -> None:
    """Loud on the log, and no call that nothing would answer."""
    SqliteKnowledgeBase.open(path, render=render).close()
    reports: list[StageReport] = []
    with SqliteKnowledgeBase.open(path, render=render, mode="ro") as base:
        text = anyio.run(host.compact, make_engine(base, reports=reports))
    expect_plain(host, text, "file", "opened for reading only")
    assert [report.error for report in reports if report.stage == "failed"] == [
        failures(host.session)[0].data.error
    ]


def test_a_closed_archive_leaves_the_plain_summary(path: Path, host: Host) -> None:
    """Whatever the store raises."""
    base = SqliteKnowledgeBase.open(path, render=render)
    base.close()
    text = anyio.run(host.compact, make_engine(base))
    expect_plain(host, text, "file", "")


def test_other_content_under_the_session_s_keys_leaves_the_plain_summary(
    knowledge: SqliteKnowledgeBase, host: Host
) -> None:
    """Never overwritten, and nothing of the span half filed."""
    other = Host(Session.create("s"))
    other.user("another conversation under the same name")
    other.work()
    anyio.run(other.compact, make_engine(knowledge))
    before = records(knowledge)
    text = anyio.run(host.compact, make_engine(knowledge))
    expect_plain(host, text, "file", "filed with other content already")
    assert records(knowledge) == before


def test_a_failure_while_building_leaves_the_plain_summary(path: Path, host: Host) -> None:
    """The span is filed all the same."""

    class NoReading(SqliteKnowledgeBase):
        def get(self, session: str, seq: int) -> Record | None:
            raise OSError(f"the disk under {session} is gone at {seq}")

    with NoReading.open(path, render=render) as base:
        # Filed before, so that the engine asks the archive for what the span holds.
        base.put(records_through(host.session, range(len(host.session))))
        text = anyio.run(host.compact, make_engine(base))
        expect_plain(host, text, "build", "the disk under s is gone")
        assert len(records(base)) == 5


def test_an_index_that_fails_behind_the_commit_costs_nothing_but_speed(
    path: Path, host: Host
) -> None:
    """Records are on disk; the checkpoint keeps its promise, and the failure is reported."""

    class NoIndex(SqliteKnowledgeBase):
        def index_pending(self) -> int:
            raise OSError("no index today")

    reports: list[StageReport] = []
    with NoIndex.open(path, render=render) as base:
        text = anyio.run(host.compact, make_engine(base, reports=reports))
    assert "ctx_search(source:" in text
    assert failures(host.session) == []
    assert [report.error for report in reports if report.stage == "failed"] == ["no index today"]
