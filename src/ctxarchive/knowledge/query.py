"""What a query asks for: terms that match an index, a scanned text, or nothing at all.

Pure. Any text is a query: quoted parts are phrases, ``word*`` is a prefix, all else is words, and
no character of it is ever syntax of the database. A term says the same thing twice, as an FTS5
expression and as a count over a folded text, so that what is not indexed yet is found by the very
same rules.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ctxarchive.knowledge.folding import (
    OPERATORS,
    Folded,
    fold,
    parts,
    plain,
    positions,
    single,
    words,
)
from ctxarchive.knowledge.inflection import forms
from ctxarchive.knowledge.passages import PASSAGE, WINDOW

MOST_TERMS: Final = 32
"""A query's further chunks are not matched strictly; FTS5 refuses very deep expressions."""

_CHUNK: Final = re.compile(r'"([^"]*)"|(\S+)')
_IDENTIFIER: Final = re.compile(r"\W*(\w+)\W*")
_ABBREVIATED: Final = re.compile(r"(?=.*[0-9])[0-9a-f]{6,39}")
"""What looks like a hash is asked for by its beginning."""
_ANCHOR: Final = re.compile(r"[A-Za-z0-9]+")
_LONGEST_ANCHOR: Final = 64
_SNIPPET: Final = 200
_LEAD: Final = 60
_WITHIN: Final = 2 * PASSAGE
"""No passage is longer, save where a line has no white space."""


class Document:
    """A folded text in the shape that terms count in."""

    __slots__ = ("length", "words")

    def __init__(self, folded: Folded) -> None:
        found = words(folded.indexed)
        self.words = f" {' '.join(found)} "
        self.length = len(found)
        """Words in all, as the index counts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One thing to be matched: any of some word sequences."""

    words: tuple[tuple[str, ...], ...]
    """Sequences of words, each of which would do."""
    prefix: bool = False
    """Whether the last word of a sequence may go on."""
    forms: bool = False
    """Whether all but the first are other forms of it, asked for in case they are there."""

    @property
    def phrases(self) -> int:
        """How many FTS5 phrases ``expression`` is made of, in order."""
        return len(self.words)

    @property
    def single(self) -> bool:
        """Whether it is one word, and no beginning of one."""
        return len(self.words) == 1 and len(self.words[0]) == 1 and not self.prefix

    def expression(self) -> str:
        """The FTS5 expression; every word is quoted."""
        star = " *" if self.prefix else ""
        wanted = [f'"{" ".join(sequence)}"{star}' for sequence in self.words]
        return wanted[0] if len(wanted) == 1 else f"({' OR '.join(wanted)})"

    def count(self, document: Document) -> int:
        """How often the term occurs in a text that is scanned."""
        end = "" if self.prefix else " "
        return sum(document.words.count(f" {' '.join(each)}{end}") for each in self.words)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedQuery:
    """A query, taken apart."""

    text: str
    terms: tuple[Term, ...]
    """One for each chunk between white space; a strict match needs all of them."""
    loose: tuple[Term, ...]
    """The terms and the words they are made of; any of them may match."""
    phrases: tuple[str, ...]
    """Quoted parts in ``plain`` form: whatever the tier, the text must hold each literally."""
    needles: tuple[str, ...]
    """Every chunk in ``plain`` form, for substrings and exact hits."""
    anchors: tuple[str, ...]
    """For each needle, the longest run of ASCII letters and digits in it as it was asked for; may
    be empty. Whatever holds the chunk literally holds this, whichever way JSON escapes the rest."""
    signs: tuple[str, ...]
    """Operators that stand beside the words; a strict match needs each in the text."""
    spelt: str
    """The query, where it is one chunk whose capitals or signs the terms leave out; else empty."""


