"""What a message is made of: content blocks and their sources, as the log's JSON spells them.

Unknown blocks and extra fields are carried verbatim. Nothing here may interpret a text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Tag
from pydantic.alias_generators import to_camel


class WireModel(BaseModel):
    """A frozen value whose JSON has camel-case names and keeps fields it does not know."""

    model_config = ConfigDict(
        frozen=True,
        extra="allow",
        alias_generator=to_camel,
        populate_by_name=True,
        protected_namespaces=(),
    )

    def wire(self) -> dict[str, Any]:
        """The value as JSON-ready data: names as on the wire, only fields that were set."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class TextBlock(WireModel):
    """Plain text."""

    type: Literal["text"]
    text: str


class ReasoningBlock(WireModel):
    """A model's thinking; a provider's signature rides in the extra fields."""

    type: Literal["reasoning"]
    text: str = ""


class ToolCallBlock(WireModel):
    """A request to run a tool."""

    type: Literal["tool-call"]
    id: str
    """Matches the ``tool_call_id`` of its result."""
    name: str
    arguments: str
    """The raw argument text as the model wrote it, usually JSON."""


class ImageBlock(WireModel):
    """An image; where its bytes are is in the extra fields, as its provider spells them."""

    type: Literal["image"]

    def describe(self) -> str:
        """Kind and decoded size in one phrase, e.g. ``image/png, 1234 bytes``."""
        return _describe(self.wire(), "image")


class DocumentBlock(WireModel):
    """A document; its bytes or text are in the extra fields, as its provider spells them."""

    type: Literal["document"]

    def describe(self) -> str:
        """Kind and decoded size in one phrase."""
        return _describe(self.wire(), "document")


class UnknownBlock(WireModel):
    """A block of a kind this version does not know, carried verbatim."""

    type: str = ""


class ToolResultBlock(WireModel):
    """What a tool answered."""

    type: Literal["tool-result"]
    tool_call_id: str
    content: tuple[ContentBlock, ...] = ()
    is_error: bool = False


_KNOWN = {"text", "reasoning", "tool-call", "tool-result", "image", "document"}


def _tag(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return kind if isinstance(kind, str) and kind in _KNOWN else "unknown"


ContentBlock = Annotated[
    Annotated[TextBlock, Tag("text")]
    | Annotated[ReasoningBlock, Tag("reasoning")]
    | Annotated[ToolCallBlock, Tag("tool-call")]
    | Annotated[ToolResultBlock, Tag("tool-result")]
    | Annotated[ImageBlock, Tag("image")]
    | Annotated[DocumentBlock, Tag("document")]
    | Annotated[UnknownBlock, Tag("unknown")],
    Discriminator(_tag),
]

ToolResultBlock.model_rebuild()


class Source(WireModel):
    """Where a message comes from."""

    kind: str
    """``user``, ``model``, ``tool``, ``compact-checkpoint``, or the host's own word."""


class CheckpointSource(Source):
    """Marks a message as the checkpoint of one compaction."""

    kind: str = "compact-checkpoint"
    compaction_id: str
    source_command_id: str | None = None


class Message(WireModel):
    """One message as the model sees it."""

    role: Literal["user", "assistant", "tool"]
    content: tuple[ContentBlock, ...]
    source: Source | None = None
    id: str | None = None


def checkpoint_source(compaction_id: str, source_command_id: str | None = None) -> CheckpointSource:
    """The source a compaction gives the message that replaces its span.

    Args:
        compaction_id: the transaction that writes the checkpoint.
        source_command_id: the human command behind it, if any.
    """
    if source_command_id is None:
        return CheckpointSource(kind="compact-checkpoint", compaction_id=compaction_id)
    return CheckpointSource(
        kind="compact-checkpoint",
        compaction_id=compaction_id,
        source_command_id=source_command_id,
    )


def is_checkpoint_source(source: Source | None) -> bool:
    """Whether a source marks a checkpoint, also after persistence and in the older spelling."""
    if source is None:
        return False
    if source.kind == "compact-checkpoint":
        return True
    return source.kind == "plugin" and (source.model_extra or {}).get("plugin") == "compact"


def joined_text(blocks: Iterable[ContentBlock]) -> str:
    """The text blocks among ``blocks``, joined by a newline; other blocks add nothing."""
    return "\n".join(block.text for block in blocks if isinstance(block, TextBlock))


def text_block(text: str) -> TextBlock:
    """A text block of ``text``."""
    return TextBlock(type="text", text=text)


def _describe(wire: dict[str, Any], fallback: str) -> str:
    source = wire.get("source")
    place: dict[str, Any] = source if isinstance(source, dict) else wire
    kind = next(
        (place[key] for key in ("media_type", "mediaType", "mimeType") if place.get(key)), fallback
    )
    data = place.get("data")
    if isinstance(data, str):
        return f"{kind}, {len(data) * 3 // 4} bytes"
    url = place.get("url")
    return f"{kind}, {url}" if isinstance(url, str) else str(kind)
