"""Where a long text is cut for the index, so that a hit says where in it the words stand.

Pure. Passages cover the text in order and overlap a little: a phrase that is shorter than the
overlap stands whole in one of them. A record stays one record; its passages are never shown.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

PASSAGE: Final = 4_000
"""Code points of a passage; compared with other sizes in ``benchmarks/README.md``."""

OVERLAP: Final = 96
"""Code points that a passage has in common with the one before it, at least where it can."""

WINDOW: Final = 40
"""Code points of the words of a phrase that is looked up in one piece: well within ``OVERLAP``."""

_SPACE: Final = re.compile(r"\s")


class Passage(NamedTuple):
    """A part of a text."""

    start: int
    """Its first code point in the text."""
    text: str


def passages(text: str, size: int = PASSAGE) -> list[Passage]:
    """The passages of a text, in order; one for a text that is not much longer than a passage.

    Args:
        text: any text.
        size: code points of a passage, above twice ``OVERLAP``.
    """
    found: list[Passage] = []
    start = 0
    while len(text) - start > size + size // 4:
        end = _cut(text, start + size - size // 4, start + size)
        found.append(Passage(start, text[start:end]))
        back = end - OVERLAP
        space = max(
            text.rfind(" ", back - OVERLAP // 2, back), text.rfind("\n", back - OVERLAP // 2, back)
        )
        start = max(start + 1, space + 1 if space >= 0 else back)
    found.append(Passage(start, text[start:]))
    return found


def _cut(text: str, earliest: int, wanted: int) -> int:
    """Where to end a passage: at the end of a line, else of a word, else where it must."""
    if (line := text.rfind("\n", earliest, wanted)) >= 0:
        return line + 1
    for place in range(wanted, earliest, -1):
        if text[place - 1].isspace():
            return place
    after = _SPACE.search(text, wanted, wanted + (wanted - earliest) * 2)
    return after.end() if after else wanted
