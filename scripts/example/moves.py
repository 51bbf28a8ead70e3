"""What the scripted model of the example session can do: speak, call tools, quote an output."""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Call:
    """One tool call."""

    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class User:
    """What the user says; begins a turn."""

    text: str


@dataclass(frozen=True, init=False)
class Say:
    """One message of the model: prose, and calls that run side by side."""

    text: str
    calls: tuple[Call, ...]

    def __init__(self, text: str, *calls: Call) -> None:
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "calls", calls)


Moves = Generator[User | Say, list[str], None]
"""Yields a move and is sent what its tools answered."""


class StoryError(Exception):
    """An output holds nothing of what the prose is about to state."""


def bash(command: str) -> Call:
    """Run a command."""
    return Call(tool="bash", arguments={"command": command})


def read(path: str, **lines: int) -> Call:
    """Read a file, or some of its lines."""
    return Call(tool="read", arguments={"path": path, **lines})


def edit(path: str, new: str, old: str | None = None) -> Call:
    """Write a file, or replace one place in it."""
    return Call(
        tool="edit",
        arguments={"path": path, "new": new} | ({} if old is None else {"old": old}),
    )


def todo(*items: str) -> Call:
    """Set the list; an item begins with ``x`` (done), ``~`` (doing) or ``-`` (open)."""
    status = {"x": "done", "~": "doing", "-": "open"}
    return Call(
        tool="todo",
        arguments={"items": [{"status": status[item[0]], "text": item[2:]} for item in items]},
    )


def find(pattern: str, text: str) -> str:
    """The first group of ``pattern`` in an output.

    Raises:
        StoryError: when it is not there: the prose would state what nobody saw.
    """
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        raise StoryError(f"no {pattern!r} in: {text[-2000:]}")
    return found[1]
