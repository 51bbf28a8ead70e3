"""The one form that texts and queries are brought to before they are compared.

Pure. A text becomes words that SQLite's ``unicode61`` tokenizer takes one for one, so the index, a
scan without the index, and a query all speak of the same words. Everything about spelling is
decided here and nowhere else; a change here needs a new ``FOLD_VERSION``, which rebuilds indexes.

``body`` holds the words in order: NFKC, case-folded, without diacritics, parted at everything that
is no letter or digit; scripts written without spaces are parted into single characters. Phrases are
matched in ``body``, across any punctuation. ``names`` holds what has no place in that order, once
each: identifiers with underscores joined whole (``get_user`` is ``getuser``), the parts of those
with inner capitals or digits (``getUser`` is ``getuser`` in the body, ``get user`` here), and emoji
and operators as code words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

FOLD_VERSION: Final = 1
"""Rises when the same text folds to something else."""

SYMBOL: Final = "zq"
"""What a code word starts with; code points in hexadecimal follow."""

LONGEST_NAME: Final = 128
"""Longer words (base64, minified code) have no parts and are not joined, in bytes of UTF-8."""

_OPERATORS: Final = re.compile(
    r"[=!]==?|[<>:+*/%&|^-]=|=>|->|<-|<<|>>|<>|::|&&|\|\||\|>|\?\?|\?\.|\+\+|\*\*"
)
_WIDE: Final = re.compile(r"[^\x00-\x7f]+")
_WIDE_WORDS: Final = re.compile(r"\w+|[^\w\s]+")
_PARTS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_WIDE_PARTS: Final = re.compile(r"\d+|[^\W\d_]+")
_CHANGES: Final = re.compile(r"[0-9](?=[A-Za-z])|[A-Za-z](?=[0-9])")
_HASH: Final = re.compile(r"[0-9a-f]{7,}|[0-9A-F]{7,}")
_SINGLE: Final = re.compile(
    "[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u318f\u31a0-\u31bf"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
"""Scripts whose words are not parted by spaces, and Hangul, whose particles are glued on."""

_CACHE_WORDS: Final = 1 << 16


def _table(keep: bytes, *, lower: bool = False) -> bytes:
    """A table for ``bytes.translate``: what is not kept becomes a space."""
    kept = set(keep)
    table = bytes(byte if byte in kept else 32 for byte in range(256))
    return table.lower() if lower else table


_ALNUM: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_BEYOND_ASCII: Final = bytes(range(128, 256))
_TO_BODY: Final = _table(_ALNUM + _BEYOND_ASCII, lower=True)
_TO_NAMES: Final = _table(_ALNUM + b"_" + _BEYOND_ASCII)
_TO_OPERATORS: Final = _table(b"=!<>:+*/%&|^-?.")


class Folded(NamedTuple):
    """A text in the form that is compared; both parts are words parted by white space."""

    body: str
    names: str


class _Memo(dict[bytes, str]):
    """What each distinct word met so far adds to ``names``. Threads may share one."""

    def __missing__(self, word: bytes) -> str:
        names = _names(word)
        if len(word) <= LONGEST_NAME:
            self[word] = names
        return names


_memo = _Memo()


def fold(text: str) -> Folded:
    """The words of a text, as they are indexed and asked for."""
    global _memo  # noqa: PLW0603 - a memo is replaced whole, when it has grown large
    if len(_memo) > _CACHE_WORDS:
        _memo = _Memo()
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    raw = text.encode("utf-8", "surrogatepass")
    names = set(map(_memo.__getitem__, raw.translate(_TO_NAMES).split()))
    for run in set(raw.translate(_TO_OPERATORS).split()):
        if len(run) > 1:
            names.update(_operators(run[:16].decode("ascii")))
    if b"#" in raw:
        names.update(_sharps(text))
    names.discard("")
    return Folded(_body(text), " ".join(sorted(names)))


def _body(normal: str) -> str:
    """The words of a text in NFKC, in order."""
    spelt = normal if normal.isascii() else _WIDE.sub(_fold_wide, normal)
    return spelt.encode("utf-8").translate(_TO_BODY).decode("utf-8")


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
                found.extend(_body(_spaced(piece)).split())
        elif _HASH.fullmatch(chunk) or len(_CHANGES.findall(chunk)) > 3:
            found.append(chunk.lower())
        else:
            found.extend(part.lower() for part in _PARTS.findall(chunk))
    return tuple(found)


def positions(text: str) -> Iterator[tuple[int, list[str], list[str]]]:
    """The words of a text where they stand: start (code points), body words, name words."""
    for match in re.finditer(r"\w+|[^\w\s\x00-\x7f]", text):
        folded = fold(match[0])
        yield match.start(), folded.body.split(), folded.names.split()


def single(character: str) -> bool:
    """Whether a character is a word of its own."""
    return _SINGLE.match(character) is not None


def _names(word: bytes) -> str:
    """What a run of letters, digits, underscores and characters beyond ASCII adds to ``names``."""
    if word.isascii():
        return _identifier(word.decode("ascii"))
    found = []
    for piece in _WIDE_WORDS.findall(word.decode("utf-8", "surrogatepass")):
        if piece[0].isalnum() or piece[0] == "_":
            found.append(_identifier(piece))
        else:
            found.extend(_symbols(piece))
    return " ".join(filter(None, found))


def _identifier(word: str) -> str:
    if word.isalpha() and (word.islower() or word.isupper() or word.istitle()):
        return ""
    if len(word) > LONGEST_NAME:
        return ""
    chunks = [chunk for chunk in word.split("_") if chunk]
    if any(map(single, word)):
        return ""  # single characters are found in the body; identifiers are not made of them
    added = []
    if len(chunks) > 1:
        added.append(_body("".join(chunks)).replace(" ", ""))
    for chunk in chunks:
        split = parts(chunk)
        if len(split) > 1:
            added.extend(split)
    return " ".join(added)


def _symbols(piece: str) -> list[str]:
    return [
        f"{SYMBOL}{ord(character):x}"
        for character in piece
        if (category := unicodedata.category(character))[0] in "SC" and category != "Cf"
    ]


@lru_cache(maxsize=4096)
def _operators(run: str) -> tuple[str, ...]:
    return tuple(_operator(found) for found in _OPERATORS.findall(run))


def _operator(operator: str) -> str:
    return SYMBOL + "".join(f"{ord(character):02x}" for character in operator)


def _sharps(text: str) -> list[str]:
    """The ``#`` of C# and its like: after a letter, before none."""
    return [_operator("#")] if re.search(r"#(?<=[A-Za-z]#)(?![\w#])", text) else []


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
        return " "
    folded = unicodedata.normalize("NFKC", character.casefold())
    letters = f" {folded} " if single(character) else "".join(map(_strip, folded))
    spelt = letters.replace(" ", "")
    if not spelt:
        return ""
    if not (spelt.isalnum() and all(map(_known, spelt))):
        return f" {SYMBOL}{ord(character):x} "
    return letters


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


def _known(character: str) -> bool:
    """Whether the tokenizer, whose tables are of Unicode 6, takes this for a letter or digit.

    Unicode 3.2 is the newest older edition that Python carries; what came between is spelt as a
    code word, which is found just as well.
    """
    return character.isascii() or unicodedata.ucd_3_2_0.category(character)[0] in "LN"
