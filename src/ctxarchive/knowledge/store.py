"""The contract of a knowledge base, and the values that pass over it.

An abstract class and frozen values: what a store promises, never how. Nothing above this room knows
which database keeps the records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

from ctxarchive.knowledge.records import Kind, Layer, Mark, MarkName, Record, SourceRef

Tier = Literal["strict", "any", "substring", "semantic", "none"]
"""Which way of matching gave the hits: all words, any of the words, substrings, words and meaning
together, or nothing did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerInfo:
    """What one layer of a session holds."""

    records: int
    first_seq: int
    last_seq: int
    chars: int
    """Code points of text in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """One session of the archive."""

    session: str
    title: str | None = None
    records: Mapping[Layer, int]
    """Records by layer; a layer without records is absent."""
    first_seq: int | None = None
    last_seq: int | None = None
    first_time: int | None = None
    """Milliseconds since the epoch of the earliest record that has a time."""
    last_time: int | None = None
    parent: str | None = None
    """The session that this one was seeded from."""
    inherited_seq: int | None = None
    """The last seq of ``parent`` that this session inherited."""
    opened: int
    """When the session was first registered here, milliseconds since the epoch."""
    last_filed: int | None = None
    """When something of it was filed last; ``None`` where nothing was, or by an older version."""
    purged: int = 0
    """Records of it that were purged."""
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PutResult:
    """What one ``put`` did."""

    added: Mapping[Layer, int]
    """New records by layer; a layer without any is absent."""
    already: int
    """Records that were there before with the same content."""
    purged: int = 0
    """Records that were purged before, and so are not filed again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which records may answer. Every bound but ``through`` is exclusive."""

    sources: tuple[SourceRef, ...] | None = None
    """``None`` for the whole archive; an empty tuple for nothing at all."""
    after_seq: int | None = None
    before_seq: int | None = None
    after_time: int | None = None
    """Milliseconds since the epoch. With a bound of time, records without a time are outside."""
    before_time: int | None = None
    through: Mapping[str, int] = field(default_factory=dict)
    """Of a session named here, only the records up to this seq, itself included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """One question."""

    query: str
    """Any text. Quoted parts are phrases, ``word*`` is a prefix, everything else is words."""
    scope: Scope = field(default_factory=Scope)
    limit: int = 5
    """At most so many hits."""
    loosest: Tier = "substring"
    """The last way of matching that is tried; ``strict`` for all words or nothing."""
    explain: bool = False
    """Whether each hit says why it ranks where it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One record that answers."""

    session: str
    seq: int
    layer: Layer
    kind: Kind
    role: str
    name: str | None
    time: int | None
    chars: int
    """Code points of the record's whole text."""
    score: float
    """Higher is better; comparable within one answer only."""
    snippet: str
    """About 200 code points around the match, white space collapsed."""
    offset: int
    """Where in the record's text the match starts, in code points; 0 where that is unknown."""
    why: tuple[str, ...] = ()
    """Why it ranks where it does, a line for each thing that counts, where that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAnswer:
    """The hits of one question, and how they were found."""

    query: str
    tier: Tier
    hits: tuple[Hit, ...]
    tried: tuple[str, ...]
    """One short line for each way of matching that was tried, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """The size of an archive."""

    records: int
    sessions: int
    chars: int
    """Code points of text in all."""
    record_bytes: int
    """Bytes on disk of the records, write-ahead log included."""
    index_bytes: int
    """Bytes on disk of the search index; 0 where there is none yet."""
    schema_version: int
    unindexed: int
    """Records that the index does not hold yet; a search scans them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that ``verify`` found wrong."""

    code: str
    message: str
    session: str | None = None
    seq: int | None = None


PurgeReason = Literal["session", "seq", "age", "text", "retention"]
"""What a purged record was chosen by; of several, the last of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which records are to be purged: those that fulfil all that is given, which is something."""

    sessions: tuple[str, ...] | None = None
    """Only of these sessions; ``None`` for all."""
    first_seq: int | None = None
    """Only from this seq on, of named sessions."""
    last_seq: int | None = None
    """Only up to this seq, included, of named sessions."""
    before_time: int | None = None
    """Only older ones: milliseconds since the epoch, excluded. Records without a time are as old as
    the newest of their session that has one, else as their session is here."""
    text: str | None = None
    """Only those that hold this text: in what they say, a name, a key or a call's arguments, however
    their JSON spells it."""
    forks: bool = True
    """Also what sessions seeded from these inherited of them."""
    retention: bool = False
    """Whether it was a rule of retention that chose."""

    @property
    def reason(self) -> PurgeReason:
        """What a tombstone says of it."""
        if self.retention:
            return "retention"
        if self.text is not None:
            return "text"
        if self.before_time is not None:
            return "age"
        return "session" if self.first_seq is None and self.last_seq is None else "seq"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """What is left of a purged record."""

    session: str
    """The session that was asked about, which may have inherited the record."""
    seq: int
    layer: Layer
    kind: Kind
    reason: PurgeReason
    at: int
    """When it was purged, milliseconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgedSession:
    """What a purge takes of one session."""

    session: str
    records: int
    first_seq: int
    last_seq: int
    chars: int
    """Code points of text in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeResult:
    """What a purge took, or would take."""

    sessions: tuple[PurgedSession, ...] = ()
    """By session, in order of registration."""
    titles: tuple[str, ...] = ()
    """Sessions whose title and other particulars were taken away."""
    ids: tuple[str, ...] = ()
    """Sessions whose id itself holds the text: an id cannot be taken away."""
    scrubbed: bool = True
    """Whether the bytes are gone from the files; ``False`` where another process was reading all the
    time. ``optimize`` or the next purge does it then. ``True`` of a purge that took nothing."""

    @property
    def records(self) -> int:
        """How many records in all."""
        return sum(each.records for each in self.sessions)


