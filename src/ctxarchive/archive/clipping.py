"""Where a text may be cut: at code-point counts, never inside a grapheme cluster. Pure."""

from __future__ import annotations

import regex

_CLUSTER = regex.compile(r"\X")
_PLAIN_PAIR = regex.compile(r"(?r)(?<=\p{GCB=XX})\p{GCB=XX}")


def cut_at_or_before(text: str, position: int) -> int:
    """The last grapheme-cluster boundary at or before ``position``, in code points.

    Clusters are those of Unicode Standard Annex 29, extended.
    """
    if position <= 0:
        return 0
    if position >= len(text):
        return len(text)
    # Two neighbours without any grapheme property always have a boundary between them, so the
    # scan can begin there instead of at the start of the text.
    safe = _PLAIN_PAIR.search(text, 0, position + 1)
    boundary = safe.start() if safe else 0
    for cluster in _CLUSTER.finditer(text, boundary):
        if cluster.end() > position:
            return min(int(cluster.start()), position)
        boundary = int(cluster.end())
        if boundary == position:
            return boundary
    return boundary


def cut_at_or_after(text: str, position: int) -> int:
    """The first grapheme-cluster boundary at or after ``position``, in code points."""
    before = cut_at_or_before(text, position)
    if before >= position:
        return min(before, len(text))
    cluster = _CLUSTER.match(text, before)
    return cluster.end() if cluster else len(text)
