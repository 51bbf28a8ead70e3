"""``ctx_search``: the tool a model fetches and searches with.

Takes what a model sends, answers plain text within a budget, and says how to go on where it was
cut. Reads one knowledge base; knows nothing of sessions or agents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ctxarchive.errors import KnowledgeError, ToolInputError
from ctxarchive.knowledge.records import SEQ_LIMIT, Record, SourceRef, parse_source, source_label
from ctxarchive.knowledge.store import Hit, KnowledgeBase, Scope, SearchAnswer, SearchRequest
from ctxarchive.tools.arguments import CtxSearchInput, moment, parse_input
from ctxarchive.tools.purged import gone, gone_within

NAME = "ctx_search"

DESCRIPTION = """\
Fetch or search the archive of this conversation's earlier parts, kept word for word. Use it when a \
checkpoint says that something was elided, or when you need a detail that is no longer in view: a \
path, an identifier, an error text, a value, what the user asked exactly. Pass `seq` (with `offset` \
and `length`) or `after_seq`/`before_seq` exactly as a checkpoint prints them to get the original \
text. Pass `queries` to search: concrete tokens you expect in the original find more than a \
paraphrase; put exact phrases in double quotes."""

MAX_OUTPUT_CHARS = 8_000
"""Default bound of one answer in code points: under the size at which hosts prune tool results."""

DEFAULT_LIMIT = 5
RANGE_BATCH = 200
"""Records read at once when whole records are listed."""

SAID_CHARS = 60
"""Most of a tool's name, of a query or of an image's kind that a line of ours repeats."""


