"""Which sessions an archive need not keep any longer: by age, and by size. Pure.

Plans only, session by session. It never chooses one that is open, nor one that an open session was
seeded from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from ctxarchive.knowledge.store import KnowledgeBase, Selection, SessionInfo

DAY_MS: Final = 86_400_000
"""Milliseconds of a day."""


class RetentionPolicy(BaseModel):
    """What an archive keeps. Nothing is removed by itself, only by ``purge --retention``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_age_days: float | None = Field(default=None, gt=0)
    """Sessions whose newest record is older than so many days go; none where left out."""
    max_bytes: int | None = Field(default=None, gt=0)
    """Bytes of both files above which the oldest sessions go; none where left out."""
    open_days: float = Field(default=7.0, ge=0)
    """A session of which anything was filed within so many days is open, and stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """A session that is to go, and why."""

    session: str
    rule: Literal["age", "size"]
    records: int
    last_activity: int
    """Its newest record's time, or when it was filed last: milliseconds since the epoch."""
    estimated_bytes: int
    """Its share of the files, by its characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """What a run of the rules took, or would take."""

    removals: tuple[Removal, ...]
    """In the order in which they went."""
    bytes_before: int
    """Of both files."""
    bytes_after: int
    """Of both files; of a dry run, what is expected."""
    scrubbed: bool
    """See ``PurgeResult``."""


def retain(
    knowledge: KnowledgeBase, policy: RetentionPolicy, *, now: int, dry_run: bool = False
) -> Retained:
    """Purge what an archive need not keep any longer, whole sessions, each with a tombstone a record.

    Sessions seeded from them keep what they filed themselves.

    Args:
        knowledge: the archive.
        policy: the rules.
        now: milliseconds since the epoch.
        dry_run: only say what would go.

    Raises:
        KnowledgeError: as ``KnowledgeBase.purge``.
    """
    before = _size(knowledge)
    removals: list[Removal] = []
    scrubbed = True
    while True:
        sessions = knowledge.sessions()
        chars = {
            info.session: sum(layer.chars for layer in knowledge.layers(info.session).values())
            for info in sessions
        }
        size = _size(knowledge)
        found = plan(policy, sessions, chars, total_bytes=size, now=now)
        removals += found
        if dry_run or not found:
            break
        names = tuple(removal.session for removal in found)
        done = knowledge.purge(Selection(sessions=names, forks=False, retention=True))
        scrubbed = scrubbed and done.scrubbed
        if not done.scrubbed:
            break  # the files are not smaller yet, and say nothing
    after = before - sum(each.estimated_bytes for each in removals) if dry_run else _size(knowledge)
    return Retained(
        removals=tuple(removals),
        bytes_before=before,
        bytes_after=max(0, after),
        scrubbed=scrubbed,
    )


def _size(knowledge: KnowledgeBase) -> int:
    stats = knowledge.stats()
    return stats.record_bytes + stats.index_bytes


def plan(
    policy: RetentionPolicy,
    sessions: Sequence[SessionInfo],
    chars: dict[str, int],
    *,
    total_bytes: int,
    now: int,
) -> list[Removal]:
    """What goes under a policy, the oldest first.

    Args:
        policy: the rules.
        sessions: all sessions of the archive.
        chars: code points of text by session.
        total_bytes: bytes of the archive's files.
        now: milliseconds since the epoch.
    """
    kept_open = _open(policy, sessions, now)
    share = total_bytes / max(1, sum(chars.values()))
    candidates = [
        info for info in sessions if sum(info.records.values()) and info.session not in kept_open
    ]
    removals: list[Removal] = []
    left = total_bytes
    for info in sorted(candidates, key=lambda info: (last_activity(info), info.session)):
        size = int(chars.get(info.session, 0) * share)
        rule = _rule(policy, last_activity(info), left, now)
        if rule is None:
            continue
        left -= size
        removals.append(
            Removal(
                session=info.session,
                rule=rule,
                records=sum(info.records.values()),
                last_activity=last_activity(info),
                estimated_bytes=size,
            )
        )
    return removals


def last_activity(info: SessionInfo) -> int:
    """When a session was last alive: its newest record's time; without one, when it was filed."""
    if info.last_time is not None:
        return info.last_time
    return info.opened if info.last_filed is None else info.last_filed


def _rule(
    policy: RetentionPolicy, active: int, left: int, now: int
) -> Literal["age", "size"] | None:
    if policy.max_age_days is not None and active < now - policy.max_age_days * DAY_MS:
        return "age"
    if policy.max_bytes is not None and left > policy.max_bytes:
        return "size"
    return None


def _open(policy: RetentionPolicy, sessions: Sequence[SessionInfo], now: int) -> set[str]:
    """Sessions that are open, and all that they were seeded from."""
    parents = {info.session: info.parent for info in sessions}
    found: set[str] = set()
    since = now - policy.open_days * DAY_MS
    for info in sessions:
        filed = info.last_filed or info.opened
        if max(filed, info.last_time or 0) < since:
            continue
        found.update(_ancestry(info.session, parents))
    return found


def _ancestry(session: str, parents: dict[str, str | None]) -> Iterator[str]:
    seen: set[str] = set()
    at: str | None = session
    while at is not None and at not in seen:
        seen.add(at)
        yield at
        at = parents.get(at)
