"""What the knowledge base keeps: one record an event, and the labels that scope a search.

Values only. Nothing here reads a file, knows how a store keeps records, or has heard of the events
that they were made from.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, get_args

from ctxarchive.errors import KnowledgeError

Layer = Literal["constraint", "finding", "narrative"]
"""Constraint: what the user asked; finding: what was learnt; narrative: what was said and planned."""

LAYERS: Final[tuple[Layer, ...]] = get_args(Layer)

Kind = Literal["original", "checkpoint", "injected"]
"""Original: an event as it happened; checkpoint: derived text; injected: text of the host."""

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

SEQ_LIMIT: Final = 1 << 32
"""Seqs are below this, so that a session's records are one range of 64-bit keys."""

Renderer = Callable[[str, str], str]
"""``(event JSON, head) -> text``. A store keeps JSON and head only and renders on reading.

It is pure, and its text is made of the head and of strings that the JSON holds, joined by white
space: the substring search relies on that when it picks the records to render.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The archived form of one event; ``(session, seq)`` is its key."""

    session: str
    """The session's id: any text."""
    seq: int
    """The event's position in its session's log, from 0, below ``SEQ_LIMIT``."""
    layer: Layer
    kind: Kind = "original"
    role: str
    """``user``, ``assistant`` or ``tool``."""
    name: str | None = None
    """The tool's name, where the record is a tool's result."""
    time: int | None = None
    """Milliseconds since the epoch, or ``None`` where the log has no times."""
    head: str = ""
    """First line of the text where the event's own JSON does not hold it; empty for none."""
    event: str
    """The event's JSON, verbatim."""
    text: str
    """What ``Renderer`` makes of ``event`` and ``head``: any Unicode, NUL and lone surrogates too."""
    images: tuple[str, ...] = ()
    """One short description an image, such as ``image/png, 1234 bytes``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRef:
    """What a source label names: a session, or one layer of it."""

    session: str
    layer: Layer | None = None
    """``None`` for every layer of the session."""


TAKEN: Final = "filed with other content already"
"""What a ``conflict`` says of the key that another record has."""

MarkName = Literal["pinned", "superseded"]
"""Pinned: to be kept in view before everything else; superseded: no longer to be shown as valid."""

MARK_NAMES: Final[tuple[MarkName, ...]] = get_args(MarkName)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What a person said of a record after it was made; a record has at most one."""

    session: str
    """Where it was marked: the record's own session, or the one that it was inherited from."""
    seq: int
    """The record's seq."""
    name: MarkName
    by_seq: int | None = None
    """Of a superseded record, the seq of what took its place; ``None`` where nobody said."""
    at: int
    """When it was marked, milliseconds since the epoch."""

    def told(self) -> str:
        """The mark in words, such as ``superseded by seq 40``."""
        return self.name if self.by_seq is None else f"{self.name} by seq {self.by_seq}"


_PREFIX: Final = "session/"
_ENCODED_CHARACTERS: Final = frozenset("/\\'\"`%()[]{}<>,")
_ENCODED_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zs", "Zl", "Zp"})
_ESCAPE: Final = re.compile(r"%([0-9A-Fa-f]{2})")


def source_label(session: str, layer: Layer | None = None) -> str:
    """The label of a session's layer, ``session/<id>/<layer>``; without a layer, ``session/<id>``.

    The id is percent-encoded (UTF-8) where it holds a slash of either kind, quotes, ``%``, white
    space, control characters, brackets, commas or lone surrogates, so that a label can be quoted
    and parsed.
    """
    encoded = "".join(_encode(character) for character in session)
    return f"{_PREFIX}{encoded}/{layer}" if layer else f"{_PREFIX}{encoded}"


def parse_source(label: str) -> SourceRef:
    """What a label names; the inverse of ``source_label``.

    An id that was not encoded is taken as it stands, as long as it holds no ``/``.

    Raises:
        KnowledgeError: ``scope``, when the label is not of the form above.
    """
    if not label.startswith(_PREFIX):
        raise KnowledgeError(
            "scope", f"source {label!r}: expected session/<id> or session/<id>/<layer>"
        )
    parts = label[len(_PREFIX) :].split("/")
    if len(parts) == 1:
        return SourceRef(session=_decode(parts[0]))
    if len(parts) > 2:
        raise KnowledgeError(
            "scope", f"source {label!r}: a '/' inside a session's id is written %2F"
        )
    if parts[1] not in LAYERS:
        raise KnowledgeError(
            "scope", f"source {label!r}: layer {parts[1]!r} is none of {', '.join(LAYERS)}"
        )
    return SourceRef(session=_decode(parts[0]), layer=parts[1])


def _encode(character: str) -> str:
    plain = (
        character not in _ENCODED_CHARACTERS
        and unicodedata.category(character) not in _ENCODED_CATEGORIES
    )
    if plain:
        return character
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def _decode(encoded: str) -> str:
    if encoded.count("%") != len(_ESCAPE.findall(encoded)):
        return encoded  # a bare '%': the id was written as it is
    raw = encoded.encode("utf-8", "surrogatepass")
    decoded = re.sub(rb"%([0-9A-Fa-f]{2})", lambda match: bytes([int(match[1], 16)]), raw)
    try:
        return decoded.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return encoded
