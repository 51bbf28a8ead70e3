"""What a call did and how it ended, told by shape."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxarchive.archive.calls import call_of, outcome
from ctxarchive.session.messages import ToolCallBlock


def call(arguments: Any) -> ToolCallBlock:
    """A call with some arguments, as JSON or as they are."""
    spelt = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCallBlock(type="tool-call", id="c", name="anything", arguments=spelt)


@pytest.mark.parametrize(
    ("arguments", "essence"),
    [
        ({"command": "git log --oneline\nmore"}, "git log --oneline"),
        ({"command": "cd '/srv/a b' && make check"}, "make check"),
        ({"command": "cd /srv"}, "cd /srv"),
        ({"cmd": ["bash", "-lc", "ls -la"]}, "bash -lc ls -la"),
        ({"pattern": "TODO", "path": "src"}, "TODO in src"),
        ({"query": "how to"}, "how to"),
        ({"file_path": "src/a.py", "offset": 10, "limit": 5}, "src/a.py:10+5"),
        ({"path": "src/a.py", "new_string": "x", "old_string": "y"}, "src/a.py"),
        ({"url": "https://example.org/a"}, "https://example.org/a"),
        (
            {
                "todos": [
                    {"content": "read it", "status": "completed"},
                    {"content": "mend it", "status": "in_progress"},
                    {"content": "test it", "status": "pending"},
                ]
            },
            "1 of 3 done, now: mend it",
        ),
        ({"taskId": 2, "status": "completed"}, "taskId=2, status=completed"),
        ("not json", "not json"),
        ({}, ""),
    ],
)
def test_a_call_is_told_by_the_shape_of_its_arguments(arguments: Any, essence: str) -> None:
    """A command, a pattern and its place, a path and its lines, a URL, how far a list has come."""
    assert call_of(call(arguments)).essence == essence


RUN = 'bash {"command": "make"}'


@pytest.mark.parametrize(
    ("head", "body", "failed", "told"),
    [
        (RUN, "all good", False, ""),
        (RUN, "a.c:3: error: no such thing", True, "a.c:3: error: no such thing"),
        (RUN, "", True, "failed"),
        (RUN, "working\nValueError: 3\nExit code: 2", False, "ValueError: 3"),
        (RUN, '{"output": "no", "metadata": {"exit_code": 1}}', False, None),
        (RUN, "Exit code: 0", False, ""),
        ('read {"path": "notes.md"}', "it ends with exit code 1", False, ""),
    ],
)
def test_a_failure_is_told_with_its_error(
    head: str, body: str, told: str | None, *, failed: bool
) -> None:
    """By what the result says of itself, or by a command's exit code; success is not told."""
    said = outcome(f"{head}\n{body}", head, failed=failed)
    assert said == told if told is not None else said


@given(st.text(), st.text(), st.booleans())
def test_any_call_and_result_is_read(arguments: str, body: str, failed: bool) -> None:  # noqa: FBT001
    """On one line each."""
    head = call_of(call(arguments)).line
    assert "\n" not in call_of(call(arguments)).essence
    assert "\n" not in outcome(f"{head}\n{body}", head, failed=failed)
