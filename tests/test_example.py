"""The example session that ships with the project: valid, rich, and without a trace of a machine."""

from __future__ import annotations

import getpass
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxarchive.metering.tokenizers import TiktokenEstimator
from ctxarchive.session.events import AssistantMessage, ToolResult, UserMessage
from ctxarchive.session.jsonl import read_session
from ctxarchive.session.log import Session
from ctxarchive.session.messages import TextBlock, ToolCallBlock, joined_text
from ctxarchive.session.pairing import balanced_after, open_calls

ROOT = Path(__file__).parents[1]


def _recorded(path: Path) -> Session:
    stored = read_session(path)
    assert stored.torn_line is None
    return stored.replay()


@pytest.fixture(scope="module")
def example() -> Session:
    """The session as it ships."""
    return _recorded(ROOT / "scripts" / "example" / "session.jsonl")


def _results(session: Session) -> Iterator[tuple[str, bool]]:
    for event in session.events:
        if isinstance(event, ToolResult):
            block = event.data.message.block
            yield joined_text(block.content), block.is_error


def _said(session: Session, kind: type[UserMessage | AssistantMessage]) -> list[str]:
    return [
        joined_text(event.message.content) for event in session.events if isinstance(event, kind)
    ]


def _tokens(session: Session) -> int:
    texts = [text for text, _ in _results(session)]
    for message in session.derive_messages():
        for block in message.content:
            if isinstance(block, TextBlock):
                texts.append(block.text)
            elif isinstance(block, ToolCallBlock):
                texts.append(block.arguments)
    return sum(map(TiktokenEstimator().count, texts))


def _traces(text: str) -> list[str]:
    """What in ``text`` tells of the machine it was recorded on, or of this one."""
    patterns = [r"(?<!\w)/(?:work|root|home|Users|tmp)\b", r"\.pyenv"]
    places = {tempfile.gettempdir(), str(Path.home()), sys.prefix, sys.base_prefix, str(ROOT)}
    # A folder directly under / is a word of any program's text; /usr is what paths become.
    deep = (place for place in places if place.count("/") > 1 and not place.startswith("/usr/"))
    patterns += [re.escape(place) + r"\b" for place in deep]
    for name in (socket.gethostname(), getpass.getuser()):
        # A short or plain name is a word like any other; as one only its usual places tell of it.
        plain = re.fullmatch(r"[a-z]{1,8}", name)
        word = re.escape(name)
        patterns.append(rf"(?:@|-of-|/home/){word}\b" if plain else rf"\b{word}\b")
    return [found[0] for pattern in patterns for found in re.finditer(pattern, text)]


def _check(session: Session, path: Path) -> None:
    assert _traces(path.read_text("utf-8")) == []
    assert session.id == "example"
    assert len(session) >= 150
    assert _tokens(session) >= 60_000
    assert path.stat().st_size < 600_000
    assert balanced_after(session, session.surface[-1])
    assert not open_calls(session)


def test_the_example_holds_no_trace_of_a_machine(example: Session) -> None:
    """It is valid and long enough to be compacted, and names no folder, host or user."""
    _check(example, ROOT / "scripts" / "example" / "session.jsonl")


@pytest.mark.parametrize(
    "trace",
    ["/work/" + "some", "/root/.cache", "/home/someone", tempfile.gettempdir() + "/x"],
)
def test_a_trace_of_a_machine_is_seen(trace: str) -> None:
    """The check is no blind one."""
    assert _traces(f"prints {trace} somewhere")


def test_the_example_is_a_conversation_with_rules_and_corrections(example: Session) -> None:
    """The user asks several things, forbids some, corrects others, and not only in English."""
    said = _said(example, UserMessage)
    assert len(said) >= 8
    assert any("never touch" in text for text in said)
    assert any(text.startswith("No, not") and "always" in text for text in said)
    assert any(re.search(r"[\u4e00-\u9fff]{4}", text) for text in said)
    assert [event.type for event in example.events].count("turn/end") == len(said)
    assert "stop" in _said(example, AssistantMessage)[-1]
    assert "Open" in _said(example, AssistantMessage)[-1]


def test_the_example_shows_a_failure_and_its_fix(example: Session) -> None:
    """A real test fails, the file is edited, and the same command passes."""
    results = list(_results(example))
    failed = next(i for i, (text, error) in enumerate(results) if error and "1 failed" in text)
    assert any("1 passed" in text for text, _ in results[failed:])
    assert any("設定ファイル" in text for text, _ in results)
    assert any(len(text.encode()) > 20_000 for text, _ in results)


def test_the_example_calls_tools_side_by_side_and_keeps_a_list(example: Session) -> None:
    """Several calls in one message, and a list of which some is done and some is open."""
    calls = [
        [block for block in event.message.content if isinstance(block, ToolCallBlock)]
        for event in example.events
        if isinstance(event, AssistantMessage)
    ]
    assert max(map(len, calls)) >= 3
    assert {call.name for some in calls for call in some} == {"bash", "read", "edit", "todo"}
    lists = [
        text for text, _ in _results(example) if re.search(r"^\d+ of \d+ done$", text, re.MULTILINE)
    ]
    assert "[x]" in lists[-1]
    assert "[ ]" in lists[-1]


def test_the_example_names_its_model_and_window(example: Session) -> None:
    """The header and the window come first, so that a replay knows what it prices."""
    assert example.context_window == 40_000
    assert {tool["name"] for tool in example.request_header["tools"]} == {
        "bash",
        "read",
        "edit",
        "todo",
    }
    assert example.request_header["config"] == {"provider": "scripted", "model": "scripted"}


@pytest.mark.slow
def test_the_example_can_be_recorded_again(tmp_path: Path) -> None:
    """The script runs its real commands on this checkout and gives the same kind of session."""
    path = tmp_path / "session.jsonl"
    command = [sys.executable, str(ROOT / "scripts" / "record_example.py"), "--output", str(path)]
    subprocess.run(command, check=True)
    _check(_recorded(path), path)
