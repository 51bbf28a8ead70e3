"""What waits for an agent: prompts that each start a turn, and context for the next step."""

from __future__ import annotations

from collections import deque

from ctxarchive.errors import SessionError
from ctxarchive.session.events import UserMessageData
from ctxarchive.session.messages import Source, TextBlock, text_block

Prompt = str | UserMessageData
"""A text, or a whole user message with its source."""


class Inbox:
    """Two queues, first in first out; nothing is lost between them and the log."""

    def __init__(self) -> None:
        self.next_turn: deque[UserMessageData] = deque()
        """Each starts a turn of its own."""
        self.next_step: deque[UserMessageData] = deque()
        """All go into the next step, whichever turn it belongs to."""

    def followup(self, prompt: Prompt) -> UserMessageData:
        """Queue a prompt; returns the message it will be."""
        message = user_message(prompt)
        self.next_turn.append(message)
        return message

    def inject(self, context: Prompt) -> UserMessageData:
        """Queue context; returns the message it will be."""
        message = user_message(context, kind="injected")
        self.next_step.append(message)
        return message


def user_message(prompt: Prompt, *, kind: str = "user") -> UserMessageData:
    """A user-role message.

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
