"""What became of each message of a span: shown whole, shown in part, or only archived. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ctxarchive.knowledge.records import Record
from ctxarchive.metering.estimate import MESSAGE_TOKENS
from ctxarchive.replay.report.values import (
    FATES,
    SPAN_KINDS,
    EntryView,
    Fate,
    Share,
    SpanKind,
)


@dataclass(slots=True)
class _Sum:
    messages: int = 0
    shown_chars: int = 0
    left_chars: int = 0
    shown_tokens: int = 0
    left_tokens: int = 0


def shares(
    span: Sequence[int],
    records: Mapping[int, Record],
    prices: Mapping[int, int],
    entries: Sequence[EntryView],
    count: Callable[[str], int],
) -> tuple[Share, ...]:
    """The sums of a span's messages by kind and fate; a pair without messages is left out.

    Args:
        span: the seqs its messages are archived under.
        records: what is archived, by seq.
        prices: tokens of each message, by seq.
        entries: the checkpoint's.
        count: tokens of a text.
    """
    shown = {entry.seq: entry for entry in entries if entry.role in {"user", "assistant"}}
    sums: dict[tuple[SpanKind, Fate], _Sum] = {}

    def add(kind: SpanKind, fate: Fate, *, tokens: int) -> _Sum:
        total = sums.setdefault((kind, fate), _Sum())
        total.left_tokens += tokens
        return total

    for seq in span:
        record = records.get(seq)
        if record is None:
            continue
        text = _shown(shown.get(seq))
        kind, price, chars = _kind(record), prices.get(seq, 0), len(record.text)
        if kind == "assistant":
            # Beside its prose a message may hold calls and reasoning, which no checkpoint shows.
            said = min(price, MESSAGE_TOKENS + count(record.text))
            if price > said:
                add("calls", "archived", tokens=price - said)
            price = said
        fate: Fate = "archived"
        seen = 0
        if text is not None:
            fate = "whole" if len(text) >= chars else "clipped"
            seen = price if fate == "whole" else min(price, count(text))
        total = add(kind, fate, tokens=price - seen)
        total.messages += 1
        total.shown_chars += len(text or "")
        total.left_chars += chars - len(text or "")
        total.shown_tokens += seen
    return tuple(
        Share(
            kind=kind,
            fate=fate,
            messages=found.messages,
            shown_chars=found.shown_chars,
            left_chars=found.left_chars,
            shown_tokens=found.shown_tokens,
            left_tokens=found.left_tokens,
        )
        for kind in SPAN_KINDS
        for fate in FATES
        if (found := sums.get((kind, fate))) is not None
    )


def _shown(entry: EntryView | None) -> str | None:
    """What of a message stands in the checkpoint; ``None`` where nothing does."""
    if entry is None:
        return None
    return "".join(part for part in entry.parts if isinstance(part, str))


def _kind(record: Record) -> SpanKind:
    if record.kind != "original":
        return "host"
    if record.role == "user":
        return "user"
    if record.role == "tool":
        return "tool"
    return "assistant" if record.text or record.images else "calls"