class CtxSearchTool:
    """``ctx_search`` over one knowledge base.

    Args:
        knowledge: what is searched.
        session: the session whose records answer where no source is given; ``None`` where a host
            serves several and knows no current one.
        allowed: sessions that may be asked for; by default ``session`` and its ancestry alone, or
            the whole archive where there is no session.
        max_output_chars: bound of one answer in code points.
        name: what the host calls the tool.
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
        self._knowledge = knowledge
        self._session = session
        self._allowed = None if allowed is None else frozenset(allowed)
        self._max = max_output_chars
        self._known_ancestry: tuple[str, ...] | None = None
        self._inherited: dict[str, int] = {}
        """Last seq that is inherited of each ancestor: what it filed later is not ours."""
        self.name = name

    @property
    def definition(self) -> dict[str, Any]:
        """Name, description and JSON schema, as the Messages API takes a tool."""
        schema = CtxSearchInput.model_json_schema()
        return {"name": self.name, "description": DESCRIPTION, "input_schema": schema}

    def run(self, input: Mapping[str, Any]) -> str:
        """Answer one call.

        Args:
            input: the call's arguments as the model sent them.

        Raises:
            ToolInputError: for arguments the tool does not take, naming the first.
            KnowledgeError: ``scope`` for a source that is malformed or not allowed, and whatever
                the store cannot do.
        """
        asked = parse_input(input)
        if asked.seq is not None:
            return self._fetch(asked)
        if asked.queries is not None:
            return self._search(asked)
        return self._list(asked)

    def _scope(self, asked: CtxSearchInput) -> Scope:
        sources = self._sources(asked.source)  # which also makes the ancestry known
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

    def _sources(self, labels: Sequence[str] | None) -> tuple[SourceRef, ...] | None:
        if labels is None:
            permitted = self._permitted()
            if permitted is None:
                return None
            return tuple(SourceRef(session=session) for session in permitted)
        found = tuple(parse_source(label) for label in labels)
        for source in found:
            if not self._may_read(source.session):
                raise KnowledgeError(
                    "scope",
                    f"source {source_label(source.session)!r} is outside what this tool may read",
                )
        return found

    def _may_read(self, session: str) -> bool:
        if session == self._session or (self._allowed is not None and session in self._allowed):
            return True
        if self._session is None:
            return self._allowed is None
        return session in self._ancestry(self._session)

    def _ancestry(self, session: str) -> tuple[str, ...]:
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

    def _visible(self, session: str, seq: int) -> bool:
        """Whether a record may be seen: of an ancestor, only what was inherited."""
        if self._allowed is not None and session in self._allowed:
            return True
        return seq <= self._inherited.get(session, seq)

    def _permitted(self) -> list[str] | None:
        """Sessions that may be read, the current one first; ``None`` for all."""
        if self._session is None:
            return None if self._allowed is None else sorted(self._allowed)
        ancestry = self._ancestry(self._session)
        extra = sorted((self._allowed or frozenset()) - set(ancestry))
        return [*ancestry, *extra]

    def _mark(self, found: Record | Hit) -> str:
        """What a person said of a record since, as a heading tells it."""
        if found.layer != "constraint":
            return ""
        # A fork's own word on what it inherited comes first.
        forked = self._session is not None and found.session in self._ancestry(self._session)
        session = self._session if forked and self._session is not None else found.session
        mark = self._knowledge.marks(session).get(found.seq)
        return "" if mark is None else f" ({mark.told()})"

    def _fetch(self, asked: CtxSearchInput) -> str:
        seq = asked.seq or 0
        sources = self._sources(asked.source)
        if sources is None:
            raise ToolInputError("seq: name the source it belongs to (session/<id>)")
        try:
            record = next(
                (
                    found
                    for source in sources
                    if self._visible(source.session, seq)
                    and (found := self._knowledge.get(source.session, seq)) is not None
                    and source.layer in {None, found.layer}
                ),
                None,
            )
            if record is None:
                return self._absent(sources, seq)
        except KnowledgeError as error:
            if error.code != "purged":
                raise
            return gone(sources[0].session, seq)
        offset = min(asked.offset or 0, len(record.text))
        end = len(record.text)
        if asked.length is not None:
            end = min(end, offset + asked.length)
        return _part(record, self._mark(record), offset, end, self._max)

    def _absent(self, sources: Sequence[SourceRef], seq: int) -> str:
        where = ", ".join(f'"{source_label(s.session, s.layer)}"' for s in sources)
        lines = [f"No record with seq {seq} in {where}."]
        for source in sources:
            visible = self._visible(source.session, seq)
            other = self._knowledge.get(source.session, seq) if visible else None
            if other is not None:
                label = source_label(other.session, other.layer)
                lines.append(f'seq {seq} is in source "{label}".')
        lines += self._existing(sources)
        return _within("\n".join(dict.fromkeys(lines)), self._max)

    def _existing(self, sources: Sequence[SourceRef] | None) -> list[str]:
        """One line for each layer of the sessions asked for: what there is to be found."""
        if sources is None:
            sessions = dict.fromkeys(info.session for info in self._knowledge.sessions())
        else:
            sessions = dict.fromkeys(source.session for source in sources)
        return [
            f'"{source_label(session, layer)}" holds {info.records} records, '
            f"seq {info.first_seq}..{info.last_seq}"
            for session in sessions
            for layer, info in self._knowledge.layers(session).items()
        ] or ["Nothing is archived there yet."]

    def _list(self, asked: CtxSearchInput) -> str:
        bounds = (asked.after_seq, asked.before_seq, asked.after, asked.before)
        if all(bound is None for bound in bounds):
            raise ToolInputError(
                "give queries to search, seq to fetch a record, or after_seq and before_seq to "
                "list whole records"
            )
        scope = self._one_session(self._scope(asked), named=asked.source is not None)
        widest = len(_continue_list(asked, scope, SEQ_LIMIT))
        parts: list[str] = []
        left = self._max
        records = self._walk(scope)
        record = next(records, None)
        while record is not None:
            upcoming = next(records, None)
            part = f"{_heading(record, self._mark(record))}\n{record.text}"
            if len(part) + (0 if upcoming is None else widest + 2) > left:
                break
            parts.append(part)
            left -= len(part) + 2
            record = upcoming
        if record is None:
            note = gone_within(self._knowledge, scope)
            if parts:
                return "\n\n".join([*parts, note] if 0 < len(note) <= left else parts)
            lines = [note or "No records in that range.", *self._existing(scope.sources)]
            return _within("\n".join(lines), self._max)
        if parts:
            return "\n\n".join([*parts, _continue_list(asked, scope, record.seq - 1)])
        # Longer than an answer by itself: its beginning, how to go on in it, and behind it.
        behind = "" if upcoming is None else f"\n\n{_continue_list(asked, scope, record.seq)}"
        room = self._max - len(behind)
        return _part(record, self._mark(record), 0, len(record.text), room) + behind

    def _one_session(self, scope: Scope, *, named: bool) -> Scope:
        """The scope of one session: seqs order the records of one session only."""
        sources = scope.sources or ()
        sessions = list(dict.fromkeys(source.session for source in sources))
        if not named and self._session in sessions:
            sessions = [self._session]
        if len(sessions) != 1:
            raise ToolInputError("source: listing whole records takes sources of one session")
        chosen = tuple(source for source in sources if source.session == sessions[0])
        return replace(scope, sources=chosen)

    def _walk(self, scope: Scope) -> Iterator[Record]:
        """A session's records in order: those with a text that no compaction wrote."""
        while True:
            found = self._knowledge.range(scope, RANGE_BATCH)
            for record in found:
                if not self._visible(record.session, record.seq):
                    return
                if (record.text or record.images) and record.kind != "checkpoint":
                    yield record
            if len(found) < RANGE_BATCH:
                return
            scope = replace(scope, after_seq=found[-1].seq)

    def _search(self, asked: CtxSearchInput) -> str:
        queries = asked.queries or []
        scope = self._scope(asked)
        limit = asked.limit or DEFAULT_LIMIT
        answers = [
            self._knowledge.search(SearchRequest(query=query, scope=scope, limit=limit))
            for query in queries
        ]
        texts: list[str] = []
        left = self._max
        for place, answer in enumerate(answers):
            # What one answer leaves over, the later ones may use.
            text = self._answer(answer, left // (len(answers) - place) - 2, scope)
            left -= len(text) + 2
            texts.append(text)
        return "\n\n".join(texts)

    def _answer(self, answer: SearchAnswer, room: int, scope: Scope) -> str:
        title = f"# {_clip(repr(answer.query))}: "
        if not answer.hits:
            tried = "; ".join(answer.tried) or "all words, any word, substring"
            lines = [f"{title}nothing found (tried {tried})"]
            return _within("\n".join([*lines, *self._existing(scope.sources)]), room)
        lines = [f"{title}{len(answer.hits)} found, matched by {_TIERS[answer.tier]}"]
        left = room - len(lines[0])
        for place, hit in enumerate(answer.hits):
            text = f"{_hit_heading(hit, self._mark(hit))}\n{hit.snippet}\n→ {_hit_call(hit)}"
            more = f"[{len(answer.hits) - place} more; narrow the scope or ask one query at a time]"
            last = place == len(answer.hits) - 1
            if len(text) + 2 + (0 if last else len(more) + 2) > left:
                lines.append(more)
                break
            lines.append(text)
            left -= len(text) + 2
        return _within("\n\n".join(lines), room)


_TIERS = {
    "strict": "all words",
    "any": "any of the words",
    "substring": "substring",
    "semantic": "words and meaning",
    "none": "nothing",
}


def _heading(record: Record, mark: str) -> str:
    label = source_label(record.session, record.layer)
    kind = "" if record.kind == "original" else f" ({record.kind})"
    return (
        f"[{label} seq {record.seq}] {_said(record.role, record.name)}{kind}{mark}{_when(record.time)}, "
        f"{len(record.text)} chars{_pictures(record.images)}"
    )


def _said(role: str, name: str | None) -> str:
    return f"tool {_clip(name)}" if role == "tool" and name else role


def _pictures(images: Sequence[str]) -> str:
    """The images of a record, by kind and size."""
    if not images:
        return ""
    more = f" and {len(images) - 1} more" if len(images) > 1 else ""
    return f", with {_clip(images[0])}{more}"


def _clip(text: str) -> str:
    """``text`` on one line, no longer than a line of ours may repeat."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return flat if len(flat) <= SAID_CHARS else f"{flat[: SAID_CHARS - 1]}…"


def _within(text: str, room: int) -> str:
    """``text``, cut at a line break where it has no room, saying so."""
    if len(text) <= room:
        return text
    note = "\n[cut]"
    head = text[: max(0, room - len(note))]
    return (head.rpartition("\n")[0] or head) + note if room > len(note) else head[:room]


def _hit_heading(hit: Hit, mark: str) -> str:
    label = source_label(hit.session, hit.layer)
    kind = "" if hit.kind == "original" else f" ({hit.kind})"
    said = f"{_said(hit.role, hit.name)}{kind}{mark}{_when(hit.time)}"
    return f"[{label} seq {hit.seq}] {said}, {hit.chars} chars"


def _hit_call(hit: Hit) -> str:
    label = source_label(hit.session, hit.layer)
    if hit.chars <= MAX_OUTPUT_CHARS // 2:
        return f'{NAME}(source: "{label}", seq: {hit.seq})'
    offset = max(0, hit.offset - 1_000)
    length = min(4_000, hit.chars - offset)
    return f'{NAME}(source: "{label}", seq: {hit.seq}, offset: {offset}, length: {length})'


def _when(time: int | None) -> str:
    if time is None:
        return ""
    try:
        moment = datetime.fromtimestamp(time / 1_000, UTC)
    except (ValueError, OverflowError, OSError):
        return ""  # a log may claim any time; one outside the calendar says nothing
    return f", {moment:%Y-%m-%d %H:%M:%S} UTC"


def _extent(record: Record, offset: int, end: int) -> str:
    total = len(record.text)
    return "" if (offset, end) == (0, total) else f" [{offset}..{end} of {total}]"


def _part(record: Record, mark: str, offset: int, end: int, room: int) -> str:
    """A part of a record's text under its heading, with the call that goes on where it is cut."""
    total = len(record.text)
    heading = _heading(record, mark)
    whole = f"{heading}{_extent(record, offset, end)}\n{record.text[offset:end]}"
    if len(whole) <= room:
        return whole
    widest = f" [{total}..{total} of {total}]\n\n[{total}..{total} of {total}] continue with "
    taken = len(heading) + len(widest) + len(_call(record, total, total))
    shown = min(end, offset + max(1, room - taken))
    extent = f"[{offset}..{shown} of {total}]"
    return (
        f"{heading} {extent}\n{record.text[offset:shown]}\n"
        f"{extent} continue with {_call(record, shown, end - shown)}"
    )


def _call(record: Record, offset: int, length: int) -> str:
    label = source_label(record.session, record.layer)
    return f'{NAME}(source: "{label}", seq: {record.seq}, offset: {offset}, length: {length})'


def _continue_list(asked: CtxSearchInput, scope: Scope, after: int) -> str:
    names = [f'"{source_label(source.session, source.layer)}"' for source in scope.sources or ()]
    source = names[0] if len(names) == 1 else f"[{', '.join(names)}]"
    bounds = [f"source: {source}", f"after_seq: {after}"]
    if asked.before_seq is not None:
        bounds.append(f"before_seq: {asked.before_seq}")
    bounds += [
        f'{name}: "{value}"'
        for name, value in (("after", asked.after), ("before", asked.before))
        if value is not None
    ]
    return f"[more records follow] continue with {NAME}({', '.join(bounds)})"
