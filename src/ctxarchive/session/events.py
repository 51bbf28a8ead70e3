"""The events of a session: one class an event, discriminated by ``type``.

An unknown type loads and is carried verbatim. Only three types may enter the surface. This module
describes; appending and replaying are the log's.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Discriminator, Field, Tag, TypeAdapter, ValidationError

from ctxarchive.errors import SessionError
from ctxarchive.session.jsontext import dump_json
from ctxarchive.session.messages import (
    CheckpointSource,
    ContentBlock,
    Message,
    Source,
    TextBlock,
    ToolResultBlock,
    WireModel,
    is_checkpoint_source,
    text_block,
)


class Replace(WireModel):
    """Puts an event in the place of a run of surface entries."""

    op: Literal["replace"]
    start_seq: int = Field(
        validation_alias=AliasChoices("startSeq", "start_seq", "start"),
        serialization_alias="startSeq",
    )
    """First seq of the run, on the current surface."""
    end_seq: int = Field(
        validation_alias=AliasChoices("endSeq", "end_seq", "end"), serialization_alias="endSeq"
    )
    """Last seq of the run, on the current surface, not before the first."""


SurfaceOp = Annotated[
    Annotated[Literal["append"], Tag("append")] | Annotated[Replace, Tag("replace")],
    Discriminator(lambda value: "replace" if isinstance(value, dict | Replace) else "append"),
]


class Origin(WireModel):
    """Where an imported event stood in the log it was read from."""

    line: int | None = None
    """1-based line (or position in a list) at which the event begins."""
    last_line: int | None = None
    """Last line, where several lines were joined."""
    id: str | None = None
    """The record's own id."""


class Event(WireModel):
    """One immutable entry of a session."""

    seq: int
    """Position on the log, contiguous from 0."""
    time: int | None = None
    """Milliseconds since the epoch, where known."""
    type: str
    data: Any = None
    surface_op: SurfaceOp | None = None
    source_event_seqs: tuple[int, ...] = ()
    """The events this one was made from; a replacement cites every event it shadows."""
    origin: Origin | None = None

    @cached_property
    def json_text(self) -> str:
        """The event as one line of JSON: what the log stores and the archive files."""
        return dump_json(self.wire())

    @property
    def message(self) -> Message | None:
        """The message a model would see, or ``None`` for an event of the log only."""
        return None

    @property
    def content(self) -> tuple[ContentBlock, ...]:
        """What the message says, of a tool result its answer's blocks; no message is made for it.

        Raises:
            SessionError: ``event``, when a tool result names no call.
        """
        return ()


class UserMessageData(WireModel):
    """A user-role message."""

    role: Literal["user"] = "user"
    content: tuple[ContentBlock, ...]
    source: Source | CheckpointSource = Source(kind="user")
    id: str | None = None


def user_message(prompt: str | UserMessageData, *, kind: str = "user") -> UserMessageData:
    """A user-role message that says something.

    Args:
        prompt: its text; a finished message is taken as it is.
        kind: its source, for a text.

    Raises:
        SessionError: ``event``, for one that says nothing: no provider takes an empty message.
    """
    message = prompt
    if isinstance(message, str):
        message = UserMessageData(content=(text_block(message),), source=Source(kind=kind))
    if all(isinstance(block, TextBlock) and not block.text.strip() for block in message.content):
        raise SessionError("event", "an empty message")
    return message


class UserMessage(Event):
    """What a user, the host, or a compaction said in the user's role."""

    type: Literal["user/message"]
    data: UserMessageData
    surface_op: SurfaceOp

    @property
    def message(self) -> Message:
        """The message as the model sees it."""
        return Message(
            role="user", content=self.data.content, source=self.data.source, id=self.data.id
        )

    @property
    def content(self) -> tuple[ContentBlock, ...]:
        """The message's blocks."""
        return self.data.content

    @property
    def is_checkpoint(self) -> bool:
        """Whether a compaction wrote this message."""
        return is_checkpoint_source(self.data.source)


class AssistantMessageData(WireModel):
    """A model's answer and what it cost."""

    turn: int | None = None
    step: int | None = None
    message: Message
    usage: dict[str, Any] | None = None
    """The provider's own token counts, where this session's own request produced them."""


