"""``ctx_search``: the tool a model fetches and searches with.

Takes what a model sends, answers plain text within a budget, and says how to go on where it was
cut. Reads one knowledge base; knows nothing of sessions or agents.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ctxarchive.errors import KnowledgeError, ToolInputError
from ctxarchive.knowledge.records import Record, SourceRef, parse_source, source_label
from ctxarchive.knowledge.store import Hit, KnowledgeBase, Scope, SearchAnswer, SearchRequest

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


def _as_list(value: Any) -> Any:
    """A list where a model sent one string, or a list spelt as JSON."""
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("["):
            try:
                decoded = json.loads(text)
            except ValueError:
                return [value]
            if isinstance(decoded, list):
                return decoded
        return [value]
    return value


def _as_number(value: Any) -> Any:
    """A number where a model sent it as text."""
    if isinstance(value, str):
        try:
            return int(value.strip())
        except ValueError:
            return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


Strings = Annotated[list[str], BeforeValidator(_as_list)]
Number = Annotated[int, BeforeValidator(_as_number)]


class CtxSearchInput(BaseModel):
    """What ``ctx_search`` takes: ``queries``, or ``seq``, or ``after_seq``/``before_seq``."""

    model_config = ConfigDict(frozen=True, extra="forbid", title="ctx_search")

    queries: Strings | None = Field(
        default=None,
        min_length=1,
        max_length=8,
        description="1 to 8 searches, each answered on its own: words, identifiers, paths, error "
        'texts; "exact phrases" in double quotes; word* for a prefix.',
    )
    source: Strings | None = Field(
        default=None,
        description="One source label or several, as a checkpoint prints them: "
        "session/<id>/<layer>, or session/<id> for all layers. Default: this conversation.",
    )
    seq: Number | None = Field(
        default=None, ge=0, description="Fetch the record with this seq, exactly."
    )
    offset: Number | None = Field(
        default=None, ge=0, description="With seq: start at this character of the record."
    )
    length: Number | None = Field(
        default=None, ge=0, description="With seq: return this many characters."
    )
    after_seq: Number | None = Field(
        default=None,
        ge=-1,
        description="Only records after this seq. Without queries: whole records in order.",
    )
    before_seq: Number | None = Field(
        default=None, ge=0, description="Only records before this seq."
    )
    after: str | None = Field(
        default=None, description="Only records from this date or time (ISO 8601, UTC) on."
    )
    before: str | None = Field(
        default=None, description="Only records before this date or time (ISO 8601, UTC)."
    )
    limit: Number | None = Field(
        default=None, ge=1, le=50, description="Most results a query; 5 by default."
    )


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
        return Scope(
            sources=self._sources(asked.source),
            after_seq=asked.after_seq,
            before_seq=asked.before_seq,
            after_time=_bound(asked.after, "after", -1),
            before_time=_bound(asked.before, "before", 0),
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
        return session in _ancestry(self._knowledge, self._session)

    def _permitted(self) -> list[str] | None:
        """Sessions that may be read, the current one first; ``None`` for all."""
        if self._session is None:
            return None if self._allowed is None else sorted(self._allowed)
        ancestry = _ancestry(self._knowledge, self._session)
        extra = sorted((self._allowed or frozenset()) - set(ancestry))
        return [*ancestry, *extra]

    def _fetch(self, asked: CtxSearchInput) -> str:
        seq = asked.seq or 0
        sources = self._sources(asked.source)
        if sources is None:
            raise ToolInputError("seq: name the source it belongs to (session/<id>)")
        record = next(
            (
                found
                for source in sources
                if (found := self._knowledge.get(source.session, seq)) is not None
                and source.layer in {None, found.layer}
            ),
            None,
        )
        if record is None:
            return self._absent(sources, seq)
        offset = min(asked.offset or 0, len(record.text))
        end = len(record.text)
        if asked.length is not None:
            end = min(end, offset + asked.length)
        return self._part(record, offset, end)

    def _absent(self, sources: Sequence[SourceRef], seq: int) -> str:
        where = ", ".join(f'"{source_label(s.session, s.layer)}"' for s in sources)
        lines = [f"No record with seq {seq} in {where}."]
        for source in sources:
            lines += [
                f'"{source_label(source.session, layer)}" holds seq {info.first_seq}..{info.last_seq}'
                for layer, info in self._knowledge.layers(source.session).items()
            ]
            other = self._knowledge.get(source.session, seq)
            if other is not None:
                label = source_label(other.session, other.layer)
                lines.append(f'seq {seq} is in source "{label}".')
        return "\n".join(dict.fromkeys(lines))

    def _part(self, record: Record, offset: int, end: int) -> str:
        """A part of a record's text under its heading, with the call that goes on where it is cut."""
        total = len(record.text)
        heading = _heading(record)
        whole = f"{heading}{_extent(record, offset, end)}\n{record.text[offset:end]}"
        if len(whole) <= self._max:
            return whole
        widest = f" [{total}..{total} of {total}]\n\n[{total}..{total} of {total}] continue with "
        taken = len(heading) + len(widest) + len(_call(record, total, total))
        shown = min(end, offset + max(1, self._max - taken))
        extent = f"[{offset}..{shown} of {total}]"
        return (
            f"{heading} {extent}\n{record.text[offset:shown]}\n"
            f"{extent} continue with {_call(record, shown, end - shown)}"
        )

    def _list(self, asked: CtxSearchInput) -> str:
        bounds = (asked.after_seq, asked.before_seq, asked.after, asked.before)
        if all(bound is None for bound in bounds):
            raise ToolInputError(
                "give queries to search, seq to fetch a record, or after_seq and before_seq to "
                "list whole records"
            )
        scope = self._one_session(self._scope(asked))
        parts: list[str] = []
        left = self._max
        for record in self._walk(scope):
            part = f"{_heading(record)}\n{record.text}"
            rest = _continue_list(asked, scope, record.seq - 1)
            if len(part) + len(rest) + 4 <= left:
                parts.append(part)
                left -= len(part) + 2
                continue
            if not parts:
                # Longer than an answer by itself: its beginning, how to go on in it, and behind it.
                after = _continue_list(asked, scope, record.seq)
                cut = CtxSearchTool(self._knowledge, max_output_chars=self._max - len(after) - 2)
                return f"{cut._part(record, 0, len(record.text))}\n\n{after}"
            return "\n\n".join([*parts, rest])
        return "\n\n".join(parts) or "No records in that range."

    def _one_session(self, scope: Scope) -> Scope:
        """The scope of one session: seqs order the records of one session only."""
        sources = scope.sources or ()
        sessions = list(dict.fromkeys(source.session for source in sources))
        if self._session in sessions:
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
                if record.text and record.kind != "checkpoint":
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
        share = self._max // len(answers)
        return "\n\n".join(self._answer(answer, share, scope) for answer in answers)

    def _answer(self, answer: SearchAnswer, room: int, scope: Scope) -> str:
        title = f"# {answer.query!r}: "
        if not answer.hits:
            return self._nothing(answer, title, scope)[:room]
        lines = [f"{title}{len(answer.hits)} found, matched by {_TIERS[answer.tier]}"]
        left = room - len(lines[0])
        for place, hit in enumerate(answer.hits):
            text = f"{_hit_heading(hit)}\n{hit.snippet}\n→ {_hit_call(hit)}"
            if len(text) + 2 > left - 60:
                lines.append(f"[{len(answer.hits) - place} more; ask for fewer queries at once]")
                break
            lines.append(text)
            left -= len(text) + 2
        return "\n\n".join(lines)

    def _nothing(self, answer: SearchAnswer, title: str, scope: Scope) -> str:
        tried = "; ".join(answer.tried) or "all words, any word, substring"
        lines = [f"{title}nothing found (tried {tried})"]
        sessions = dict.fromkeys(source.session for source in scope.sources or ())
        for session in sessions:
            lines += [
                f'"{source_label(session, layer)}": {info.records} records, '
                f"seq {info.first_seq}..{info.last_seq}"
                for layer, info in self._knowledge.layers(session).items()
            ]
        return "\n".join(lines)


