"""The earlier compactions of a session, and the words that tell what each was about. Pure.

Older ones are merged into growing ranges, so that what is kept of a long session grows with the
logarithm of its compactions. Reads texts only; the archive index prints what is kept here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log

from ctxarchive.archive.anchors import excerpt

USER_WEIGHT, PATH_WEIGHT, PROSE_WEIGHT = 3, 2, 1
"""What a word counts in a message of the user, as a file's name in a call, in assistant prose."""

FAN = 4
"""Compactions of about one size that are merged into one range."""

APART = 7
"""Ranges of about one size that are kept before the oldest ``FAN`` are merged."""

WORDS_KEPT = 200
"""Words kept of each range."""

RARER = 2.5
"""A word tells of a span where its share of the words is so many times that of the rest."""

LENGTH_OFFSET = 20
"""Code points added to a word's length before its worth is divided by it."""

_WORD = re.compile(r"[^\W_]\w*(?:[.-]\w+)*")
_PATH = re.compile(r"(?:[\w.-]*/)+([\w.-]*\w)|\b([A-Za-z_][\w-]*\.[A-Za-z]\w{0,4})\b")
_LETTERS = re.compile(r"[^\W\d_]")
_UNSPACED = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]+|[\u30a0-\u30ff]+|[\u3041-\u309f]+")
_CODE = re.compile(r"(?=.*[0-9])(?=.*[a-fA-F])[0-9a-fA-F]{6,}|\d.*")
_SHORTEST, _LONGEST = 3, 30
_SHORTEST_UNSPACED, _LONGEST_UNSPACED = 2, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """An earlier compaction of the session, or a range of them."""

    compactions: int
    """How many."""
    first_seq: int
    """Lowest seq that left the view."""
    last_seq: int
    """Highest."""
    checkpoint_seq: int
    """The checkpoint that took their place; of a range, the newest."""
    first_time: int | None
    """When the first was made, in milliseconds of Unix time; ``None`` where the log has none."""
    last_time: int | None
    words: Mapping[str, int]
    """What was said in it, most telling words only, and how much each counts."""
    size: int
    """What all its words count together."""


@dataclass(slots=True)
class Generations:
    """What is kept of a session's compactions, and what its words count so far."""

    kept: list[Generation] = field(default_factory=list)
    """Oldest first."""
    totals: dict[str, int] = field(default_factory=dict)
    """What each word counts in the whole session."""
    size: int = 0
    """What all words count together."""

    def hear(self, words: Mapping[str, int]) -> None:
        """Count the words of one event."""
        for word, count in words.items():
            self.totals[word] = self.totals.get(word, 0) + count
        self.size += sum(words.values())

    def add(self, generation: Generation) -> None:
        """Take in the newest compaction, and merge old ones that have become many."""
        self.kept.append(_lean(generation))
        least = 1
        while True:
            alike = [
                place
                for place, each in enumerate(self.kept)
                if least <= each.compactions < least * FAN
            ]
            if not alike:
                return
            if len(alike) > APART:
                start, end = alike[0], alike[FAN]
                merged = range_of(self.kept[start:end])
                words = summed(each.words for each in self.kept[start:end])
                self.kept[start:end] = [_lean(replace(merged, words=words))]
            least *= FAN

    def told(self, most: int) -> list[list[Generation]]:
        """All compactions in at most ``most`` ranges, oldest first; the newest half is apart."""
        found = [[each] for each in self.kept]
        sizes = [each.compactions for each in self.kept]
        while len(found) > max(1, most):
            apart = most // 2
            # Small ranges before large ones, old ones before new: so they grow with age.
            place = min(
                range(max(1, len(found) - apart - 1)),
                key=lambda at: (sizes[at] + sizes[at + 1]) << at,
            )
            found[place] += found.pop(place + 1)
            sizes[place] += sizes.pop(place + 1)
        return found

    def about(self, generations: Sequence[Generation], most: int) -> list[str]:
        """The words that tell a range best from the rest of the session, best first."""
        words = summed(each.words for each in generations)
        size = sum(each.size for each in generations)
        return rarest(words, size, self.totals, self.size, most=most)