class AssistantMessage(Event):
    """What the model answered."""

    type: Literal["assistant/message"]
    data: AssistantMessageData
    surface_op: SurfaceOp

    @property
    def message(self) -> Message:
        """The message as the model sees it."""
        return self.data.message

    @property
    def content(self) -> tuple[ContentBlock, ...]:
        """The message's blocks."""
        return self.data.message.content


class ToolMessage(WireModel):
    """A tool's answer, in either spelling: blocks at top level, or inside a tool-result block."""

    role: str = "user"
    source: Source | None = None
    tool_call_id: str | None = None
    content: tuple[ContentBlock, ...] = ()
    is_error: bool | None = None
    id: str | None = None

    @property
    def answer(self) -> tuple[str, tuple[ContentBlock, ...]]:
        """The id of the call that is answered, and the answer's content.

        Raises:
            SessionError: ``event``, when no call is named.
        """
        for block in self.content:
            if block.type == "tool-result" and isinstance(block, ToolResultBlock):
                return block.tool_call_id, block.content
        call_id = self.tool_call_id
        if call_id is None and self.source is not None:
            named = (self.source.model_extra or {}).get("callId")
            call_id = named if isinstance(named, str) else None
        if call_id is None:
            raise SessionError("event", "a tool/result names no tool call")
        return call_id, self.content

    @property
    def block(self) -> ToolResultBlock:
        """The answer as one tool-result block.

        Raises:
            SessionError: ``event``, when no call is named.
        """
        for block in self.content:
            if isinstance(block, ToolResultBlock):
                return block
        call_id, content = self.answer
        return ToolResultBlock(
            type="tool-result",
            tool_call_id=call_id,
            content=content,
            is_error=bool(self.is_error),
        )


class ToolResultData(WireModel):
    """A tool's answer within a step."""

    turn: int | None = None
    step: int | None = None
    name: str | None = None
    message: ToolMessage


class ToolResult(Event):
    """What a tool answered."""

    type: Literal["tool/result"]
    data: ToolResultData
    surface_op: SurfaceOp

    @property
    def message(self) -> Message:
        """The message as the model sees it: one tool-result block."""
        return Message(
            role="tool",
            content=(self.data.message.block,),
            source=self.data.message.source,
            id=self.data.message.id,
        )

    @property
    def content(self) -> tuple[ContentBlock, ...]:
        """The answer's blocks, in either spelling.

        Raises:
            SessionError: ``event``, when no call is named.
        """
        return self.data.message.answer[1]


class TurnData(WireModel):
    """The number of a turn, and, at its end, why it ended."""

    turn: int
    reason: dict[str, Any] | None = None


class TurnStart(Event):
    """A turn begins."""

    type: Literal["turn/start"]
    data: TurnData


class TurnEnd(Event):
    """A turn ends."""

    type: Literal["turn/end"]
    data: TurnData


class RequestHeaderData(WireModel):
    """The fixed part of a request: routing, system prompt, tools."""

    header: dict[str, Any]


class RequestHeader(Event):
    """The request's fixed part, when it first holds or changes."""

    type: Literal["request/header"]
    data: RequestHeaderData


class RequestContextData(WireModel):
    """What a model can hold."""

    provider: str = ""
    model: str = ""
    context_window: int | None = None
    """Tokens."""


class RequestContext(Event):
    """The capacity of the model in use, when it first holds or changes."""

    type: Literal["request/context"]
    data: RequestContextData


class CompactionStartData(WireModel):
    """Whose bracket opens."""

    compaction_id: str
    source_command_id: str | None = None
    turn: int | None
    """The open turn that owns the bracket; ``None`` for a manual one between turns."""


class CompactionStart(Event):
    """A compaction takes the lock."""

    type: Literal["compaction/start"]
    data: CompactionStartData


class ShadowedRange(WireModel):
    """First and last shadowed seq, in surface order; after a replacement start may exceed end."""

    start: int
    end: int


class CompactionSummaryData(WireModel):
    """A finished summary and what it replaces; prices the replacement that follows it."""

    compaction_id: str
    source_command_id: str | None = None
    summary: tuple[ContentBlock, ...]
    """The checkpoint's text, additions included."""
    raw_output: tuple[ContentBlock, ...] | None = None
    """The summarizer's own output, before additions."""
    llm_stream_call: bool | None = None
    summarizer: str | None = None
    """Which summarizer wrote it."""
    shadowed_range: ShadowedRange
    shadowed_seqs: tuple[int, ...]
    shadowed_token_count: int
    provider: str
    model: str
    max_tokens: int | None = None
    usage: dict[str, Any] | None = None


