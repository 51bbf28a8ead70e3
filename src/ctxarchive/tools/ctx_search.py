"""``ctx_search``: the tool a model fetches and searches with.

Takes what a model sends, answers plain text within a budget, and says how to go on where it was
cut. Reads one knowledge base; knows nothing of sessions or agents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ctxarchive.errors import ConfigError, KnowledgeError, ToolInputError
from ctxarchive.knowledge.records import LAYERS, SEQ_LIMIT, Record, SourceRef, source_label
from ctxarchive.knowledge.store import Hit, KnowledgeBase, Scope
from ctxarchive.tools.arguments import NAME, CtxSearchInput, input_schema, parse_input, refusal
from ctxarchive.tools.holdings import holdings
from ctxarchive.tools.purged import gone, gone_within
from ctxarchive.tools.reach import Reach
from ctxarchive.tools.searching import Searching
from ctxarchive.tools.wording import heading, part, range_call, within

DESCRIPTION = """\
Read back the earlier parts of this conversation that are no longer in view; all of it is archived \
word for word. Use it before you guess, redo work or ask the user again: when a checkpoint says \
that something was elided, or when you need a path, an identifier, an error text, a value, a \
decision, or what the user asked exactly. To get an original text, pass `seq` (with `offset` and \
`length`) or `after_seq`/`before_seq` exactly as a checkpoint or a result prints them. To search, \
pass `queries`: concrete tokens that you expect in the original find more than a paraphrase, though \
a whole question works too. Results carry seq and date; a higher seq is later, and what a result \
says may have changed since: then it names later records of the same thing."""

MAX_OUTPUT_CHARS = 8_000
"""Default bound of one answer in code points: under the size at which hosts prune tool results."""

LEAST_OUTPUT_CHARS = 500
"""In less no answer can say what it is and how to go on."""

RANGE_BATCH = 200
"""Records read at once when whole records are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one call came to."""

    text: str
    """At most as long as the tool's answers may be."""
    record: Record | None = None
    """The record that was fetched, where the call named one that is there."""
    offset: int = 0
    """Where in that record the text starts, in code points."""