def range_of(generations: Sequence[Generation]) -> Generation:
    """One range for several that follow each other, without their words."""
    times = [time for each in generations for time in (each.first_time, each.last_time)]
    known = [time for time in times if time is not None]
    return Generation(
        compactions=sum(each.compactions for each in generations),
        first_seq=min(each.first_seq for each in generations),
        last_seq=max(each.last_seq for each in generations),
        checkpoint_seq=generations[-1].checkpoint_seq,
        first_time=min(known, default=None),
        last_time=max(known, default=None),
        words={},
        size=sum(each.size for each in generations),
    )


def _lean(generation: Generation) -> Generation:
    """Without the words that count least in it: what is rare is not known before the end."""
    words = generation.words
    chosen = sorted(words, key=lambda word: (-words[word], word))[:WORDS_KEPT]
    return replace(generation, words={word: words[word] for word in chosen})


def rarest(
    words: Mapping[str, int], size: int, totals: Mapping[str, int], total: int, *, most: int
) -> list[str]:
    """The words of a span that are frequent in it and rare in the rest of the session, best first.

    A word's worth is what it contributes to the divergence (Kullback and Leibler, 1951) of the
    span's words from those of the rest, more for names and less for short words, which are the
    grammar of most languages. Left out are words that are not ``RARER`` elsewhere, and
    words that are a part of a better one or have it as a part.

    Args:
        words: what each counts in the span.
        size: what all of the span's words count together.
        totals: what each word counts in the session, the span included.
        total: what all of the session's words count together.
        most: how many are returned.
    """
    share = (max(0, total - size) + 1) / max(1, size)
    ratios = {
        word: count * share / (max(0, totals.get(word, 0) - count) + 0.5)
        for word, count in words.items()
    }
    scores = {
        word: words[word] * log(ratio) * _telling(word) / (len(word) + LENGTH_OFFSET)
        for word, ratio in ratios.items()
        if ratio >= RARER
    }
    chosen: list[str] = []
    for word in sorted(scores, key=lambda word: (-scores[word], word)):
        if len(chosen) == most:
            break
        if not any(_shared(word, other) for other in chosen):
            chosen.append(word)
    return chosen


def words_of(text: str, weight: int) -> dict[str, int]:
    """The readable words of a text, each once: no hashes, no numbers, nothing very long."""
    found: dict[str, int] = {}
    for match in _WORD.finditer(excerpt(text)):
        for word in _readable(match[0]):
            found[word] = weight
    return found


def file_names(text: str, weight: int) -> dict[str, int]:
    """The names of the files that a text holds paths of."""
    names = (match[1] or match[2] for match in _PATH.finditer(excerpt(text)))
    return {word: weight for name in names for word in _readable(name.lstrip(".-"))}


def summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """What words count in several texts together."""
    found: dict[str, int] = {}
    for each in counts:
        for word, count in each.items():
            found[word] = found.get(word, 0) + count
    return found


def _readable(word: str) -> list[str]:
    if not word.isascii() and (pieces := _UNSPACED.findall(word)):
        # Scripts without spaces: a run of one script is about a word, where it is short.
        return [piece for piece in pieces if _SHORTEST_UNSPACED <= len(piece) <= _LONGEST_UNSPACED]
    if not _SHORTEST <= len(word) <= _LONGEST or _CODE.fullmatch(word):
        return []
    letters = len(_LETTERS.findall(word))
    if letters < _SHORTEST or 3 * letters < 2 * len(word):
        return []
    plain = word.isalpha() and (word.islower() or word.istitle() or word.isupper())
    return [word.lower() if plain else word]


def _telling(word: str) -> float:
    """How much a word says by its shape: a name twice what a long word says, a short one less."""
    if not word.islower() or not word.isalpha():
        return 1.0 if _UNSPACED.match(word) else 2.0
    return min(1.0, (len(word) - 2) / 5)


def _shared(one: str, other: str) -> bool:
    """Whether one word says what the other says already: it is inside it, or of one stem."""
    short, long = sorted((one.lower(), other.lower()), key=len)
    return short in long or (len(short) > 5 and long.startswith(short[:-2]))
