"""Searching by meaning: what a model of it must do, and how its answers join those by words.

Pure, but for the abstract class. No model is here: one is an extra, handed in by whoever opens the
archive, and no import of the core leads to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ctxarchive.knowledge.query import ParsedQuery

PASSAGE: Final = 2_000
"""Code points of a text that one vector stands for; 1,000 and 500 found less on the judged set."""
MOST_PASSAGES: Final = 64
"""Of a longer record, only the first so many passages are found by meaning."""
WINDOW: Final = 200
"""Code points of the piece of a passage that an answer shows."""
DEPTH: Final = 20
"""So many of the nearest records, and of those found by words, are put in one order."""
FLOOR: Final = 0.2
"""A passage whose cosine with the query is below this answers nothing."""
CLOSENESS: Final = 60
"""The constant of reciprocal rank fusion, as in Cormack, Clarke and Büttcher (SIGIR 2009)."""


@dataclass(frozen=True, slots=True)
class Nearness:
    """How near the nearest passage of one record is to a query."""

    cosine: float
    passage: int
    """Which passage that is, from 0."""


class SemanticModel(ABC):
    """Turns texts into vectors, and compares them. It must be usable from several threads."""

    name: str
    """Which model it is: vectors of another name, or another version, are made anew."""

    @abstractmethod
    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """One vector a text, all of the same number of bytes; no text of any Unicode may raise."""

    @abstractmethod
    def nearness(self, query: bytes, stored: Sequence[bytes]) -> list[Nearness]:
        """For each of ``stored``, one or more vectors end to end, the nearest to ``query``."""


def passages(text: str) -> list[str]:
    """A text in the pieces that get a vector each; none for an empty text."""
    end = min(len(text), PASSAGE * MOST_PASSAGES)
    return [text[start : start + PASSAGE] for start in range(0, end, PASSAGE)]


def windows(text: str, passage: int) -> list[str]:
    """A passage in the pieces of which one is shown."""
    start = passage * PASSAGE
    piece = text[start : start + PASSAGE]
    return [piece[at : at + WINDOW] for at in range(0, len(piece), WINDOW)]


def literal(parsed: ParsedQuery) -> bool:
    """Whether a query asks for letters as they are: one chunk, or anything in quotes."""
    return len(parsed.needles) < 2 or bool(parsed.phrases)


def fuse(orders: Iterable[Sequence[int]]) -> dict[int, float]:
    """Reciprocal rank fusion: the keys of several orders with their scores, best first.

    A key scores 1 / (60 + its place, from 1) for each order that has it; of equal scores, what
    came first in the first order is first.
    """
    scores: dict[int, float] = {}
    for order in orders:
        for place, key in enumerate(order, start=1):
            scores[key] = scores.get(key, 0.0) + 1 / (CLOSENESS + place)
    return dict(sorted(scores.items(), key=lambda entry: -entry[1]))
