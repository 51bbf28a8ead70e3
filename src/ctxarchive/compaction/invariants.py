"""What must hold of every log's compactions. Pure: reads events, returns what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ctxarchive.errors import SessionError
from ctxarchive.session.events import (
    CompactionEnd,
    CompactionPrune,
    CompactionStart,
    CompactionSummary,
    EndSeed,
    Event,
    Replace,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from ctxarchive.session.messages import CheckpointSource

_REPAIR = {"tool/result", "step/end", "turn/end"}
"""What closing an interrupted log appends."""

Rule = Literal[
    "id",
    "owner",
    "boundary",
    "bracket",
    "summary",
    "range",
    "count",
    "success",
    "checkpoint",
    "metering",
]
"""Which promise a log breaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong with a log."""

    seq: int
    rule: Rule
    message: str


@dataclass(slots=True, kw_only=True)
class _Open:
    """The bracket that is open."""

    start: CompactionStart
    summarized: bool = False
    replaced: bool = False


@dataclass(slots=True, kw_only=True)
class _Trace:
    stale: frozenset[int]
    turn: int | None = None
    open: _Open | None = None
    before: Event | None = None
    """The event directly before the one looked at."""
    found: list[Finding] = field(default_factory=list)

    def fail(self, event: Event, rule: Rule, message: str) -> None:
        self.found.append(Finding(seq=event.seq, rule=rule, message=f"{event.type}: {message}"))


def check_compactions(events: Sequence[Event]) -> list[Finding]:
    """Everything in a log that no compaction may leave behind; empty for a sound one.

    Checked are ids (non-empty, equal through a transaction), owners (inside the exact turn, or
    between turns), turn boundaries (none crosses a live bracket; one that a later
    ``session/end-seed`` proves stale is excepted), one summary a compaction, shadowed ranges and
    counts, that success has a summary and a checkpoint, that a checkpoint belongs to its open
    compaction, that every replacement directly follows the event that prices it, and that a
    ``compaction/prune`` is directly followed by its replacement. A crash may part these two: the
    last event of a log, or of a seed with what its repair closed, is excepted.
    """
    trace = _Trace(stale=_stale_starts(events))
    cut_off = _cut_off_prunes(events)
    for event in events:
        price = trace.before
        replaced = isinstance(event.surface_op, Replace) or event.seq - 1 in cut_off
        if isinstance(price, CompactionPrune) and not replaced:
            trace.fail(price, "metering", f"no replacement directly behind it, but {event.type}")
        _look(trace, event)
        trace.before = event
    return trace.found


def require_sound(events: Sequence[Event]) -> None:
    """Check a log's compactions.

    Raises:
        SessionError: ``corrupt``, naming the first seq and how many more are wrong.
    """
    found = check_compactions(events)
    if found:
        first, more = found[0], len(found) - 1
        rest = f" (and {more} more)" if more else ""
        raise SessionError("corrupt", f"seq {first.seq}: {first.rule}: {first.message}{rest}")


def _stale_starts(events: Iterable[Event]) -> frozenset[int]:
    """Starts that a later end of a seed found unmatched: what a process left when it died."""
    stale: set[int] = set()
    open_seq: int | None = None
    for event in events:
        if isinstance(event, CompactionStart):
            open_seq = event.seq
        elif isinstance(event, CompactionEnd):
            open_seq = None
        elif isinstance(event, EndSeed):
            if open_seq is not None:
                stale.add(open_seq)
            open_seq = None
    return frozenset(stale)


def _cut_off_prunes(events: Sequence[Event]) -> frozenset[int]:
    """Prices that were the last thing a process wrote: behind them is the repair, and a seed's end."""
    cut: set[int] = set()
    last: int | None = None
    for event in events:
        if isinstance(event, CompactionPrune):
            last = event.seq
        elif isinstance(event, EndSeed):
            cut.update(() if last is None else (last,))
            last = None
        elif isinstance(event.surface_op, Replace) or event.type not in _REPAIR:
            last = None
    return frozenset(cut)


def _look(trace: _Trace, event: Event) -> None:
    if isinstance(event, TurnStart | TurnEnd):
        _boundary(trace, event)
    elif isinstance(event, EndSeed):
        trace.open = None
    elif isinstance(event, CompactionStart):
        _start(trace, event)
    elif isinstance(event, CompactionSummary):
        _summary(trace, event)
    elif isinstance(event, CompactionEnd):
        _end(trace, event)
    elif isinstance(event, CompactionPrune):
        _priced(trace, event)
    if isinstance(event.surface_op, Replace):
        _replacement(trace, event, event.surface_op)
    elif isinstance(event, UserMessage) and event.is_checkpoint:
        trace.fail(event, "checkpoint", "stands beside what it condenses, and replaces nothing")


