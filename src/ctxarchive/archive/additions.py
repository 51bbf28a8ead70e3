"""The additions of one checkpoint: standing messages, transcript, index and anchors, fitted.

Built by code from archived records, never by a model. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ctxarchive.archive.anchor_ranking import Moment, grouped, ranked, select
from ctxarchive.archive.anchors import parts, tokens
from ctxarchive.archive.fitting import Limits, Material, fit
from ctxarchive.archive.history import History, history_of
from ctxarchive.archive.index import ANCHORS_TITLE, Holding, index_text, short_index
from ctxarchive.archive.settings import TranscriptConfig
from ctxarchive.archive.transcript import Entry, message_entry, span_entry
from ctxarchive.compaction.checkpoint import frame
from ctxarchive.compaction.summarizer import Summary, SummaryInput
from ctxarchive.knowledge.records import Layer, Mark, Record
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.session.messages import Message, text_block

ANCHOR_SHARE = 0.68
"""Share of a bound in characters that anchors may take: they keep most of what is needed."""

SMALL_CHARS = 6_000
"""Under this bound the index is its short form, so that rules and anchors have its room."""

LEAST_TOKENS = 400
"""Tokens of additions without which a checkpoint would leave the model blind."""

LABEL_CHARS, LABEL_TOKENS = 110, 30
"""What the anchors' title and the names of their kinds take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the archive holds that a checkpoint may show."""

    span: Sequence[Record | None]
    """The span's records in surface order; ``None`` where a position has none."""
    older: Sequence[Record]
    """User messages that are neither in view nor in the span, oldest first."""
    layers: Mapping[Layer, Holding]
    """What each layer holds of the session so far."""
    marks: Mapping[int, Mark] = field(default_factory=dict)
    """What a person pinned or superseded, by seq."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionsBuilder:
    """Builds additions under one configuration."""

    config: TranscriptConfig
    meter: TokenMeter
    tool_name: str
    """What the host calls the search tool."""

    def build(self, input: SummaryInput, summary: Summary, kept: Kept) -> str:
        """The additions behind ``summary``, within their budget; empty where nothing fits."""
        history = history_of(input.session)
        limits = self._limits(input, summary)
        room = self._anchor_room(limits)
        rest = Limits(
            tokens=limits.tokens - room.tokens,
            chars=None if limits.chars is None else limits.chars - (room.chars or 0),
            transcript_chars=limits.transcript_chars,
        )
        index = self._index(input, history, kept, rest)
        material = Material(
            standing=tuple(
                _marked(item, kept.marks) or self._standing(item, history) for item in kept.older
            ),
            span=tuple(
                _marked(item, kept.marks) or self._entry(item, history) for item in kept.span
            ),
            index=index,
            constraints=history.constraints,
            originals=history.originals,
        )
        text = fit(material, rest, self._priced(history), self.config)
        if not (room.tokens and index and text.endswith(index)):
            return text
        # What the other parts left over is the anchors' too, up to their own bound.
        left = Limits(
            tokens=min(self.config.anchor_tokens, limits.tokens - self.meter.text(text)),
            chars=None if limits.chars is None else limits.chars - len(text),
            transcript_chars=0,
        )
        anchors = self._anchors(input, history, f"{summary.text}\n{text}", left)
        if not anchors:
            return text
        *lines, how = index.split("\n")
        with_anchors = "\n".join([*lines, ANCHORS_TITLE, anchors, how])
        return text.removesuffix(index) + with_anchors

    def _priced(self, history: History) -> Callable[[str], int]:
        """The meter, with the prices of standing messages at hand."""

        def price(text: str) -> int:
            known = history.prices.get(text)
            return self.meter.text(text) if known is None else known

        return price

    def _limits(self, input: SummaryInput, summary: Summary) -> Limits:
        """What the additions may take, beside the framed summary."""
        bare = self.meter.message(Message(role="user", content=(text_block(frame(summary.text)),)))
        whole = int(input.shadowed_tokens * self.config.max_checkpoint_ratio)
        room = input.room_tokens
        if room is not None and room < bare + LEAST_TOKENS:
            # What is kept behind the span fills the request by itself: leaving out the pointers
            # would not bring it below the threshold for longer than a step.
            room = bare + max(LEAST_TOKENS, input.shadowed_tokens // 5)
        if room is not None:
            whole = min(whole, room)
        return Limits(
            tokens=max(0, whole - bare),
            chars=self.config.max_addition_chars,
            transcript_chars=self.config.max_transcript_chars,
        )

    def _anchor_room(self, limits: Limits) -> Limits:
        """What is kept free for the anchors while the other parts are fitted."""
        chars = None if limits.chars is None else int(limits.chars * ANCHOR_SHARE)
        tokens_free = min(self.config.anchor_tokens, limits.tokens // 5)
        if chars is not None:
            # Where characters are the tighter bound, as many tokens as they can hold.
            tokens_free = min(self.config.anchor_tokens, limits.tokens // 2, chars // 2)
        return Limits(tokens=tokens_free, chars=chars, transcript_chars=0)

    def _index(self, input: SummaryInput, history: History, kept: Kept, rest: Limits) -> str:
        if rest.chars is not None and rest.chars < SMALL_CHARS * (1 - ANCHOR_SHARE):
            return short_index(input.session.id)
        full = index_text(
            input.session.id,
            kept.layers,
            history.generations,
            max_chars=self.config.max_index_chars,
            tool_name=self.tool_name,
        )
        fits = full and self.meter.text(full) <= rest.tokens
        return full if fits else short_index(input.session.id)

    def _anchors(self, input: SummaryInput, history: History, shown: str, left: Limits) -> str:
        through = max(input.shadowed_seqs)
        history.tally(input.session, through)
        moment = Moment(
            first_seq=min(history.original(seq) for seq in input.shadowed_seqs),
            last_seq=through,
            earlier=tuple(sorted(past.last_seq for past in history.compactions)),
        )
        room = _Room(
            tokens=left.tokens - LABEL_TOKENS,
            chars=None if left.chars is None else left.chars - LABEL_CHARS,
        )

        def fits(token: str) -> bool:
            return room.take(self.meter.text(token) + 1, len(token) + 1)

        in_view = {part for token in tokens(shown) for part in parts(token)}
        # What cannot be printed on a line cannot be asked with either.
        candidates = filter(
            str.isprintable, ranked(history.uses, self.config.anchor_weights, moment)
        )
        return grouped(select(candidates, in_view, fits))

    def _standing(self, item: Record, history: History) -> Entry:
        entry = history.standing.get(item.seq)
        if entry is None:
            entry = message_entry(item, self.config.user_clip_at, self.config.user_clip_keep)
            history.standing[item.seq] = entry
            history.prices[entry.shown] = self.meter.text(entry.shown)
        return entry

    def _entry(self, item: Record | None, history: History) -> Entry:
        call = None if item is None else history.calls.get(item.seq)
        return span_entry(item, self.config, "" if call is None else call.essence)


def _marked(item: Record | None, marks: Mapping[int, Mark]) -> Entry | None:
    """What a marked message of the user shows: all of it, or nothing; ``None`` for any other."""
    mark = None if item is None else marks.get(item.seq)
    if item is None or mark is None or item.layer != "constraint" or item.kind != "original":
        return None
    if mark.name == "superseded":
        return Entry(kind="hidden", record=item)
    return replace(message_entry(item, len(item.text), 0), pinned=True)


@dataclass(slots=True, kw_only=True)
class _Room:
    """What is left for anchors."""

    tokens: int
    chars: int | None

    def take(self, price: int, length: int) -> bool:
        """Use some of it, if there is enough."""
        if price > self.tokens or (self.chars is not None and length > self.chars):
            return False
        self.tokens -= price
        if self.chars is not None:
            self.chars -= length
        return True


def held_with(held: Mapping[Layer, Holding], records: Sequence[Record]) -> dict[Layer, Holding]:
    """``held`` with some more records, whose seqs are above all before."""
    found = dict(held)
    for item in records:
        before = found.get(item.layer)
        if before is None:
            found[item.layer] = Holding(records=1, first_seq=item.seq, last_seq=item.seq)
        else:
            found[item.layer] = replace(before, records=before.records + 1, last_seq=item.seq)
    return found
