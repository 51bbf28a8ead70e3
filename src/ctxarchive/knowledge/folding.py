"""The one form that texts and queries are brought to before they are compared.

Pure. A text becomes words that SQLite's ``ascii`` tokenizer takes one for one, so the index, a scan
without the index, and a query all speak of the same words. Everything about spelling is decided
here and nowhere else; a change here needs a new ``FOLD_VERSION``, which rebuilds indexes.

``body`` holds the words in order: NFKC, without diacritics, parted at everything that is no letter
or digit; scripts written without spaces are parted into single characters, and emoji and other
signs beyond ASCII are code words. Phrases are matched in ``body``, across any punctuation. ``names``
holds what has no place in that order: identifiers with underscores joined whole (``get_user`` is
``getuser``), and the parts of those with inner capitals (``getUser`` is ``getuser`` in the body,
``get user`` here).

ASCII is left as it is: the tokenizer folds its case and parts it by the same rule, in C. So what
costs time here is to find the words that have parts, in texts that have few of them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

FOLD_VERSION: Final = 2
"""Rises when the same text folds to something else."""

TOKENIZER: Final = "ascii"
"""What FTS5 parts the folded text with: letters and digits of ASCII, and all beyond it, are words."""

SYMBOL: Final = "zq"
"""What a code word starts with; the code point in hexadecimal follows."""

LONGEST_NAME: Final = 128
"""Longer words (base64, minified code) have no parts and are not joined, in bytes of UTF-8."""

OPERATORS: Final = re.compile(
    r"[=!]==?|[<>:+*/%&|^-]=|=>|->|<-|<<|>>|<>|::|&&|\|\||\|>|\?\?|\?\.|\+\+|\*\*|(?<=[A-Za-z])#(?![\w#])"
)
"""Signs of ASCII that mean something; no words, so a query that has them is checked on the text."""

_WIDE: Final = re.compile(r"[^\x00-\x7f]+")
_WIDE_WORDS: Final = re.compile(r"\w+")
_PARTS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_WIDE_PARTS: Final = re.compile(r"\d+|[^\W\d_]+")
_CHANGES: Final = re.compile(r"[0-9](?=[A-Za-z])|[A-Za-z](?=[0-9])")
_INNER: Final = re.compile(r"_|[^\W_A-Z][A-Z]|[A-Z][A-Z][^\W_A-Z]")
"""What makes a word one with parts; ``_candidates`` looks for the same in bytes."""
_HASH: Final = re.compile(r"[0-9a-f]{7,}|[0-9A-F]{7,}")
_SINGLE: Final = re.compile(
    "[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u318f\u31a0-\u31bf"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
"""Scripts whose words are not parted by spaces, and Hangul, whose particles are glued on."""
_RULES: Final = re.compile("[\u2500-\u259f]")
"""What boxes and bars are drawn with: in logs by the line, and never asked for."""

_CACHE_WORDS: Final = 1 << 16
_DENSE: Final = 80
"""From one name in so many bytes on, all words are looked at; below, only those around a hit."""


def _table(keep: bytes, *, lower: bool = False) -> bytes:
    """A table for ``bytes.translate``: what is not kept becomes a space."""
    kept = set(keep)
    table = bytes(byte if byte in kept else 32 for byte in range(256))
    return table.lower() if lower else table


def _classes() -> bytes:
    """A table for ``bytes.translate``: ``a`` or ``A`` for a small or capital letter, ``_``, or space.

    A digit and all beyond ASCII pass for small letters.
    """
    table = bytearray(_table(_ALNUM + b"_" + _BEYOND_ASCII))
    for byte in range(256):
        if chr(byte) in "abcdefghijklmnopqrstuvwxyz0123456789" or byte > 127:
            table[byte] = ord("a")
        elif chr(byte) in "ABCDEFGHIJKLMNOPQRSTUVWXYZ":
            table[byte] = ord("A")
    return bytes(table)


_ALNUM: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_BEYOND_ASCII: Final = bytes(range(128, 256))
_TO_WORDS: Final = _table(_ALNUM + _BEYOND_ASCII, lower=True)
_TO_NAMES: Final = _table(_ALNUM + b"_" + _BEYOND_ASCII)
_TO_CLASSES: Final = _classes()


class Folded(NamedTuple):
    """A text in the form that is indexed; its words are what the tokenizer takes from both parts."""

    body: str
    names: str

    @property
    def indexed(self) -> str:
        """Both, as one text for the index."""
        return f"{self.body}\n{self.names}" if self.names else self.body


class _Memo(dict[bytes, str]):
    """What each distinct word met so far adds to ``names``. Threads may share one."""

    def __missing__(self, word: bytes) -> str:
        names = _names(word)
        if len(word) <= LONGEST_NAME:
            self[word] = names
        return names


_memo = _Memo()
_nameless: set[bytes] = set()
"""Words met so far that add nothing."""


def fold(text: str) -> Folded:
    """A text as it is indexed and asked for."""
    global _memo, _nameless
    if len(_memo) > _CACHE_WORDS or len(_nameless) > _CACHE_WORDS:
        _memo, _nameless = _Memo(), set()
    if text.isascii():
        body = text
    else:
        text = unicodedata.normalize("NFKC", text)
        body = _WIDE.sub(_fold_wide, text)
    names = _candidates(text.encode("utf-8", "surrogatepass"))
    if not names:
        return Folded(body, "")
    added = {found for word in names if (found := _memo[word])}
    return Folded(body, " ".join(sorted(added)))


def _candidates(raw: bytes) -> set[bytes]:
    """The distinct words of a text that may add names: all that have an underscore or inner capital."""
    classes = raw.translate(_TO_CLASSES)
    most = len(raw) // _DENSE + 8
    found: set[bytes] = set()
    for sign in (b"aA", b"_", b"AAa"):
        at = classes.find(sign)
        while at >= 0:
            most -= 1
            if most < 0:
                return _all_words(raw)
            end = classes.find(b" ", at)
            end = len(raw) if end < 0 else end
            found.add(raw[classes.rfind(b" ", 0, at) + 1 : end])
            at = classes.find(sign, end)
    return found


def _all_words(raw: bytes) -> set[bytes]:
    """The distinct words of a text but those that are known to add nothing."""
    found = set(raw.translate(_TO_NAMES).split()) - _nameless
    _nameless.update(word for word in found if len(word) <= 24 and not _memo[word])
    return found


def words(folded: str) -> list[str]:
    """The words of a folded text, as the tokenizer takes them."""
    return folded.encode("utf-8").translate(_TO_WORDS).decode("utf-8").split()


def _body(text: str) -> list[str]:
    """The words of a text's body, in order."""
    text = unicodedata.normalize("NFKC", text)
    return words(text if text.isascii() else _WIDE.sub(_fold_wide, text))


