"""Recovery of a failed summary: hooks that change its input, and the span as it is afterwards.

A hook records its change on the log (:func:`~ctxarchive.compaction.pruner.replace_priced`); here
the selection is only found again and priced anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ctxarchive.compaction.span import Span, span_at
from ctxarchive.compaction.transaction import Transaction, error_text
from ctxarchive.errors import CompactionError
from ctxarchive.session.log import Session
from ctxarchive.session.pairing import balanced_cut

MAX_RECOVERIES = 8
"""Most times the input of one compaction may be changed before its failure stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryFailure:
    """A summary that failed, for whoever may know how to help."""

    session: Session
    source_event_seqs: tuple[int, ...]
    """The selected messages' seqs, in request order."""
    error: Exception


SummaryErrorHook = Callable[[SummaryFailure], bool]
"""Returns whether it changed the selected input durably; ``False`` leaves it to the next hook.

What it raises fails the compaction; the surface stays as the hook left it.
"""


def recovered(
    hooks: Sequence[SummaryErrorHook], transaction: Transaction, error: Exception
) -> Transaction | None:
    """Ask the hooks in turn; the first that helps wins.

    Args:
        hooks: who is asked.
        transaction: the open compaction whose summary failed.
        error: the failure.

    Returns:
        The transaction around the span as it is now, or ``None`` where no hook made progress.

    Raises:
        CompactionError: ``changed``, when the selection is not what it was, before or after;
            ``summary``, caused by what a hook raised.
    """
    transaction.revalidate()
    session, span = transaction.session, transaction.span
    behind = session.surface[span.last + 1] if span.last + 1 < len(session.surface) else None
    failure = SummaryFailure(session=session, source_event_seqs=span.seqs, error=error)
    for hook in hooks:
        generation = session.surface.replace_generation
        try:
            helped = hook(failure)
        except Exception as raised:
            raise CompactionError(
                "summary", f"{error_text(error)}; a recovery hook failed: {error_text(raised)}"
            ) from raised
        # A hook that claims progress and replaced nothing would be asked for ever.
        if helped and session.surface.replace_generation > generation:
            return replace(transaction, span=_again(transaction, behind))
    return None


def _again(transaction: Transaction, behind: int | None) -> Span:
    """The selected span after a hook replaced parts of it."""
    session, span = transaction.session, transaction.span
    surface = session.surface
    if behind is not None and behind not in surface:
        raise CompactionError("changed", "a recovery replaced what stands behind the selected span")
    last = (len(surface) if behind is None else surface.position(behind)) - 1
    if last < span.first or not balanced_cut(session, last + 1):
        raise CompactionError("changed", "a recovery left no balanced span to summarize")
    return span_at(session, transaction.meter.measure(session), span.first, last)