def parse(query: str) -> ParsedQuery:
    """Take a query apart. Never raises, whatever the text."""
    terms: dict[Term, None] = {}
    loose: dict[Term, None] = {}
    phrases: dict[str, None] = {}
    needles: dict[str, str] = {}
    signs: dict[str, None] = {}
    spelt: list[str] = []
    for match in _CHUNK.finditer(query):
        quoted = match[1] is not None
        chunk = match[1] if quoted else match[2]
        prefix = not quoted and len(chunk) > 1 and chunk.endswith("*") and chunk[-2].isalnum()
        if prefix:
            chunk = chunk[:-1]
        elif not quoted:
            prefix = _ABBREVIATED.fullmatch(chunk) is not None
        spelt.append("" if prefix or (chunk.isalnum() and chunk.islower()) else chunk)
        if needle := plain(chunk):
            needles[needle] = max(_ANCHOR.findall(chunk), key=len, default="")[:_LONGEST_ANCHOR]
            if quoted:
                phrases[needle] = None
            else:
                signs.update(dict.fromkeys(OPERATORS.findall(chunk)))
        for term in _terms(chunk, prefix=prefix, whole=not quoted):
            terms[term] = None
            loose.update(dict.fromkeys([_inflected(term), *map(_inflected, _pieces(term))]))
    return ParsedQuery(
        text=query,
        terms=tuple(terms)[:MOST_TERMS],
        loose=tuple(loose)[: MOST_TERMS * 2],
        phrases=tuple(phrases),
        needles=tuple(needles),
        anchors=tuple(needles.values()),
        signs=tuple(signs),
        spelt=spelt[0] if len(spelt) == 1 else "",
    )


def locate(text: str, parsed: ParsedQuery, start: int = 0) -> int:
    """Where in ``text`` the query is met first, in code points; ``start`` where that cannot be told.

    The longest chunk that is there literally wins; else the first word that a term asks for.

    Args:
        text: the record's text.
        parsed: what is looked for.
        start: where the passage begins that matched; what is before it is looked at last.
    """
    if start:
        found = _locate(text[start : start + _WITHIN], parsed)
        if found is not None:
            return start + found
    return _locate(text, parsed) or start


def _locate(text: str, parsed: ParsedQuery) -> int | None:
    for needle in sorted(parsed.needles, key=len, reverse=True):
        pattern = r"\s+".join(map(re.escape, needle.split()))
        if found := re.search(pattern, text, re.IGNORECASE):
            return found.start()
    wanted = {word for term in parsed.loose for sequence in term.words for word in sequence}
    heads = tuple(sequence[-1] for term in parsed.loose if term.prefix for sequence in term.words)
    for start, met in positions(text):
        if not wanted.isdisjoint(met):
            return start
        if heads and any(word.startswith(heads) for word in met):
            return start
    return None


def snippet(text: str, offset: int) -> str:
    """About 200 code points of ``text`` around ``offset``, white space collapsed."""
    start = max(0, min(offset - _LEAD, len(text) - _SNIPPET))
    end = min(len(text), start + _SNIPPET)
    while 0 < start < offset and unicodedata.combining(text[start]):
        start += 1
    body = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{body}{'…' if end < len(text) else ''}"


def _terms(chunk: str, *, prefix: bool, whole: bool) -> list[Term]:
    """What a chunk asks for: one term, or of a long chunk one for each window of it.

    A window is short enough to stand whole in one of two passages that meet.
    """
    body = words(fold(chunk).body)
    if not body:
        return []
    windows = [tuple(window) for window in _windows(body)]
    terms = [Term(words=(window,)) for window in windows[:-1]]
    sequences = dict.fromkeys(windows[-1:])
    identifier = _IDENTIFIER.fullmatch(chunk) if whole and not terms else None
    if identifier and not any(map(single, chunk)):
        split = parts(identifier[1])
        if len(split) > 1:
            sequences.update(dict.fromkeys([("".join(split),), split]))
    return [*terms, Term(words=tuple(sequences), prefix=prefix)]


def _inflected(term: Term) -> Term:
    """A term that is one word, with the other forms of it."""
    if not term.single:
        return term
    word = term.words[0][0]
    return Term(words=((word,), *((form,) for form in forms(word))), forms=True)


def _windows(body: list[str]) -> Iterator[list[str]]:
    """A sequence of words in pieces that passages do not part."""
    window: list[str] = []
    length = 0
    for word in body:
        if window and length + len(word) > WINDOW:
            yield window
            window, length = [], 0
        window.append(word)
        length += len(word) + 1
    yield window


def _pieces(term: Term) -> list[Term]:
    """The words of a term by themselves; single characters in pairs, as they make words.

    And the term without its first or last word: what stands before or after it in a text may be
    glued to that, as the ``v`` of a version is.
    """
    pieces = [
        Term(words=(part,))
        for sequence in term.words
        if len(sequence) > 2
        for part in (sequence[1:], sequence[:-1])
    ]
    for sequence in term.words:
        if len(sequence) < 2:
            continue
        for before, word in zip(("", *sequence), sequence, strict=False):
            if not single(word[0]):
                pieces.append(Term(words=((word,),)))
            elif before and single(before[0]):
                pieces.append(Term(words=((before, word),)))
    return pieces
