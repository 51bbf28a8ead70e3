"""Where a text may be cut: at code-point counts, never inside a grapheme cluster. Pure."""

from __future__ import annotations

import regex

_CLUSTER = regex.compile(r"\p{GCB=RI}{2}[\p{GCB=EX}\p{GCB=SM}\p{GCB=ZWJ}]*+|\X")
"""One cluster, from a boundary on. A flag is spelt out: the bare ``\\X`` counts back through all
the flags before it each time, which is quadratic."""
_SURE = regex.compile(
    r"(?r)(?<=[\p{GCB=XX}\p{GCB=LV}\p{GCB=LVT}\p{GCB=V}\p{GCB=T}])"
    r"[\p{GCB=XX}\p{GCB=LV}\p{GCB=LVT}\p{GCB=L}]"
    r"|(?r)(?<=[\p{GCB=CN}\p{GCB=LF}])(?s:.)"
    r"|(?r)(?<=(?s:.))[\p{GCB=CN}\p{GCB=CR}]"
)
"""Pairs of neighbours between which there is a boundary whatever stands around them: letters,
ideographs, symbols and whole syllables side by side, and both sides of a control character."""


def cut_at_or_before(text: str, position: int) -> int:
    """The last grapheme-cluster boundary at or before ``position``, in code points.

    Clusters are those of Unicode Standard Annex 29, extended.
    """
    if position <= 0:
        return 0
    if position >= len(text):
        return len(text)
    # The scan begins at the nearest sure boundary instead of at the start of the text.
    safe = _SURE.search(text, 0, position + 1)
    boundary = safe.start() if safe else 0
    for cluster in _CLUSTER.finditer(text, boundary):
        if cluster.end() > position:
            return int(cluster.start())
        boundary = int(cluster.end())
        if boundary == position:
            return boundary
    return boundary


def cut_at_or_after(text: str, position: int) -> int:
    """The first grapheme-cluster boundary at or after ``position``, in code points."""
    before = cut_at_or_before(text, position)
    if before >= position:
        return before
    cluster = _CLUSTER.match(text, before)
    return cluster.end() if cluster else len(text)
