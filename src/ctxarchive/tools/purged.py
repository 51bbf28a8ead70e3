"""What a model is told of records that were purged: that they were, and that no call returns them."""

from __future__ import annotations

from ctxarchive.knowledge.records import SEQ_LIMIT, source_label
from ctxarchive.knowledge.store import KnowledgeBase, Scope
from ctxarchive.tools.wording import day


def gone(knowledge: KnowledgeBase, session: str, seq: int) -> str:
    """The answer to a call for one purged record, with the day on which it went."""
    tombstone = knowledge.purged(session).get(seq)
    when = day(None if tombstone is None else tombstone.at)
    return (
        f'seq {seq} of "{source_label(session)}": this record was purged{f" on {when}" * bool(when)}; '
        "it was deleted on purpose, and no call returns it."
    )


def gone_within(knowledge: KnowledgeBase, scope: Scope) -> str:
    """A line on what was purged of the range that a scope spans; empty where nothing was."""
    after = -1 if scope.after_seq is None else scope.after_seq
    before = SEQ_LIMIT if scope.before_seq is None else scope.before_seq
    seqs = {
        seq
        for source in scope.sources or ()
        for seq, tombstone in knowledge.purged(source.session).items()
        if after < seq < before
        and seq <= scope.through.get(source.session, seq)
        and source.layer in {None, tombstone.layer}
        and tombstone.kind != "checkpoint"
    }
    if not seqs:
        return ""
    records = "1 record" if len(seqs) == 1 else f"{len(seqs)} records"
    return f"[{records} of this range, seq {min(seqs)}..{max(seqs)}, purged: deleted on purpose]"
