"""The meter: one unit for everything, incremental, and never negative."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxarchive.errors import ConfigError, SessionError
from ctxarchive.metering.estimate import IMAGE_TOKENS
from ctxarchive.metering.meter import TokenMeter, reported_total
from ctxarchive.metering.tokenizers import CharacterEstimator, TiktokenEstimator, estimator
from ctxarchive.session.log import Session


class Counting(CharacterEstimator):
    """Says how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def count(self, text: str) -> int:
        """A quarter of the code points, counted."""
        self.asked += 1
        return super().count(text)


def say(session: Session, text: str, **data: Any) -> int:
    """An assistant's message; its seq."""
    message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
    return session.append(
        "assistant/message", {"message": message, **data}, surface_op="append"
    ).seq


def ask(session: Session, text: str, **more: Any) -> int:
    """A user's message; its seq."""
    return session.append(
        "user/message",
        {"content": [{"type": "text", "text": text}]},
        **({"surface_op": "append"} | more),
    ).seq


def test_a_measurement_after_new_events_prices_only_those() -> None:
    """O(k) work for k new events, and none for none."""
    count = Counting()
    meter = TokenMeter(count)
    session = Session.create("s")
    for number in range(100):
        ask(session, f"message {number}")
    meter.measure(session)
    assert count.asked == 100
    meter.measure(session)
    ask(session, "one more")
    meter.measure(session)
    assert count.asked == 101


def test_after_a_replacement_nothing_old_is_priced_again() -> None:
    count = Counting()
    meter = TokenMeter(count)
    session = Session.create("s")
    seqs = [ask(session, f"message {number}") for number in range(50)]
    before = meter.measure(session)
    operation = {"op": "replace", "startSeq": seqs[0], "endSeq": seqs[39]}
    ask(session, "short", surface_op=operation, source_event_seqs=seqs[:40])
    after = meter.measure(session)
    assert count.asked == 51
    assert after.length == 11
    assert before.total - after.total == before.span(0, 39) - after.span(0, 0)
    assert before.length == 50
    assert before.surface == before.span(0, 49), (
        "an old measurement keeps the prices it was made of"
    )


@given(st.lists(st.text(max_size=50), min_size=1, max_size=20), st.data())
def test_totals_are_the_sum_of_what_is_on_the_surface(
    texts: list[str], data: st.DataObject
) -> None:
    """After any appends and replacements, however often it was measured in between."""
    meter, session = TokenMeter(CharacterEstimator()), Session.create("s")
    for text in texts:
        if len(session.surface) > 1 and data.draw(st.booleans()):
            first = data.draw(st.integers(0, len(session.surface) - 1))
            last = data.draw(st.integers(first, len(session.surface) - 1))
            nodes = session.surface.nodes[first : last + 1]
            operation = {"op": "replace", "startSeq": nodes[0], "endSeq": nodes[-1]}
            ask(session, text, surface_op=operation, source_event_seqs=nodes)
        else:
            ask(session, text)
        if data.draw(st.booleans()):
            meter.measure(session)
    measured = meter.measure(session)
    fresh = TokenMeter(CharacterEstimator()).measure(session)
    assert measured.total == fresh.total >= 0
    assert measured.total == sum(meter.price(session, seq) for seq in session.surface)
    assert measured.span(0, measured.length - 1) == measured.surface


BLOCKS = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, st.text(max_size=30)),
    st.builds(lambda text: {"type": "reasoning", "text": text}, st.text(max_size=30)),
    st.sampled_from([{"type": "image"}, {"type": "document"}, {"type": "chart", "rows": [1, 2]}]),
)
CALLS = st.builds(
    lambda arguments: {"type": "tool-call", "id": "c", "name": "bash", "arguments": arguments},
    st.text(max_size=30),
)
ANSWERS = st.lists(BLOCKS, max_size=3).map(
    lambda blocks: [{"type": "tool-result", "toolCallId": "c", "content": blocks}]
)


@given(
    st.lists(BLOCKS, max_size=4),
    st.lists(BLOCKS | CALLS, max_size=4),
    st.lists(BLOCKS, max_size=4) | ANSWERS,
)
def test_an_event_costs_what_the_message_made_of_it_costs(
    asked: list[Any], said: list[Any], answered: list[Any]
) -> None:
    """Pricing an event makes no message, and the price is that of the message all the same."""
    session, meter = Session.create("s"), TokenMeter(CharacterEstimator())
    session.append("user/message", {"content": asked}, surface_op="append")
    message = {"role": "assistant", "content": said}
    session.append("assistant/message", {"message": message}, surface_op="append")
    answer = {"role": "tool", "toolCallId": "c", "content": answered}
    session.append("tool/result", {"message": answer}, surface_op="append")
    session.append("turn/start", {"turn": 1})
    measured = meter.measure(session)
    for place, made in enumerate(session.derive_messages()):
        assert measured.span(place, place) == meter.message(made)
        assert meter.price(session, place) == meter.message(made)
    assert meter.price(session, 3) == 0


