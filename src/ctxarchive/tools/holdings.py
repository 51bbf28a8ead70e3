"""What there is to be found, told where something was not. Counts only what may be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from ctxarchive.knowledge.records import LAYERS, Layer, SourceRef, source_label
from ctxarchive.knowledge.store import KnowledgeBase, SessionInfo
from ctxarchive.tools.reach import Reach
from ctxarchive.tools.wording import day

SESSIONS: Final = 5
"""Most sessions that are told of one by one."""


def holdings(
    knowledge: KnowledgeBase, reach: Reach, sources: Sequence[SourceRef] | None
) -> list[str]:
    """A line for each session that was asked for: layers, seqs, dates.

    Args:
        knowledge: the archive.
        reach: what may be read.
        sources: what was asked for; ``None`` for the whole archive.
    """
    known = {info.session: info for info in knowledge.sessions()}
    named = known if sources is None else {source.session: None for source in sources}
    asked = [known[session] for session in named if session in known and known[session].records]
    lines = [_line(knowledge, reach, info) for info in asked[:SESSIONS]]
    if len(asked) > SESSIONS:
        lines.append(f"and {len(asked) - SESSIONS} more sessions")
    return lines or ["Nothing is archived there yet."]


def _line(knowledge: KnowledgeBase, reach: Reach, info: SessionInfo) -> str:
    seqs = {
        layer: (info.records[layer], told.first_seq, told.last_seq)
        for layer, told in knowledge.layers(info.session).items()
    }
    last = max(last for _, _, last in seqs.values())
    if reach.last_seq(info.session, last) < last:
        seqs = _inherited(knowledge, reach, info.session)
    layers = ", ".join(
        f"{count} {layer} (seq {first}..{last})"
        for layer in LAYERS
        for count, first, last in ([seqs[layer]] if layer in seqs else [])
    )
    dates = "" if reach.last_seq(info.session, last) < last else _dates(info)
    purged = f", and {info.purged} purged" if info.purged and dates else ""
    return f'"{source_label(info.session)}" holds {layers or "nothing"}{dates}{purged}'


def _inherited(
    knowledge: KnowledgeBase, reach: Reach, session: str
) -> dict[Layer, tuple[int, int, int]]:
    """By layer how many records are inherited, the first and the last."""
    filed = knowledge.archived(session)
    seen = {seq: layer for seq, layer in filed.items() if reach.visible(session, seq)}
    return {
        layer: (
            count,
            min(seq for seq, each in seen.items() if each == layer),
            max(seq for seq, each in seen.items() if each == layer),
        )
        for layer, count in Counter(seen.values()).items()
    }


def _dates(info: SessionInfo) -> str:
    first, last = day(info.first_time), day(info.last_time)
    if not first or not last:
        return ""
    return f", of {first}" if first == last else f", of {first} to {last}"
