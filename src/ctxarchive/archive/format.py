"""The checkpoint's additions as text: pointers, notices, headings; and the way back by count.

Everything a model reads of the archive is spelt here and nowhere else. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ctxarchive.errors import SessionError

STANDING_HEADING = "## Standing User Messages"
TRANSCRIPT_HEADING = "## Conversation Transcript"
INDEX_HEADING = "## Archive Index"

EntryRole = Literal["user", "assistant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """A ``ctx_search`` call that returns what was left out."""

    sources: tuple[str, ...]
    """Source labels; one for a single record."""
    seq: int | None = None
    offset: int = 0
    """Code points into the record's text."""
    length: int | None = None
    """Code points; ``None`` for the whole record."""
    after_seq: int | None = None
    """With ``before_seq``: whole records between them, both exclusive."""
    before_seq: int | None = None

    def call(self) -> str:
        """The call as it is printed."""
        names = ", ".join(f'"{source}"' for source in self.sources)
        source = names if len(self.sources) == 1 else f"[{names}]"
        if self.seq is None:
            bounds = f"after_seq: {self.after_seq}, before_seq: {self.before_seq}"
            return f"ctx_search(source: {source}, {bounds})"
        if self.length is None:
            return f"ctx_search(source: {source}, seq: {self.seq})"
        part = f"offset: {self.offset}, length: {self.length}"
        return f"ctx_search(source: {source}, seq: {self.seq}, {part})"


_SOURCE = r'(?P<source>"[^"\n]*"|\[[^\]\n]*\])'
_CALL = (
    rf"ctx_search\(source: {_SOURCE}, (?:seq: (?P<seq>\d+)"
    r"(?:, offset: (?P<offset>\d+), length: (?P<length>\d+))?"
    r"|after_seq: (?P<after>-?\d+), before_seq: (?P<before>\d+))\)"
)
_NOTICE = re.compile(
    rf"\n\[\.\.\. (?P<elided>\d+) of (?P<total>\d+) chars elided from seq (?P<from>\d+); "
    rf"retrieve with {_CALL} \.\.\.\]"
)
"""Without the line break that ends it."""
_NOTICE_START = "\n[... "
_RUN = re.compile(
    rf"\[\.\.\. (?P<count>\d+) older (?:entries|user messages) elided "
    rf"\(seq (?P<first>\d+)\.\.(?P<last>\d+)\); retrieve with {_CALL} \.\.\.\]"
)
_FOLD = re.compile(
    rf"## \[(?P<count>\d+) entries, seq (?P<first>\d+)\.\.(?P<last>\d+): "
    rf"(?P<items>[^→\n]*) → {_CALL}\]"
)
_ITEM = re.compile(r"(?:\S+ )??(?P<seq>\d+)(?: |$)")
_ENTRY = re.compile(r"## \[(?P<role>user|assistant) (?P<seq>\d+), (?P<chars>\d+) chars\]")
_QUOTE = re.compile(r"## \[user (?P<seq>\d+), chars (?P<start>\d+)\.\.(?P<end>\d+)\]")
_TOOL = re.compile(
    rf"## \[tool (?P<name>\S+) seq (?P<toolseq>\d+), (?P<chars>\d+) chars"
    rf"(?:: (?P<essence>[^→\n]*))? → {_CALL}\]"
)


def clip_notice(pointer: Pointer, elided: int, total: int) -> str:
    """The line that stands where the middle of a text was left out."""
    return (
        f"[... {elided} of {total} chars elided from seq {pointer.seq}; "
        f"retrieve with {pointer.call()} ...]"
    )


def run_notice(
    pointer: Pointer, count: int, first: int, last: int, *, what: str = "entries"
) -> str:
    """The line that stands where whole entries were left out."""
    return (
        f"[... {count} older {what} elided (seq {first}..{last}); "
        f"retrieve with {pointer.call()} ...]"
    )


def entry_heading(role: EntryRole, seq: int, chars: int) -> str:
    """The heading of a message; ``chars`` is the length of its whole text in code points."""
    return f"## [{role} {seq}, {chars} chars]"


def quote_heading(seq: int, start: int, end: int) -> str:
    """The heading of a part of a user's message that is left out otherwise, by code points."""
    return f"## [user {seq}, chars {start}..{end}]"


