r"""Anchors: the rare literal tokens of a text that an agent may need to ask with. Pure.

A token is kept as it is printed, since the token itself is the query that finds it again. A call's
arguments are read as the JSON that the record holds: a name right behind a line break or a tab is
kept with its escape (``\tgetUser``), as it stands there. No list of words decides anything here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Final, Literal

_WIDE = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u3000-\u9fff\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef"
)
"""Scripts without spaces between words, and their punctuation: they end a token."""

_WIDE_MARKS = "\u3000-\u303f\uff00-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"

_CHUNK: Final = re.compile(rf"\\?[^\s\"'`<>(){{}}\[\]|,;\\“”‘’…{_WIDE_MARKS}]{{4,}}")
"""What stands between the characters that no token holds, with a backslash right before it."""

TOKEN: Final = re.compile(
    r"https?://.+"
    r"|--[a-z][\w-]{2,}(?:=[\w./:@%+-]+)?"
    r"|\b[A-Z][A-Z0-9_]{2,40}=[\w./:@%+-]+"
    r"|(?<![\w.@+~-])(?:~?/)?(?:[\w.@+-]+/)+[\w.@+-]+"
    r"|[A-Za-z_]\w*(?:(?:\.|::|-(?=[\w-]*\.\w))\w+)+"
    r"|[a-z][a-z0-9]*[A-Z]\w+|[A-Z][a-z0-9]+[A-Z]\w+|[A-Z]{2,}[a-z]\w{2,}"
    r"|\w+_\w+"
    r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
    r"|(?<!\d\.)\b[0-9a-f]{7,64}\b"
    r"|\b[A-Z]{1,10}(?:(?:-\d+){2,}|-?\d{3,})\b|\bE[A-Z]{4,}\b|\bSIG[A-Z]{3,}\b"
    r"|\bv?\d+(?:\.\d+){2,}(?:[-+][\w.]+)?"
    r"|\b\d[\d.]*(?:%|(?:[µmn]s|[KMGTkmgt]i?B|[kMG]Hz|px|rpm|fps)\b)"
    r"|\blocalhost:\d+|(?<!\d\.)\b\d{4,}\b"
    r"|\b[a-z]\w*(?:-\w+){2,}\b"
)
"""Alternatives in the order in which they win. What follows a decimal point is part of a measure or of
a time, and names nothing by itself."""

SHORTEST, LONGEST = 5, 120
"""Code points of a token."""

LONGEST_CHUNK = 300
"""A longer one is data: encoded bytes, minified code."""

_CUT_AT_END = re.compile(rf"(?<!\S)\S{{1,{LONGEST}}}\Z")
_CUT_AT_START = re.compile(rf"\A\S{{1,{LONGEST}}}(?!\S)")
"""A word that a cut may have gone through, at either side of it."""

READ_AT_MOST = 8_000
"""Code points of a tool's output that are read, three quarters from its beginning."""

AnchorKind = Literal["paths", "names", "errors", "hashes", "urls", "values", "commands"]

KINDS: tuple[AnchorKind, ...] = (
    "paths",
    "names",
    "errors",
    "hashes",
    "urls",
    "values",
    "commands",
)

_WORD = re.compile(r"\w+")
_HASH = re.compile(r"(?=.*\d)(?=.*[a-f])[0-9a-f-]{7,64}")
_VALUE = re.compile(
    r"v?[\d.]+(?:[-+][\w.]+)?|\d[\d.]*(?:%|[a-zA-Zµ]{2,3})|--.+|[A-Z0-9_]+=.+|localhost:.+"
)
_ERROR = re.compile(
    r"[A-Z]{1,10}(?:-?\d{3,}|(?:-\d+){2,})|E[A-Z]{4,}|SIG[A-Z]{3,}"
    r"|[\w.:]*(?:Error|Exception|Warning|Failure|Fault)"
)
_COMMAND = re.compile(r"[a-z][\w.+-]*(?: [a-z][\w:-]*){0,2}")
_COMMAND_LINE = re.compile(r'"(?:command|cmd|script)"\s*:\s*"((?:[^"\\]|\\.){1,4000})')
_COMMANDS = re.compile(
    r"(?:^|[;&|(]\s*|\\n\s*|\bthen |\bdo )(?:[A-Z_]\w*=\S* )*"
    r"([a-z][\w.+-]+(?: [a-z][\w:-]*(?=$|[ ;&|)\\])){0,2})(?=$|[ ;&|)\\])"
)
_SPOKEN = re.compile(
    r"(?<!<)<<(?!<)-?\s*(?:\\\\|\\\"|')?([A-Za-z_]\w*).*?(?:\\n(?:\\t)*\1\b|$)"
    r'|\\"(?:(?!\\").)*?\\n(?:(?!\\").)*\\"'
    r"|'[^']*?\\n[^']*'",
)
"""A here-document or a quoted text of several lines inside a command: what it says is not run."""
_BESIDE_A_MATCH = re.compile(r"(\.[A-Za-z]\w{0,5})-\d+(?:-[^/]*)?$")
"""The line number, and what follows it, that grep prints behind a path beside a match."""
_ESCAPED_UNICODE = re.compile(r"\\u[0-9a-fA-F]{4}")
_WIDE_RUN = re.compile(f"[{_WIDE}]+")
_WIDE_PATH = re.compile(r"(?:[\w.@+-]+/)+[\w.@+-]+")
_WIDE_WORD = re.compile(f"(?<![/._{_WIDE}-])(?<!^)[{_WIDE}]|[{_WIDE}](?![/._{_WIDE}-]|$)")