def plain(text: str) -> str:
    """A text for literal comparison: NFKC, case-folded, no diacritics, white space collapsed."""
    if not text.isascii():
        folded = unicodedata.normalize("NFKC", text).casefold()
        text = _WIDE.sub(_strip_run, folded)
    return " ".join(text.lower().split())


def _strip_run(match: re.Match[str]) -> str:
    return "".join(map(_strip, match[0]))


def parts(identifier: str) -> tuple[str, ...]:
    """The words that an identifier is made of, in order; a hash is one word."""
    found: list[str] = []
    for chunk in unicodedata.normalize("NFKC", identifier).split("_"):
        if not chunk.isascii():
            for piece in _WIDE_PARTS.findall(chunk):
                found.extend(_body(_spaced(piece)))
        elif _HASH.fullmatch(chunk) or len(_CHANGES.findall(chunk)) > 3:
            found.append(chunk.lower())
        else:
            found.extend(part.lower() for part in _PARTS.findall(chunk))
    return tuple(found)


def positions(text: str) -> Iterator[tuple[int, list[str]]]:
    """The words of a text where they stand: start (code points), and the words that it gives."""
    for match in re.finditer(r"\w+|[^\w\s\x00-\x7f]", text):
        yield match.start(), words(fold(match[0]).indexed)


def single(character: str) -> bool:
    """Whether a character is a word of its own."""
    return _SINGLE.match(character) is not None


def _names(word: bytes) -> str:
    """What a run of letters, digits, underscores and characters beyond ASCII adds to ``names``."""
    if word.isascii():
        return _identifier(word.decode("ascii"))
    pieces = _WIDE_WORDS.findall(word.decode("utf-8", "surrogatepass"))
    return " ".join(filter(None, map(_identifier, pieces)))


def _identifier(word: str) -> str:
    if not _INNER.search(word):
        return ""
    if len(word) > LONGEST_NAME or any(map(single, word)):
        return ""  # single characters are found in the body; identifiers are not made of them
    chunks = [chunk for chunk in word.split("_") if chunk]
    added = ["".join(_body("".join(chunks)))] if len(chunks) > 1 else []
    for chunk in chunks:
        split = parts(chunk)
        if len(split) > 1:
            added.extend(split)
    return " ".join(added)


def _spaced(piece: str) -> str:
    """A word beyond ASCII, parted where a lower-case letter meets a capital."""
    return "".join(
        f" {after}" if before.islower() and after.isupper() else after
        for before, after in zip(" " + piece, piece, strict=False)
    )


def _fold_wide(match: re.Match[str]) -> str:
    run = match[0]
    return _wide_run(run) if len(run) <= 16 else "".join(map(_wide, run))


@lru_cache(maxsize=1 << 14)
def _wide_run(run: str) -> str:
    return "".join(map(_wide, run))


@lru_cache(maxsize=1 << 14)
def _wide(character: str) -> str:
    """What a character beyond ASCII is in the body: letters, a word of its own, or a space."""
    category = unicodedata.category(character)
    if category in {"Mn", "Cf"}:
        return ""  # marks and joiners neither part nor make a word
    if not character.isalnum():
        sign = category[0] in "SC" and not _RULES.match(character)
        return f" {SYMBOL}{ord(character):x} " if sign else " "
    folded = unicodedata.normalize("NFKC", character.casefold())
    letters = f" {folded} " if single(character) else "".join(map(_strip, folded))
    spelt = letters.replace(" ", "")
    if spelt and not spelt.isalnum():
        return f" {SYMBOL}{ord(character):x} "
    return letters if spelt else ""


@lru_cache(maxsize=1 << 14)
def _strip(character: str) -> str:
    """A character without its diacritics; scripts of single characters keep theirs."""
    if character.isascii() or single(character):
        return character
    return "".join(
        part
        for part in unicodedata.normalize("NFD", character)
        if unicodedata.category(part) != "Mn"
    )
