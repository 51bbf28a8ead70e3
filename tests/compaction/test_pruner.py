"""The tool-result pruner: what stays, what is marked, and what the archive keeps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ctxarchive.archive.engine import ArchiveCompactionEngine
from ctxarchive.archive.rendering import render
from ctxarchive.compaction.policy import CompactionPolicy
from ctxarchive.compaction.pruner import PruneSettings, ToolResultPruner, replace_priced
from ctxarchive.errors import SessionError
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.metering.tokenizers import CharacterEstimator
from ctxarchive.session.events import CompactionPrune, ToolResult
from ctxarchive.session.log import Session
from ctxarchive.session.messages import joined_text
from ctxarchive.testing.sessions import IdleAgent, assistant, result, user

Watch = Callable[[Session], Session]
SMALL = PruneSettings(max_chars=400, head_chars=100, tail_chars=50)


def meter() -> TokenMeter:
    return TokenMeter(CharacterEstimator())


def with_result(session: Session, *content: dict[str, Any], call: str = "a") -> int:
    user(session, "run it")
    assistant(session, "", (call, "bash", '{"command": "make"}'))
    message = {"role": "tool", "toolCallId": call, "content": list(content)}
    return session.append("tool/result", {"message": message}, surface_op="append").seq


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def shown(session: Session, position: int = 2) -> str:
    event = session.event_at(session.surface[position])
    assert isinstance(event, ToolResult)
    return joined_text(event.data.message.block.content)


def test_text_over_8192_code_points_keeps_4096_and_1024_around_a_marker(watched: Watch) -> None:
    session = watched(Session.create("s"))
    body = "".join(f"{line:07d}\n" for line in range(2_000))
    seq = with_result(session, text(body))
    done = ToolResultPruner().prune(session, meter())
    assert done.seqs == (seq,)
    head, marker, tail = shown(session).partition(
        f"\n[... {16_000 - 4_096 - 1_024} of 16000 chars pruned here; the whole result stays on "
        f"the log, seq {seq} ...]\n"
    )
    assert marker
    assert head == body[:4_096]
    assert tail == body[-1_024:]


def test_text_of_8192_code_points_stays_whole(watched: Watch) -> None:
    session = watched(Session.create("s"))
    with_result(session, text("語" * 8_192))
    assert ToolResultPruner().prune(session, meter()).seqs == ()


def test_a_second_pass_does_nothing(watched: Watch) -> None:
    session = watched(Session.create("s"))
    with_result(session, text("x" * 20_000))
    pruner, prices = ToolResultPruner(), meter()
    assert pruner.prune(session, prices).tokens > 0
    before = len(session)
    assert pruner.prune(session, prices).seqs == ()
    assert len(session) == before


def test_the_original_stays_on_the_log_and_is_cited_first_also_when_pruned_again(
    watched: Watch,
) -> None:
    session = watched(Session.create("s"))
    seq, prices = with_result(session, text("x" * 20_000)), meter()
    ToolResultPruner().prune(session, prices)
    ToolResultPruner(SMALL).prune(session, prices)
    newest = session.event_at(session.surface[2])
    assert newest.source_event_seqs[0] == seq
    original = session.event_at(seq)
    assert isinstance(original, ToolResult)
    assert joined_text(original.data.message.block.content) == "x" * 20_000
    assert f"seq {seq} ...]" in shown(session)


def test_the_price_of_what_is_shadowed_stands_directly_before_the_replacement(
    watched: Watch,
) -> None:
    session, prices = watched(Session.create("s")), meter()
    seq = with_result(session, text("x" * 20_000))
    price = prices.price(session, seq)
    before = prices.measure(session).total
    done = ToolResultPruner().prune(session, prices)
    priced = session.event_at(session.surface[2] - 1)
    assert isinstance(priced, CompactionPrune)
    assert priced.data.shadowed_seqs == (seq,)
    assert priced.data.shadowed_token_count == price
    assert prices.measure(session).total == before - done.tokens


def test_rich_blocks_keep_their_order_and_are_never_cut(watched: Watch) -> None:
    session = watched(Session.create("s"))
    image = {"type": "image", "source": {"data": "A" * 2_000, "media_type": "image/png"}}
    odd = {"type": "chart", "points": [1, 2]}
    blocks = (text("a" * 300), image, text("b" * 300), odd, text("c" * 300))
    with_result(session, *blocks)
    ToolResultPruner(SMALL).prune(session, meter())
    event = session.event_at(session.surface[2])
    assert isinstance(event, ToolResult)
    kept = [block.wire() for block in event.data.message.block.content]
    assert [block["type"] for block in kept] == ["text", "image", "chart", "text"]
    assert kept[0]["text"].startswith("a" * 100 + "\n[... 750 of 900 chars pruned here;")
    assert kept[1:3] == [image, odd]
    assert kept[3]["text"] == "c" * 50


def test_a_result_block_in_the_older_spelling_is_cut_within_its_block(watched: Watch) -> None:
    session = watched(Session.create("s"))
    user(session, "run it")
    assistant(session, "", ("a", "bash", "{}"))
    block = {"type": "tool-result", "toolCallId": "a", "content": [text("x" * 900)]}
    session.append("tool/result", {"message": {"content": [block]}}, surface_op="append")
    ToolResultPruner(SMALL).prune(session, meter())
    assert len(shown(session)) < 400
    event = session.event_at(session.surface[2])
    assert isinstance(event, ToolResult)
    assert event.data.message.block.tool_call_id == "a"


def test_a_cut_never_splits_a_grapheme_cluster(watched: Watch) -> None:
    session = watched(Session.create("s"))
    family = "👨‍👩‍👧‍👦"
    with_result(session, text(family * 200))
    ToolResultPruner(SMALL).prune(session, meter())
    head, _, rest = shown(session).partition("\n[...")
    tail = rest.partition("...]\n")[2]
    assert head == family * (len(head) // len(family))
    assert tail == family * (len(tail) // len(family))


@given(st.text(min_size=401, max_size=1_500))
def test_whatever_the_text_head_and_tail_are_its_own(body: str) -> None:
    session = Session.create("s")
    with_result(session, text(body))
    if not ToolResultPruner(SMALL).prune(session, meter()).seqs:
        return  # not worth it in tokens
    got = shown(session)
    at = got.rindex("\n[... ")
    assert body.startswith(got[:at])
    assert body.endswith(got[at:].partition(" ...]\n")[2])
    assert len(got) <= SMALL.max_chars


def test_only_what_stands_before_a_position_is_pruned_where_one_is_given(watched: Watch) -> None:
    session = watched(Session.create("s"))
    first = with_result(session, text("x" * 900), call="a")
    with_result(session, text("y" * 900), call="b")
    assert ToolResultPruner(SMALL).prune(session, meter(), before=3).seqs == (first,)


def test_settings_whose_result_would_be_pruned_again_are_refused() -> None:
    with pytest.raises(ValidationError, match="exceed max_chars"):
        PruneSettings(max_chars=1_000, head_chars=700, tail_chars=200)


def test_a_refused_replacement_writes_no_price(watched: Watch) -> None:
    session = watched(Session.create("s"))
    seq = with_result(session, text("x"))
    before = len(session)
    with pytest.raises(SessionError):
        replace_priced(session, meter(), (seq, seq), "tool/result", {"message": {"content": 3}})
    assert len(session) == before


@pytest.mark.anyio
async def test_the_archive_files_the_original_of_a_pruned_result(
    watched: Watch, tmp_path: Path
) -> None:
    session, prices = watched(Session.create("s")), meter()
    body = "".join(f"line {line} of the output\n" for line in range(1_000))
    seq = with_result(session, text(body))
    ToolResultPruner().prune(session, prices)
    user(session, "and now?")
    with SqliteKnowledgeBase.open(tmp_path / "a.db", render=render) as knowledge:
        engine = ArchiveCompactionEngine(
            knowledge, meter=prices, policy=CompactionPolicy(min_span_tokens=0)
        )
        assert await engine.compact_now(IdleAgent(session)) is not None
        record = knowledge.get("s", seq)
        assert record is not None
        assert body in record.text
        assert record.event == session.event_at(seq).json_text


def test_results_of_ordinary_size_are_left_alone(watched: Watch) -> None:
    session = watched(Session.create("s"))
    user(session, "go")
    assistant(session, "", ("a", "bash", "{}"))
    result(session, "a", "fine")
    assert ToolResultPruner().prune(session, meter()).seqs == ()
