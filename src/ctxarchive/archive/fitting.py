"""Fitting the additions into their budget: what gives way, in which order. Pure.

Over budget, narrative prose goes first, then tool lines, then assistant findings, oldest first;
then messages older than the span that are no rules; then user messages are clipped harder, then
dropped but for their rule-like sentences, the oldest and least rule-like first; then those
sentences; then pinned messages; the index goes last. A dropped run leaves one line with its pointer; where that line would cost as
much as the run, the run stays until it can go with its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from ctxarchive.archive.bounds import Limits
from ctxarchive.archive.format import STANDING_HEADING, TRANSCRIPT_HEADING
from ctxarchive.archive.quotes import Quote, quotes_of
from ctxarchive.archive.rules import RULE_LIKE
from ctxarchive.archive.sections import section
from ctxarchive.archive.settings import TranscriptConfig
from ctxarchive.archive.transcript import Entry, Kind, message_entry, run_line

PROSE: frozenset[Kind] = frozenset({"narrative", "finding"})
"""The kinds of assistant prose."""

HARDER = ((400, 150), (160, 60))
"""``clip_at`` and ``keep`` of user messages that must give way, step by step."""

SECTIONS = ("standing", "span")

PARTS = 12
"""Parts of the span, by number of entries, that give way one after the other."""


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
    # The newest part of the span tells where the work stands, so the older parts go first.
    for part in draft.parts():
        for kinds in ({"narrative", "tool"}, PROSE | {"tool"}):
            yield lambda limits, through=part, of=kinds: draft.drop_until(  # type: ignore[misc]
                "span", of, limits, through
            )
    yield lambda limits: draft.drop_least(("standing",), _is_no_rule, limits)
    for may_go in (_is_free, _is_user):
        for clip_at, keep in HARDER:
            yield lambda limits, at=clip_at, each=keep, go=may_go: draft.clip_until(  # type: ignore[misc]
                at, each, go, limits
            )
        yield lambda limits, go=may_go: draft.drop_least(SECTIONS, go, limits)  # type: ignore[misc]
        yield draft.drop_quotes
    yield lambda limits: draft.drop_until("span", PROSE | {"tool", "user"}, limits)
    yield draft.drop_quotes


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
        self._quotes: dict[tuple[str, int], tuple[Quote, ...]] = {}
        """What would stay of a user's message if it were left out, by section and place."""
        self._unquoted: set[Quote] = set()
        self._rendered: tuple[list[str], list[str]] | None = None

    def _cost(self, line: str) -> int:
        """Tokens of a line and its line break; each line is priced once."""
        known = self._prices.get(line)
        if known is None:
            known = self._prices[line] = self._price(line) + 1
        return known

    def _lines(self) -> tuple[list[str], list[str]]:
        if self._rendered is None:
            shown = {name: self._shown(name) for name in SECTIONS}
            constraints, originals = self._material.constraints, self._material.originals
            standing = section(shown["standing"], constraints, what="user messages")
            span = section(shown["span"], originals, what="entries")
            standing += [quote.shown for quote in self._quoted()]
            self._rendered = (
                [STANDING_HEADING, *standing] if standing else [],
                [TRANSCRIPT_HEADING, *span] if span else [],
            )
        return self._rendered

    def _shown(self, name: str) -> list[tuple[Entry, bool]]:
        return list(zip(self._entries[name], self._dropped[name], strict=True))

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
        if limits.talk_tokens is not None:
            over = max(over, self._talk() - limits.talk_tokens)
        return max(over, -(-(chars[1] - limits.transcript_chars) // 4))

    def _talk(self) -> int:
        """Tokens of the assistant prose and the tools' results in view."""
        return sum(
            self._cost(entry.priced)
            for entry, dropped in self._shown("span")
            if not dropped and (entry.kind in PROSE or entry.kind == "tool")
        )

    def _quotes_at(self, name: str, place: int) -> tuple[Quote, ...]:
        where = (name, place)
        if where not in self._quotes:
            entry = self._entries[name][place]
            said = entry.record if entry.kind == "user" else None
            self._quotes[where] = () if said is None else quotes_of(said)
        return self._quotes[where]

    def _quoted(self) -> list[Quote]:
        """What stays of the user's messages where it is left out, oldest first."""
        return [
            quote
            for name in SECTIONS
            for place, (entry, dropped) in enumerate(self._shown(name))
            if entry.kind == "user"
            for quote in self._quotes_at(name, place)
            if quote not in self._unquoted and (dropped or quote.part not in entry.shown)
        ]

    def drop_quotes(self, limits: Limits) -> None:
        """Leave out quotes, those of the messages that are worth least first, until the bounds hold."""
        kept = self._kept()
        worth = {
            quote: (kept[where], quote.score)
            for where, quotes in self._quotes.items()
            for quote in quotes
        }
        waiting = sorted(self._quoted(), key=worth.__getitem__)
        while waiting and (excess := self._excess(limits)) > 0:
            saved = 0
            while waiting and saved < excess:
                quote = waiting.pop(0)
                saved += self._cost(quote.shown)
                self._unquoted.add(quote)
            self._rendered = None

    def drop_all(self, kinds: frozenset[Kind]) -> None:
        """Leave out every entry of some kinds."""
        for place, entry in enumerate(self._entries["span"]):
            if entry.kind in kinds:
                self._dropped["span"][place] = True
        self._rendered = None

    def parts(self) -> list[int]:
        """The last seq of each part of the span, oldest first."""
        seqs = [entry.seq for entry in self._entries["span"] if entry.seq >= 0] or [0]
        return [seqs[len(seqs) * part // PARTS - 1] for part in range(1, PARTS)] + [max(seqs)]

    def drop_until(
        self, name: str, kinds: AbstractSet[Kind], limits: Limits, through: int | None = None
    ) -> None:
        """Leave out entries of some kinds, oldest first, until the bounds hold or none helps.

        Args:
            name: the section.
            kinds: what may go.
            limits: the bounds.
            through: the last seq that may go; ``None`` for all.
        """

        def may_go(entry: Entry) -> bool:
            return entry.kind in kinds and (through is None or entry.seq <= through)

        flags = self._dropped[name]
        while (excess := self._excess(limits)) > 0:
            # A batch by estimate, then measured again: pricing the whole once an entry would be
            # quadratic.
            chosen = self._next_to_drop(name, may_go, excess)
            if not chosen:
                return
            for place in chosen:
                flags[place] = True
            self._rendered = None

    def _next_to_drop(self, name: str, may_go: Callable[[Entry], bool], excess: int) -> list[int]:
        """The oldest entries whose leaving saves ``excess`` tokens, or all that saves anything."""
        notice = self._notice_cost(name)
        chosen: list[int] = []
        saved = 0
        for stretch in self._stretches(name, may_go):
            waiting = [place for place in stretch if not self._dropped[name][place]]
            costs = [self._cost(self._entries[name][place].priced) for place in waiting]
            due = 0 if self._has_line(name, stretch) else notice
            if sum(costs) <= due:
                continue
            saved -= due
            for place, cost in zip(waiting, costs, strict=True):
                chosen.append(place)
                saved += cost
                if saved >= excess:
                    return chosen
        return chosen

    def _has_line(self, name: str, stretch: Sequence[int]) -> bool:
        """Whether a line stands for some of these places or for a neighbour, which takes them in."""
        return any(self._on_line(name, place) for place in stretch) or any(
            self._on_line_beside(name, place, step)
            for place, step in ((stretch[0], -1), (stretch[-1], 1))
        )

    def _on_line(self, name: str, place: int) -> bool:
        return self._dropped[name][place] or self._entries[name][place].kind == "tool"

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
                costs = [
                    self._cost(self._entries[name][place].priced)
                    - sum(self._cost(quote.shown) for quote in self._quotes_at(name, place))
                    for place in waiting
                ]
                due = 0 if self._has_line(name, stretch) else self._notice_cost(name)
                if saved >= excess or sum(costs) <= due:
                    continue
                saved -= due
                for place, cost in zip(waiting, costs, strict=True):
                    self._dropped[name][place] = True
                    saved += cost
                    if saved >= excess:
                        break
        return saved > 0

    def _least_first(
        self, names: Sequence[str], may_go: Callable[[Entry], bool]
    ) -> list[tuple[str, int]]:
        """Places of user messages in view that may go: the newest and the most rule-like last."""
        kept = self._kept()
        going = [
            where
            for where in kept
            if where[0] in names
            and not self._dropped[where[0]][where[1]]
            and may_go(self._entries[where[0]][where[1]])
        ]
        return sorted(going, key=kept.__getitem__)

    def _kept(self) -> dict[tuple[str, int], float]:
        """What each of the user's messages is worth, by section and place, oldest first."""
        users = [
            (name, place)
            for name in SECTIONS
            for place, entry in enumerate(self._entries[name])
            if entry.kind == "user"
        ]
        # The newest is worth as much as a standing rule, the one before half as much, and so on.
        return {
            (name, place): self._entries[name][place].worth + 1 / (len(users) - number)
            for number, (name, place) in enumerate(users)
        }

    def _gain(self, name: str, place: int) -> int:
        """About what leaving out one entry saves; lines that meet save one."""
        beside = sum(self._on_line_beside(name, place, step) for step in (-1, 1))
        notice = self._notice_cost(name)
        kept = sum(self._cost(quote.shown) for quote in self._quotes_at(name, place))
        return self._cost(self._entries[name][place].priced) - kept + (beside - 1) * notice

    def _on_line_beside(self, name: str, place: int, step: int) -> bool:
        entries = self._entries[name]
        place += step
        while 0 <= place < len(entries) and entries[place].kind == "hidden":
            place += step
        return 0 <= place < len(entries) and self._on_line(name, place)
