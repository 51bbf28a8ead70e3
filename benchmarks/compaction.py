"""What compaction costs without its model: measuring, appending, compacting, and 25 times in a row.

Run as ``python benchmarks/compaction.py [--backend archive]``. Sessions hold messages of some 200
characters; tokens are counted as characters/4 and the summarizer is a stub, as in the figures of
the upstream engine that stand beside ours (measured in Node on another day: ratios, not
milliseconds, can be compared).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import anyio

from ctxarchive.archive.engine import ArchiveCompactionEngine
from ctxarchive.archive.rendering import render
from ctxarchive.compaction.basic import BasicCompactionEngine
from ctxarchive.compaction.engine import Routing
from ctxarchive.compaction.policy import CompactionPolicy
from ctxarchive.compaction.summarizer import Summary, SummaryInput
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.metering.tokenizers import CharacterEstimator
from ctxarchive.session.log import Session
from ctxarchive.session.pairing import open_calls
from ctxarchive.testing.sessions import IdleAgent, assistant, result, user

UPSTREAM = {
    1_000: (4.6, 0.26, 2, 6, 0.02),
    10_000: (48, 2.5, 14, 60, 0.05),
    50_000: (1_633, 18, 91, 1_820, 0.5),
}
"""Milliseconds of the upstream basic engine: first and warm measurement, warm and cold compaction,
one metered append."""

POLICY = CompactionPolicy(min_span_tokens=0, min_reclaim_tokens=0)


class StubSummarizer:
    """Answers at once, always the same."""

    async def summarize(self, input: SummaryInput) -> Summary:
        """A short text."""
        del input
        return Summary(text="a stub of a summary", summarizer="stub")


def fill(session: Session, events: int, *, seed: int = 0) -> Session:
    """Append messages until the log has so many more events."""
    for index in range(seed, seed + events // 4):
        user(session, f"request {index}: " + "please look at this " * 9)
        assistant(session, f"answer {index}: " + "I look at it ", (f"c{index}", "bash", "{}"))
        result(session, f"c{index}", f"result {index}: " + "output of a tool " * 10)
        assistant(session, f"answer {index}: " + "it holds what you said " * 8)
    return session


def timed(action: Callable[[], object]) -> float:
    """Milliseconds an action takes."""
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1_000


def sizes() -> None:
    """The basic engine at three sizes, beside upstream."""
    print("events   first   warm   compact warm   cold   append   (ms; upstream below)")
    firsts = {}
    for count, upstream in UPSTREAM.items():
        rows = [measure(count) for _ in range(3)]
        row = tuple(statistics.median(column) for column in zip(*rows, strict=True))
        firsts[count] = row[0]
        print(f"{count:6} {row[0]:7.2f} {row[1]:6.3f} {row[2]:10.2f} {row[3]:10.2f} {row[4]:8.4f}")
        print("       " + " ".join(f"{value:>8}" for value in upstream))
    ratio = firsts[50_000] / firsts[10_000]
    print(f"first measurement, 50,000 to 10,000 events: {ratio:.2f} (goal: at most 8)")


def measure(count: int) -> tuple[float, float, float, float, float]:
    """First and warm measurement, warm and cold compaction, one metered append."""
    session = fill(Session.create("bench"), count)
    meter = TokenMeter(CharacterEstimator())
    first = timed(lambda: meter.measure(session))
    warm = statistics.median(timed(lambda: meter.measure(session)) for _ in range(20))

    def append() -> None:
        user(session, "one more")
        meter.measure(session)

    one = statistics.median(timed(append) for _ in range(50))
    open_calls(session)  # as an agent asks after every tool: the pairing is warm too
    compact_warm = compact(session, meter)
    again = fill(Session.create("bench"), count)
    compact_cold = compact(again, TokenMeter(CharacterEstimator()))
    return first, warm, compact_warm, compact_cold, one


def compact(session: Session, meter: TokenMeter) -> float:
    """One manual compaction; its milliseconds, without the start of an event loop."""
    engine = BasicCompactionEngine(StubSummarizer(), policy=POLICY, meter=meter)
    return once(engine, IdleAgent(session))


def once(
    engine: BasicCompactionEngine,
    agent: IdleAgent,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Milliseconds of one manual compaction."""

    async def run() -> float:
        started = clock()
        if await engine.compact_now(agent) is None:
            raise SystemExit("nothing was compacted")
        return (clock() - started) * 1_000

    return anyio.run(run)


def in_a_row(backend: str, compactions: int, events: int) -> None:
    """Many compactions of one growing session: time and memory of each."""
    session, meter = Session.create("row"), TokenMeter(CharacterEstimator())
    with (
        tempfile.TemporaryDirectory() as folder,
        SqliteKnowledgeBase.open(Path(folder) / "a.db", render=render) as knowledge,
    ):
        engine = BasicCompactionEngine(StubSummarizer(), policy=POLICY, meter=meter)
        if backend == "archive":
            engine = ArchiveCompactionEngine(
                knowledge, summarizer=StubSummarizer(), policy=POLICY, meter=meter
            )
        agent = IdleAgent(session, options=Routing(context_window=200_000))
        times, peaks, share = [], [], events // compactions
        for index in range(compactions):
            fill(session, share, seed=index * share)
            meter.measure(session)
            # Processor time: on a busy machine wall time would blur the ratio.
            times.append(once(engine, agent, time.process_time))
    session, meter = Session.create("row"), TokenMeter(CharacterEstimator())
    for index in range(compactions):
        fill(session, share, seed=index * share)
        meter.measure(session)
        tracemalloc.start()
        compact(session, meter)
        peaks.append(tracemalloc.get_traced_memory()[1] / 1024)
        tracemalloc.stop()
    early, late = statistics.median(times[:5]), statistics.median(times[-5:])
    print(
        f"{backend}: {events} events, {compactions} compactions: first five {early:.1f} ms of "
        f"processor time, last "
        f"five {late:.1f} ms, ratio {late / early:.2f} (goal: at most 1.3)"
    )
    small, large = statistics.median(peaks[:5]), statistics.median(peaks[-5:])
    print(f"  memory peak of one (basic): first five {small:.0f} KiB, last five {large:.0f} KiB")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backend", choices=["basic", "archive"], default="basic")
    parser.add_argument("--skip-sizes", action="store_true", help="only the compactions in a row")
    given = parser.parse_args()
    if not given.skip_sizes:
        sizes()
    in_a_row(given.backend, 25, 10_000)


if __name__ == "__main__":
    main()
