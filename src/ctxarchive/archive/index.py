"""The archive index: what is kept, where, and how to ask for it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ctxarchive.archive.format import INDEX_HEADING
from ctxarchive.archive.history import PastCompaction
from ctxarchive.knowledge.records import LAYERS, Layer, source_label

DEFAULT_TOOL_NAME = "ctx_search"

MEANING: Mapping[Layer, str] = {
    "constraint": "what the user asked",
    "finding": "what tools returned and what was concluded",
    "narrative": "what was said and planned",
}

HOW_TO_ASK = (
    "Everything left out above is kept word for word. Run the ctx_search call printed where it was "
    'left out, or search: ctx_search(queries: ["..."]) with a concrete token you expect in the '
    "original (a path, an identifier, an error code, a number), not a paraphrase. These calls need "
    "the {tool} tool; without it, ask the user."
)
"""How a model is told to search; ``tool`` is the tool's exact name in this host."""

SHORT_HOW = (
    'Kept word for word: ctx_search(source: "{source}", seq: N), or ctx_search(queries: ["..."]) '
    "with a token of it."
)
"""The same in short, where there is little room; ``source`` is the session's label."""

ANCHORS_TITLE = "Tokens of what was left out; each is the query that finds it:"
"""What the anchors stand under, between the labels and how to ask."""

NEWEST_COMPACTIONS = 5
"""Earlier compactions listed one by one; older ones are merged into one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one layer holds of a session."""

    records: int
    first_seq: int
    last_seq: int


def index_text(
    session: str,
    layers: Mapping[Layer, Holding],
    compactions: Sequence[PastCompaction],
    *,
    max_chars: int,
    tool_name: str = DEFAULT_TOOL_NAME,
) -> str:
    """The index with its heading, at most ``max_chars`` code points; empty where nothing fits.

    Args:
        session: the session's id.
        layers: what the archive holds of it so far.
        compactions: the session's earlier compactions, oldest first.
        max_chars: bound of the whole text.
        tool_name: what the host calls the search tool.
    """
    labels = [
        f'- source "{source_label(session, layer)}": {_count(layers[layer].records, "record")}, '
        f"seq {layers[layer].first_seq}..{layers[layer].last_seq} ({MEANING[layer]})"
        for layer in LAYERS
        if layer in layers
    ]
    lines = [INDEX_HEADING, *labels, HOW_TO_ASK.format(tool=tool_name)]
    text = "\n".join(lines)
    if len(text) > max_chars:
        return ""
    # Earlier compactions take what room is left, the newest first.
    told = _past(compactions)
    while told and len("\n".join([text, *told])) > max_chars:
        told = told[1:]
    return "\n".join([*lines[:-1], *told, lines[-1]])


def short_index(session: str) -> str:
    """The index in its short form, with its heading."""
    return f"{INDEX_HEADING}\n{SHORT_HOW.format(source=source_label(session))}"


def _past(compactions: Sequence[PastCompaction]) -> list[str]:
    older, newest = compactions[:-NEWEST_COMPACTIONS], compactions[-NEWEST_COMPACTIONS:]
    lines = [
        f"- earlier compaction: seq {past.first_seq}..{past.last_seq}, "
        f"checkpoint seq {past.checkpoint_seq}{_date(past.time)}"
        for past in newest
    ]
    if older:
        first, last = min(past.first_seq for past in older), max(past.last_seq for past in older)
        count = _count(len(older), "compaction")
        lines.insert(0, f"- {count} before those: seq {first}..{last}")
    return lines


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _date(time: int | None) -> str:
    if time is None:
        return ""
    try:
        moment = datetime.fromtimestamp(time / 1_000, UTC)
    except (ValueError, OverflowError, OSError):
        return ""
    return f", {moment:%Y-%m-%d %H:%M} UTC"
