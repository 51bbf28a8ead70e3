"""The deterministic summarizer: what it holds, and that it always shrinks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxarchive.compaction.checkpoint import frame
from ctxarchive.compaction.extractive import SECTIONS, ExtractiveSummarizer
from ctxarchive.compaction.facts import collect, error_line, open_items
from ctxarchive.compaction.summarizer import SummaryInput
from ctxarchive.importers.playback import import_session
from ctxarchive.importers.read import read_log
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.session.log import Session
from ctxarchive.session.messages import Message, ToolCallBlock, ToolResultBlock, text_block

METER = TokenMeter()


def user(text: str) -> Message:
    return Message.model_validate(
        {"role": "user", "content": [text_block(text)], "source": {"kind": "user"}}
    )


def said(text: str) -> Message:
    return Message(role="assistant", content=(text_block(text),))


def call(name: str, call_id: str = "c1", **values: Any) -> Message:
    block = ToolCallBlock(type="tool-call", id=call_id, name=name, arguments=json.dumps(values))
    return Message(role="assistant", content=(block,))


def result(text: str, call_id: str = "c1", *, failed: bool = False) -> Message:
    block = ToolResultBlock(
        type="tool-result", tool_call_id=call_id, content=(text_block(text),), is_error=failed
    )
    return Message(role="tool", content=(block,))


def summary(*messages: Message, budget: int = 10_000) -> str:
    return ExtractiveSummarizer(METER).render(collect(messages), budget)


def test_the_last_request_is_held_verbatim_and_earlier_ones_say_how_it_changed() -> None:
    text = summary(user("Build a  parser"), said("ok"), user("No:\n  use\ttabs"), said("done"))
    assert "last, verbatim:\nNo:\n  use\ttabs" in text
    assert "- first: Build a parser" in text


def test_every_edited_path_is_held_and_read_ones_where_there_is_room() -> None:
    messages = [
        call("edit", file_path="src/a.py", old_string="x", new_string="y"),
        call("write", path="docs/b.md", content="z"),
        call("apply_patch", input="*** Begin Patch\n*** Update File: lib/c.rs\n*** End Patch"),
        call("bash", command="echo hi > out/d.txt"),
        call("read", file_path="src/only_read.py"),
    ]
    text = summary(user("go"), *messages)
    for path in ("src/a.py", "docs/b.md", "lib/c.rs", "out/d.txt"):
        assert f"- edited: {path}" in text
    assert "- used: src/only_read.py" in text
    for budget in range(20, 200, 5):
        tight = summary(user("go"), *messages, budget=budget)
        assert "- used:" not in tight or tight.count("- edited:") == 4


def test_open_items_of_the_newest_list_are_pending_and_done_ones_are_not() -> None:
    old = call("todo", todos=[{"content": "gone", "status": "pending"}])
    new = call(
        "todo",
        todos=[
            {"content": "finished", "status": "completed"},
            {"content": "still open", "status": "in_progress"},
        ],
    )
    text = summary(user("go"), old, new)
    assert "## Pending work\n- still open" in text
    assert "finished" not in text
    assert "gone" not in text


def test_single_tasks_are_open_until_an_update_says_done() -> None:
    messages = [
        call("TaskCreate", "a", subject="first"),
        result("Task #1 created", "a"),
        call("TaskCreate", "b", subject="second"),
        result("Task #2 created", "b"),
        call("TaskUpdate", "c", taskId="1", status="completed"),
    ]
    assert open_items(messages) == ("second",)


def test_the_last_error_line_stands_with_what_followed_it() -> None:
    text = summary(
        user("go"),
        call("bash", command="pytest"),
        result("collected 3\nE   AssertionError: 1 != 2\n1 failed"),
        said("The fixture was wrong. I fix it."),
    )
    assert "- E   AssertionError: 1 != 2 (then: The fixture was wrong.)" in text


def test_a_file_that_talks_of_errors_is_none() -> None:
    text = summary(
        user("go"),
        call("read", file_path="errors.py"),
        result("1\tclass SessionError(Exception):\nValueError: not raised"),
    )
    assert "## Errors" not in text
    assert error_line("all good\n0 errors", failed=False) is None
    assert error_line("no such command", failed=True) == "no such command"


def test_sentences_that_state_rules_are_critical_context() -> None:
    text = summary(user("Hi. Never touch src/v1.2/core.py! 请不要改动默认输出。 Thanks."))
    assert "- Never touch src/v1.2/core.py!" in text
    assert "- 请不要改动默认输出。" in text


def test_sections_are_ours_and_in_order() -> None:
    text = summary(user("a"), call("edit", path="x/y.py", content="1"), said("One.\nNext: two."))
    headings = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert headings == [section for section in SECTIONS if section in headings]


def test_an_earlier_summary_hands_on_its_lasting_lines_once() -> None:
    first = summary(user("Always use tabs."), call("edit", path="a/b.py", content="1"), said("ok"))
    checkpoint = Message.model_validate(
        {
            "role": "user",
            "content": [text_block(frame(first))],
            "source": {"kind": "compact-checkpoint", "compactionId": "c"},
        }
    )
    text = first
    for round_ in range(3):
        text = summary(
            checkpoint, user(f"Step {round_}"), call("edit", path="a/b.py", content="2"), said("k")
        )
        checkpoint = checkpoint.model_copy(update={"content": (text_block(frame(text)),)})
    assert text.count("- edited: a/b.py") == 1
    assert text.count("Always use tabs.") == 2  # as a request and as a rule
    assert "earlier" not in text


@given(st.lists(st.text(max_size=400), min_size=1, max_size=30), st.integers(0, 3_000))
def test_whatever_the_texts_the_summary_keeps_to_its_budget(texts: list[str], budget: int) -> None:
    messages = [user(text) if place % 2 == 0 else said(text) for place, text in enumerate(texts)]
    text = summary(*messages, budget=budget)
    assert METER.text(text) <= max(budget, METER.text("(nothing of this span fits the budget)"))
    assert text == summary(*messages, budget=budget)


def raw_edits(session: Session) -> set[str]:
    """Paths that editing tools of the known harnesses were called with, read without our rules."""
    names = {"Edit", "Write", "NotebookEdit", "MultiEdit", "edit", "write"}
    found = set()
    for event in session.events:
        for block in event.message.content if event.message else ():
            if isinstance(block, ToolCallBlock) and block.name in names:
                values = json.loads(block.arguments)
                found.add(values.get("file_path") or values.get("path"))
    return {path for path in found if path}


def test_real_logs_shrink_and_keep_what_counts(logs_dir: Path) -> None:
    """On every log, with room for it: last request, edited paths, open items, last error line."""
    for path in sorted(p for p in logs_dir.rglob("*") if p.suffix in {".gz", ".jsonl", ".json"}):
        session = import_session(read_log(path), recorded=False)
        seqs = session.surface.nodes
        total = METER.measure(session).surface
        given_input = SummaryInput(
            session=session,
            compaction_id="c",
            trigger="manual",
            shadowed_seqs=seqs,
            shadowed_tokens=total,
            room_tokens=None,
            max_tokens=8_192,
        )
        made = anyio.run(ExtractiveSummarizer(METER).summarize, given_input)
        assert METER.text(made.text) < total, path
        facts = collect(given_input.messages())
        wide = ExtractiveSummarizer(METER).render(facts, 200_000)
        text = made.text
        for wanted in (*(f"- edited: {edit}" for edit in raw_edits(session)), *facts.open_items):
            assert wanted in text, (path, wanted)
        if facts.requests:
            assert facts.requests[-1] in wide, path
            fits = METER.text(facts.requests[-1]) < total * 0.2
            assert facts.requests[-1] in text or not fits, path
        failed = [
            block
            for event in session.events
            for block in (event.message.content if event.message else ())
            if isinstance(block, ToolResultBlock) and block.is_error
        ]
        if failed:
            shown = [
                line.strip()
                for block in failed[-1].content
                for line in getattr(block, "text", "").splitlines()
                if line.strip()
            ]
            assert any(line in wide for line in shown) or not shown, path


@pytest.mark.parametrize("size", [1_000, 3_000, 20_000])
def test_a_span_above_the_minimum_always_shrinks(size: int) -> None:
    """Whatever it consists of: one huge request, or many tiny ones."""
    for messages in (
        [user("word " * size)],
        [user("x") for _ in range(size // 5)],
        [said("f(1) = 2. " * 20) for _ in range(size // 60)],
    ):
        tokens = sum(METER.message(message) for message in messages)
        budget = int(tokens * 0.4) - 120
        text = ExtractiveSummarizer(METER).render(collect(messages), budget)
        assert METER.text(frame(text)) < tokens


def test_what_is_kept_behind_the_span_never_leaves_a_summary_blind() -> None:
    """However little room the rest of the request leaves, the last request is there."""
    session = Session.create("s")
    session.append(
        "user/message",
        {"content": [{"type": "text", "text": "Port the parser. " + "It must stay fast. " * 200}]},
        surface_op="append",
    )
    given_input = SummaryInput(
        session=session,
        compaction_id="c",
        trigger="pressure",
        shadowed_seqs=session.surface.nodes,
        shadowed_tokens=METER.measure(session).surface,
        room_tokens=0,
        max_tokens=8_192,
    )
    made = anyio.run(ExtractiveSummarizer(METER).summarize, given_input)
    assert "Port the parser." in made.text


def test_requests_that_stand_beside_the_summary_are_not_said_again() -> None:
    """The first tells what it is about and the last what is asked now; those between are shown."""
    session = Session.create("s")
    for number in range(5):
        content = [{"type": "text", "text": f"request number {number}"}]
        data = {"content": content, "source": {"kind": "user"}}
        session.append("user/message", data, surface_op="append")
    asked = SummaryInput(
        session=session,
        compaction_id="c",
        trigger="manual",
        shadowed_seqs=tuple(session.surface.nodes),
        shadowed_tokens=10_000,
        room_tokens=None,
        max_tokens=4_000,
    )
    told = []
    for follow in (False, True):
        text = anyio.run(
            ExtractiveSummarizer(METER).summarize, replace(asked, requests_follow=follow)
        ).text
        told.append([number for number in range(5) if f"request number {number}" in text])
    assert told == [[0, 1, 2, 3, 4], [0, 4]]


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("a.go:3:2: undefined: x\nerror: build failed\nFAIL", "error: build failed"),
        ("ValueError: bad\nExit code 1", "ValueError: bad"),
        ("Exit code 1", "Exit code 1"),
        ('+\tt.Error("visited")\n-  Error here', None),
        ("nothing wrong", None),
    ],
)
def test_an_error_is_the_line_that_says_what_it_is(output: str, line: str | None) -> None:
    """Not the one that only says that there was one, and no line of a diff."""
    assert error_line(output, failed=False) == line
