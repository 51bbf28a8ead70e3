"""Under which session id a log is replayed once a person marked something in an earlier replay.

What is pinned or superseded changes what checkpoints show, so it names the replayed session as the
settings do: a replay with other marks never meets this one in the archive.
"""

from __future__ import annotations

import hashlib

from ctxarchive.knowledge.store import KnowledgeBase
from ctxarchive.session.jsontext import dump_json


def marked_session(plain: str, knowledge: KnowledgeBase | None) -> str:
    """The id to replay under: ``plain``, or another that has the marks made on ``plain``.

    Marks are by seq, and each replay gives the same seqs up to its first compaction; what is marked
    behind it stays where it was only as long as compactions fall on the same events.

    Args:
        plain: the log's id and a hash of the settings, ``<id>~<8 hex digits>``.
        knowledge: the archive; ``None`` where nothing is filed.

    Raises:
        KnowledgeError: when the archive cannot be read, or takes no marks.
    """
    marks = {} if knowledge is None else knowledge.marks(plain)
    if knowledge is None or not marks:
        return plain
    told = [[seq, mark.name, mark.by_seq] for seq, mark in marks.items()]
    digest = hashlib.blake2b(dump_json([plain, told]).encode(), digest_size=4).hexdigest()
    session = f"{plain.rpartition('~')[0]}~{digest}"
    knowledge.register(session)
    there = knowledge.marks(session)
    for seq, mark in marks.items():
        if seq not in there:
            knowledge.mark(session, seq, mark.name, by_seq=mark.by_seq)
    return session
