"""Pinning, unpinning and superseding what the user said, in one sentence each.

Only a message of the user may be marked: what tools, files and the host put before the model must
never come to stand among the user's words. Changes marks alone, never a record.
"""

from __future__ import annotations

from ctxarchive.errors import KnowledgeError
from ctxarchive.knowledge.records import Record
from ctxarchive.knowledge.store import KnowledgeBase

LookUp = dict[int, Record | None]
"""Records by seq, as far as they are asked for here."""


def pin(knowledge: KnowledgeBase, session: str, seq: int, found: LookUp) -> str:
    """Keep a message in view from the next compaction on, whole, before everything else.

    Args:
        knowledge: where it is marked.
        session: its session, which is registered.
        seq: its seq.
        found: the record of ``seq``.

    Raises:
        KnowledgeError: ``mark`` or ``missing``, naming the seq.
    """
    _check(found[seq], session, seq)
    before = knowledge.mark(session, seq, "pinned")
    if before is None:
        return f"Pinned seq {seq}: it stays in view, before everything else."
    if before.name == "pinned":
        return f"Seq {seq} was pinned already."
    return f"Pinned seq {seq}, which was {before.told()}: it comes back into view."


def unpin(knowledge: KnowledgeBase, session: str, seq: int, found: LookUp) -> str:
    """Take the pin off a message; one that is superseded stays so.

    Args:
        knowledge: where it is marked.
        session: its session, which is registered.
        seq: its seq.
        found: the record of ``seq``.

    Raises:
        KnowledgeError: ``mark`` or ``missing``, naming the seq.
    """
    _check(found[seq], session, seq)
    before = knowledge.marks(session).get(seq)
    if before is None or before.name != "pinned":
        told = "" if before is None else f": it is {before.told()}"
        return f"Seq {seq} was not pinned{told}."
    knowledge.mark(session, seq, None)
    return f"Unpinned seq {seq}: it gives way like any other message."


def supersede(
    knowledge: KnowledgeBase, session: str, seq: int, by: int | None, found: LookUp
) -> str:
    """Take a message out of view from the next compaction on; it stays in the archive, marked.

    Args:
        knowledge: where it is marked.
        session: its session, which is registered.
        seq: its seq.
        by: seq of the later message that took its place; ``None`` where none did.
        found: the records of ``seq`` and ``by``.

    Raises:
        KnowledgeError: ``mark`` or ``missing``, naming the seq.
    """
    _check(found[seq], session, seq)
    if by is not None:
        _check(found[by], session, by)
        if by <= seq:
            raise KnowledgeError(
                "mark", f"seq {by} is not later than seq {seq}, and cannot supersede it"
            )
    before = knowledge.mark(session, seq, "superseded", by_seq=by)
    told = "superseded" if by is None else f"superseded by seq {by}"
    if before is not None and before.told() == told:
        return f"Seq {seq} was {told} already."
    return f"Seq {seq} is {told}: it leaves the view with the next compaction and stays archived."


def _check(record: Record | None, session: str, seq: int) -> None:
    if record is None:
        raise KnowledgeError("missing", f"session {session!r} has no message with seq {seq}")
    if record.layer == "constraint" and record.kind == "original" and record.role == "user":
        return
    what = {
        "checkpoint": "a checkpoint",
        "injected": "a message of the host",
    }.get(record.kind, f"a message of the {record.role}")
    what = "a tool's result" if record.role == "tool" else what
    raise KnowledgeError("mark", f"seq {seq} is {what}: only what the user said can be marked")
