"""Other forms that an English word may have in a text: ``fails`` and ``failing`` for ``failed``.

Pure. By rule, without a dictionary: a form that no text holds costs a look-up and finds nothing. Only
the tier that asks for any of the words uses them, so that what was spelt out is found first.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_WORD: Final = re.compile(r"[a-z]{4,20}")
_VOWELS: Final = "aeiou"
_ENDINGS: Final = (
    "ations",
    "ation",
    "ings",
    "ing",
    "ies",
    "ied",
    "ers",
    "er",
    "ed",
    "es",
    "s",
)
_SHORTEST: Final = 3


@lru_cache(maxsize=4096)
def forms(word: str) -> tuple[str, ...]:
    """Other forms of a word in small letters, the likeliest first; none for what is no such word."""
    if not _WORD.fullmatch(word):
        return ()
    stem = _stem(word)
    found = dict.fromkeys(
        [
            stem,
            f"{stem}s",
            f"{stem}ed",
            f"{stem}ing",
            f"{stem}e",
            f"{stem}es",
            f"{stem}er",
            f"{stem}ion",
            f"{stem}ions",
        ]
    )
    if stem.endswith("y") and stem[-2] not in _VOWELS:
        found.update(dict.fromkeys([f"{stem[:-1]}ies", f"{stem[:-1]}ied"]))
    if stem[-1] not in "aeiouwxys" and stem[-2] in _VOWELS and stem[-3] not in _VOWELS:
        found.update(dict.fromkeys([f"{stem}{stem[-1]}ed", f"{stem}{stem[-1]}ing"]))
    found.pop(word, None)
    return tuple(found)


def _stem(word: str) -> str:
    """A word without its ending, as far as rules can tell."""
    for ending in _ENDINGS:
        stem = word.removesuffix(ending)
        if stem == word or len(stem) < _SHORTEST or not any(letter in "aeiouy" for letter in stem):
            continue
        if ending == "s" and stem.endswith(("s", "u", "i")):
            return word  # class, status, analysis
        if ending in {"ies", "ied"}:
            return f"{stem}y"
        if len(stem) > _SHORTEST and stem[-1] == stem[-2] and stem[-1] not in "lsz":
            return stem[:-1]
        return stem
    return word.removesuffix("e") if len(word) > _SHORTEST + 1 else word
