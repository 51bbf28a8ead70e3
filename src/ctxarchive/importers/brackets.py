"""A compaction's bracket in a log of events: start, summary, checkpoint, end.

Reads where it stood; whether it counts is decided by its reader.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ctxarchive.importers.assembly import Assembly
from ctxarchive.importers.blocks import content_list
from ctxarchive.importers.log import RecordedCompaction
from ctxarchive.importers.records import Record
from ctxarchive.session.events import Origin


@dataclass(kw_only=True)
class Bracket:
    """What has been read of one compaction."""

    start: Record
    summary: Record | None = None
    summary_key: int | None = None
    checkpoint: Record | None = None
    checkpoint_key: int | None = None
    inside: list[tuple[Record, int]] = field(default_factory=list)
    """Other events between start and end, with their seqs; they stand before the compaction."""

    def takes(self, record: Record) -> bool:
        """Whether ``record`` is the bracket's checkpoint."""
        return self.checkpoint is None and self.is_checkpoint(record)

    @staticmethod
    def is_checkpoint(record: Record) -> bool:
        """Whether ``record`` is the message by which a compaction replaces its span."""
        source = record.at("data", "source")
        if record.text("type") != "user/message" or not isinstance(source, dict):
            return False
        marked = source.get("kind") == "compact-checkpoint" or source.get("plugin") == "compact"
        return marked and isinstance(record.at("surfaceOp"), dict)

    @staticmethod
    def run(record: Record, assembly: Assembly) -> tuple[int, ...]:
        """The surface items a replacement takes the place of; empty where they are not there."""
        ends: list[int] = []
        for names in (("startSeq", "start_seq", "start"), ("endSeq", "end_seq", "end")):
            seq = next(
                (
                    found
                    for name in names
                    if (found := record.number("surfaceOp", name)) is not None
                ),
                None,
            )
            at = assembly.index.get(seq)
            if at is None or at not in assembly.surface:
                return ()
            ends.append(assembly.surface.index(at))
        return tuple(assembly.surface[ends[0] : ends[1] + 1])


def read_compaction(bracket: Bracket, end: Record, assembly: Assembly) -> RecordedCompaction | None:
    """The compaction a whole bracket records; ``None`` where it replaces nothing.

    Raises:
        LogFormatError: ``invalid``, when it replaces what is not on the surface.
    """
    checkpoint = bracket.checkpoint
    if checkpoint is None:
        return None
    content = content_list(checkpoint, checkpoint.at("data", "content"), "data.content")
    run = bracket.run(checkpoint, assembly)
    if not run:
        raise checkpoint.invalid("a compaction replaces what is not on the surface")
    shadows = assembly.balanced(run)
    if not shadows:
        return None
    summary = bracket.summary
    said: Any = content
    pre_tokens = None
    if summary is not None:
        said = content_list(summary, summary.at("data", "summary"), "data.summary")
        pre_tokens = summary.number("data", "shadowedTokenCount")
    manual = "turn" in (bracket.start.at("data") or {}) and bracket.start.at("data", "turn") is None
    return RecordedCompaction(
        summary="\n".join(block["text"] for block in said if block.get("type") == "text"),
        content=content,
        trigger="manual" if manual else "auto",
        shadows=shadows,
        pre_tokens=pre_tokens,
        time=checkpoint.time("time"),
        origin=Origin(
            line=bracket.start.line, last_line=end.line, id=checkpoint.text("data", "id")
        ),
    )