class CtxSearchTool:
    """``ctx_search`` over one knowledge base.

    Args:
        knowledge: what is searched.
        session: the session whose records answer where no source is given; ``None`` where a host
            serves several and knows no current one.
        allowed: sessions that may be asked for; by default ``session`` and its ancestry alone, or
            the whole archive where there is no session.
        max_output_chars: bound of one answer in code points, at least ``LEAST_OUTPUT_CHARS``.
        name: what the host calls the tool.

    Raises:
        ConfigError: for a bound that is too small.
    """

    def __init__(
        self,
        knowledge: KnowledgeBase,
        *,
        session: str | None = None,
        allowed: Sequence[str] | None = None,
        max_output_chars: int = MAX_OUTPUT_CHARS,
        name: str = NAME,
    ) -> None:
        if max_output_chars < LEAST_OUTPUT_CHARS:
            raise ConfigError(f"max_output_chars: {max_output_chars} is under {LEAST_OUTPUT_CHARS}")
        self._knowledge = knowledge
        self._reach = Reach(knowledge, session, allowed)
        self._max = max_output_chars
        self.name = name

    @property
    def definition(self) -> dict[str, Any]:
        """Name, description and JSON schema, as the Messages API takes a tool."""
        return {"name": self.name, "description": DESCRIPTION, "input_schema": input_schema()}

    def run(self, input: Mapping[str, Any]) -> str:
        """Answer one call with text.

        Args:
            input: the call's arguments as the model sent them.

        Raises:
            ToolInputError: for arguments the tool does not take, naming the first.
            KnowledgeError: ``scope`` for a source that is malformed or not allowed, and whatever
                the store cannot do.
        """
        return self.answer(input).text

    def answer(self, input: Mapping[str, Any]) -> Answer:
        """As ``run``, with the record that was fetched."""
        asked = parse_input(input)
        if asked.seq is not None:
            return self._fetch(asked, asked.seq)
        if asked.queries is not None:
            return Answer(
                text=Searching(self._knowledge, self._reach, self._mark, asked, self._max).answer()
            )
        return Answer(text=self._list(asked))

    def _mark(self, found: Record | Hit) -> str:
        """What a person said of a record since, as a heading tells it."""
        if found.layer != "constraint":
            return ""
        # A fork's own word on what it inherited comes first.
        session = self._reach.session
        if session is None or found.session not in self._reach.ancestry(session):
            session = found.session
        mark = self._knowledge.marks(session).get(found.seq)
        return "" if mark is None else f" ({mark.told()})"

    # -- one record

    def _fetch(self, asked: CtxSearchInput, seq: int) -> Answer:
        sources = self._reach.sources(asked.source)
        if sources is None:
            raise ToolInputError(
                "seq: name the source it belongs to; a right call: "
                f'{NAME}(source: "session/<id>", seq: {seq})'
            )
        purged: list[str] = []
        for source in sources:
            if not self._reach.visible(source.session, seq):
                continue
            try:
                record = self._knowledge.get(source.session, seq)
            except KnowledgeError as error:
                if error.code != "purged":
                    raise
                purged.append(gone(self._knowledge, source.session, seq))
                continue
            if record is not None and source.layer in {None, record.layer}:
                offset = min(asked.offset or 0, len(record.text))
                end = len(record.text)
                if asked.length is not None:
                    end = min(end, offset + asked.length)
                text = part(record, self._mark(record), offset, end, self._max)
                return Answer(text=text, record=record, offset=offset)
        if purged:
            return Answer(text=within("\n".join(dict.fromkeys(purged)), self._max))
        return Answer(text=self._absent(sources, seq))

    def _absent(self, sources: Sequence[SourceRef], seq: int) -> str:
        where = ", ".join(f'"{source_label(s.session, s.layer)}"' for s in sources)
        lines = [f"No record with seq {seq} in {where}."]
        for source in sources:
            if not self._reach.visible(source.session, seq):
                continue
            other = self._knowledge.get(source.session, seq)
            if other is not None:
                label = source_label(other.session, other.layer)
                lines.append(f'seq {seq} is in source "{label}".')
        lines += holdings(self._knowledge, self._reach, sources)
        return within("\n".join(dict.fromkeys(lines)), self._max)

    # -- records in order

    def _list(self, asked: CtxSearchInput) -> str:
        bounds = (asked.after_seq, asked.before_seq, asked.after, asked.before)
        if all(bound is None for bound in bounds):
            raise refusal(
                "give queries to search, seq to fetch a record, or after_seq and before_seq to "
                "list whole records"
            )
        named = any(label.strip().lower() not in LAYERS for label in asked.source or ())
        scope = self._one_session(self._reach.scope(asked), named=named)
        widest = len(range_call(asked, scope, SEQ_LIMIT))
        most = asked.limit or SEQ_LIMIT
        parts: list[str] = []
        left = self._max
        records = self._walk(scope)
        record = next(records, None)
        while record is not None and len(parts) < most:
            upcoming = next(records, None)
            text = f"{heading(record, self._mark(record))}\n{record.text}"
            if len(text) + (0 if upcoming is None else widest + 2) > left:
                break
            parts.append(text)
            left -= len(text) + 2
            record = upcoming
        if record is None:
            note = gone_within(self._knowledge, scope)
            if parts:
                return "\n\n".join([*parts, note] if 0 < len(note) <= left else parts)
            there = holdings(self._knowledge, self._reach, scope.sources)
            return within("\n".join([note or "No records in that range.", *there]), self._max)
        if parts:
            return "\n\n".join([*parts, range_call(asked, scope, record.seq - 1)])
        # Longer than an answer by itself: its beginning, how to go on in it, and behind it.
        behind = "" if upcoming is None else f"\n\n{range_call(asked, scope, record.seq)}"
        room = self._max - len(behind)
        return part(record, self._mark(record), 0, len(record.text), room) + behind

    def _one_session(self, scope: Scope, *, named: bool) -> Scope:
        """The scope of one session: seqs order the records of one session only."""
        sources = scope.sources or ()
        sessions = list(dict.fromkeys(source.session for source in sources))
        if not named and self._reach.session in sessions:
            sessions = [self._reach.session or ""]
        if len(sessions) != 1:
            raise refusal("source: listing whole records takes sources of one session", "after_seq")
        chosen = tuple(source for source in sources if source.session == sessions[0])
        return replace(scope, sources=chosen)

    def _walk(self, scope: Scope) -> Iterator[Record]:
        """A session's records in order: those with a text that no compaction wrote."""
        while True:
            found = self._knowledge.range(scope, RANGE_BATCH)
            for record in found:
                if not self._reach.visible(record.session, record.seq):
                    return
                if (record.text or record.images) and record.kind != "checkpoint":
                    yield record
            if len(found) < RANGE_BATCH:
                return
            scope = replace(scope, after_seq=found[-1].seq)