class CompactionSummary(Event):
    """The summary, directly before the message that replaces the span."""

    type: Literal["compaction/summary"]
    data: CompactionSummaryData


class CompactionEndData(WireModel):
    """How a bracket closes."""

    compaction_id: str
    source_command_id: str | None = None
    turn: int | None
    error: str | None = None


class CompactionEnd(Event):
    """A compaction releases the lock."""

    type: Literal["compaction/end"]
    data: CompactionEndData


class CompactionPruneData(WireModel):
    """The price of what the directly following replacement shadows."""

    shadowed_range: ShadowedRange
    shadowed_seqs: tuple[int, ...]
    shadowed_token_count: int


class CompactionPrune(Event):
    """A replacement made without a model is about to follow."""

    type: Literal["compaction/prune"]
    data: CompactionPruneData


class ArchiveFiledData(WireModel):
    """What a filing put into the archive: every event up to ``through_seq`` that was not purged."""

    compaction_id: str
    through_seq: int
    constraint: int = 0
    finding: int = 0
    narrative: int = 0
    already: int = 0
    purged: int = 0
    redacted: int = 0
    """Of all these, those of which keys or tokens were masked before."""


class ArchiveFiled(Event):
    """The span is on disk in the archive."""

    type: Literal["archive/filed"]
    data: ArchiveFiledData


class ArchiveFailedData(WireModel):
    """Why a checkpoint makes no promise."""

    compaction_id: str
    stage: Literal["file", "build"]
    error: str


class ArchiveFailed(Event):
    """Filing or building the additions failed; the checkpoint is the plain summary."""

    type: Literal["archive/failed"]
    data: ArchiveFailedData


class EndSeed(Event):
    """Everything before was inherited when the session was opened."""

    type: Literal["session/end-seed"]


_CLASSES: dict[str, type[Event]] = {
    "user/message": UserMessage,
    "assistant/message": AssistantMessage,
    "tool/result": ToolResult,
    "turn/start": TurnStart,
    "turn/end": TurnEnd,
    "request/header": RequestHeader,
    "request/context": RequestContext,
    "compaction/start": CompactionStart,
    "compaction/summary": CompactionSummary,
    "compaction/end": CompactionEnd,
    "compaction/prune": CompactionPrune,
    "archive/filed": ArchiveFiled,
    "archive/failed": ArchiveFailed,
    "session/end-seed": EndSeed,
}

SURFACE_TYPES = frozenset({"user/message", "assistant/message", "tool/result"})
"""The event types that may, and must, carry a ``surfaceOp``."""


def _tag(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return kind if isinstance(kind, str) and kind in _CLASSES else "other"


AnyEvent = Annotated[
    Annotated[UserMessage, Tag("user/message")]
    | Annotated[AssistantMessage, Tag("assistant/message")]
    | Annotated[ToolResult, Tag("tool/result")]
    | Annotated[TurnStart, Tag("turn/start")]
    | Annotated[TurnEnd, Tag("turn/end")]
    | Annotated[RequestHeader, Tag("request/header")]
    | Annotated[RequestContext, Tag("request/context")]
    | Annotated[CompactionStart, Tag("compaction/start")]
    | Annotated[CompactionSummary, Tag("compaction/summary")]
    | Annotated[CompactionEnd, Tag("compaction/end")]
    | Annotated[CompactionPrune, Tag("compaction/prune")]
    | Annotated[ArchiveFiled, Tag("archive/filed")]
    | Annotated[ArchiveFailed, Tag("archive/failed")]
    | Annotated[EndSeed, Tag("session/end-seed")]
    | Annotated[Event, Tag("other")],
    Discriminator(_tag),
]

_ADAPTER: TypeAdapter[Event] = TypeAdapter(AnyEvent)


def parse_event(value: dict[str, Any], *, where: str = "event") -> Event:
    """The event a JSON object spells.

    Args:
        value: the decoded object; ``seq`` must be set.
        where: how an error names the place, e.g. ``session.jsonl line 12``.

    Raises:
        SessionError: ``event``, naming the first field that is wrong.
    """
    try:
        event = _ADAPTER.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "type"
        raise SessionError("event", f"{where}: {field}: {first['msg']}") from None
    if event.surface_op is not None and event.type not in SURFACE_TYPES:
        raise SessionError("event", f"{where}: {event.type} may not carry a surfaceOp")
    return event
