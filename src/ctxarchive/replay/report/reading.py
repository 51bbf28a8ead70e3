"""A checkpoint's text taken apart for reading. Pure.

What is not of our format is shown as it stands: an archive may hold checkpoints of other versions.
"""

from __future__ import annotations

from ctxarchive.archive.anchors import KINDS
from ctxarchive.archive.format import ParsedEntry, Pointer, entry_heading, parse_additions
from ctxarchive.archive.index import ANCHORS_TITLE
from ctxarchive.compaction.checkpoint import PREAMBLE, parse_frame
from ctxarchive.errors import SessionError
from ctxarchive.replay.report.values import CheckpointView, EntryView


def read_checkpoint(text: str) -> CheckpointView:
    """The parts of a checkpoint; all of it as the summary, where it is not one of ours."""
    try:
        framed = parse_frame(text)
    except SessionError:
        return CheckpointView(
            text=text, preamble="", summary=text, entries=(), index=(), anchors=(), unread=""
        )
    try:
        parsed, index = parse_additions(framed.additions)
    except SessionError:
        return CheckpointView(
            text=text,
            preamble=PREAMBLE,
            summary=framed.summary,
            entries=(),
            index=(),
            anchors=(),
            unread=framed.additions,
        )
    lines, anchors = _anchors(index)
    return CheckpointView(
        text=text,
        preamble=PREAMBLE,
        summary=framed.summary,
        entries=_entries(framed.additions, parsed),
        index=lines,
        anchors=anchors,
        unread="",
    )


def _entries(additions: str, parsed: list[ParsedEntry]) -> tuple[EntryView, ...]:
    found: list[EntryView] = []
    place = 0
    for entry in parsed:
        name = did = ""
        if entry.role in {"user", "assistant"}:
            place = _behind_message(additions, place, entry)
        elif entry.pointers:
            at = additions.find(entry.pointers[0].call(), place)
            if entry.role == "tool":
                name, did = _tool(additions[additions.rfind("\n", 0, at) + 1 : at])
            place = at + 1
        between = (part for pair in entry.middle for part in pair)
        parts = (entry.head, *entry.pointers[:1], *between, entry.tail)
        found.append(
            EntryView(
                section=entry.section,
                role=entry.role,
                seq=entry.seq,
                chars=entry.chars,
                name=name,
                did=did,
                parts=tuple(part for part in parts if part),
            )
        )
    return tuple(found)


def _behind_message(additions: str, place: int, entry: ParsedEntry) -> int:
    """Where the search for the next entry goes on: behind the message's own text."""
    heading = entry_heading("user" if entry.role == "user" else "assistant", entry.seq, entry.chars)
    place = additions.find(heading, place) + len(heading) + len(entry.head)
    behind = (*(text for text, _ in entry.middle), entry.tail)
    for pointer, text in zip(entry.pointers, behind, strict=False):
        place = additions.find(pointer.call(), place) + len(pointer.call()) + len(text)
    return place


def _tool(line: str) -> tuple[str, str]:
    """A tool line's name and what the call did; the line ends before the pointer."""
    name = line.removeprefix("## [tool ").partition(" ")[0]
    return name, line.partition(" chars: ")[2].removesuffix(" → ")


def _anchors(index: str) -> tuple[tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...]]:
    """The index's lines without its anchors, and the anchors by kind."""
    lines = index.split("\n") if index else []
    if ANCHORS_TITLE not in lines:
        return tuple(lines), ()
    start = lines.index(ANCHORS_TITLE)
    end = start + 1
    groups: list[tuple[str, tuple[str, ...]]] = []
    while end < len(lines):
        kind, _, tokens = lines[end].partition(": ")
        if kind not in KINDS:
            break
        groups.append((kind, tuple(tokens.split(" "))))
        end += 1
    return (*lines[:start], *lines[end:]), tuple(groups)


def pointed_seqs(pointer: Pointer) -> range:
    """The seqs a pointer may return records of."""
    if pointer.seq is not None:
        return range(pointer.seq, pointer.seq + 1)
    return range((pointer.after_seq or 0) + 1, pointer.before_seq or 0)
