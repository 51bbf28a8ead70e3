"""The deterministic summarizer: fixed sections filled from the span, no model.

It only selects and clips what the span says; it never words a fact anew. What does not fit gives
way by a fixed order of worth, so every span above the policy's minimum shrinks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ctxarchive.compaction.checkpoint import PREAMBLE, parse_frame
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

SPAN_SHARE = 0.4
"""Largest share of the shadowed tokens that the summary may take."""

FRAME_TOKENS = 120
"""Room kept for the frame around the summary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    section: str
    text: str
    worth: int
    """Lower is kept longer; items of equal worth go oldest first."""
    short: str = ""
    """What stands in its place where it does not fit; empty for nothing."""


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
            budget = min(budget, max(input.room_tokens, budget // 4))
        facts = collect(input.messages())
        return Summary(
            text=self.render(facts, max(0, budget - FRAME_TOKENS)),
            summarizer="extractive",
            provider="ctxarchive",
            model="extractive",
        )

    def render(self, facts: Facts, budget: int) -> str:
        """The sections within ``budget`` tokens, or the shortest text there is."""
        items = _items(facts)
        prices = [self._meter.text(item.text) + 1 for item in items]
        kept: list[_Item | None] = [None] * len(items)
        left = budget - sum(self._meter.text(section) + 3 for section in SECTIONS)
        # By worth, and within one worth the newest first: what is left over is the oldest.
        order = sorted(range(len(items)), key=lambda place: (items[place].worth, -place))
        for place in order:
            item, price = items[place], prices[place]
            if price > left and item.short:
                item = replace(item, text=item.short)
                price = self._meter.text(item.short) + 1
            if price <= left:
                kept[place] = item
                left -= price
        return _layout([item for item in kept if item is not None])


def _layout(items: Sequence[_Item]) -> str:
    parts: list[str] = []
    for section in SECTIONS:
        body = [item.text for item in items if item.section == section]
        if body:
            parts.append(f"## {section}\n" + "\n".join(body))
    return "\n\n".join(parts) or "(nothing of this span fits the budget)"


def _items(facts: Facts) -> list[_Item]:
    return [
        *_request_items(facts),
        *_lines(_CONCEPTS, [", ".join(facts.concepts[:30])] if facts.concepts else [], 7),
        *_lines(_FILES, [f"edited: {path}" for path in facts.edited], 1),
        *_lines(_FILES, [f"used: {path}" for path in reversed(facts.read[:40])], 6),
        *_error_items(facts),
        *_lines(_PENDING, list(facts.open_items), 2),
        *_work_items(facts),
        *_lines(_CONTEXT, [_clip(text, 400) for text in facts.rules[-60:]], 5),
        *_earlier_items(facts),
    ]


def _request_items(facts: Facts) -> list[_Item]:
    if not facts.requests:
        return []
    *before, last = facts.requests
    items: list[_Item] = []
    for place, text in enumerate(before):
        label = "first" if place == 0 else "then"
        worth = 4 if place == 0 else 6
        items.append(_item(_REQUEST, f"{label}: {_clip(text, 600)}", worth))
    short = f"last, clipped:\n{_clip(last, 600)}"
    items.append(_Item(section=_REQUEST, text=f"last, verbatim:\n{last}", worth=0, short=short))
    return items


def _error_items(facts: Facts) -> list[_Item]:
    items: list[_Item] = []
    for place, (line, after) in enumerate(facts.errors):
        newest = place == len(facts.errors) - 1
        text = f"- {line if newest else _clip(line, 300)}"
        if after:
            text += f"\n  then: {_clip(after, 200)}"
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


def _earlier_items(facts: Facts) -> list[_Item]:
    """What an earlier checkpoint's summary held, line by line, under the section it stood in."""
    items: list[_Item] = []
    for text in facts.earlier:
        try:
            summary = parse_frame(text).summary
        except SessionError:
            # A foreign checkpoint: its words are kept, its structure is not ours to read.
            summary = text.removeprefix(PREAMBLE).strip()
        section = _CONTEXT
        for line in summary.splitlines():
            if line.startswith("## ") and line[3:] in SECTIONS:
                section = line[3:]
            elif line.strip():
                place = _CONTEXT if section in {_CURRENT, _NEXT, _PENDING} else section
                items.append(_item(place, _earlier(line), 5))
    return items


def _earlier(line: str) -> str:
    line = line.rstrip()
    if line.startswith(("earlier", "- earlier")):
        return line
    return f"earlier: {_clip(line, 400)}"


def _lines(section: str, texts: Sequence[str], worth: int) -> list[_Item]:
    return [_item(section, f"- {text}", worth) for text in texts]


def _item(section: str, text: str, worth: int) -> _Item:
    return _Item(section=section, text=text, worth=worth)


def _clip(text: str, limit: int) -> str:
    text = text.strip()
    return text if len(text) <= limit else f"{text[: limit - 2].rstrip()} …"
