"""The deterministic summarizer: fixed sections filled from the span, no model.

It only selects and clips what the span says; it never words a fact anew. What does not fit gives
way by a fixed order of worth, so every span above the policy's minimum shrinks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ctxarchive.compaction.checkpoint import parse_frame
from ctxarchive.compaction.facts import Facts, collect
from ctxarchive.compaction.summarizer import Summary, SummaryInput
from ctxarchive.errors import SessionError
from ctxarchive.metering.meter import TokenMeter

SECTIONS = (
    "Request and how it changed",
    "Concepts in play",
    "Files and code",
    "Errors and fixes",
    "Pending work",
    "Current work",
    "Next step",
    "Critical context (decisions, constraints, preferences)",
)
"""The fixed sections, in order."""

_REQUEST, _CONCEPTS, _FILES, _ERRORS, _PENDING, _CURRENT, _NEXT, _CONTEXT = SECTIONS

_LASTING = frozenset({_REQUEST, _FILES, _ERRORS, _PENDING, _CONTEXT})
"""Sections whose lines may outlive their span; the others are said anew each time."""

_LAST_REQUEST = "last, verbatim:"

SPAN_SHARE = 0.33
"""Largest share of the shadowed tokens that the summary may take."""

FRAME_TOKENS = 60
"""Room kept for the frame around the summary."""

LEAST_TOKENS = 800
"""Tokens that a summary may take whatever the rest of the request leaves."""

NOTHING = "(nothing of this span fits the budget)"
"""A summary for which there was no room at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    section: str
    text: str
    worth: int
    """Lower is kept longer; items of equal worth go oldest first."""
    shorter: tuple[str, ...] = ()
    """What stands in its place where it does not fit, the longest first."""


class ExtractiveSummarizer:
    """Summarizes by selecting, the same every time.

    Args:
        meter: prices the result.
    """

    def __init__(self, meter: TokenMeter) -> None:
        self._meter = meter

    async def summarize(self, input: SummaryInput) -> Summary:
        """The summary of ``input``; never fails."""
        budget = min(int(input.shadowed_tokens * SPAN_SHARE), input.max_tokens)
        if input.room_tokens is not None:
            # Where the retained tail alone fills the request, a useful summary beats none.
            budget = min(budget, max(input.room_tokens, LEAST_TOKENS))
        facts = collect(input.messages())
        if input.requests_follow:
            facts = _without_middle_requests(facts)
        return Summary(
            text=self.render(facts, max(0, budget - FRAME_TOKENS)),
            summarizer="extractive",
            provider="ctxarchive",
            model="extractive",
        )

    def render(self, facts: Facts, budget: int) -> str:
        """The sections within ``budget`` tokens, or the shortest text there is."""
        items = _items(facts)
        kept: list[_Item | None] = [None] * len(items)
        headings: set[str] = set()
        left = budget
        # By worth, and within one worth the newest first: what is left over is the oldest.
        order = sorted(range(len(items)), key=lambda place: (items[place].worth, -place))
        for place in order:
            item = items[place]
            heading = 0 if item.section in headings else self._meter.text(item.section) + 4
            for text in (item.text, *item.shorter):
                price = self._meter.text(text) + 1 + heading
                if price <= left:
                    kept[place] = replace(item, text=text)
                    headings.add(item.section)
                    left -= price
                    break
        return _layout([item for item in kept if item is not None])


def _layout(items: Sequence[_Item]) -> str:
    parts: list[str] = []
    for section in SECTIONS:
        body = [item.text for item in items if item.section == section]
        if body:
            parts.append(f"## {section}\n" + "\n".join(body))
    return "\n\n".join(parts) or NOTHING


def _without_middle_requests(facts: Facts) -> Facts:
    """The facts with the first request and the last alone."""
    first = facts.requests[:1] if len(facts.requests) > 1 and not facts.earlier else ()
    return replace(facts, requests=(*first, *facts.requests[-1:]))


