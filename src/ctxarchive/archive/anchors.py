"""Anchors: the rare literal tokens of a text that an agent may need to ask with. Pure.

A token is kept as it is printed, since the token itself is the query that finds it again: paths,
dotted and cased names, hashes, long numbers, versions, options and URLs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

TOKEN = re.compile(
    r"https?://[^\s\"'<>)\]}`|\\]+"
    r"|(?:[\w.-]+/)+[\w.-]+"
    r"|[A-Za-z_]\w*(?:\.\w+)+"
    r"|[a-z]+[A-Z]\w+|[A-Z][a-z]+[A-Z]\w+"
    r"|\w+_\w+"
    r"|\b[0-9a-f]{7,40}\b|\b\d{4,}\b"
    r"|--[a-z][\w-]{3,}"
    r"|\bv?\d+\.\d+\.\d+\b"
)
"""Alternatives in the order in which they win. Each matches in linear time."""

SHORTEST, LONGEST = 5, 120
"""Code points of a token."""

READ_AT_MOST = 4_000
"""Code points of a tool's output that are read, three quarters from its beginning."""

AnchorKind = Literal["paths", "names", "hashes", "urls", "values"]

KINDS: tuple[AnchorKind, ...] = ("paths", "names", "hashes", "urls", "values")

_WORD = re.compile(r"\w+")
_HASH = re.compile(r"(?=.*\d)(?=.*[a-f])[0-9a-f]{7,40}")
_VALUE = re.compile(r"v?[\d.]+|--.+")
_WORDS_JOINED = 14
"""Words of a token whose joined runs are known to be shown with it."""


def tokens(text: str) -> Iterator[str]:
    """The tokens of a text, in order, each as often as it occurs."""
    for match in TOKEN.finditer(text):
        token = match.group().rstrip(".-:")
        if SHORTEST <= len(token) <= LONGEST and not _is_escaped_word(text, match.start(), token):
            yield token


def _is_escaped_word(text: str, start: int, token: str) -> bool:
    r"""Whether a token is an ordinary word behind the letter of an escape, as in ``\nThis``.

    A call's arguments are JSON as the model wrote it. A name behind an escape stays as it is
    printed there: that is how the record holds it.
    """
    if token[0] not in "nrt" or start == 0 or text[start - 1] != "\\":
        return False
    return TOKEN.fullmatch(token, 1) is None


def kind_of(token: str) -> AnchorKind:
    """What a token is, by its shape."""
    if "://" in token:
        return "urls"
    if "/" in token:
        return "paths"
    if _VALUE.fullmatch(token):
        return "values"
    return "hashes" if _HASH.fullmatch(token) else "names"


def parts(token: str) -> set[str]:
    """What is in view where a token is: itself, and every run of its words as joined in it.

    So a path shows its suffixes, and a dotted name the names it is made of.
    """
    spans = [match.span() for match in _WORD.finditer(token)][:_WORDS_JOINED]
    runs = {
        token[first[0] : last[1]] for place, first in enumerate(spans) for last in spans[place:]
    }
    return runs | {token}


def excerpt(output: str) -> str:
    """The part of a tool's output that is read for anchors."""
    if len(output) <= READ_AT_MOST:
        return output
    tail = READ_AT_MOST // 4
    return f"{output[: READ_AT_MOST - tail]}\n{output[-tail:]}"
