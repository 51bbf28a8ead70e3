"""Fitting the additions into their budget: what gives way, in which order. Pure.

Over budget, narrative prose goes first, then tool lines, then assistant findings, oldest first;
then messages older than the span, then the span's user messages are clipped harder and dropped;
the index goes last. A dropped run leaves one line with its pointer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ctxarchive.archive.format import STANDING_HEADING, TRANSCRIPT_HEADING
from ctxarchive.archive.settings import TranscriptConfig
from ctxarchive.archive.transcript import Entry, Kind, message_entry, run_line
from ctxarchive.knowledge.records import Record

HARDER = ((400, 150), (160, 60))
"""``clip_at`` and ``keep`` of user messages that must give way, step by step."""

NOTICE_CHARS = 190
"""What a dropped run's line takes, about; only steers the search, the result is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of the additions."""

    tokens: int
    chars: int | None
    """Code points of all of it; ``None`` for no bound."""
    transcript_chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What may be shown."""

    standing: tuple[Entry, ...]
    """User messages older than the span, oldest first."""
    span: tuple[Entry, ...]
    """The span's entries in surface order."""
    index: str
    constraints: tuple[int, ...]
    """Seqs of all the session's archived user messages, ascending."""
    originals: Sequence[int]
    """Seqs of all the session's archived originals, ascending."""


def fit(
    material: Material,
    limits: Limits,
    price: Callable[[str], int],
    config: TranscriptConfig,
) -> str:
    """The additions within their limits; empty where not even the index fits.

    Args:
        material: what there is to show.
        limits: the bounds.
        price: tokens of a text.
        config: says whether assistant prose is shown at all.
    """
    draft = _Draft(material, price)
    if not config.keep_assistant:
        for entry_kind in ("narrative", "finding"):
            draft.drop_all(entry_kind)
    for give_way in _steps(draft):
        if draft.fits(limits):
            break
        give_way(limits)
    if draft.fits(limits):
        return draft.text
    return material.index if _alone_fits(material.index, limits, price) else ""


def _alone_fits(text: str, limits: Limits, price: Callable[[str], int]) -> bool:
    return price(text) <= limits.tokens and (limits.chars is None or len(text) <= limits.chars)


def _steps(draft: _Draft) -> Iterable[Callable[[Limits], None]]:
    yield lambda limits: draft.drop_until("span", "narrative", limits)
    yield lambda limits: draft.drop_until("span", "tool", limits)
    yield lambda limits: draft.drop_until("span", "finding", limits)
    yield lambda limits: draft.drop_until("standing", "user", limits)
    for clip_at, keep in HARDER:
        yield lambda limits, at=clip_at, each=keep: draft.clip_until(at, each, limits)  # type: ignore[misc]
    yield lambda limits: draft.drop_until("span", "user", limits)


class _Draft:
    """The additions in the making."""

    def __init__(self, material: Material, price: Callable[[str], int]) -> None:
        self._material = material
        self._price = price
        self._prices: dict[str, int] = {}
        self._entries = {"standing": list(material.standing), "span": list(material.span)}
        self._dropped = {name: [False] * len(items) for name, items in self._entries.items()}
        self._rendered: tuple[list[str], list[str]] | None = None

    def _cost(self, line: str) -> int:
        """Tokens of a line and its line break; each line is priced once."""
        known = self._prices.get(line)
        if known is None:
            known = self._prices[line] = self._price(line) + 1
        return known

    def _lines(self) -> tuple[list[str], list[str]]:
        if self._rendered is None:
            standing = self._section("standing", self._material.constraints, "user messages")
            span = self._section("span", self._material.originals, "entries")
            self._rendered = (
                [STANDING_HEADING, *standing] if standing else [],
                [TRANSCRIPT_HEADING, *span] if span else [],
            )
        return self._rendered

    @property
    def text(self) -> str:
        """The additions as they stand."""
        standing, transcript = self._lines()
        sections = ["\n".join(standing), "\n".join(transcript), self._material.index]
        return "\n\n".join(section for section in sections if section)

    def fits(self, limits: Limits) -> bool:
        """Whether all bounds hold."""
        return self._excess(limits) <= 0

    def _excess(self, limits: Limits) -> int:
        """By how much the draft is over, in tokens; a bound in characters counts a quarter each."""
        standing, transcript = self._lines()
        index = self._material.index
        lines = [*standing, *transcript, *([index] if index else [])]
        over = sum(self._cost(line) for line in lines) + 2 - limits.tokens
        chars = [sum(len(line) + 1 for line in part) for part in (standing, transcript)]
        if limits.chars is not None:
            over = max(over, -(-(sum(chars) + len(index) + 2 - limits.chars) // 4))
        return max(over, -(-(chars[1] - limits.transcript_chars) // 4))

    def drop_all(self, kind: Kind) -> None:
        """Leave out every entry of one kind."""
        for place, entry in enumerate(self._entries["span"]):
            if entry.kind == kind:
                self._dropped["span"][place] = True
        self._rendered = None

    def drop_until(self, name: str, kind: Kind, limits: Limits) -> None:
        """Leave out entries of one kind, oldest first, until the bounds hold or none is left."""
        flags, entries = self._dropped[name], self._entries[name]
        waiting = [
            place for place, entry in enumerate(entries) if entry.kind == kind and not flags[place]
        ]
        notice = NOTICE_CHARS // 3
        while waiting and (excess := self._excess(limits)) > 0:
            # A batch by estimate, then measured again: pricing the whole once an entry would be
            # quadratic.
            saved = 0
            while waiting and saved < excess:
                place = waiting.pop(0)
                beside = sum(
                    flags[neighbour]
                    for neighbour in (place - 1, place + 1)
                    if 0 <= neighbour < len(flags)
                )
                saved += self._cost(entries[place].shown) + notice * (beside - 1)
                flags[place] = True
            self._rendered = None

    def clip_until(self, clip_at: int, keep: int, limits: Limits) -> None:
        """Clip the span's user messages harder, oldest first, until the bounds hold."""
        entries = self._entries["span"]
        waiting = [place for place, entry in enumerate(entries) if entry.kind == "user"]
        while waiting and (excess := self._excess(limits)) > 0:
            saved = 0
            while waiting and saved < excess:
                place = waiting.pop(0)
                record = entries[place].record
                if record is None or len(record.text) <= clip_at:
                    continue
                shorter = message_entry(record, clip_at, keep)
                saved += self._cost(entries[place].shown) - self._cost(shorter.shown)
                entries[place] = shorter
            self._rendered = None

    def _section(self, name: str, archived: Sequence[int], what: str) -> list[str]:
        lines: list[str] = []
        run: list[tuple[Record, bool]] = []

        def close() -> None:
            # Hidden entries at the end of a run were not dropped: nothing of them was in view.
            while run and not run[-1][1]:
                run.pop()
            told = [record for record, _ in run if record.text]
            if told:
                lines.append(run_line(told, what=what))
            run.clear()

        for entry, dropped in zip(self._entries[name], self._dropped[name], strict=True):
            record = entry.record
            if record is not None and (dropped or (run and entry.kind == "hidden")):
                if run and not _adjacent(run[-1][0].seq, record.seq, archived):
                    close()
                if dropped or run:
                    run.append((record, dropped))
            elif entry.kind != "hidden":
                close()
                if entry.shown:
                    lines.append(entry.shown)
        close()
        return lines


def _adjacent(before: int, after: int, archived: Sequence[int]) -> bool:
    """Whether nothing archived lies between two seqs, which must ascend."""
    if after <= before:
        return False
    place = bisect_right(archived, before)
    return place < len(archived) and archived[place] == after
