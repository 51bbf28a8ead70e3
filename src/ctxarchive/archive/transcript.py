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
    run_notice,
    tool_line,
)
from ctxarchive.archive.rules import Sentence, rule_sentences, worth
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
    worth: float = 0.0
    """Of a user's message, how much it should be kept in view as a rule, from 0 to 1."""
    pinned: bool = False
    """Whether a person asked to keep it in view; it is shown whole as long as it fits."""

    @property
    def seq(self) -> int:
        """The seq its record is archived under; -1 where there is none."""
        return -1 if self.record is None else self.record.seq


def span_entry(record: Record | None, config: TranscriptConfig, essence: str) -> Entry:
    """The entry of one position of the span.

    Args:
        record: what is archived of it; ``None`` where nothing is.
        config: how much to show.
        essence: what the call behind a tool's result did, in one line.
    """
    if record is None or record.kind == "checkpoint":
        return Entry(kind="break", record=record)
    if record.role == "tool":
        return _tool(record, config, essence)
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
    value, rules = _read(text) if role == "user" else (0.0, ())
    if len(text) > clip_at:
        left_out = gaps(text, record.seq, keep, rules, notice)
    else:
        left_out = around_imitations(text, record.seq)
    heading = entry_heading(role, record.seq, len(text))
    shown = rendered(text, left_out, notice)
    return Entry(kind=kind, record=record, shown=f"{heading}\n{shown}", worth=value)


@lru_cache(maxsize=512)
def _read(text: str) -> tuple[float, tuple[Sentence, ...]]:
    """What a user's message is worth as a rule, and its rule-like sentences."""
    return worth(text), tuple(rule_sentences(text))


def _prose(record: Record) -> Kind:
    return "finding" if record.layer == "finding" else "narrative"


def _shortened(essence: str, limit: int) -> str:
    """At most ``limit`` code points of what a call did: a path's end, of anything else the start."""
    if len(essence) <= limit:
        return essence
    if "/" in essence and not any(character.isspace() for character in essence):
        return "…" + essence[cut_at_or_after(essence, len(essence) - limit + 1) :] if limit else ""
    return essence[: cut_at_or_before(essence, max(0, limit - 1))] + "…" if limit else ""


def _tool(record: Record, config: TranscriptConfig, essence: str) -> Entry:
    pointer = Pointer(sources=(_label(record.session, record.layer),), seq=record.seq)
    did = _shortened(essence, config.tool_essence)
    line = tool_line(record.name or "tool", record.seq, len(record.text), did, pointer)
    return Entry(kind="tool", record=record, shown=line)


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
    told = [record for record in run if record.text or record.images]
    layers = [layer for layer in LAYERS if any(record.layer == layer for record in told)]
    first, last = told[0].seq, told[-1].seq
    pointer = Pointer(
        sources=tuple(_label(told[0].session, layer) for layer in layers),
        after_seq=first - 1,
        before_seq=last + 1,
    )
    return run_notice(pointer, len(told), first, last, what=what)
