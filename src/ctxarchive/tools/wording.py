"""How ``ctx_search`` spells what it answers: headings, calls, notices. Pure.

What a record's maker wrote never ends a line of ours, and every call printed here is one that the
tool takes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from ctxarchive.knowledge.records import Record, SourceRef, source_label
from ctxarchive.knowledge.store import Hit, Scope, Tier
from ctxarchive.tools.arguments import NAME, CtxSearchInput, clip

WHOLE_HIT: Final = 4_000
"""Code points of a record that a result's call fetches whole; of a longer one, so many of them."""

LEAD: Final = 1_000
"""Code points in front of a match that a result's call fetches too."""

LONGEST_REPEATED: Final = 300
"""A longer query is not spelt again in a call: the same call with one change is told instead."""

TIERS: Final[dict[Tier, str]] = {
    "strict": "all words",
    "any": "any of the words",
    "substring": "substring",
    "semantic": "words and meaning",
    "none": "nothing",
}


def heading(record: Record, mark: str) -> str:
    """What a record is, on one line: source, seq, who, time, size.

    Args:
        record: the record.
        mark: what a person said of it since.
    """
    label = source_label(record.session, record.layer)
    kind = "" if record.kind == "original" else f" ({record.kind})"
    return (
        f"[{label} seq {record.seq}] {_said(record.role, record.name)}{kind}{mark}"
        f"{_when(record.time, '%Y-%m-%d %H:%M:%S UTC')}, {len(record.text)} chars"
        f"{_pictures(record.images)}"
    )


def hit_heading(hit: Hit, mark: str, home: str | None) -> str:
    """What a result is, on one line; the session only where it is not ``home``, times in UTC."""
    label = hit.layer if hit.session == home else source_label(hit.session, hit.layer)
    kind = "" if hit.kind == "original" else f" ({hit.kind})"
    said = f"{_said(hit.role, hit.name)}{kind}{mark}{_when(hit.time, '%Y-%m-%d %H:%M')}"
    return f"[{label} seq {hit.seq}] {said}, {hit.chars} chars"


def hit_call(hit: Hit, current: str | None) -> str:
    """The call that returns a result's text, of a long one the part around the match."""
    where = "" if hit.session == current else f'source: "{source_label(hit.session)}", '
    if hit.chars <= WHOLE_HIT:
        return f"{NAME}({where}seq: {hit.seq})"
    offset = max(0, hit.offset - LEAD)
    length = min(WHOLE_HIT, hit.chars - offset)
    return f"{NAME}({where}seq: {hit.seq}, offset: {offset}, length: {length})"


def part(record: Record, mark: str, offset: int, end: int, room: int) -> str:
    """A part of a record's text under its heading, with the call that goes on where it is cut."""
    total = len(record.text)
    head = heading(record, mark)
    extent = "" if (offset, end) == (0, total) else f" [{offset}..{end} of {total}]"
    whole = f"{head}{extent}\n{record.text[offset:end]}"
    if len(whole) <= room:
        return whole
    widest = f" [{total}..{total} of {total}]\n\n[{total}..{total} of {total}] continue with "
    taken = len(head) + len(widest) + len(_call(record, total, total))
    shown = min(end, offset + max(1, room - taken))
    extent = f"[{offset}..{shown} of {total}]"
    return (
        f"{head} {extent}\n{record.text[offset:shown]}\n"
        f"{extent} continue with {_call(record, shown, end - shown)}"
    )


def _call(record: Record, offset: int, length: int) -> str:
    label = source_label(record.session, record.layer)
    return f'{NAME}(source: "{label}", seq: {record.seq}, offset: {offset}, length: {length})'


def range_call(asked: CtxSearchInput, scope: Scope, after: int) -> str:
    """The call that lists what follows ``after``."""
    bounds = [f"source: {_sources(scope.sources or ())}", f"after_seq: {after}"]
    if asked.before_seq is not None:
        bounds.append(f"before_seq: {asked.before_seq}")
    bounds += [
        f"{name}: {json.dumps(value, ensure_ascii=False)}"
        for name, value in (("after", asked.after), ("before", asked.before))
        if value is not None
    ]
    if asked.limit is not None:
        bounds.append(f"limit: {asked.limit}")
    return f"[more records follow] continue with {NAME}({', '.join(bounds)})"


def query_call(query: str, asked: CtxSearchInput, limit: int | None) -> str:
    """The call that asks one query alone, in the same scope, for up to ``limit`` results."""
    spelt = json.dumps([query], ensure_ascii=False)
    if len(spelt) > LONGEST_REPEATED or not spelt.isprintable():
        return f"the same query alone{'' if limit is None else f', limit: {limit}'}"
    given = [f"queries: {spelt}"]
    if asked.source is not None:
        one = asked.source[0] if len(asked.source) == 1 else asked.source
        given.append(f"source: {json.dumps(one, ensure_ascii=False)}")
    for name in ("after_seq", "before_seq", "after", "before", "order"):
        value = getattr(asked, name)
        if value is not None:
            given.append(f"{name}: {json.dumps(value, ensure_ascii=False)}")
    if limit is not None:
        given.append(f"limit: {limit}")
    return f"{NAME}({', '.join(given)})"


def within(text: str, room: int) -> str:
    """``text``, cut at a line break where it has no room, saying so."""
    if len(text) <= room:
        return text
    note = "\n[cut]"
    head = text[: max(0, room - len(note))]
    return (head.rpartition("\n")[0] or head) + note if room > len(note) else head[:room]


def day(time: int | None) -> str:
    """The date of a time in milliseconds; empty where there is none."""
    return _when(time, "%Y-%m-%d").removeprefix(", ")


def _sources(sources: Sequence[SourceRef]) -> str:
    names = [f'"{source_label(source.session, source.layer)}"' for source in sources]
    return names[0] if len(names) == 1 else f"[{', '.join(names)}]"


def _said(role: str, name: str | None) -> str:
    return f"tool {clip(name)}" if role == "tool" and name else role


def _pictures(images: Sequence[str]) -> str:
    """The images of a record, by kind and size."""
    if not images:
        return ""
    more = f" and {len(images) - 1} more" if len(images) > 1 else ""
    return f", with {clip(images[0])}{more}"


def _when(time: int | None, form: str) -> str:
    if time is None:
        return ""
    try:
        return f", {datetime.fromtimestamp(time / 1_000, UTC):{form}}"
    except (ValueError, OverflowError, OSError):
        return ""  # a log may claim any time; one outside the calendar says nothing