def tool_line(name: str, seq: int, chars: int, essence: str, pointer: Pointer) -> str:
    """The one line that stands for a tool's result."""
    flat = one_line(essence)
    did = f": {flat}" if flat else ""
    return f"## [tool {one_word(name)} seq {seq}, {chars} chars{did} → {pointer.call()}]"


ITEM_BREAK = " · "
"""What parts the items of a folded run."""


def tool_item(name: str, seq: int, essence: str) -> str:
    """What a folded run says of one tool's result; ``name`` is empty where it is as before."""
    said = " ".join(part for part in (name and one_word(name), str(seq), one_line(essence)) if part)
    return said.replace("·", "-")


def fold_line(items: Sequence[str], count: int, first: int, last: int, pointer: Pointer) -> str:
    """The one line that stands for a run of entries, of which the tools' results are named."""
    named = ITEM_BREAK.join(items)
    return f"## [{count} entries, seq {first}..{last}: {named} → {pointer.call()}]"


def one_line(text: str) -> str:
    """``text`` without line breaks, control characters, arrows or calls.

    So it cannot end its line, and nothing in it reads like a pointer.
    """
    flat = "".join(" " if not character.isprintable() else character for character in text)
    return " ".join(flat.split()).replace("→", "->").replace("ctx_search(", "ctx_search (")


def one_word(name: str) -> str:
    """A tool's name without white space, so that what follows it on its line can be told apart."""
    return one_line(name).replace(" ", "_") or "tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedEntry:
    """One entry of the additions, read back by count."""

    section: Literal["standing", "transcript"]
    role: Literal["user", "assistant", "tool", "run", "quote"]
    seq: int
    """The record's seq; of a run, its first."""
    chars: int
    """Code points of the whole text; of a run, how many entries it stands for; of a quote, its own."""
    head: str
    """What is shown before the elided part; everything, where nothing is elided."""
    pointer: Pointer | None
    """What returns the elided part; of several, the first."""
    middle: tuple[tuple[str, Pointer], ...] = ()
    """What is shown between elided parts, each with what returns the part behind it."""
    tail: str
    named: tuple[int, ...] = ()
    """Of a folded run, the seqs of the tools' results that it names."""
    offset: int = 0
    """Of a quote, where it begins in its message."""

    @property
    def pointers(self) -> tuple[Pointer, ...]:
        """What returns each elided part, in order."""
        first = () if self.pointer is None else (self.pointer,)
        return (*first, *(pointer for _, pointer in self.middle))


def parse_additions(additions: str) -> tuple[list[ParsedEntry], str]:
    """The entries of a checkpoint's additions, and the archive index's body.

    Reads by count: nothing inside an entry's text can look like structure.

    Raises:
        SessionError: ``event``, naming the offset at which the text is not of our format.
    """
    entries: list[ParsedEntry] = []
    place = 0
    section: Literal["standing", "transcript"] = "standing"
    while place < len(additions):
        if additions.startswith("\n", place):
            place += 1
        elif additions.startswith(INDEX_HEADING + "\n", place):
            return entries, additions[place + len(INDEX_HEADING) + 1 :]
        elif additions.startswith(STANDING_HEADING + "\n", place):
            section, place = "standing", place + len(STANDING_HEADING)
        elif additions.startswith(TRANSCRIPT_HEADING + "\n", place):
            section, place = "transcript", place + len(TRANSCRIPT_HEADING)
        else:
            entry, place = _entry(additions, place, section)
            entries.append(entry)
    return entries, ""


def _entry(
    text: str, place: int, section: Literal["standing", "transcript"]
) -> tuple[ParsedEntry, int]:
    heading = _ENTRY.match(text, place)
    if heading:
        return _message(text, heading, section)
    quote = _QUOTE.match(text, place)
    if quote:
        start, chars = quote.end() + 1, int(quote["end"]) - int(quote["start"])
        parsed = ParsedEntry(
            section=section,
            role="quote",
            seq=int(quote["seq"]),
            chars=chars,
            head=text[start : start + chars],
            pointer=None,
            tail="",
            offset=int(quote["start"]),
        )
        return parsed, start + chars
    tool = _TOOL.match(text, place)
    if tool:
        parsed = ParsedEntry(
            section=section,
            role="tool",
            seq=int(tool["toolseq"]),
            chars=int(tool["chars"]),
            head="",
            pointer=_pointer(tool),
            tail="",
        )
        return parsed, tool.end()
    run = _RUN.match(text, place) or _FOLD.match(text, place)
    if run:
        parsed = ParsedEntry(
            section=section,
            role="run",
            seq=int(run["first"]),
            chars=int(run["count"]),
            head="",
            pointer=_pointer(run),
            tail="",
            named=_named(run.groupdict().get("items") or ""),
        )
        return parsed, run.end()
    raise SessionError("event", f"additions: no entry of ours at offset {place}")


