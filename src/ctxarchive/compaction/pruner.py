"""The tool-result pruner: shortens oversized tool results without a model.

The original stays on the log, and is what an archive files. Appends pairs of a price and a
replacement, nothing else; a second pass finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import regex
from pydantic import BaseModel, ConfigDict, Field, model_validator

from ctxarchive.metering.meter import TokenMeter
from ctxarchive.session.events import Event, Replace, ToolResult, parse_event
from ctxarchive.session.log import Session
from ctxarchive.session.messages import TextBlock

MARKER = "\n[... {gone} of {total} chars pruned here; the whole result stays on the log, seq {seq} ...]\n"
"""What stands in the place of the text that was taken out."""

_MARKER_ROOM = 160
"""Code points a marker may take, whatever its numbers."""

_GRAPHEME = regex.compile(r"\X")
_NEAR = 64
"""Code points around a cut in which grapheme boundaries are looked for."""


class PruneSettings(BaseModel):
    """How much of an oversized tool result stays, in Unicode code points."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_chars: int = Field(default=8_192, gt=0)
    """A result with more text than this is shortened."""
    head_chars: int = Field(default=4_096, ge=0)
    """Kept from its beginning."""
    tail_chars: int = Field(default=1_024, ge=0)
    """Kept from its end."""

    @model_validator(mode="after")
    def _shrinks(self) -> PruneSettings:
        # Else a pruned result would be pruned again.
        if self.head_chars + self.tail_chars + _MARKER_ROOM > self.max_chars:
            raise ValueError(
                f"head_chars {self.head_chars} and tail_chars {self.tail_chars} with a marker of "
                f"up to {_MARKER_ROOM} exceed max_chars {self.max_chars}"
            )
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What one pass did."""

    seqs: tuple[int, ...]
    """Seqs of the results that were shortened."""
    tokens: int
    """Tokens freed."""


class ToolResultPruner:
    """Shortens oversized tool results on a surface.

    Args:
        settings: how much stays.
    """

    def __init__(self, settings: PruneSettings | None = None) -> None:
        self.settings = settings or PruneSettings()

    def prune(self, session: Session, meter: TokenMeter, *, before: int | None = None) -> Pruned:
        """Shorten what is too long.

        Args:
            session: whose surface.
            meter: prices what is taken out.
            before: surface position to stop at; the whole surface where ``None``.

        Raises:
            SessionError: when the log refuses an event.
        """
        seqs: list[int] = []
        freed = 0
        stop = len(session.surface) if before is None else before
        for seq in session.surface.nodes[:stop]:
            event = session.event_at(seq)
            shortened = self._shortened(event)
            if shortened is None or not isinstance(event, ToolResult):
                continue
            old = meter.price(session, seq)
            new = _price(session, meter, shortened)
            if new >= old:
                continue
            # The original first: an archive files the event that is cited first.
            original = event.source_event_seqs[0] if _is_replacement(event) else seq
            replace_priced(
                session, meter, (seq, seq), "tool/result", shortened, sources=(original, seq)
            )
            seqs.append(seq)
            freed += old - new
        return Pruned(seqs=tuple(seqs), tokens=freed)

    def _shortened(self, event: Event) -> dict[str, Any] | None:
        """The payload with its text cut, or ``None`` where nothing is to be cut."""
        if not isinstance(event, ToolResult):
            return None
        texts = [b.text for b in event.data.message.block.content if isinstance(b, TextBlock)]
        whole = "".join(texts)
        if len(whole) <= self.settings.max_chars:
            return None
        head = _boundary(whole, self.settings.head_chars, headward=True)
        tail = _boundary(whole, len(whole) - self.settings.tail_chars, headward=False)
        seq = event.source_event_seqs[0] if _is_replacement(event) else event.seq
        marker = MARKER.format(gone=tail - head, total=len(whole), seq=seq)
        return _with_cut(event.data.wire(), head, tail, marker)


def replace_priced(
    session: Session,
    meter: TokenMeter,
    run: tuple[int, int],
    event_type: str,
    data: Mapping[str, Any],
    *,
    sources: Sequence[int] = (),
) -> Event:
    """Replace a run of the surface without a model, under the shadow-price protocol.

    Appends ``compaction/prune`` with the price of the run, and directly behind it the event that
    takes the run's place.

    Args:
        session: whose surface.
        meter: prices the run.
        run: first and last seq of the run.
        event_type: one of the three types that may stand on a surface.
        data: its payload.
        sources: seqs it was made from, the most original first; the run's are added.

    Raises:
        SessionError: ``surface`` for what is no run of the surface, ``event`` for a payload of
            the wrong shape; nothing is appended then.
    """
    start, end = run
    shadowed = session.surface.span(start, end)
    operation = Replace(op="replace", start_seq=start, end_seq=end)
    # Checked before the price is written: a price without its replacement would lie.
    parse_event(
        {"seq": len(session), "type": event_type, "data": data, "surfaceOp": operation.wire()},
        where=f"replacement of seq {start}..{end}",
    )
    session.append(
        "compaction/prune",
        {
            "shadowedRange": {"start": start, "end": end},
            "shadowedSeqs": list(shadowed),
            "shadowedTokenCount": sum(meter.price(session, seq) for seq in shadowed),
        },
    )
    return session.append(
        event_type,
        data,
        surface_op=operation,
        source_event_seqs=tuple(dict.fromkeys((*sources, *shadowed))),
    )


def _price(session: Session, meter: TokenMeter, data: dict[str, Any]) -> int:
    event = parse_event(
        {"seq": len(session), "type": "tool/result", "data": data, "surfaceOp": "append"}
    )
    return 0 if event.message is None else meter.message(event.message)


def _is_replacement(event: Event) -> bool:
    return isinstance(event.surface_op, Replace)


def _with_cut(data: dict[str, Any], head: int, tail: int, marker: str) -> dict[str, Any]:
    """The payload with the text from ``head`` to ``tail`` replaced; other blocks keep their order."""
    message = dict(data["message"])
    blocks = list(message["content"])
    place = next((i for i, block in enumerate(blocks) if block.get("type") == "tool-result"), None)
    if place is None:
        message["content"] = _cut_blocks(blocks, head, tail, marker)
    else:
        inner = _cut_blocks(list(blocks[place]["content"]), head, tail, marker)
        blocks[place] = {**blocks[place], "content": inner}
        message["content"] = blocks
    return {**data, "message": message}


def _cut_blocks(
    blocks: list[dict[str, Any]], head: int, tail: int, marker: str
) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    at = 0
    marked = False
    for block in blocks:
        if block.get("type") != "text":
            kept.append(block)
            continue
        text = block["text"]
        start, end = at, at + len(text)
        at = end
        front = text[: max(0, head - start)]
        back = text[max(0, tail - start) :] if end > tail else ""
        if end <= head:
            kept.append(block)
            continue
        if not marked:
            front, marked = front + marker, True
        if front or back:
            kept.append({**block, "text": front + back})
    return kept


def _boundary(text: str, at: int, *, headward: bool) -> int:
    """The grapheme boundary at ``at``, or the nearest one before or behind it."""
    start = max(0, at - _NEAR)
    found = _GRAPHEME.finditer(text, start, min(len(text), at + _NEAR))
    ends = [start, *(match.end() for match in found)]
    if headward:
        return max((end for end in ends if end <= at), default=at)
    return min((end for end in ends if end >= at), default=at)