def _boundary(trace: _Trace, event: TurnStart | TurnEnd) -> None:
    if trace.open is not None and trace.open.start.seq not in trace.stale:
        name = trace.open.start.data.compaction_id
        trace.fail(event, "boundary", f"crosses the open compaction {name!r}")
    trace.turn = event.data.turn if isinstance(event, TurnStart) else None


def _start(trace: _Trace, event: CompactionStart) -> None:
    if trace.open is not None:
        trace.fail(event, "bracket", f"{trace.open.start.data.compaction_id!r} is still open")
    if not event.data.compaction_id or event.data.source_command_id == "":
        trace.fail(event, "id", "an empty id")
    _owner(trace, event, event.data.turn)
    trace.open = _Open(start=event)


def _summary(trace: _Trace, event: CompactionSummary) -> None:
    _priced(trace, event)
    opened = _member(trace, event)
    if opened is None:
        return
    _owner(trace, event, opened.start.data.turn)
    if opened.summarized:
        trace.fail(event, "summary", "a second summary in one compaction")
    opened.summarized = True


def _end(trace: _Trace, event: CompactionEnd) -> None:
    opened = _member(trace, event)
    if opened is None:
        return
    if event.data.turn != opened.start.data.turn:
        trace.fail(
            event, "owner", f"turn {event.data.turn}, the start says {opened.start.data.turn}"
        )
    _owner(trace, event, opened.start.data.turn)
    if event.data.error is None and not opened.summarized:
        trace.fail(event, "success", "success without a summary")
    elif event.data.error is None and not opened.replaced:
        trace.fail(event, "success", "success without a checkpoint")
    trace.open = None


def _member(trace: _Trace, event: CompactionSummary | CompactionEnd) -> _Open | None:
    """The open bracket, where the event may belong to it."""
    if trace.open is None:
        trace.fail(event, "bracket", "no compaction is open")
        return None
    start = trace.open.start.data
    if event.data.compaction_id != start.compaction_id:
        trace.fail(event, "id", f"{event.data.compaction_id!r} in {start.compaction_id!r}")
    if event.data.source_command_id != start.source_command_id:
        trace.fail(
            event, "id", f"command {event.data.source_command_id!r} in {start.source_command_id!r}"
        )
    return trace.open


def _owner(trace: _Trace, event: Event, owner: int | None) -> None:
    # Equal covers both: a numbered bracket in its turn, and a standalone one between turns.
    if owner != trace.turn:
        trace.fail(event, "owner", f"owned by turn {owner}, turn {trace.turn} is open")


def _priced(trace: _Trace, event: CompactionSummary | CompactionPrune) -> None:
    seqs, named = event.data.shadowed_seqs, event.data.shadowed_range
    if not seqs:
        trace.fail(event, "range", "shadows nothing")
    elif (seqs[0], seqs[-1]) != (named.start, named.end):
        trace.fail(event, "range", f"{named.start}..{named.end}, shadowed {seqs[0]}..{seqs[-1]}")
    if event.data.shadowed_token_count < 0:
        trace.fail(event, "count", f"{event.data.shadowed_token_count} shadowed tokens")


def _replacement(trace: _Trace, event: Event, operation: Replace) -> None:
    price = trace.before
    if not isinstance(price, CompactionSummary | CompactionPrune):
        trace.fail(event, "metering", "a replacement without its price directly before it")
    else:
        named = price.data.shadowed_range
        if (operation.start_seq, operation.end_seq) != (named.start, named.end):
            trace.fail(
                event,
                "metering",
                f"replaces {operation.start_seq}..{operation.end_seq}, priced was "
                f"{named.start}..{named.end}",
            )
        if not set(price.data.shadowed_seqs) <= set(event.source_event_seqs):
            trace.fail(event, "metering", "does not cite all that was priced")
    if isinstance(event, UserMessage) and event.is_checkpoint:
        _checkpoint(trace, event)


def _checkpoint(trace: _Trace, event: UserMessage) -> None:
    if trace.open is None:
        trace.fail(event, "checkpoint", "no compaction is open")
        return
    trace.open.replaced = True
    if isinstance(trace.before, CompactionPrune):
        trace.fail(event, "metering", "priced by a prune, and not by its own summary")
    start, source = trace.open.start.data, event.data.source
    named: object
    command: object
    if isinstance(source, CheckpointSource):
        named, command = source.compaction_id, source.source_command_id
    else:  # the older spelling
        extra = source.model_extra or {}
        named, command = extra.get("compactionId"), extra.get("sourceCommandId")
    if (named, command) != (start.compaction_id, start.source_command_id):
        trace.fail(
            event,
            "checkpoint",
            f"of {named!r} (command {command!r}) in {start.compaction_id!r} "
            f"({start.source_command_id!r})",
        )
