"""Identities: what a session, a compaction and a command are called. Values only, no state."""

from __future__ import annotations

import hashlib
import uuid
from typing import NewType

SessionId = NewType("SessionId", str)
"""Any non-empty text; a host's own choice."""

CompactionId = NewType("CompactionId", str)
"""Shared by the start, summary, checkpoint and end of one compaction."""

CommandId = NewType("CommandId", str)
"""Names the human command that asked for a compaction."""


def new_session_id() -> SessionId:
    """A fresh random session id."""
    return SessionId(str(uuid.uuid4()))


def new_compaction_id() -> CompactionId:
    """A fresh random compaction id."""
    return CompactionId(str(uuid.uuid4()))


def derived_compaction_id(session: str, seq: int) -> CompactionId:
    """The id of the compaction whose bracket opens at ``seq``, the same in every replay.

    Args:
        session: the session's id.
        seq: position of the ``compaction/start`` event on the log.
    """
    name = f"{session}\0{seq}".encode("utf-8", "surrogatepass")
    return CompactionId(hashlib.blake2b(name, digest_size=16).hexdigest())
