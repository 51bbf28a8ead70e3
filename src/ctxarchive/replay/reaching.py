"""Follows a checkpoint's pointers through ``ctx_search``, and counts the characters they return.

Only what an answer really held, character for character, counts as reached.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ctxarchive.archive.format import ParsedEntry, Pointer, source_argument
from ctxarchive.errors import KnowledgeError
from ctxarchive.knowledge.records import Record
from ctxarchive.tools.ctx_search import CtxSearchTool

_CALL = (
    r'ctx_search\(source: (?P<source>"[^"\n]*"|\[[^\]\n]*\]), '
    r"(?P<numbers>[a-z_]+: -?\d+(?:, [a-z_]+: \d+)*)\)"
)
_HEADING = re.compile(
    r"\[session/\S+ seq (?P<seq>\d+)\] [^\n]*?, (?P<chars>\d+) chars[^\n]*?"
    r"(?: \[(?P<start>\d+)\.\.(?P<end>\d+) of \d+\])?\n"
)
_REST = re.compile(rf"\n\[\d+\.\.\d+ of \d+\] continue with {_CALL}")
_MORE = re.compile(rf"\[more records follow\] continue with {_CALL}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a record's text that an answer held."""

    seq: int
    start: int
    """Code points into the record's text."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What a checkpoint shows of its span, and what its pointers return of the rest."""

    user_chars: int
    """Code points that the user wrote, in the span and before it."""
    user_shown: int
    """Those of them that are in view."""
    elided: int
    """Code points of what anyone said or returned that are not in view."""
    reached: int
    """Those of them that a printed pointer returned."""


NOTHING = Reach(user_chars=0, user_shown=0, elided=0, reached=0)


class Follower:
    """Follows pointers, each once however many checkpoints print it.

    Args:
        tool: what answers, as it answers a model.
        texts: the records' texts by seq: what an answer is held against.
    """

    def __init__(self, tool: CtxSearchTool, texts: Mapping[int, str]) -> None:
        self._tool = tool
        self._texts = texts
        self._known: dict[Pointer, tuple[tuple[int, int, int], ...]] = {}

    def follow(self, pointer: Pointer) -> tuple[tuple[int, int, int], ...]:
        """The parts of records that a pointer returned exactly: seq, first code point, end."""
        known = self._known.get(pointer)
        if known is None:
            known = self._known[pointer] = tuple(
                (piece.seq, piece.start, piece.start + len(piece.text))
                for piece in fetch(self._tool, pointer)
                if self._texts.get(piece.seq, "").startswith(piece.text, piece.start)
            )
        return known


def fetch(tool: CtxSearchTool, pointer: Pointer) -> list[Piece]:
    """What a pointer's call and all its continuations return.

    Raises:
        KnowledgeError: ``corrupt``, for an answer that is not in the tool's own format.
    """
    call: dict[str, Any] = {"source": source_argument(pointer.sources)}
    if pointer.seq is None:
        call |= {"after_seq": pointer.after_seq, "before_seq": pointer.before_seq}
    else:
        call |= {"seq": pointer.seq}
        if pointer.length is not None:
            call |= {"offset": pointer.offset, "length": pointer.length}
    waiting, pieces = [call], list[Piece]()
    while waiting:
        _read(tool.run(waiting.pop(0)), pieces, waiting)
    return pieces


def _read(answer: str, pieces: list[Piece], waiting: list[dict[str, Any]]) -> None:
    """Take an answer apart by count: its records' parts, and the calls that go on."""
    place = 0
    while place < len(answer):
        if answer.startswith(("No record", "[cut]"), place):
            return
        further = _MORE.match(answer, place) or _REST.match(answer, place)
        if further is not None:
            waiting.append(_arguments(further))
            place = further.end()
        elif answer.startswith("\n\n", place):
            place += 2
        else:
            heading = _HEADING.match(answer, place)
            if heading is None:
                told = answer[place : place + 60]
                raise KnowledgeError("corrupt", f"an answer of ctx_search goes on with {told!r}")
            start = int(heading["start"] or 0)
            length = int(heading["end"] or heading["chars"]) - start
            text = answer[heading.end() : heading.end() + length]
            pieces.append(Piece(seq=int(heading["seq"]), start=start, text=text))
            place = heading.end() + length


def _arguments(call: re.Match[str]) -> dict[str, Any]:
    numbers = (part.split(": ") for part in call["numbers"].split(", "))
    return {"source": json.loads(call["source"])} | {name: int(value) for name, value in numbers}


def reach(entries: Sequence[ParsedEntry], records: Iterable[Record], follower: Follower) -> Reach:
    """How much of some records a checkpoint shows, and how much more its pointers return.

    Args:
        entries: the checkpoint's, read back from its text.
        records: what it could have shown. What the host injected and earlier checkpoints, which
            no checkpoint shows, do not count.
        follower: follows its pointers.
    """
    marks = {
        record.seq: (record, bytearray(len(record.text)))
        for record in records
        if record.kind == "original"
    }
    for pointer in (pointer for entry in entries for pointer in entry.pointers):
        for seq, start, end in follower.follow(pointer):
            if seq in marks:
                marks[seq][1][start:end] = bytes([_REACHED]) * (end - start)
    for entry in entries:
        for start, text in _shown(entry):
            if entry.seq in marks:
                marks[entry.seq][1][start : start + len(text)] = bytes([_SHOWN]) * len(text)
    asked = [mark for record, mark in marks.values() if record.layer == "constraint"]
    whole = [mark for _, mark in marks.values()]
    return Reach(
        user_chars=sum(len(mark) for mark in asked),
        user_shown=sum(mark.count(_SHOWN) for mark in asked),
        elided=sum(len(mark) - mark.count(_SHOWN) for mark in whole),
        reached=sum(mark.count(_REACHED) for mark in whole),
    )


def _shown(entry: ParsedEntry) -> Iterator[tuple[int, str]]:
    """The parts of a record's text that an entry shows, each with where it begins."""
    if entry.role == "quote":
        yield entry.offset, entry.head
    elif entry.role in {"user", "assistant"}:
        yield 0, entry.head
        behind = (*(text for text, _ in entry.middle), entry.tail)
        for pointer, text in zip(entry.pointers, behind, strict=False):
            yield pointer.offset + (pointer.length or 0), text


_REACHED, _SHOWN = 1, 2