class KnowledgeBase(ABC):
    """A place where records are kept for ever and can be found.

    Every method raises ``KnowledgeError`` and nothing else for what the store cannot do.
    """

    @abstractmethod
    def put(self, records: Iterable[Record]) -> PutResult:
        """File records in one durable transaction; sessions not known yet are registered.

        What was purged under its key, in the session or where the session inherited it, is counted
        and not filed.

        Raises:
            KnowledgeError: ``conflict``, when other content is filed under the key of one of
                them; then nothing of this call is written.
        """

    @abstractmethod
    def register(
        self,
        session: str,
        *,
        title: str | None = None,
        parent: str | None = None,
        inherited_seq: int | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """Make a session known. Idempotent: what is given anew replaces, what is not given stays.

        Raises:
            KnowledgeError: ``conflict``, when the session has another parent already.
        """

    @abstractmethod
    def get(self, session: str, seq: int) -> Record | None:
        """The record under a key, or ``None``.

        Raises:
            KnowledgeError: ``purged``, when it was there and was deleted on purpose.
        """

    @abstractmethod
    def range(self, scope: Scope, limit: int) -> tuple[Record, ...]:
        """The first ``limit`` records of a scope, by session in order of registration, then seq."""

    @abstractmethod
    def archived(self, session: str) -> Mapping[int, Layer]:
        """The seqs of a session that are filed, ascending, with the layer of each."""

    @abstractmethod
    def missing(self, session: str, seqs: Sequence[int]) -> list[int]:
        """Those of ``seqs`` neither filed nor purged, in the order given; costs by ``seqs`` alone."""

    @abstractmethod
    def layers(self, session: str) -> Mapping[Layer, LayerInfo]:
        """What each layer of a session holds; a layer without records is absent."""

    @abstractmethod
    def mark(
        self, session: str, seq: int, name: MarkName | None, *, by_seq: int | None = None
    ) -> Mark | None:
        """Mark a record, or take its mark away; durable when it returns.

        A mark may come before its record: what stands in view is not filed yet. What a session
        marks of what it inherited holds for it alone.

        Args:
            session: a session that is registered.
            seq: the record's.
            name: the mark, which replaces the one before; ``None`` for no mark.
            by_seq: of a superseded record, the seq of what took its place.

        Returns:
            The mark that was in force before, as ``marks`` told it.

        Raises:
            KnowledgeError: ``missing`` for a session that is not registered; ``mark`` for a seq
                out of range, for ``by_seq`` with another mark, and for a record by itself;
                ``purged`` for a record that was purged.
        """

    @abstractmethod
    def marks(self, session: str) -> Mapping[int, Mark]:
        """The marks in force for a session, by seq, ascending.

        Of its ancestors it has those of what it inherited, save where it was superseded by what
        was not inherited; its own come first.
        """

    @abstractmethod
    def search(self, request: SearchRequest) -> SearchAnswer:
        """Find records. No text of a query raises."""

    @abstractmethod
    def mentions(self, text: str, scope: Scope, limit: int) -> Sequence[tuple[str, int]]:
        """Session and seq of the newest originals that hold a text, the newest first; no search.

        A store may look at the newest records of each session alone.

        Args:
            text: an identifier, a path, a number: held as it is spelt, no part of a longer word.
            scope: where to look.
            limit: at most so many.
        """

    @abstractmethod
    def index_pending(self) -> int:
        """Index what is filed and not indexed yet; the number of records that this call indexed."""

    @abstractmethod
    def sessions(self) -> tuple[SessionInfo, ...]:
        """Every session, in order of registration."""

    @abstractmethod
    def stats(self) -> Stats:
        """The size of the archive."""

    @abstractmethod
    def verify(self) -> list[Finding]:
        """Check everything that is stored against itself; empty when all is well."""

    @abstractmethod
    def rebuild(self) -> int:
        """Make the search index anew from the records; how many it holds then."""

    @abstractmethod
    def purge(self, selection: Selection, *, dry_run: bool = False) -> PurgeResult:
        """Delete records for good: their bytes, and what the index made of them.

        A tombstone each is left, so that whoever asks for one is told, and filing it again does not
        bring it back. A session of which everything goes loses its title and other particulars.

        Args:
            selection: which.
            dry_run: only say what would go.

        Raises:
            KnowledgeError: ``missing`` for a session that is not there; ``scope`` for a selection
                that chooses nothing in particular, or seqs of no session.
        """

    @abstractmethod
    def purged(self, session: str) -> Mapping[int, Tombstone]:
        """What was purged of a session and of what it inherited, by seq, ascending."""

    @abstractmethod
    def close(self) -> None:
        """Release the files. Closing twice is no error."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
