"""The span as entries: what each shows, what it leaves out, and the pointer to the rest. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from ctxarchive.archive.clipping import cut_at_or_after, cut_at_or_before
from ctxarchive.archive.excerpts import around_imitations, gaps, rendered
from ctxarchive.archive.format import (
    EntryRole,
    Pointer,
    clip_notice,
    entry_heading,
    fold_line,
    run_notice,
    tool_item,
    tool_line,
)
from ctxarchive.archive.rules import Reading, Sentence, read
from ctxarchive.archive.settings import TranscriptConfig
from ctxarchive.knowledge.records import LAYERS, Record, source_label

_label = lru_cache(maxsize=64)(source_label)
"""Every entry of a span names one of three labels, and spelling one takes its time."""

Kind = Literal["user", "finding", "narrative", "tool", "hidden", "break"]
"""What an entry is: ``hidden`` shows nothing but may lie inside a dropped run; ``break`` ends one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One event of the span, or one older message."""

    kind: Kind
    record: Record | None
    """Its record; ``None`` for a break that has none."""
    shown: str = ""
    """What stands in the checkpoint."""
    item: str = ""
    """Of a tool's result, what it did: what a folded run says of it behind its seq."""
    worth: float = 0.0
    """Of a user's message, how much it should be kept in view as a rule, from 0 to 1."""
    pinned: bool = False
    """Whether a person asked to keep it in view; it is shown whole as long as it fits."""

    @property
    def priced(self) -> str:
        """What it adds to a section that it is shown in."""
        return self.item or self.shown

    @property
    def seq(self) -> int:
        """The seq its record is archived under; -1 where there is none."""
        return -1 if self.record is None else self.record.seq


def span_entry(
    record: Record | None, config: TranscriptConfig, essence: str, failure: str = ""
) -> Entry:
    """The entry of one position of the span.

    Args:
        record: what is archived of it; ``None`` where nothing is.
        config: how much to show.
        essence: what the call behind a tool's result did, in one line.
        failure: how that call failed, in one line; empty where it did not.
    """
    if record is None or record.kind == "checkpoint":
        return Entry(kind="break", record=record)
    if record.role == "tool":
        return _tool(record, config, essence, failure)
    if record.kind == "injected" or not (record.text or record.images):
        return Entry(kind="hidden", record=record)
    if record.role == "user":
        return message_entry(record, config.user_clip_at, config.user_clip_keep)
    return message_entry(record, config.assistant_min_split, config.assistant_keep)


def message_entry(record: Record, clip_at: int, keep: int) -> Entry:
    """A message: whole up to ``clip_at`` code points, else head and tail of ``keep`` each.

    Of a user's message, rule-like sentences in between are kept too, as long as head and tail
    together. Nothing is clipped where the notice would be longer than what it elides.
    """
    text = record.text
    role: EntryRole = "user" if record.role == "user" else "assistant"

    def notice(start: int, end: int) -> str:
        return _notice(record, start, end)

    kind: Kind = role if role == "user" else _prose(record)
    said = _read(text) if role == "user" else Reading(worth=0.0, rules=())
    if len(text) > clip_at:
        left_out = gaps(text, record.seq, keep, said.rules, notice)
    else:
        left_out = around_imitations(text, record.seq)
    heading = entry_heading(role, record.seq, len(text))
    shown = rendered(text, left_out, notice)
    return Entry(kind=kind, record=record, shown=f"{heading}\n{shown}", worth=said.worth)


def rules_of(record: Record) -> tuple[Sentence, ...]:
    """The rule-like sentences of a user's message."""
    return _read(record.text).rules


_read = lru_cache(maxsize=512)(read)
"""A message is read again each time it is clipped harder."""


def _prose(record: Record) -> Kind:
    return "finding" if record.layer == "finding" else "narrative"


def _shortened(essence: str, limit: int) -> str:
    """At most ``limit`` code points of what a call did: a path's end, of anything else the start."""
    if len(essence) <= limit:
        return essence
    if "/" in essence and not any(character.isspace() for character in essence):
        return "…" + essence[cut_at_or_after(essence, len(essence) - limit + 1) :] if limit else ""
    return _head(essence, limit)


def _head(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return text[: cut_at_or_before(text, max(0, limit - 1))] + "…" if limit else ""


def _tool(record: Record, config: TranscriptConfig, essence: str, failure: str) -> Entry:
    pointer = Pointer(sources=(_label(record.session, record.layer),), seq=record.seq)
    did = _shortened(essence, config.tool_essence)
    if failure and config.tool_essence:
        said = f"failed: {_head(failure, config.tool_essence)}"
        did = f"{did} ({said})" if did else said
    line = tool_line(record.name or "tool", record.seq, len(record.text), did, pointer)
    item = tool_item(record.name or "tool", record.seq, did)
    return Entry(kind="tool", record=record, shown=line, item=item)


def _notice(record: Record, head: int, tail: int) -> str:
    pointer = Pointer(
        sources=(_label(record.session, record.layer),),
        seq=record.seq,
        offset=head,
        length=tail - head,
    )
    return clip_notice(pointer, tail - head, len(record.text))


def run_line(run: Sequence[Record], *, what: str = "entries") -> str:
    """The line that stands for a dropped run.

    Args:
        run: records of one session with ascending seqs and nothing archived between them.
        what: how the line calls them.
    """
    told = _told(run)
    layers = [layer for layer in LAYERS if any(record.layer == layer for record in told)]
    # Nothing else lies between them: naming all the layers is naming the session.
    sources = (
        (_label(told[0].session, None),)
        if len(layers) == len(LAYERS)
        else tuple(_label(told[0].session, layer) for layer in layers)
    )
    pointer = _between(told, sources)
    return run_notice(pointer, len(told), told[0].seq, told[-1].seq, what=what)


def folded_line(run: Sequence[Record], tools: Sequence[Entry]) -> str:
    """The line that stands for a run of which the results of tools are named.

    Args:
        run: records of one session with ascending seqs and nothing archived between them.
        tools: the entries among them that are named, at least one.
    """
    told = _told(run)
    layers = {record.layer for record in told}
    label = _label(told[0].session, told[0].layer if len(layers) == 1 else None)
    items: list[str] = []
    before = ""
    for entry in tools:
        name = entry.item.partition(" ")[0]
        items.append(entry.item.removeprefix(f"{name} ") if name == before else entry.item)
        before = name
    pointer = _between(told, (label,))
    return fold_line(items, len(told), told[0].seq, told[-1].seq, pointer)


def _told(run: Sequence[Record]) -> list[Record]:
    return [record for record in run if record.text or record.images]


def _between(told: Sequence[Record], sources: tuple[str, ...]) -> Pointer:
    return Pointer(sources=sources, after_seq=told[0].seq - 1, before_seq=told[-1].seq + 1)
