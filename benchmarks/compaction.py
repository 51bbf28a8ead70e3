"""What compaction costs without its model: measuring, appending, compacting, and many in a row.

Run as ``python benchmarks/compaction.py [--backend archive]``. Messages hold some 200 characters;
tokens are characters/4 and the summarizer is a stub, as in the figures of the upstream engine that
stand beside ours (measured in Node on another day: ratios, not milliseconds, can be compared).

How it is kept from measuring the machine instead: every figure is the least of several rounds,
each with sessions of its own, in processor time; a whole round is run first and thrown away; and
what is to be collected is collected before the clock starts, not while it runs.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import random
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

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

Clock = Callable[[], float]


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


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Collect now, and not again until the end."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def timed(action: Callable[[], object]) -> float:
    """Milliseconds of processor time that an action takes."""
    started = time.process_time()
    action()
    return (time.process_time() - started) * 1_000


def least(action: Callable[[], object], times: int) -> float:
    """The least of several times of one action that may be repeated."""
    return min(timed(action) for _ in range(times))


def sizes(rounds: int) -> None:
    """The basic engine at three sizes, beside upstream."""
    measure(1_000)
    rows: dict[int, list[tuple[float, ...]]] = {count: [] for count in UPSTREAM}
    for _ in range(rounds):
        for count in UPSTREAM:
            rows[count].append(measure(count))
    print("events    first    warm  compact warm     cold   append   (ms; upstream below)")
    best = {count: [min(column) for column in zip(*rows[count], strict=True)] for count in rows}
    for count, upstream in UPSTREAM.items():
        first, warm, compact_warm, cold, append = best[count]
        print(
            f"{count:6} {first:8.2f} {warm:7.4f} {compact_warm:13.2f} {cold:8.2f} {append:8.4f}\n"
            f"       {upstream[0]:8} {upstream[1]:7} {upstream[2]:13} {upstream[3]:8} "
            f"{upstream[4]:8}"
        )
    ratio = best[50_000][0] / best[10_000][0]
    print(f"first measurement, 50,000 to 10,000 events: {ratio:.2f} (goal: at most 8)")
    ratio = best[50_000][4] / best[1_000][4]
    print(f"one metered append, 50,000 to 1,000 events: {ratio:.2f} (flat: 1)")


def measure(count: int) -> tuple[float, ...]:
    """First and warm measurement, warm and cold compaction, one metered append."""
    session = fill(Session.create("bench"), count)
    with uncollected():
        first = least(lambda: TokenMeter(CharacterEstimator()).measure(session), 3)
        meter = TokenMeter(CharacterEstimator())
        meter.measure(session)
        warm = least(lambda: meter.measure(session), 20)

        def append() -> None:
            user(session, "one more")
            meter.measure(session)

        one = least(append, 50)
        open_calls(session)  # as an agent asks after every tool: the pairing is warm too
        compact_warm = compact(session, meter)
    again = fill(Session.create("bench"), count)
    with uncollected():
        compact_cold = compact(again, TokenMeter(CharacterEstimator()))
    return first, warm, compact_warm, compact_cold, one


def compact(session: Session, meter: TokenMeter) -> float:
    """One manual compaction by the basic engine; its milliseconds of processor time."""
    engine = BasicCompactionEngine(StubSummarizer(), policy=POLICY, meter=meter)
    return once(engine, IdleAgent(session))


def once(
    engine: BasicCompactionEngine, agent: IdleAgent, clock: Clock = time.process_time
) -> float:
    """Milliseconds of one manual compaction, without the start of an event loop."""

    async def run() -> float:
        started = clock()
        if await engine.compact_now(agent) is None:
            raise SystemExit("nothing was compacted")
        return (clock() - started) * 1_000

    return anyio.run(run)


@contextlib.contextmanager
def mounted(
    backend: str, meter: TokenMeter, *, index: Literal["behind", "later"] = "behind"
) -> Iterator[BasicCompactionEngine]:
    """An engine, with an archive of its own where it needs one."""
    if backend == "basic":
        yield BasicCompactionEngine(StubSummarizer(), policy=POLICY, meter=meter)
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        SqliteKnowledgeBase.open(Path(folder) / "a.db", render=render) as knowledge,
    ):
        yield ArchiveCompactionEngine(
            knowledge, summarizer=StubSummarizer(), policy=POLICY, meter=meter, index=index
        )


def series(backend: str, compactions: int, share: int) -> list[float]:
    """Milliseconds of each of many compactions of one session, with new events before each."""
    session, meter = Session.create("row"), TokenMeter(CharacterEstimator())
    agent = IdleAgent(session, options=Routing(context_window=200_000))
    times = []
    with mounted(backend, meter) as engine:
        for index in range(compactions):
            fill(session, share, seed=index * share)
            meter.measure(session)
            with uncollected():
                times.append(once(engine, agent))
    return times


def in_a_row(backend: str, compactions: int, events: int, rounds: int) -> float:
    """Many compactions of one growing session; the mean of one in milliseconds."""
    share = events // compactions
    series(backend, 3, share)
    rows = [series(backend, compactions, share) for _ in range(rounds)]
    times: list[float] = [min(column) for column in zip(*rows, strict=True)]
    early, late = statistics.median(times[:5]), statistics.median(times[-5:])
    print(
        f"{backend}: {events} events, {compactions} compactions, least of {rounds} sessions: "
        f"first five {early:.2f} ms, last five {late:.2f} ms, ratio {late / early:.2f} "
        f"(goal: at most 1.3)"
    )
    return statistics.fmean(times)


def peaks(compactions: int, events: int) -> None:
    """The memory that single compactions of one growing session take."""
    session, meter = Session.create("row"), TokenMeter(CharacterEstimator())
    share, found = events // compactions, []
    for index in range(compactions):
        fill(session, share, seed=index * share)
        meter.measure(session)
        tracemalloc.start()
        compact(session, meter)
        found.append(tracemalloc.get_traced_memory()[1] / 1024)
        tracemalloc.stop()
    small, large = statistics.median(found[:5]), statistics.median(found[-5:])
    print(f"  memory peak of one (basic): first five {small:.0f} KiB, last five {large:.0f} KiB")


def linear(backend: str, rounds: int) -> None:
    """Whether N compactions cost N times one: twice and four times as many of equal spans."""
    means = [in_a_row(backend, count, count * 400, rounds) for count in (25, 50, 100)]
    ratios = ", ".join(f"{mean / means[0]:.2f}" for mean in means[1:])
    print(f"{backend}: the mean of one among 50 and 100, to among 25: {ratios} (linear: 1)")


def conversation(tokens: int) -> Session:
    """A session of a coding kind: so many tokens of varied words, names and paths."""
    source = random.Random(7)  # noqa: S311 - the same texts in every run
    plain = ["".join(source.choices("aeioulnrstdmkpgh", k=6)) for _ in range(4_000)]
    named = ["_".join(source.sample(plain, 2)) for _ in range(800)]
    named += ["src/" + "/".join(source.sample(plain, 3)) + ".py" for _ in range(400)]

    def text(words: int) -> str:
        return " ".join(
            source.choices(plain, k=words - words // 6) + source.choices(named, k=words // 6)
        )

    session, meter = Session.create("whole"), TokenMeter()
    index = 0
    while meter.measure(session).total < tokens:
        index += 1
        if index % 8 == 1:
            user(session, text(40))
        assistant(
            session, text(30), (f"c{index}", "bash", f'{{"command":"cat {named[-index % 400]}"}}')
        )
        result(session, f"c{index}", text(400))
    return session


def whole(tokens: int, rounds: int) -> None:
    """A whole compaction by the archive engine, priced with tiktoken.

    Without the model's time, and so without the indexing that goes on while it writes.
    """
    template = conversation(tokens)
    best: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for _ in range(rounds + 1):
        for prepared, found in best.items():
            session, meter = Session.create("whole", template.events), TokenMeter()
            agent = IdleAgent(session, options=Routing(context_window=tokens))
            if prepared:
                meter.measure(session)
                open_calls(session)
            with mounted("archive", meter, index="later") as engine, uncollected():
                started = time.process_time()
                wall = once(engine, agent, time.perf_counter)
                found.append((wall, (time.process_time() - started) * 1_000))
    print(f"archive: a session of {tokens} tokens in {len(template)} events")
    for prepared, goal in ((False, 400), (True, 150)):
        wall, processor = (min(column) for column in zip(*best[prepared][1:], strict=True))
        print(
            f"  {'meter warm' if prepared else 'first time'}: {wall:.0f} ms on the wall, "
            f"{processor:.0f} ms of processor time (goal: at most {goal})"
        )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backend", choices=["basic", "archive"], default="basic")
    parser.add_argument("--rounds", type=int, default=7, help="sessions that each figure is of")
    parser.add_argument("--skip-sizes", action="store_true", help="no table of sizes")
    parser.add_argument("--skip-row", action="store_true", help="no compactions in a row")
    parser.add_argument("--linear", action="store_true", help="also 50 and 100 compactions")
    given = parser.parse_args()
    if not given.skip_sizes:
        sizes(given.rounds)
    if given.backend == "archive":
        whole(200_000, given.rounds)
    if given.skip_row:
        return
    if given.linear:
        linear(given.backend, given.rounds)
    else:
        in_a_row(given.backend, 25, 10_000, given.rounds)
    peaks(25, 10_000)


if __name__ == "__main__":
    main()
