"""What waits for an agent: prompts that each start a turn, and context for the next step."""

from __future__ import annotations

from collections import deque

from ctxarchive.session.events import UserMessageData, user_message

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
