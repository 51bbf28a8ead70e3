"""What one instance of the tool may read, and what it has to look in for one call.

Of an ancestor only what was inherited is the session's; everything here keeps to that. Says
nothing to a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ctxarchive.errors import KnowledgeError
from ctxarchive.knowledge.records import LAYERS, SourceRef, parse_source, source_label
from ctxarchive.knowledge.store import Hit, KnowledgeBase, Scope
from ctxarchive.tools.arguments import CtxSearchInput, moment

NAMED_SESSIONS = 3
"""Most sessions that a refusal names."""


class Reach:
    """The sessions that a tool may read.

    Args:
        knowledge: where they are archived.
        session: the session whose records answer where no source is given; ``None`` for no
            current one.
        allowed: further sessions; ``None`` for none beside ``session``'s ancestry, or for the whole
            archive where there is no session.
    """

    def __init__(
        self, knowledge: KnowledgeBase, session: str | None, allowed: Sequence[str] | None
    ) -> None:
        self.session = session
        self._knowledge = knowledge
        self._allowed = None if allowed is None else frozenset(allowed)
        self._known_ancestry: tuple[str, ...] | None = None
        self._inherited: dict[str, int] = {}
        """Last seq that is inherited of each ancestor: what it filed later is not ours."""

    def scope(self, asked: CtxSearchInput) -> Scope:
        """Where a call has to look.

        Raises:
            ToolInputError: for a bound that is no date.
            KnowledgeError: ``scope`` for a source that is malformed or may not be read.
        """
        sources = self.sources(asked.source)  # which also makes the ancestry known
        return Scope(
            sources=sources,
            after_seq=asked.after_seq,
            before_seq=asked.before_seq,
            after_time=moment(asked.after, "after", -1),
            before_time=moment(asked.before, "before", 0),
            through={
                session: seq
                for session, seq in self._inherited.items()
                if session not in (self._allowed or ())
            },
        )

    def sources(self, labels: Sequence[str] | None) -> tuple[SourceRef, ...] | None:
        """What labels name; without any, all that may be read, ``None`` for the whole archive.

        Raises:
            KnowledgeError: ``scope`` for a label that is malformed, or a session that may not be
                read.
        """
        permitted = self._permitted()
        if labels is None:
            if permitted is None:
                return None
            return tuple(SourceRef(session=session) for session in permitted)
        found: list[SourceRef] = []
        for label in labels:
            layer = next((layer for layer in LAYERS if layer == label.strip().lower()), None)
            if layer is not None and self.session is not None:
                found += [SourceRef(session=s, layer=layer) for s in self.ancestry(self.session)]
            else:
                found.append(parse_source(label))
        for source in found:
            if not self._may_read(source.session):
                raise KnowledgeError(
                    "scope",
                    f"source {source_label(source.session)!r} is outside what this tool may read"
                    f"{self._told(permitted)}",
                )
        return tuple(dict.fromkeys(found))

    def visible(self, session: str, seq: int) -> bool:
        """Whether a record may be seen: of an ancestor, only what was inherited."""
        return seq <= self.last_seq(session, seq)

    def last_seq(self, session: str, otherwise: int) -> int:
        """The last seq of a session that may be seen; ``otherwise`` where all may."""
        if self._allowed is not None and session in self._allowed:
            return otherwise
        return self._inherited.get(session, otherwise)

    def ancestry(self, session: str) -> tuple[str, ...]:
        """A session and those it was seeded from, the nearest first."""
        if self._known_ancestry is None:
            known = {info.session: info for info in self._knowledge.sessions()}
            found = [session]
            while found[-1] in known:
                info = known[found[-1]]
                if info.parent is None or info.parent in found:
                    break
                if info.inherited_seq is not None:
                    bound = self._inherited.get(found[-1], info.inherited_seq)
                    self._inherited[info.parent] = min(bound, info.inherited_seq)
                found.append(info.parent)
            if found[-1] not in known:
                return tuple(found)  # not filed yet: its own parent may still become known
            self._known_ancestry = tuple(found)
        return self._known_ancestry

    def behind(self, hit: Hit) -> Scope:
        """What was filed after a record that may be read: in its session, and in forks of it."""
        sessions: tuple[str, ...] = (hit.session,)
        if self.session is not None:
            line = self.ancestry(self.session)
            # A fork's own seqs go on behind what it inherited, so they are later than all of that.
            if hit.session in line and hit.session in self._inherited:
                sessions = line[: line.index(hit.session) + 1]
        scope = self.scope(CtxSearchInput())
        sources = tuple(SourceRef(session=session) for session in sessions)
        return replace(scope, sources=sources, after_seq=hit.seq)

    def _may_read(self, session: str) -> bool:
        if session == self.session or (self._allowed is not None and session in self._allowed):
            return True
        if self.session is None:
            return self._allowed is None
        return session in self.ancestry(self.session)

    def _permitted(self) -> list[str] | None:
        """Sessions that may be read, the current one first; ``None`` for all."""
        if self.session is None:
            return None if self._allowed is None else sorted(self._allowed)
        ancestry = self.ancestry(self.session)
        extra = sorted((self._allowed or frozenset()) - set(ancestry))
        return [*ancestry, *extra]

    @staticmethod
    def _told(permitted: Sequence[str] | None) -> str:
        if not permitted:
            return ""
        named = ", ".join(f'"{source_label(each)}"' for each in permitted[:NAMED_SESSIONS])
        more = len(permitted) - NAMED_SESSIONS
        return f"; it may read {named}{f' and {more} more' if more > 0 else ''}"
