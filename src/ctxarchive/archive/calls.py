"""What a tool call did and how it ended, in one line each. Pure.

Told by the shape of a call's arguments and of its result, never by the tool's name.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from ctxarchive.archive.recording import call_line
from ctxarchive.compaction.facts import error_line
from ctxarchive.session.messages import ToolCallBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The call behind a tool's result."""

    name: str
    line: str
    """Name and arguments on one line."""
    essence: str
    """What it did, in one line: a command, a path, a pattern, a URL."""


def call_of(block: ToolCallBlock) -> Call:
    """The call that a block asks for."""
    try:
        values = json.loads(block.arguments)
    except (ValueError, RecursionError):
        values = block.arguments
    return Call(
        name=block.name,
        line=call_line(block.name, block.arguments),
        essence=_essence(values),
    )


_TELLING = (
    ("command", "cmd", "script", "code"),
    ("pattern", "query", "regex", "q", "search"),
    ("file_path", "filePath", "path", "notebook_path", "filename", "file", "target_file"),
    ("url", "uri"),
    ("description", "subject", "title", "prompt", "text", "input"),
)
_PLACES = _TELLING[2]
_GOES_TO = re.compile(r"(?:cd|pushd) (?:\"[^\"]*\"|'[^']*'|\S+)\s*(?:&&|;)\s*")
_LISTS = ("todos", "items", "tasks", "plan")
_DONE = frozenset({"completed", "done", "cancelled", "canceled", "deleted"})
_UNDER_WAY = frozenset({"in_progress", "in-progress", "active", "doing"})


def _essence(values: Any) -> str:
    """What tells most of what a call did, by the shape of its arguments, on one line."""
    if isinstance(values, str):
        return _first_line(values)
    if not isinstance(values, dict):
        return ""
    for keys in _TELLING:
        for key in keys:
            value = values.get(key)
            if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
                value = " ".join(value)
            if isinstance(value, str) and value.strip():
                return _told(keys, value, values)
    for key in _LISTS:
        items = values.get(key)
        if isinstance(items, list) and items and all(isinstance(item, dict) for item in items):
            return _progress(items)
    named = [
        f"{key}={_first_line(str(value))}"
        for key, value in values.items()
        if isinstance(value, str | int | float) and str(value).strip()
    ]
    return ", ".join(named[:4])


def _told(keys: tuple[str, ...], value: str, values: dict[str, Any]) -> str:
    if keys is _TELLING[0]:
        # Where a command goes first is the same for most of them.
        bare = value.strip()
        return _first_line(_GOES_TO.sub("", bare, count=1) or bare)
    if keys is _TELLING[1]:
        place = next((values[key] for key in _PLACES if isinstance(values.get(key), str)), "")
        return f"{_first_line(value)} in {place}" if place else _first_line(value)
    return _first_line(value) + _extent(values)


def _progress(items: list[dict[str, Any]]) -> str:
    """How far a list of things to do has come, and what is being done."""
    done = sum(1 for item in items if item.get("status") in _DONE or item.get("completed") is True)
    now = next((item for item in items if item.get("status") in _UNDER_WAY), None)
    what = next((value for value in (now or {}).values() if isinstance(value, str)), "")
    said = f"{done} of {len(items)} done"
    return f"{said}, now: {_first_line(what)}" if what else said


def _extent(values: dict[str, Any]) -> str:
    """Which part of a file a call named, where it did: it tells two reads of one file apart."""
    start, length = (values.get(key) for key in ("offset", "limit"))
    if not isinstance(start, int):
        return ""
    return f":{start}+{length}" if isinstance(length, int) else f":{start}"


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


_EXIT = re.compile(
    r"\b(?:exit(?:ed)?(?: with)?(?: code| status)?|exit_?code\"?|returned non-zero exit status)"
    r"[ :=]{0,3}([1-9]\d{0,2})\b",
    re.IGNORECASE,
)
_RUNS = re.compile(r'"(?:command|cmd|script|code)\\?"')
_ENDS = 300
"""Code points at either end of a result in which a command's exit code is looked for."""

_READ_OF_FAILURE = 4_000
"""Code points at the end of a failed result in which its error is looked for."""


def outcome(text: str, head: str, *, failed: bool) -> str:
    """How a call failed, in one line; empty where nothing says that it did.

    Args:
        text: the result under its call's line, as it is archived.
        head: that line.
        failed: whether the result says of itself that it failed.
    """
    start = len(head) + 1 if head else 0
    if not failed:
        if not _RUNS.search(head):
            return ""  # what a file or a search says of exit codes is not its own
        ends = (text[start : start + _ENDS], text[max(start, len(text) - _ENDS) :])
        code = next((match for end in ends if (match := _EXIT.search(end))), None)
        if code is None:
            return ""
    said = error_line(text[max(start, len(text) - _READ_OF_FAILURE) :], failed=True)
    return said or "failed"
