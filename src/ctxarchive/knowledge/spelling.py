"""The word that was meant by one that nothing holds.

Pure. Words of about the same letters are compared by how many letters differ, a swapped pair being one
difference (Damerau's distance, adjacent swaps only).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

SHORTEST: Final = 4
"""Shorter words are left as they are: too many others are near them."""
SAME: Final = 2
"""Letters at the beginning that are taken to be right; the first two may be swapped."""


def near(word: str, known: Iterable[tuple[str, int]]) -> list[str]:
    """Words that may have been meant, the likeliest first.

    Args:
        word: in small letters.
        known: words of the archive, each with how many passages hold it.
    """
    most = 1 if len(word) < 6 else 2
    letters = set(word)
    found = []
    for other, held in known:
        if abs(len(other) - len(word)) > most or len(letters ^ set(other)) > 2 * most:
            continue
        if other != word:
            distance = differences(word, other, most)
            if distance <= most:
                found.append((distance, -held, other))
    return [other for _, _, other in sorted(found)]


def differences(one: str, other: str, most: int) -> int:
    """How many letters must be changed, added, left out or swapped; ``most + 1`` for more."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for place, letter in enumerate(one, start=1):
        now = [place]
        for at, wanted in enumerate(other, start=1):
            best = min(row[at] + 1, now[at - 1] + 1, row[at - 1] + (letter != wanted))
            swapped = place > 1 and at > 1 and letter == other[at - 2] and wanted == one[place - 2]
            now.append(min(best, before[at - 2] + 1) if swapped else best)
        if min(now) > most:
            return most + 1
        before, row = row, now
    return row[-1]
