"""Whether a provider would take a history: roles, pairs, and no message that says nothing."""

from __future__ import annotations

from collections.abc import Sequence

from ctxarchive.session.messages import Message, TextBlock, ToolCallBlock, ToolResultBlock


def request_faults(messages: Sequence[Message]) -> list[str]:
    """What is wrong with a history that is to be sent; empty for a valid one.

    The first message must be a user's; every call must be answered by the messages directly
    behind it, once each; no result may stand without its call; none may be empty.
    """
    faults: list[str] = []
    open_ids: set[str] = set()
    if messages and messages[0].role != "user":
        faults.append(f"message 0 has the role {messages[0].role}")
    for place, message in enumerate(messages):
        if not any(_says_something(block) for block in message.content):
            faults.append(f"message {place} is empty")
        results = {b.tool_call_id for b in message.content if isinstance(b, ToolResultBlock)}
        if message.role == "tool":
            if not results <= open_ids:
                faults.append(f"message {place} answers no open call: {sorted(results)}")
            open_ids -= results
            continue
        if open_ids:
            faults.append(f"message {place} stands before the results of {sorted(open_ids)}")
        calls = [b.id for b in message.content if isinstance(b, ToolCallBlock)]
        if len(set(calls)) < len(calls):
            faults.append(f"message {place} has a call id twice")
        open_ids = set(calls)
    if open_ids:
        faults.append(f"the history ends before the results of {sorted(open_ids)}")
    return faults


def _says_something(block: object) -> bool:
    if isinstance(block, TextBlock):
        return bool(block.text.strip())
    if isinstance(block, ToolResultBlock):
        return any(_says_something(inner) for inner in block.content)
    return True