def _items(facts: Facts) -> list[_Item]:
    carried = _carried(facts.earlier)
    pending = facts.open_items or tuple(carried.get(_PENDING, ()))
    edited = _newest_last([*_named(carried, _FILES, "edited: "), *facts.edited])
    rules = _newest_last([*carried.get(_CONTEXT, ()), *(_clip(rule, 400) for rule in facts.rules)])
    return [
        *_request_items(facts, carried.get(_REQUEST, [])),
        *_lines(_CONCEPTS, [", ".join(facts.concepts[:30])] if facts.concepts else [], 7),
        *_lines(_FILES, [f"edited: {path}" for path in edited], 1),
        *_lines(_FILES, [f"used: {path}" for path in reversed(facts.read[:30])], 6),
        *_lines(_ERRORS, carried.get(_ERRORS, [])[-8:], 7),
        *_error_items(facts),
        *_lines(_PENDING, list(pending), 2),
        *_work_items(facts),
        *_lines(_CONTEXT, rules[-60:], 5),
        *_lines(_CONTEXT, [_clip(value, 300) for value in facts.values[-12:]], 7),
    ]


def _request_items(facts: Facts, carried: Sequence[str]) -> list[_Item]:
    items = [_item(_REQUEST, f"- {line}", 5) for line in carried]
    first = "then" if carried else "first"
    *before, last = facts.requests or ("",)
    for place, text in enumerate(before):
        label = first if place == 0 else "then"
        items.append(
            _item(_REQUEST, f"- {label}: {_clip(_flat(text), 240)}", 4 if place == 0 else 6)
        )
    if last:
        text = f"{_LAST_REQUEST}\n{last}"
        shorter = tuple(f"{_LAST_REQUEST}\n{_clip(last, limit)}" for limit in (600, 150))
        items.append(_Item(section=_REQUEST, text=text, worth=0, shorter=shorter))
    return items


def _error_items(facts: Facts) -> list[_Item]:
    items: list[_Item] = []
    for place, (line, after) in enumerate(facts.errors):
        newest = place == len(facts.errors) - 1
        text = f"- {line if newest else _clip(line, 300)}"
        if after:
            text += f" (then: {_clip(_flat(after), 200)})"
        items.append(_item(_ERRORS, text, 2 if newest else 6))
    return items


def _work_items(facts: Facts) -> list[_Item]:
    if not facts.statements:
        return []
    last = facts.statements[-1]
    items = [_item(_CURRENT, _clip(last, 1_200), 3)]
    final = last.strip().splitlines()[-1]
    if final.strip() != last.strip():
        items.append(_item(_NEXT, _clip(final.strip(), 400), 4))
    return items


def _carried(earlier: Sequence[str]) -> dict[str, list[str]]:
    """What earlier checkpoints' summaries hold of lasting worth, by section, oldest first.

    Ours are read by their own headings. Of a foreign one the words are kept as context: its
    structure is not ours to read.
    """
    found: dict[str, list[str]] = {}
    for text in earlier:
        try:
            summary = parse_frame(text).summary
        except SessionError:
            found.setdefault(_CONTEXT, []).append(_clip(_flat(text), 2_000))
            continue
        if summary == NOTHING:
            continue
        if not any(f"## {section}\n" in summary for section in SECTIONS):
            found.setdefault(_CONTEXT, []).append(_clip(_flat(summary), 2_000))
            continue
        for section, line in _ours(summary):
            found.setdefault(section, []).append(line)
    return found


def _ours(summary: str) -> Iterator[tuple[str, str]]:
    """The lines of a summary of our own that outlive its span, each with its section."""
    section = ""
    verbatim: list[str] = []
    for line in [*summary.splitlines(), "## "]:
        if line.startswith("## "):
            if verbatim:
                yield _REQUEST, f"then: {_clip(_flat(' '.join(verbatim)), 300)}"
                verbatim = []
            section = line[3:]
        elif section == _REQUEST and (verbatim or line == _LAST_REQUEST):
            verbatim.append("" if line == _LAST_REQUEST else line)
        elif line.startswith("- ") and section in _LASTING:
            yield section, line[2:]


def _named(carried: dict[str, list[str]], section: str, prefix: str) -> list[str]:
    lines = carried.get(section, ())
    return [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]


def _newest_last(values: Sequence[str]) -> list[str]:
    """Each value once, where it stood last."""
    return list(dict.fromkeys(reversed(values)))[::-1]


def _lines(section: str, texts: Sequence[str], worth: int) -> list[_Item]:
    return [_item(section, f"- {text}", worth) for text in texts]


def _item(section: str, text: str, worth: int) -> _Item:
    return _Item(section=section, text=text, worth=worth)


def _flat(text: str) -> str:
    return " ".join(text.split())


def _clip(text: str, limit: int) -> str:
    text = text.strip()
    return text if len(text) <= limit else f"{text[: limit - 2].rstrip()} …"
