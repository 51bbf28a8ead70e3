from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxarchive.knowledge.records import Record
from ctxarchive.knowledge.retention import DAY_MS, RetentionPolicy, plan, retain
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase
from ctxarchive.knowledge.store import SessionInfo

Make = Callable[..., Record]

NOW = 2_000 * DAY_MS


def info(name: str, age_days: float, *, filed: float | None = None, **more: object) -> SessionInfo:
    """A session whose newest record is so many days old, and was filed so many days ago."""
    at = int(NOW - (age_days if filed is None else filed) * DAY_MS)
    given_fields: dict[str, object] = {
        "session": name,
        "records": {"finding": 3},
        "last_time": int(NOW - age_days * DAY_MS),
        "opened": at,
        "last_filed": at,
        **more,
    }
    return SessionInfo(**given_fields)  # type: ignore[arg-type]


def chosen(policy: RetentionPolicy, *sessions: SessionInfo, size: int = 1_000) -> list[str]:
    chars = {each.session: 100 for each in sessions}
    found = plan(policy, sessions, chars, total_bytes=size, now=NOW)
    return [f"{each.session} {each.rule}" for each in found]


def test_what_is_too_old_goes_oldest_first() -> None:
    policy = RetentionPolicy(max_age_days=30)
    sessions = [info("a", 31), info("b", 29), info("c", 400)]
    assert chosen(policy, *sessions) == ["c age", "a age"]


def test_what_is_too_much_goes_oldest_first_until_it_fits() -> None:
    sessions = [info(name, age) for name, age in (("a", 50), ("b", 60), ("c", 40), ("d", 20))]
    assert chosen(RetentionPolicy(max_bytes=500), *sessions) == ["b size", "a size"]
    assert chosen(RetentionPolicy(max_bytes=1_000), *sessions) == []
    assert len(chosen(RetentionPolicy(max_bytes=1), *sessions)) == 4


def test_an_open_session_and_all_it_was_seeded_from_stay() -> None:
    """However old or large: open is what was filed lately, or happened lately."""
    sessions = [
        info("grandparent", 900),
        info("parent", 800, parent="grandparent", inherited_seq=5),
        info("open fork", 700, filed=1, parent="parent", inherited_seq=9),
        info("lately", 2, filed=90),
        info("closed", 600),
        info("empty", 600, records={}),
    ]
    for policy in (RetentionPolicy(max_age_days=1), RetentionPolicy(max_bytes=1)):
        assert [each.split()[0] for each in chosen(policy, *sessions)] == ["closed"]
    assert len(chosen(RetentionPolicy(max_age_days=1, open_days=0.5), *sessions)) == 5


def test_nothing_goes_without_a_rule() -> None:
    assert chosen(RetentionPolicy(), info("a", 1_999)) == []


@settings(max_examples=100)
@given(
    ages=st.lists(st.floats(0, 100), max_size=8),
    filed=st.lists(st.floats(0, 100), min_size=8, max_size=8),
    most=st.integers(1, 2_000),
)
def test_by_size_no_more_goes_than_must(ages: list[float], filed: list[float], most: int) -> None:
    sessions = [info(str(n), age, filed=filed[n]) for n, age in enumerate(ages)]
    policy = RetentionPolicy(max_bytes=most)
    found = plan(policy, sessions, dict.fromkeys("01234567", 100), total_bytes=1_000, now=NOW)
    taken = [each.estimated_bytes for each in found]
    assert not found or 1_000 - sum(taken[:-1]) > most
    assert all(min(ages[int(e.session)], filed[int(e.session)]) >= 7 for e in found)


@pytest.mark.parametrize("dry_run", [True, False])
def test_an_archive_shrinks_below_its_bound_and_says_what_went(
    archive: SqliteKnowledgeBase,
    make: Make,
    dry_run: bool,  # noqa: FBT001
) -> None:
    for place in range(6):
        archive.put(
            [
                make(f"s{place}", seq, f"word{seq} " * 300, time=(place + 1) * DAY_MS)
                for seq in range(40)
            ]
        )
    archive.index_pending()
    archive.optimize()
    stats = archive.stats()
    size = stats.record_bytes + stats.index_bytes
    later = archive.sessions()[0].opened + 30 * DAY_MS
    policy = RetentionPolicy(max_bytes=size // 2)
    assert retain(archive, policy, now=archive.sessions()[0].opened).removals == ()
    done = retain(archive, policy, now=later, dry_run=dry_run)
    names = [each.session for each in done.removals]
    assert names == [f"s{place}" for place in range(len(names))]
    assert 3 <= len(names) <= 5
    assert done.bytes_before == size
    assert done.bytes_after <= size // 2
    if dry_run:
        assert archive.stats() == stats
        return
    assert archive.purged("s0")[3].reason == "retention"
    assert archive.verify() == []
    stats = archive.stats()
    assert stats.record_bytes + stats.index_bytes == done.bytes_after
