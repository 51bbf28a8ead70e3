"""Lives a log into a session, item by item.

Deterministic: times come from the log, ids from positions. Plans no compaction; it only repeats
what the log recorded, or tells where on the session's present surface that would be.
"""

from __future__ import annotations

from typing import Any

from ctxarchive.errors import LogFormatError, SessionError
from ctxarchive.importers.log import Entry, ImportedLog, RecordedCompaction
from ctxarchive.session.events import SURFACE_TYPES, Event, Replace
from ctxarchive.session.ids import derived_compaction_id
from ctxarchive.session.log import Session, SessionHeader
from ctxarchive.session.messages import checkpoint_source

SUPERSEDED = "import/superseded"
"""The type under which a replacement is logged whose target is off the surface already."""


class Playback:
    """One log on its way into one session.

    Args:
        log: what to play.
        session_id: the session's id; the log's own where left out.
    """

    def __init__(self, log: ImportedLog, *, session_id: str | None = None) -> None:
        self._log = log
        # Unknown until an item says a time: a later item's would not be there in a prefix.
        self._now: int | None = None
        known = {"title": log.title, "cwd": log.cwd, "created_at": log.created_at}
        header = SessionHeader(
            id=session_id or log.session_id,
            **{name: value for name, value in known.items() if value is not None},  # type: ignore[arg-type]
        )
        self.session = Session(header, clock=lambda: self._now)
        self.session.subscribe(self._follow)
        self._number = {id(item): index for index, item in enumerate(log.items)}
        self._seqs: dict[int, int] = {}
        self._stands_in: dict[int, int] = {}

    def apply(self, item: Entry) -> Event:
        """Append one entry of the log.

        Raises:
            LogFormatError: ``invalid``, when the session cannot take it.
        """
        self._advance(item.time)
        index = self._number[id(item)]
        sources = {self._seqs[at] for at in item.sources if at in self._seqs}
        data, event_type = item.data, item.type
        operation: dict[str, Any] | str | None = None
        if item.replaces:
            shadowed = self._exactly(item.replaces)
            if shadowed is None:
                event_type, data = SUPERSEDED, {"type": item.type, "data": item.data}
            elif item.type in SURFACE_TYPES:
                operation = _replace(shadowed)
                sources.update(shadowed)
            else:
                data = {**data, **_shadow_fields(shadowed)}
        elif item.type in SURFACE_TYPES:
            operation = "append"
        try:
            event = self.session.append(
                event_type,
                data,
                surface_op=operation,
                source_event_seqs=sorted(sources),
                origin=item.origin,
            )
        except SessionError as error:
            raise self._refused(item, error) from error
        self._seqs[index] = event.seq
        return event

    def apply_recorded(self, item: RecordedCompaction) -> None:
        """Repeat a compaction as the log recorded it: the bracket and its checkpoint.

        Raises:
            LogFormatError: ``invalid``, when the session cannot take it.
        """
        self._advance(item.time)
        span = self.span(item)
        try:
            if span is None:
                event = self.session.append(
                    "user/message",
                    {
                        "role": "user",
                        "content": item.content,
                        "source": {"kind": "injected", "reason": "continuation"},
                    },
                    surface_op="append",
                    origin=item.origin,
                )
                self._seqs[self._number[id(item)]] = event.seq
                return
            self._bracket(item, self.session.surface.span(*span))
        except SessionError as error:
            raise self._refused(item, error) from error

    def span(self, item: RecordedCompaction) -> tuple[int, int] | None:
        """First and last seq, on the surface as it is now, of what a compaction replaced.

        What was compacted meanwhile is represented by the checkpoint in its place.

        Returns:
            ``None`` where nothing of it is left.
        """
        surface = self.session.surface
        if not len(surface):
            return None
        if item.shadows is None:
            return surface[0], surface[len(surface) - 1]
        places = self._places(item.shadows)
        return (surface[min(places)], surface[max(places)]) if places else None

    def _bracket(self, item: RecordedCompaction, shadowed: tuple[int, ...]) -> None:
        session = self.session
        compaction_id = derived_compaction_id(session.id, len(session))
        frame = {"compactionId": compaction_id, "turn": session.open_turn}
        start = session.append("compaction/start", frame, origin=item.origin)
        summary = session.append(
            "compaction/summary",
            {
                "compactionId": compaction_id,
                "summary": item.content,
                **_shadow_fields(shadowed),
                "shadowedTokenCount": item.pre_tokens or 0,
                "provider": "recorded",
                "model": session.request_header.get("config", {}).get("model", "unknown"),
            },
            origin=item.origin,
        )
        checkpoint = session.append(
            "user/message",
            {
                "role": "user",
                "content": item.content,
                "source": checkpoint_source(compaction_id).wire(),
            },
            surface_op=_replace(shadowed),
            source_event_seqs=(start.seq, summary.seq, *shadowed),
            origin=item.origin,
        )
        session.append("compaction/end", frame, origin=item.origin)
        self._seqs[self._number[id(item)]] = checkpoint.seq

    def _advance(self, time: int | None) -> None:
        # A branched log's header is later than what it took over: each event keeps its own time.
        if time is not None:
            self._now = time

    def _follow(self, session: Session, event: Event) -> None:
        # Whoever replaced them, this playback or a host's own engine: later spans find them here.
        if not isinstance(event.surface_op, Replace):
            return
        for seq in event.source_event_seqs:
            if seq not in session.surface and session.event_at(seq).type in SURFACE_TYPES:
                self._stands_in.setdefault(seq, event.seq)

    def _exactly(self, indices: tuple[int, ...]) -> tuple[int, ...] | None:
        """The seqs of items that are all still on the surface themselves, else ``None``."""
        seqs = tuple(self._seqs[at] for at in indices if at in self._seqs)
        if len(seqs) != len(indices) or any(seq not in self.session.surface for seq in seqs):
            return None
        span = self.session.surface.span(seqs[0], seqs[-1])
        return span if len(span) == len(seqs) else None

    def _places(self, indices: tuple[int, ...]) -> set[int]:
        places: set[int] = set()
        waiting, seen = list(indices), set[int]()
        while waiting:
            at = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            if at in self._seqs:
                place = self._place(self._seqs[at])
                if place is not None:
                    places.add(place)
                continue
            item = self._log.items[at]
            if isinstance(item, RecordedCompaction):  # left out: what it would have replaced
                waiting += range(at) if item.shadows is None else item.shadows
        return places

    def _place(self, seq: int) -> int | None:
        at: int | None = seq
        while at is not None and at not in self.session.surface:
            at = self._stands_in.get(at)
        return None if at is None else self.session.surface.position(at)

    def _refused(self, item: Entry | RecordedCompaction, error: SessionError) -> LogFormatError:
        return LogFormatError(
            "invalid",
            f"{self._log.path} line {item.origin.line}: {error}; mend or drop that record",
            line=item.origin.line,
        )


def import_session(log: ImportedLog, *, recorded: bool = True) -> Session:
    """A whole log as a session.

    Args:
        log: what to import.
        recorded: whether to repeat the compactions it recorded; else they are left out, as if its
            harness had never compacted.

    Raises:
        LogFormatError: ``invalid``, naming the line.
    """
    playback = Playback(log)
    for item in log.items:
        if isinstance(item, Entry):
            playback.apply(item)
        elif recorded:
            playback.apply_recorded(item)
    return playback.session


def _replace(shadowed: tuple[int, ...]) -> dict[str, Any]:
    return {"op": "replace", "startSeq": shadowed[0], "endSeq": shadowed[-1]}


def _shadow_fields(shadowed: tuple[int, ...]) -> dict[str, Any]:
    return {
        "shadowedRange": {"start": shadowed[0], "end": shadowed[-1]},
        "shadowedSeqs": list(shadowed),
    }
