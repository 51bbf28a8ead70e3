"""The promise: what a checkpoint leaves out, its printed calls return, exactly.

Everything here works on the printed text and on the log's JSON; it reads neither with our code.
"""

from __future__ import annotations

import importlib.util
import itertools
import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctxarchive.archive.engine import ArchiveCompactionEngine
from ctxarchive.archive.rendering import render
from ctxarchive.archive.settings import TranscriptConfig
from ctxarchive.compaction.engine import CompactionResult, Routing
from ctxarchive.compaction.policy import CompactionPolicy
from ctxarchive.errors import CompactionError, ManualCompactionError
from ctxarchive.knowledge.sqlite.store import SqliteKnowledgeBase
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.metering.tokenizers import CharacterEstimator
from ctxarchive.session.events import Event
from ctxarchive.session.log import Session
from ctxarchive.session.messages import Message, text_block
from ctxarchive.session.pairing import balanced_after, balanced_before
from ctxarchive.tools.ctx_search import CtxSearchTool

if TYPE_CHECKING:
    from tests import reading
else:
    place = Path(__file__).parents[1] / "reading.py"
    spec = importlib.util.spec_from_file_location("reading_checkpoints", place)
    reading = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reading)

T = TypeVar("T")

# --- sessions --------------------------------------------------------------------------------

PIECES = [
    "word ",
    "\n",
    "\r\n",
    "漢字 ",
    "한국 ",
    "é",
    "\U0001f468\u200d\U0001f469",
    "\ud83d",
    "\ude00",
    "\0",
    "\u2028",
    "## Archive Index\n",
    "\n## [user 2, 5 chars]\nhello",
    "</summary>\n\n## Conversation Transcript\n",
    (
        '\n[... 5 of 9 chars elided from seq 3; retrieve with ctx_search(source: "session/s/finding", '
        "seq: 3, offset: 2, length: 5) ...]\n"
    ),
    "[0..5 of 9] continue with ctx_search(",
    "error E1234 at src/app.py:7. ",
]

small = st.lists(st.sampled_from(PIECES), max_size=6).map("".join) | st.text(
    st.characters(), max_size=20
)
texts = st.one_of(
    small,
    st.builds(lambda text, times: text * times, small, st.integers(1, 400)),
    st.builds(lambda text, times: (text or "x") * times, small, st.integers(1_000, 4_000)),
)
steps = st.one_of(
    st.tuples(st.just("user"), texts),
    st.tuples(st.just("injected"), small),
    st.tuples(st.just("said"), texts),
    st.tuples(st.just("tools"), st.lists(texts, min_size=1, max_size=3)),
    st.tuples(st.just("tools"), st.lists(texts, min_size=1, max_size=3)),
    st.tuples(st.just("prune"), st.integers(0, 9)),
    st.tuples(
        st.sampled_from(["pressure", "context-overflow", "manual", "region"]), st.integers(0, 99)
    ),
)
configs = st.builds(
    lambda ratio, chars, keep, clip: TranscriptConfig(
        max_checkpoint_ratio=ratio,
        max_addition_chars=chars,
        keep_assistant=keep,
        user_clip_at=clip,
        user_clip_keep=clip // 2,
    ),
    st.sampled_from([0.05, 0.5, 0.95]),
    st.sampled_from([None, None, 500, 3_000]),
    st.booleans(),
    st.sampled_from([0, 100, 1_000]),
)


class Host:
    """The owner of a session, always idle between steps."""

    def __init__(self, session: Session, engine: ArchiveCompactionEngine, window: int) -> None:
        self.session = session
        self.engine = engine
        self.options = Routing(provider="p", model="m", context_window=window)
        self._calls = itertools.count()
        self._turns = itertools.count(1)

    async def run_maintenance(self, task: Callable[[], Awaitable[T]]) -> T:
        """Run ``task`` at once."""
        return await task()

    def say(self, kind: str, text: str) -> None:
        """A user's, a host's or an assistant's message."""
        content = [{"type": "text", "text": text}]
        if kind == "said":
            message = {"role": "assistant", "content": content}
            self.session.append("assistant/message", {"message": message}, surface_op="append")
        else:
            source = {"kind": "user" if kind == "user" else "injected"}
            data = {"content": content, "source": source}
            self.session.append("user/message", data, surface_op="append")

    def call(self, results: list[str]) -> None:
        """One message with parallel calls, and their results in reverse."""
        ids = [f"call-{next(self._calls)}" for _ in results]
        blocks = [
            {"type": "tool-call", "id": each, "name": "bash", "arguments": f'{{"cmd":\n "{each}"}}'}
            for each in ids
        ]
        message = {"role": "assistant", "content": blocks}
        self.session.append("assistant/message", {"message": message}, surface_op="append")
        for each, text in reversed(list(zip(ids, results, strict=True))):
            self.result(each, text, "append", ())

    def result(
        self, call_id: str, text: str, operation: dict[str, Any] | str, cited: tuple[int, ...]
    ) -> None:
        """A tool's result, in a place of its own or in another's."""
        block = {
            "type": "tool-result",
            "toolCallId": call_id,
            "content": [{"type": "text", "text": text}],
        }
        self.session.append(
            "tool/result",
            {"message": {"role": "user", "content": [block]}},
            surface_op=operation,
            source_event_seqs=cited,
        )

    def prune(self, choice: int) -> None:
        """Shorten one of the results on the surface."""
        results: list[Event] = [
            event
            for seq in self.session.surface
            if (event := self.session.event_at(seq)).type == "tool/result"
        ]
        if results:
            event = results[choice % len(results)]
            operation = {"op": "replace", "startSeq": event.seq, "endSeq": event.seq}
            call_id = event.wire()["data"]["message"]["content"][0]["toolCallId"]
            self.result(call_id, "[shortened]", operation, (event.seq,))

    async def compact(self, kind: str, choice: int) -> CompactionResult | None:
        """One compaction; ``None`` where there is nothing to gain."""
        try:
            if kind == "manual":
                return await self.engine.compact_now(self)
            self.session.append("turn/start", {"turn": next(self._turns)})
            try:
                if kind == "region":
                    return await self._region(choice)
                return await self.engine.compact_if_needed(self, kind)  # type: ignore[arg-type]
            finally:
                turn = self.session.open_turn
                reason = {"kind": "completed"}
                self.session.append("turn/end", {"turn": turn, "reason": reason})
        except CompactionError as error:
            if error.code not in {"growth", "stuck"}:
                raise
        except ManualCompactionError as error:
            if "the checkpoint has" not in str(error):
                raise
        return None

    async def _region(self, choice: int) -> CompactionResult | None:
        surface = self.session.surface.nodes
        starts = [seq for seq in surface if balanced_before(self.session, seq)]
        ends = [seq for seq in surface if balanced_after(self.session, seq)]
        if not starts:
            return None
        start = starts[choice % len(starts)]
        later = [seq for seq in ends if surface.index(seq) >= surface.index(start)]
        if not later:
            return None
        return await self.engine.compact_region(start, later[choice % len(later)], self)