def test_a_text_that_cannot_be_counted_leaves_the_meter_as_it_was() -> None:
    """What was appended before and after it is counted once, when counting works again."""

    class Failing(CharacterEstimator):
        def count(self, text: str) -> int:
            if text == fails:
                raise RuntimeError("no count")
            return super().count(text)

    session, meter, fails = Session.create("s"), TokenMeter(Failing()), "two"
    for text in ("one", "two", "three"):
        ask(session, text)
    with pytest.raises(RuntimeError):
        meter.measure(session)
    fails = ""
    session.append("request/header", {"header": {"system": "be brief"}})
    assert meter.measure(session) == TokenMeter(CharacterEstimator()).measure(session)


def test_a_providers_count_is_where_the_total_starts_from() -> None:
    session, meter = Session.create("s"), TokenMeter(CharacterEstimator())
    ask(session, "a" * 400)
    say(session, "b" * 400, usage={"inputTokens": 1_000, "outputTokens": 200})
    assert meter.measure(session).total == 1_200
    assert meter.measure(session).basis == "reported"
    before = meter.measure(session)
    ask(session, "c" * 40)
    assert meter.measure(session).total == before.total + meter.price(session, 2)


def test_a_new_request_header_ends_the_trust_in_an_older_count() -> None:
    session, meter = Session.create("s"), TokenMeter(CharacterEstimator())
    say(session, "b", usage={"input_tokens": 5_000, "cache_read_input_tokens": 10})
    assert meter.measure(session).total == 5_010
    session.append("request/header", {"header": {"system": "x" * 400}})
    measured = meter.measure(session)
    assert (measured.basis, measured.header) == ("estimated", 100)


def test_a_count_smaller_than_what_was_compacted_never_makes_a_negative_total() -> None:
    session, meter = Session.create("s"), TokenMeter(CharacterEstimator())
    seqs = [ask(session, "a" * 4_000), say(session, "b", usage={"inputTokens": 10})]
    meter.measure(session)
    operation = {"op": "replace", "startSeq": seqs[0], "endSeq": seqs[1]}
    ask(session, "short", surface_op=operation, source_event_seqs=seqs)
    assert meter.measure(session).total == 0


def test_a_foreign_count_is_not_trusted_where_the_caller_says_so() -> None:
    session = Session.create("s")
    say(session, "b", usage={"inputTokens": 99_999})
    meter = TokenMeter(CharacterEstimator(), trust_usage=False)
    assert meter.measure(session).basis == "estimated"
    assert reported_total({"note": 1}) is None
    assert reported_total(None) is None


def test_an_image_costs_what_a_provider_charges_and_not_its_base64() -> None:
    session, meter = Session.create("s"), TokenMeter()
    image = {"type": "image", "source": {"media_type": "image/png", "data": "A" * 1_000_000}}
    session.append("user/message", {"content": [image]}, surface_op="append")
    assert IMAGE_TOKENS <= meter.measure(session).total < IMAGE_TOKENS + 50


def test_positions_off_the_measured_surface_are_refused() -> None:
    session, meter = Session.create("s"), TokenMeter(CharacterEstimator())
    ask(session, "a")
    with pytest.raises(SessionError, match=r"0\.\.1 of a surface of 1"):
        meter.measure(session).span(0, 1)


@given(st.text())
def test_any_text_has_a_count(text: str) -> None:
    """Lone surrogates and the spellings of special tokens included."""
    assert TiktokenEstimator().count(text + "<|endoftext|>") > 0
    assert CharacterEstimator().count(text) == -(-len(text) // 4)


def test_an_unknown_estimator_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="'words' is neither"):
        estimator("words")
    assert estimator("tiktoken").name == "tiktoken"
    assert estimator("characters").name == "characters"


def test_the_first_count_needs_no_network() -> None:
    """With every socket refused and an empty cache folder, counting works."""
    code = (
        "import socket\n"
        "def refuse(*a, **k): raise OSError('no network')\n"
        "socket.socket.connect = refuse\n"
        "socket.getaddrinfo = refuse\n"
        "from ctxarchive.metering.tokenizers import TiktokenEstimator\n"
        "print(TiktokenEstimator().count('hello world'))"
    )
    environment = {"PATH": os.environ["PATH"], "TIKTOKEN_CACHE_DIR": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment
    )
    assert done.stdout.strip() == "2", done.stderr


def test_counting_needs_no_writable_folder() -> None:
    """Tiktoken would keep a copy of its data; where it cannot, the data itself is read."""
    environment = {"PATH": os.environ["PATH"], "TIKTOKEN_CACHE_DIR": "/proc/nowhere"}
    code = (
        "from ctxarchive.metering.tokenizers import TiktokenEstimator\n"
        "print(TiktokenEstimator().count('hello world'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment
    )
    assert done.stdout.strip() == "2", done.stderr
