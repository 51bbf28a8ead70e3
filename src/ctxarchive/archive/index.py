"""The archive index: what is kept, where, and how to ask for it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ctxarchive.archive.format import INDEX_HEADING
from ctxarchive.archive.generations import Generation, Generations, range_of
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

EARLIER_TITLE = "Earlier compactions (times in UTC), each with its rarest words:"
"""What the earlier compactions stand under, between the labels and the anchors."""

MOST_LINES, MOST_WORDS = 8, 8
"""Lines of earlier compactions, and words on each."""

WORDS_ROOM = 36
"""Code points of words that a line shall have; where it has not, more compactions share a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one layer holds of a session."""

    records: int
    first_seq: int
    last_seq: int


def index_text(
    session: str,
    layers: Mapping[Layer, Holding],
    earlier: Generations,
    *,
    max_chars: int,
    tool_name: str = DEFAULT_TOOL_NAME,
) -> str:
    """The index with its heading, at most ``max_chars`` code points; empty where nothing fits.

    Args:
        session: the session's id.
        layers: what the archive holds of it so far.
        earlier: the session's earlier compactions.
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
    told = _earlier(earlier, max_chars - len(text))
    return "\n".join([*lines[:-1], *told, lines[-1]])


def short_index(session: str) -> str:
    """The index in its short form, with its heading."""
    return f"{INDEX_HEADING}\n{SHORT_HOW.format(source=source_label(session))}"


def _earlier(earlier: Generations, room: int) -> list[str]:
    """The earlier compactions in at most ``room`` code points, line ends counted; none is left out.

    The fewer lines fit, the more compactions share one. What room is left is for words, shared
    evenly, the newest line first.
    """
    room -= len(EARLIER_TITLE) + 1
    for most in range(min(MOST_LINES, len(earlier.kept)), 0, -1):
        told = earlier.told(most)
        lines = [_line(range_of(each)) for each in told]
        left = room - sum(len(line) + 1 for line in lines)
        if left >= len(lines) * WORDS_ROOM or (most == 1 and left >= 0):
            about = [earlier.about(each, MOST_WORDS) for each in told]
            return [EARLIER_TITLE, *_with_words(lines, about, left)]
    return []


def _with_words(lines: list[str], about: Sequence[Sequence[str]], left: int) -> list[str]:
    """Each line with as many of its words, best first, as its share of the room holds."""
    words: list[list[str]] = [[] for _ in lines]
    for place in range(MOST_WORDS):
        for line in reversed(range(len(lines))):
            # A word that does not fit ends its line: what follows it is worth less.
            if place < len(about[line]) and len(words[line]) == place:
                cost = len(about[line][place]) + 2
                if cost <= left:
                    left -= cost
                    words[line].append(about[line][place])
    return [
        f"{line}: {', '.join(chosen)}" if chosen else line
        for line, chosen in zip(lines, words, strict=True)
    ]


def _line(told: Generation) -> str:
    """Which seqs, how many compactions, the checkpoint that took their place, and when."""
    when = _span_of_time(told)
    many = "" if told.compactions == 1 else f"{told.compactions} compactions, last "
    where = f"seq {told.first_seq}..{told.last_seq}, {many}checkpoint {told.checkpoint_seq}"
    return f"- {where}, {when}" if when else f"- {where}"


def _span_of_time(told: Generation) -> str:
    first, last = _date(told.first_time), _date(told.last_time)
    if told.compactions == 1 or not (first and last):
        return first or last
    first, last = first[:10], last[:10]
    return first if first == last else f"{first}..{last}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _date(time: int | None) -> str:
    """The minute of a time in milliseconds, in UTC; empty where there is none."""
    if time is None:
        return ""
    try:
        return f"{datetime.fromtimestamp(time / 1_000, UTC):%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):
        return ""