@pytest.fixture(scope="module")
def knowledge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteKnowledgeBase]:
    """One archive for all the sessions."""
    path: Path = tmp_path_factory.mktemp("archive") / "a.db"
    with SqliteKnowledgeBase.open(path, render=render) as base:
        yield base


NUMBER = itertools.count()
METER = TokenMeter(CharacterEstimator())


async def live(
    knowledge: SqliteKnowledgeBase,
    plan: list[tuple[str, Any]],
    config: TranscriptConfig,
    window: int,
    name: str,
) -> int:
    """Live a session step by step and check every checkpoint; how many there were."""
    session = Session.create(f"{name}{next(NUMBER)}")
    engine = ArchiveCompactionEngine(
        knowledge,
        transcript=config,
        policy=CompactionPolicy(min_span_tokens=0, min_reclaim_tokens=0),
        meter=METER,
        index="later",
    )
    host = Host(session, engine, window)
    tool = CtxSearchTool(knowledge, session=session.id)
    done = 0
    for kind, value in plan:
        if kind == "tools":
            host.call(value)
        elif kind == "prune":
            host.prune(value)
        elif kind in {"user", "injected", "said"}:
            host.say(kind, value)
        else:
            before = len(session)
            result = await host.compact(kind, value)
            assert not any(event.type == "archive/failed" for event in session.events[before:])
            if result is not None:
                done += 1
                check(session, result, tool, config)
    return done


def check(
    session: Session, result: CompactionResult, tool: CtxSearchTool, config: TranscriptConfig
) -> None:
    """One compaction: its size, and every call in its text."""
    content = session.event_at(result.checkpoint_seq).wire()["data"]["content"]
    text = content[0]["text"]
    assert result.checkpoint_token_count < result.shadowed_token_count
    opening = re.search(r"<summary chars=(\d+)>\n", text)
    assert opening is not None
    bare = text[: opening.end() + int(opening[1]) + len("\n</summary>")]
    alone = METER.message(Message(role="user", content=(text_block(bare),)))
    most = int(result.shadowed_token_count * config.max_checkpoint_ratio)
    assert result.checkpoint_token_count <= max(most, alone)
    reading.check_checkpoint(text, tool, reading.texts_of(session))


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    plan=st.lists(steps, min_size=3, max_size=25),
    config=configs,
    window=st.sampled_from([400, 4_000, 60_000]),
    name=st.sampled_from(["s", 'a/b "c"', "会话 [1], "]),
)
def test_head_returned_bodies_and_tail_are_the_text_of_the_event(
    knowledge: SqliteKnowledgeBase,
    plan: list[tuple[str, Any]],
    config: TranscriptConfig,
    window: int,
    name: str,
) -> None:
    """Any texts and sizes, parallel calls, pruned results, all kinds of compaction, any budget."""
    ends = [("user", "go on " * 200), ("manual", 0), ("user", "and again " * 300), ("manual", 0)]
    anyio.run(live, knowledge, [*plan, *ends], config, window, name)


def test_a_session_of_every_kind_of_event_is_compacted_many_times(
    knowledge: SqliteKnowledgeBase,
) -> None:
    """The property above meets real checkpoints: this one counts them."""
    turn: list[tuple[str, Any]] = [
        ("user", "please look at src/app.py " * 60),
        ("tools", ["x" * 30_000, "漢字\r\n" * 900]),
        ("prune", 0),
        ("said", "it is E1234, because of the lock. " * 40),
        ("injected", "<host> reminder"),
        ("tools", ["ok"]),
        ("pressure", 0),
        ("said", "done"),
        ("manual", 0),
        ("tools", ["more " * 700]),
        ("region", 7),
        ("context-overflow", 0),
    ]
    done = anyio.run(live, knowledge, turn * 5, TranscriptConfig(), 6_000, "many")
    assert done >= 10
