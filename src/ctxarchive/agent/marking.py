"""``/pin``, ``/unpin`` and ``/supersede``: what a person says of their own earlier messages.

One sentence an outcome. It only reads what was typed; the archive engine decides.
"""

from __future__ import annotations

from ctxarchive.agent.loop import Agent
from ctxarchive.archive.engine import ArchiveCompactionEngine
from ctxarchive.errors import KnowledgeError

USAGE = {"/pin": "/pin SEQ", "/unpin": "/unpin SEQ", "/supersede": "/supersede SEQ [BY]"}
"""The commands, and how each is typed."""


async def mark_command(agent: Agent, name: str, typed: str) -> str:
    """Mark one of the user's messages and say in one sentence what came of it.

    Args:
        agent: an agent whose compaction engine keeps an archive.
        name: one of ``USAGE``.
        typed: what stands behind the name.
    """
    seqs = typed.split()
    most = 2 if name == "/supersede" else 1
    if not 1 <= len(seqs) <= most or not all(seq.isascii() and seq.isdigit() for seq in seqs):
        return f"Usage: {USAGE[name]}; SEQ is the number in a checkpoint's heading."
    engine = agent.compaction
    if not isinstance(engine, ArchiveCompactionEngine):
        return "Nothing marked: no archive is mounted."
    given = [int(seq) for seq in seqs]
    try:
        if name == "/pin":
            return await engine.pin(agent.session, given[0])
        if name == "/unpin":
            return await engine.unpin(agent.session, given[0])
        return await engine.supersede(agent.session, *given)
    except KnowledgeError as error:
        return f"Nothing marked: {' '.join(str(error).split())}."