_TIERS = {
    "strict": "all words",
    "any": "any of the words",
    "substring": "substring",
    "none": "nothing",
}


def parse_input(input: Mapping[str, Any]) -> CtxSearchInput:
    """A call's arguments, with types repaired where the intent is plain.

    Raises:
        ToolInputError: naming the argument that is unknown, wrong, or contradicts another.
    """
    if not isinstance(input, Mapping):
        raise ToolInputError(f"arguments must be an object, not {type(input).__name__}")
    known = CtxSearchInput.model_fields
    for name in input:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"
            raise ToolInputError(f"unknown parameter {name!r}{hint}")
    given = {name: value for name, value in input.items() if value not in (None, "", [])}
    try:
        asked = CtxSearchInput.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"][:1])
        raise ToolInputError(f"{field}: {first['msg']}") from None
    if asked.seq is not None and asked.queries is not None:
        raise ToolInputError("give either seq or queries, not both")
    if asked.seq is None and (asked.offset is not None or asked.length is not None):
        raise ToolInputError("offset and length go with seq")
    return asked


def _ancestry(knowledge: KnowledgeBase, session: str) -> list[str]:
    parents = {info.session: info.parent for info in knowledge.sessions()}
    found = [session]
    while (parent := parents.get(found[-1])) is not None and parent not in found:
        found.append(parent)
    return found


def _heading(record: Record) -> str:
    label = source_label(record.session, record.layer)
    said = f"tool {record.name}" if record.role == "tool" and record.name else record.role
    kind = "" if record.kind == "original" else f" ({record.kind})"
    images = f", with {'; '.join(record.images)}" if record.images else ""
    return (
        f"[{label} seq {record.seq}] {said}{kind}{_when(record.time)}, "
        f"{len(record.text)} chars{images}"
    )


def _hit_heading(hit: Hit) -> str:
    label = source_label(hit.session, hit.layer)
    said = f"tool {hit.name}" if hit.role == "tool" and hit.name else hit.role
    kind = "" if hit.kind == "original" else f" ({hit.kind})"
    return f"[{label} seq {hit.seq}] {said}{kind}{_when(hit.time)}, {hit.chars} chars"


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
    return f", {datetime.fromtimestamp(time / 1_000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _extent(record: Record, offset: int, end: int) -> str:
    total = len(record.text)
    return "" if (offset, end) == (0, total) else f" [{offset}..{end} of {total}]"


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


def _bound(text: str | None, name: str, shift: int) -> int | None:
    """A date or time as milliseconds since the epoch, moved so that an exclusive bound fits."""
    if text is None:
        return None
    try:
        if len(text.strip()) == 10:
            day = date.fromisoformat(text.strip())
            moment = datetime(day.year, day.month, day.day, tzinfo=UTC)
        else:
            moment = datetime.fromisoformat(text.strip())
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    except ValueError:
        raise ToolInputError(f"{name}: {text!r} is not an ISO 8601 date or time") from None
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) + shift
