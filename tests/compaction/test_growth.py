"""Many compactions of one long session: the work of each follows the new events only."""

from __future__ import annotations

import statistics
import tracemalloc
from collections.abc import Sequence

import pytest

from ctxarchive.errors import SessionError
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.metering.tokenizers import CharacterEstimator
from ctxarchive.session.events import Event
from ctxarchive.session.log import Session, SessionHeader
from ctxarchive.testing.engines import GatedCompactionEngine
from ctxarchive.testing.sessions import IdleAgent, assistant, result, user


class Reading(Session):
    """A session that counts how often an event is read."""

    reads = 0

    def event_at(self, seq: int) -> Event:
        """Count, and read."""
        self.reads += 1
        return super().event_at(seq)

    def since(self, seq: int) -> Sequence[Event]:
        """Count each, and read."""
        events = super().since(seq)
        self.reads += len(events)
        return events


class Counting(CharacterEstimator):
    """An estimator that counts what it is asked."""

    asked = 0

    def count(self, text: str) -> int:
        """Count, and estimate."""
        self.asked += 1
        return super().count(text)


def fill(session: Session, events: int, start: int) -> None:
    for index in range(start, start + events // 4):
        user(session, f"request {index} " * 8)
        assistant(session, f"answer {index} ", (f"c{index}", "bash", "{}"))
        result(session, f"c{index}", f"result {index} " * 8)
        assistant(session, f"that is {index} " * 8)


@pytest.mark.anyio
async def test_25_compactions_of_10000_events_each_cost_the_same() -> None:
    estimator = Counting()
    session = Reading(SessionHeader(id="long"))
    engine, agent = GatedCompactionEngine(meter=TokenMeter(estimator)), IdleAgent(session)
    reads, asked, peaks = list[int](), list[int](), list[int]()
    for index in range(25):
        fill(session, 400, index * 400)
        session.reads = estimator.asked = 0
        tracemalloc.start()
        assert await engine.compact_now(agent) is not None
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        reads.append(session.reads)
        asked.append(estimator.asked)
    assert len(session) > 10_000
    for series in (reads, asked, peaks):
        assert statistics.mean(series[-5:]) <= 1.3 * statistics.mean(series[:5])


def test_one_metered_append_reads_one_event_however_long_the_session() -> None:
    for events in (400, 4_000):
        estimator = Counting()
        session, meter = Reading(SessionHeader(id="s")), TokenMeter(estimator)
        fill(session, events, 0)
        meter.measure(session)
        session.reads = estimator.asked = 0
        user(session, "one more")
        meter.measure(session)
        assert session.reads == 1
        assert estimator.asked == 1


def test_a_first_measurement_reads_each_event_once() -> None:
    session = Reading(SessionHeader(id="s"))
    fill(session, 4_000, 0)
    session.reads = 0
    TokenMeter(CharacterEstimator()).measure(session)
    assert session.reads == 4_000


def test_a_measurement_taken_before_a_replacement_keeps_its_numbers() -> None:
    session, meter = Session.create("s"), TokenMeter(CharacterEstimator())
    fill(session, 8, 0)
    before = meter.measure(session)
    total, span = before.total, before.span(0, 7)
    nodes = session.surface.nodes
    session.append(
        "user/message",
        {"role": "user", "content": [{"type": "text", "text": "short"}]},
        surface_op={"op": "replace", "startSeq": nodes[0], "endSeq": nodes[3]},
        source_event_seqs=nodes[:4],
    )
    assert meter.measure(session).total < total
    assert (before.total, before.span(0, 7)) == (total, span)
    with pytest.raises(SessionError):
        meter.measure(session).span(0, 7)
