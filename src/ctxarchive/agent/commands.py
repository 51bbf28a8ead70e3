"""What a person may ask of an agent beside its work: ``/compact``, ``/pin`` and the like.

One sentence an outcome.
"""

from __future__ import annotations

from ctxarchive.agent.loop import Agent
from ctxarchive.agent.marking import USAGE, mark_command
from ctxarchive.errors import ManualCompactionError

_FAILED: dict[ManualCompactionError.Code, str] = {
    "busy": "Not compacted: the agent is busy; ask again when it is idle ({error}).",
    "cancelled": "Not compacted: it was cancelled ({error}).",
    "changed": "Not compacted: the history changed meanwhile, and is as it was ({error}).",
    "summary": "Not compacted: there is no usable summary, and the history is as it was ({error}).",
    "commit": "Compaction failed while it was written: look at the log ({error}).",
    "persistence": "Compacted, but not saved to disk yet ({error}).",
}


async def compact_command(agent: Agent, command_id: str | None = None) -> str:
    """Compact an agent's session now and say in one sentence what came of it.

    Args:
        agent: an agent with a compaction engine.
        command_id: names the command on the log.
    """
    if agent.compaction is None:
        return "Not compacted: no compaction backend is mounted."
    locked = agent.locked()
    if locked is not None:
        return f"Not compacted: {locked}."
    try:
        result = await agent.compaction.compact_now(agent, command_id)
    except ManualCompactionError as error:
        told = " ".join(str(error).split())  # a model's error may have lines of its own
        if agent.locked() is not None:
            return f"Compaction failed while it was written: reopen the session ({told})."
        return _FAILED[error.code].format(error=told)
    if result is None:
        return "Nothing to compact: the history has no older part that is worth it."
    return (
        f"Compacted {len(result.shadowed_seqs)} messages of {result.shadowed_token_count} tokens "
        f"into one checkpoint of {result.checkpoint_token_count} tokens."
    )


async def run_command(agent: Agent, text: str, command_id: str | None = None) -> str | None:
    """Run a command a person typed; ``None`` for a text that is none.

    Args:
        agent: who is commanded.
        text: what was typed.
        command_id: names the command on the log.
    """
    name, *rest = text.split(maxsplit=1) or [""]
    if name in USAGE:
        return await mark_command(agent, name, rest[0] if rest else "")
    if name != "/compact":
        return None
    if rest:
        return "/compact takes no arguments."
    return await compact_command(agent, command_id)