_MEMO_SIZE = 1 << 17


class _Memo(dict[str, tuple[str, ...]]):
    """The tokens of each chunk met so far. Threads may share one."""

    def __missing__(self, chunk: str) -> tuple[str, ...]:
        if len(chunk) > LONGEST_CHUNK:
            return ()
        if len(self) >= _MEMO_SIZE:
            self.clear()
        found = self[chunk] = tuple(_tokens(chunk))
        return found


_memo = _Memo()


def tokens(text: str) -> Iterator[str]:
    """The tokens of a text, in order, each as often as it occurs."""
    return chain.from_iterable(map(_memo.__getitem__, _CHUNK.findall(text)))


def distinct(text: str) -> set[str]:
    """The tokens of a text, each once."""
    return set(chain.from_iterable(map(_memo.__getitem__, set(_CHUNK.findall(text)))))


def commands(arguments: str) -> set[str]:
    """What the shell commands among a call's arguments run: a program, and what it is told to do."""
    found: set[str] = set()
    for line in _COMMAND_LINE.findall(arguments):
        found.update(_COMMANDS.findall(_SPOKEN.sub(" ", line)))
    return {each for each in found if SHORTEST <= len(each) <= LONGEST}


def _tokens(chunk: str) -> Iterator[str]:
    """The tokens of a chunk."""
    if chunk[0] == "\\":
        chunk = _ESCAPED_UNICODE.sub("", chunk)
        if chunk[:1] == "\\":
            yield from _behind_escape(chunk)
            return
    if chunk.isascii():
        yield from _plain(chunk)
        return
    if _WIDE_PATH.fullmatch(chunk) and not _WIDE_WORD.search(chunk):
        yield from (each for each in (chunk.rstrip(".-"),) if SHORTEST <= len(each) <= LONGEST)
    for piece in _WIDE_RUN.split(chunk):
        yield from _plain(piece)


def _plain(piece: str) -> Iterator[str]:
    for match in TOKEN.finditer(piece):
        token = match.group()
        if not token.endswith("/..."):  # a pattern of packages, as some build tools take them
            token = token.rstrip(".-:=")
        if "/" in token and "://" not in token:
            token = _BESIDE_A_MATCH.sub(r"\1", token)
        if SHORTEST <= len(token) <= LONGEST and _WORD.search(token):
            yield token


def _behind_escape(chunk: str) -> Iterator[str]:
    """The tokens of a chunk that begins with a backslash."""
    if chunk[1] not in "nrt":
        # The letter of a pattern's class or boundary belongs to no name.
        yield from _plain(chunk[2 if chunk[1] in "bBdDsSwW" else 1 :])
        return
    first, *rest = [*_plain(chunk[1:]), ""]
    if not (first and chunk.startswith(first, 1)):
        yield from _plain(chunk[2:])
        return
    name = first[1:]
    # An ordinary word behind a line break begins a sentence; behind a tab, or all in capitals, it
    # is a name of the code.
    if TOKEN.fullmatch(name) or (chunk[1] == "t" or (name.isupper() and len(name) >= SHORTEST - 1)):
        yield "\\" + first
    yield from (token for token in rest if token)


def bare(token: str) -> str:
    """A token without the escape that it stands behind."""
    return token[2:] if token[0] == "\\" else token


def kind_of(token: str) -> AnchorKind:
    """What a token is, by its shape."""
    token = bare(token)
    if "://" in token:
        return "urls"
    if _VALUE.fullmatch(token) and not _HASH.fullmatch(token):
        return "values"
    if "/" in token:
        return "paths"
    if _ERROR.fullmatch(token):
        return "errors"
    if _HASH.fullmatch(token):
        return "hashes"
    return "commands" if _COMMAND.fullmatch(token) and not TOKEN.fullmatch(token) else "names"


def words(token: str) -> list[str]:
    """The words that a token is made of, in order."""
    return _WORD.findall(token)


def holds(text: str, token: str) -> bool:
    """Whether a token stands whole in a text: a path inside a longer path, a name by itself."""
    place = text.find(token)
    while place >= 0:
        end = place + len(token)
        if not (_in_word(text, place - 1) or _in_word(text, end)):
            return True
        place = text.find(token, place + 1)
    return False


def _in_word(text: str, place: int) -> bool:
    return 0 <= place < len(text) and (text[place].isalnum() or text[place] == "_")


def excerpt(output: str) -> str:
    """The part of a tool's output that is read for anchors."""
    if len(output) <= READ_AT_MOST:
        return output
    tail = READ_AT_MOST // 4
    head, end = output[: READ_AT_MOST - tail], output[-tail:]
    return f"{_CUT_AT_END.sub('', head)}\n{_CUT_AT_START.sub('', end)}"
