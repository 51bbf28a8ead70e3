"""Cuts fall on the boundaries that Unicode's own segmentation of the whole text has."""

from __future__ import annotations

import time

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from ctxarchive.archive.clipping import cut_at_or_after, cut_at_or_before

PIECES = [
    "a",
    " ",
    "\r",
    "\n",
    "\r\n",
    "\0",
    "\u0301",
    "\u0323",
    "\u200d",
    "\ufe0f",
    "\U0001f468",
    "\U0001f469\u200d\U0001f4bb",
    "\u2764\ufe0f",
    "\U0001f3fd",
    "\U0001f1e9",
    "\U0001f1e9\U0001f1ea",
    "\u1100",
    "\u1161",
    "\u11a8",
    "\uac00",
    "\uac01",
    "\ud55c",
    "\u0600",
    "\u0903",
    "\u0915",
    "\u094d",
    "\u0937",
    "\u0e33",
    "\u6f22",
    "\ud800",
    "\udc00",
    "\u2028",
    "\u0085",
    "\U000e0001",
]
"""One of every kind that the segmentation rules name, and two lone surrogates."""

texts = st.lists(st.sampled_from(PIECES), max_size=40).map("".join) | st.text(
    st.characters(), max_size=40
)


def boundaries(text: str) -> list[int]:
    """Every boundary of ``text``, by one pass over all of it."""
    return [0, *(match.end() for match in regex.finditer(r"\X", text))]


@given(texts, st.integers(-3, 60))
@example("\U0001f1e9" * 5, 3)
@example("\u0600\U0001f1e9\U0001f1ea\U0001f1e9", 2)
@example("\r\n\r\n", 3)
@example("\u0915\u094d\u0937", 2)
def test_a_cut_is_the_nearest_boundary_on_its_side(text: str, position: int) -> None:
    """Before: the last boundary not behind the position. After: the first not before it."""
    wanted = min(max(position, 0), len(text))
    known = boundaries(text)
    assert cut_at_or_before(text, position) == max(cut for cut in known if cut <= wanted)
    assert cut_at_or_after(text, position) == min(cut for cut in known if cut >= wanted)


@given(texts)
def test_head_and_tail_of_any_cut_are_whole_clusters(text: str) -> None:
    """Cutting and joining changes nothing, and no cluster is in two parts."""
    clusters = regex.findall(r"\X", text)
    for position in range(len(text) + 1):
        start = cut_at_or_before(text, position)
        head, tail = text[:start], text[start:]
        assert head + tail == text
        assert regex.findall(r"\X", head) + regex.findall(r"\X", tail) == clusters


@pytest.mark.parametrize(
    "unit",
    ["漢", "한", "a b", "\n", "\r\n", "\0", "क", "नमस्ते ", "\U0001f468\u200d\U0001f469"],
    ids=ascii,
)
def test_a_cut_near_the_end_of_a_megabyte_looks_at_its_surroundings_only(unit: str) -> None:
    """A scan from the start of such a text would take most of a second."""
    text = unit * (1_000_000 // len(unit))
    started = time.perf_counter()
    for offset in range(500, 600):
        cut_at_or_before(text, len(text) - offset)
        cut_at_or_after(text, offset)
    assert time.perf_counter() - started < 0.5


def test_a_text_of_flags_alone_costs_one_pass() -> None:
    """Flags pair up from their first one, so the pass is due; it must not be one a flag."""
    text = "\U0001f1e9" * 100_001
    started = time.perf_counter()
    assert cut_at_or_before(text, 99_999) == 99_998
    assert cut_at_or_after(text, 99_999) == 100_000
    assert time.perf_counter() - started < 3
