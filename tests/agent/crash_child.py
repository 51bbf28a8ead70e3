"""A compacting agent that kills its own process, with SIGKILL, at one of its writes.

Started by the crash tests: ``crash_child.py FOLDER POINT…``. For each point a child is forked that
runs the same story in a folder of its own and dies at that point; point 0 never comes, and its
child tells how many points there are.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import anyio

from ctxarchive.agent.loop import Agent
from ctxarchive.archive.engine import ArchiveCompactionEngine
from ctxarchive.archive.rendering import render
from ctxarchive.compaction.engine import Routing
from ctxarchive.compaction.policy import CompactionPolicy
from ctxarchive.compaction.pruner import PruneSettings, ToolResultPruner
from ctxarchive.knowledge.records import Record
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase
from ctxarchive.knowledge.store import PutResult
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.metering.tokenizers import CharacterEstimator
from ctxarchive.session.jsonl import JsonlSink
from ctxarchive.session.store import SessionStore
from ctxarchive.testing.models import ScriptedModel, Step, call, overflow, say
from ctxarchive.tools.toolbox import FunctionTool

OPTIONS = Routing(provider="scripted", model="scripted", context_window=1_200)


class Switch:
    """Counts the places where a process may die, and dies at one."""

    def __init__(self, point: int) -> None:
        self.point = point
        self.passed = 0

    def pass_by(self) -> None:
        """One more place."""
        self.passed += 1
        if self.passed == self.point:
            os.kill(os.getpid(), signal.SIGKILL)


def engine(knowledge: SqliteKnowledgeBase) -> ArchiveCompactionEngine:
    """The archive engine as the story and the test after it mount it."""
    return ArchiveCompactionEngine(
        knowledge,
        policy=CompactionPolicy(min_span_tokens=100, min_reclaim_tokens=50),
        meter=TokenMeter(CharacterEstimator()),
        pruner=ToolResultPruner(PruneSettings(max_chars=700, head_chars=300, tail_chars=100)),
    )


def script() -> Iterator[Step]:
    """What the model says: texts, calls, parallel calls, an overflow."""
    for index in itertools.count():
        yield call((f"c{index}a", "read", {"n": index}), text=f"I look at file {index}.")
        yield call((f"c{index}b", "read", {"n": index}), (f"c{index}c", "fail", {}))
        if index == 2:
            yield overflow()
        yield say(f"File {index} holds {index * 7} lines; see src/part_{index}.py.")


def read(arguments: Any) -> str:
    """A tool's output, now and then an oversized one."""
    return f"line of file {arguments['n']}\n" * (50 if arguments["n"] % 3 == 1 else 8)


def fail(_: Any) -> str:
    """A tool that fails."""
    raise OSError("no such file")


def tools() -> list[FunctionTool]:
    """The story's tools."""
    return [
        FunctionTool(name="read", description="reads", schema={"type": "object"}, run=read),
        FunctionTool(name="fail", description="fails", schema={"type": "object"}, run=fail),
    ]


def arm(switch: Switch, acknowledged: Path) -> type[SqliteKnowledgeBase]:
    """Put a place to die before, in the middle of and after every write."""
    whole = JsonlSink._write_all
    flush = JsonlSink._flush

    def write_all(self: JsonlSink, data: bytes) -> None:
        switch.pass_by()
        whole(self, data[: len(data) // 2])
        switch.pass_by()
        whole(self, data[len(data) // 2 :])
        switch.pass_by()

    def flushed(self: JsonlSink) -> None:
        flush(self)
        acknowledged.write_bytes(self._path.read_bytes())
        switch.pass_by()

    JsonlSink._write_all = write_all  # type: ignore[method-assign]
    JsonlSink._flush = flushed  # type: ignore[method-assign]

    class Mortal(SqliteKnowledgeBase):
        def put(self, records: Iterable[Record]) -> PutResult:
            switch.pass_by()
            done = super().put(records)
            switch.pass_by()
            return done

        def index_pending(self, *args: Any, **kwargs: Any) -> Any:
            switch.pass_by()
            done = super().index_pending(*args, **kwargs)
            switch.pass_by()
            return done

    return Mortal


async def story(folder: Path, point: int) -> int:
    """The whole story; returns how many places it passed."""
    switch = Switch(point)
    archive = arm(switch, folder / "acknowledged")
    clock = itertools.count(1_000)
    with (
        archive.open(folder / "archive.db", render=render) as knowledge,
        SessionStore(folder, clock=lambda: next(clock)).create("s") as opened,
    ):
        opened.session.subscribe(lambda _session, _event: switch.pass_by())
        compaction = engine(knowledge)
        async with Agent(
            opened.session, ScriptedModel(script()), tools(), compaction=compaction, options=OPTIONS
        ) as agent:
            for index in range(7):
                agent.followup(f"Please look at file {index}; never touch file {index + 1}.")
                await agent.when_idle()
            await compaction.compact_now(agent)
    return switch.passed


def main() -> None:
    """Run the story once for each point named, each in a child of its own."""
    folder = Path(sys.argv[1])
    for point in map(int, sys.argv[2:]):
        place = folder / str(point)
        place.mkdir()
        child = os.fork()
        if child == 0:
            passed = anyio.run(story, place, point)
            (place / "passed").write_text(str(passed))
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