def _named(items: str) -> tuple[int, ...]:
    """The seqs in a folded run's items: each has one behind its tool's name, or begins with it."""
    found = (_ITEM.match(item) for item in items.split(ITEM_BREAK))
    return tuple(int(item["seq"]) for item in found if item)


def _message(
    text: str, heading: re.Match[str], section: Literal["standing", "transcript"]
) -> tuple[ParsedEntry, int]:
    role: EntryRole = "user" if heading["role"] == "user" else "assistant"
    seq, chars, start = int(heading["seq"]), int(heading["chars"]), heading.end() + 1
    shown: list[str] = []
    pointers: list[Pointer] = []
    read = 0
    while notice := _own_notice(text, start, read, seq, chars):
        piece = text[start : notice.start()]
        shown.append(piece)
        pointers.append(_pointer(notice))
        read += len(piece) + int(notice["elided"])
        start = notice.end() + 1
    end = start + chars - read
    head, *between = [*shown, text[start:end]]
    parsed = ParsedEntry(
        section=section,
        role=role,
        seq=seq,
        chars=chars,
        head=head,
        pointer=pointers[0] if pointers else None,
        middle=tuple(zip(between, pointers[1:], strict=False)),
        tail=between[-1] if between else "",
    )
    return parsed, end


def _own_notice(text: str, start: int, read: int, seq: int, chars: int) -> re.Match[str] | None:
    """The first clip notice behind ``start`` that fits an entry of ``seq`` and ``chars``.

    It fits when its numbers agree with the place it stands at. A text that holds such a line of
    its own is never shown with that line: the renderer elides around it.

    Args:
        text: what is read.
        start: where to look from.
        read: code points of the entry's whole text that lie before ``start``.
        seq: the entry's.
        chars: code points of the entry's whole text.
    """
    last = start + chars - read
    found = text.find(_NOTICE_START, start, last + len(_NOTICE_START))
    while found >= 0:
        place = read + found - start
        match = _NOTICE.match(text, found)
        if (
            match is not None
            and text[match.end() : match.end() + 1] == "\n"
            and _fits(match, place, seq, chars)
        ):
            return match
        found = text.find(_NOTICE_START, found + 1, last + len(_NOTICE_START))
    return None


def imitations(text: str, seq: int) -> list[tuple[int, int]]:
    """Where a message holds a line that would pass for a notice of its own, in order.

    Also one whose line break is missing: where the message is cut behind it, it gets one.

    Args:
        text: the whole message.
        seq: its seq.
    """
    found: list[tuple[int, int]] = []
    place = text.find(_NOTICE_START)
    while place >= 0:
        match = _NOTICE.match(text, place)
        if match is not None and _fits(match, place, seq, len(text)):
            found.append(match.span())
        place = text.find(_NOTICE_START, place + 1)
    return found


def _fits(notice: re.Match[str], place: int, seq: int, chars: int) -> bool:
    """Whether a notice speaks of the place it stands at, in a text of ``chars`` of ``seq``."""
    numbers = (notice["from"], notice["total"], notice["seq"], notice["offset"], notice["length"])
    return (
        numbers == (str(seq), str(chars), str(seq), str(place), notice["elided"])
        and 0 < int(notice["elided"]) <= chars - place
    )


def _pointer(match: re.Match[str]) -> Pointer:
    sources = tuple(re.findall(r'"([^"]*)"', match["source"]))
    if match["seq"] is None:
        return Pointer(
            sources=sources, after_seq=int(match["after"]), before_seq=int(match["before"])
        )
    if match["length"] is None:
        return Pointer(sources=sources, seq=int(match["seq"]))
    return Pointer(
        sources=sources,
        seq=int(match["seq"]),
        offset=int(match["offset"]),
        length=int(match["length"]),
    )


def source_argument(sources: Sequence[str]) -> str | list[str]:
    """Sources as the tool takes them: one label, or a list."""
    return sources[0] if len(sources) == 1 else list(sources)
