"""Which layer an event belongs to. Pure; decides from roles and sources, never from looks."""

from __future__ import annotations

from dataclasses import dataclass

from ctxarchive.archive.finding import states_finding
from ctxarchive.knowledge.records import Kind, Layer
from ctxarchive.session.events import AssistantMessage, Event, Replace, ToolResult, UserMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where an event is filed."""

    layer: Layer
    kind: Kind
    role: str
    """``user``, ``assistant`` or ``tool``."""


def is_said(event: UserMessage) -> bool:
    """Whether a message is what a user said: as it came in, not what a host wrote in its place."""
    return event.data.source.kind == "user" and not isinstance(event.surface_op, Replace)


def place(event: Event, text: str) -> Placement | None:
    """The placement of ``event``, whose text is ``text``; ``None`` for one no model sees.

    A user's message is a constraint; what the host put into the user's role is narrative, however
    it looks; a tool's answer is a finding; prose is a finding when it states something concrete.
    """
    if isinstance(event, UserMessage):
        if event.is_checkpoint:
            return Placement(layer="narrative", kind="checkpoint", role="user")
        if is_said(event):
            return Placement(layer="constraint", kind="original", role="user")
        return Placement(layer="narrative", kind="injected", role="user")
    if isinstance(event, ToolResult):
        return Placement(layer="finding", kind="original", role="tool")
    if isinstance(event, AssistantMessage):
        layer: Layer = "finding" if states_finding(text) else "narrative"
        return Placement(layer=layer, kind="original", role="assistant")
    return None
