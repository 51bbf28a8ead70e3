"""Fitting the additions into their budget: what gives way, in which order. Pure.

Over budget, narrative prose goes first, then tool lines, then assistant findings, oldest first;
then messages older than the span that are no rules; then user messages are clipped harder, then
dropped, the oldest and least rule-like first; then pinned ones; the index goes last. A dropped run leaves one line with its pointer; where that line would cost as
much as the run, the run stays until it can go with its neighbours.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from ctxarchive.archive.format import STANDING_HEADING, TRANSCRIPT_HEADING
from ctxarchive.archive.rules import RULE_LIKE
from ctxarchive.archive.settings import TranscriptConfig
from ctxarchive.archive.transcript import Entry, Kind, message_entry, run_line
from ctxarchive.knowledge.records import Record

PROSE: frozenset[Kind] = frozenset({"narrative", "finding"})
"""The kinds of assistant prose."""

HARDER = ((400, 150), (160, 60))
"""``clip_at`` and ``keep`` of user messages that must give way, step by step."""

SECTIONS = ("standing", "span")


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
    constraints: Sequence[int]
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
        draft.drop_all(PROSE)
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
    yield lambda limits: draft.drop_until("span", {"narrative"}, limits)
    yield lambda limits: draft.drop_until("span", {"narrative", "tool"}, limits)
    yield lambda limits: draft.drop_until("span", PROSE | {"tool"}, limits)
    yield lambda limits: draft.drop_least(("standing",), _is_no_rule, limits)
    for may_go in (_is_free, _is_user):
        for clip_at, keep in HARDER:
            yield lambda limits, at=clip_at, each=keep, go=may_go: draft.clip_until(  # type: ignore[misc]
                at, each, go, limits
            )
        yield lambda limits, go=may_go: draft.drop_least(SECTIONS, go, limits)  # type: ignore[misc]
    yield lambda limits: draft.drop_until("span", PROSE | {"tool", "user"}, limits)


def _is_user(entry: Entry) -> bool:
    return entry.kind == "user"


def _is_free(entry: Entry) -> bool:
    return entry.kind == "user" and not entry.pinned


def _is_no_rule(entry: Entry) -> bool:
    return _is_free(entry) and entry.worth < RULE_LIKE


class _Draft:
    """The additions in the making."""

    def __init__(self, material: Material, price: Callable[[str], int]) -> None:
        self._material = material
        self._price = price
        self._prices: dict[str, int] = {}
        self._notices: dict[str, int] = {}
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

    def drop_all(self, kinds: frozenset[Kind]) -> None:
        """Leave out every entry of some kinds."""
        for place, entry in enumerate(self._entries["span"]):
            if entry.kind in kinds:
                self._dropped["span"][place] = True
        self._rendered = None

    def drop_until(self, name: str, kinds: AbstractSet[Kind], limits: Limits) -> None:
        """Leave out entries of some kinds, oldest first, until the bounds hold or none helps."""
        flags = self._dropped[name]
        while (excess := self._excess(limits)) > 0:
            # A batch by estimate, then measured again: pricing the whole once an entry would be
            # quadratic.
            chosen = self._next_to_drop(name, kinds, excess)
            if not chosen:
                return
            for place in chosen:
                flags[place] = True
            self._rendered = None

    def _next_to_drop(self, name: str, kinds: AbstractSet[Kind], excess: int) -> list[int]:
        """The oldest entries whose leaving saves ``excess`` tokens, or all that saves anything."""
        notice = self._notice_cost(name)
        chosen: list[int] = []
        saved = 0
        for stretch in self._stretches(name, lambda entry: entry.kind in kinds):
            waiting = [place for place in stretch if not self._dropped[name][place]]
            costs = [self._cost(self._entries[name][place].shown) for place in waiting]
            due = notice if len(waiting) == len(stretch) else 0
            if sum(costs) <= due:
                continue
            saved -= due
            for place, cost in zip(waiting, costs, strict=True):
                chosen.append(place)
                saved += cost
                if saved >= excess:
                    return chosen
        return chosen

    def _stretches(self, name: str, may_go: Callable[[Entry], bool]) -> Iterator[list[int]]:
        """Runs of places that are left out already or may go, where there is any."""
        flags = self._dropped[name]
        stretch: list[int] = []
        for place, entry in enumerate(self._entries[name]):
            if flags[place] or may_go(entry):
                stretch.append(place)
            elif entry.kind != "hidden" and stretch:
                yield stretch
                stretch = []
        if stretch:
            yield stretch

    def _notice_cost(self, name: str) -> int:
        """About what a dropped run's line takes; it only steers, the result is measured."""
        if name not in self._notices:
            self._notices[name] = self._longest_notice(name)
        return self._notices[name]

    def _longest_notice(self, name: str) -> int:
        told = [
            entry.record
            for entry in self._entries[name]
            if entry.record is not None and (entry.record.text or entry.record.images)
        ]
        return self._cost(run_line([told[0], told[-1]])) if told else 0

    def clip_until(
        self, clip_at: int, keep: int, may_go: Callable[[Entry], bool], limits: Limits
    ) -> None:
        """Clip user messages harder, the least worth first, until the bounds hold."""
        waiting = self._least_first(SECTIONS, may_go)
        while waiting and (excess := self._excess(limits)) > 0:
            saved = 0
            while waiting and saved < excess:
                name, place = waiting.pop(0)
                entry = self._entries[name][place]
                if entry.record is None or len(entry.record.text) <= clip_at:
                    continue
                shorter = replace(message_entry(entry.record, clip_at, keep), pinned=entry.pinned)
                saved += self._cost(entry.shown) - self._cost(shorter.shown)
                self._entries[name][place] = shorter
            self._rendered = None

    def drop_least(
        self, names: Sequence[str], may_go: Callable[[Entry], bool], limits: Limits
    ) -> None:
        """Leave out user messages, the least worth first, until the bounds hold or none helps."""
        waiting = self._least_first(names, may_go)
        while (excess := self._excess(limits)) > 0:
            saved = 0
            left: list[tuple[str, int]] = []
            for name, place in waiting:
                gain = self._gain(name, place) if saved < excess else 0
                if gain > 0:
                    self._dropped[name][place] = True
                    saved += gain
                else:
                    left.append((name, place))
            waiting = left
            if not saved and not self._drop_together(names, may_go, excess):
                return
            self._rendered = None

    def _drop_together(
        self, names: Sequence[str], may_go: Callable[[Entry], bool], excess: int
    ) -> bool:
        """Leave out neighbours of which none saves anything alone; whether there were any."""
        saved = 0
        for name in names:
            for stretch in self._stretches(name, may_go):
                waiting = [place for place in stretch if not self._dropped[name][place]]
                costs = [self._cost(self._entries[name][place].shown) for place in waiting]
                due = self._notice_cost(name) if len(waiting) == len(stretch) else 0
                if saved < excess and sum(costs) > due:
                    saved += sum(costs) - due
                    for place in waiting:
                        self._dropped[name][place] = True
        return saved > 0

    def _least_first(
        self, names: Sequence[str], may_go: Callable[[Entry], bool]
    ) -> list[tuple[str, int]]:
        """Places of user messages in view that may go: the newest and the most rule-like last."""
        users = [
            (name, place)
            for name in SECTIONS
            for place, entry in enumerate(self._entries[name])
            if entry.kind == "user"
        ]
        # The newest is worth as much as a standing rule, the one before half as much, and so on.
        kept = {
            where: self._entries[where[0]][where[1]].worth + 1 / age
            for age, where in enumerate(reversed(users), start=1)
        }
        going = [
            where
            for where in users
            if where[0] in names
            and not self._dropped[where[0]][where[1]]
            and may_go(self._entries[where[0]][where[1]])
        ]
        return sorted(going, key=kept.__getitem__)

    def _gain(self, name: str, place: int) -> int:
        """About what leaving out one entry saves; runs that meet save a notice."""
        dropped = sum(self._is_dropped_beside(name, place, step) for step in (-1, 1))
        notice = self._notice_cost(name)
        return self._cost(self._entries[name][place].shown) + (dropped - 1) * notice

    def _is_dropped_beside(self, name: str, place: int, step: int) -> bool:
        entries = self._entries[name]
        place += step
        while 0 <= place < len(entries) and entries[place].kind == "hidden":
            place += step
        return 0 <= place < len(entries) and self._dropped[name][place]

    def _section(self, name: str, archived: Sequence[int], what: str) -> list[str]:
        lines: list[str] = []
        run: list[tuple[Record, bool]] = []

        def close() -> None:
            # Hidden entries at the end of a run were not dropped: nothing of them was in view.
            while run and not run[-1][1]:
                run.pop()
            told = [record for record, _ in run if record.text or record.images]
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
