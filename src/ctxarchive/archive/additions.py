"""The additions of one checkpoint: standing messages, transcript, index and anchors, fitted.

Built by code from archived records, never by a model. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ctxarchive.archive.anchor_ranking import Moment, Room, grouped, ranked, select
from ctxarchive.archive.anchors import KINDS, distinct
from ctxarchive.archive.bounds import (
    SMALL_CHARS,
    Limits,
    is_crowded,
    needed,
    with_room_for_rules,
)
from ctxarchive.archive.calls import outcome
from ctxarchive.archive.fitting import Material, fit
from ctxarchive.archive.history import History, history_of
from ctxarchive.archive.index import ANCHORS_TITLE, Holding, index_text, short_index
from ctxarchive.archive.redaction import Redactor
from ctxarchive.archive.settings import TranscriptConfig
from ctxarchive.archive.transcript import Entry, message_entry, span_entry
from ctxarchive.compaction.checkpoint import frame
from ctxarchive.compaction.facts import open_items
from ctxarchive.compaction.summarizer import Summary, SummaryInput
from ctxarchive.knowledge.records import Layer, Mark, Record
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.session.messages import Message, text_block

REST_SHARE, REST_CHARS = 0.3, 1_300
"""What is kept for the user's words and the pointers under a bound in characters: this share of it,
and not more than so many as long as there are anchors worth their room."""

REST_TOKENS = 600
"""What the index and the lines beside the user's words take."""

LEAST_ANCHOR_SHARE = 0.2
"""Share of a bound in tokens that anchors may take whatever the user's words take."""

CHARS_PER_TOKEN = 4
"""Of anchors, not less than this: what is kept free for them in tokens is not too little."""

LEAST_SPARE = 300
"""Code points that the anchors leave over, with which more of the other parts is shown."""

LEAST_TOKENS = 400
"""Tokens of additions without which a checkpoint would leave the model blind."""

LABEL_CHARS = len(ANCHORS_TITLE) + 2 + sum(len(f"{kind}: \n") for kind in KINDS)
LABEL_TOKENS = 40
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
    redactor: Redactor | None = None
    """What masks events before anything is made of them."""

    def build(self, input: SummaryInput, summary: Summary, kept: Kept) -> str:
        """The additions behind ``summary``, within their budget; empty where nothing fits."""
        history = history_of(input.session, self.redactor)
        limits = self._limits(input, summary)
        standing = [
            _marked(item, kept.marks) or self._standing(item, history) for item in kept.older
        ]
        span = [_marked(item, kept.marks) or self._entry(item, history) for item in kept.span]
        said = (entry.shown for entry in (*standing, *span) if entry.kind == "user")
        rest = self._without_anchors(
            limits, input.session.id, sum(map(self._priced(history), said))
        )
        index = self._index(input, history, kept, rest)
        need = needed([*standing, *span], self._priced(history))
        if is_crowded(need, index, limits, self.meter.text):
            index = short_index(input.session.id)
        rest = with_room_for_rules(rest, limits, need, index, self.meter.text)
        material = Material(
            standing=tuple(standing),
            span=tuple(span),
            index=index,
            constraints=history.constraints,
            originals=history.originals,
        )
        text = fit(material, rest, self._priced(history), self.config)
        whole = self._with_anchors(text, index, input, summary, limits)
        if limits.chars is None or rest.chars is None or limits.chars - len(whole) < LEAST_SPARE:
            return whole
        # The anchors ran out before their room did: it is for the user's words and the transcript.
        spare = limits.chars - len(whole)
        rest = replace(rest, chars=min(limits.chars, rest.chars + spare))
        text = fit(material, rest, self._priced(history), self.config)
        return self._with_anchors(text, index, input, summary, limits)

    def _with_anchors(
        self, text: str, index: str, input: SummaryInput, summary: Summary, limits: Limits
    ) -> str:
        """``text``, whose end is ``index``, with as many anchors as fit beside it."""
        if not (self.config.anchor_tokens and index and text.endswith(index)):
            return text
        # What the other parts left over is the anchors' too, up to their own bound.
        left = Limits(
            tokens=min(self.config.anchor_tokens, limits.tokens - self.meter.text(text)),
            chars=None if limits.chars is None else limits.chars - len(text),
            transcript_chars=0,
        )
        history = history_of(input.session, self.redactor)
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

    def _without_anchors(self, limits: Limits, session: str, said: int) -> Limits:
        """What is left for the other parts when the anchors have their room.

        Args:
            limits: what all of it may take.
            session: its id.
            said: tokens of the user's messages, which go before all but the best anchors.
        """
        least = int(limits.tokens * LEAST_ANCHOR_SHARE)
        beside = limits.tokens - said - REST_TOKENS
        tokens_free = min(self.config.anchor_tokens, max(least, min(beside, limits.tokens // 2)))
        chars = limits.chars
        if chars is not None:
            least = min(int(chars * REST_SHARE), REST_CHARS)
            most = chars - self.config.anchor_tokens * CHARS_PER_TOKEN
            chars = max(least, most, min(chars, len(short_index(session))))
        return replace(
            limits,
            tokens=limits.tokens - tokens_free,
            chars=chars,
            talk_tokens=self.config.transcript_tokens,
        )

    def _index(self, input: SummaryInput, history: History, kept: Kept, rest: Limits) -> str:
        bound = self.config.max_addition_chars
        if bound is not None and bound < SMALL_CHARS:
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
        asked = {history.original(seq) for seq in input.shadowed_seqs} & set(history.constraints)
        moment = Moment(
            first_seq=min(history.original(seq) for seq in input.shadowed_seqs),
            last_seq=through,
            earlier=tuple(sorted(past.last_seq for past in history.compactions)),
            first_asked=min(asked, default=-1),
            last_asked=max(asked, default=-1),
            open_items=distinct("\n".join(open_items(input.messages()))),
        )
        room = Room(
            left.tokens - LABEL_TOKENS,
            None if left.chars is None else left.chars - LABEL_CHARS,
            self.meter.text,
        )
        # What cannot be printed on a line cannot be asked with either.
        candidates = filter(
            str.isprintable, ranked(history.uses, self.config.anchor_weights, moment)
        )
        return grouped(select(candidates, shown, room))

    def _standing(self, item: Record, history: History) -> Entry:
        entry = history.standing.get(item.seq)
        if entry is None:
            entry = message_entry(item, self.config.user_clip_at, self.config.user_clip_keep)
            history.standing[item.seq] = entry
            history.prices[entry.shown] = self.meter.text(entry.shown)
        return entry

    def _entry(self, item: Record | None, history: History) -> Entry:
        call = None if item is None else history.calls.get(item.seq)
        if item is None or call is None:
            return span_entry(item, self.config, "")
        failure = outcome(item.text, item.head, failed=item.seq in history.failed)
        return span_entry(item, self.config, call.essence, failure)


def _marked(item: Record | None, marks: Mapping[int, Mark]) -> Entry | None:
    """What a marked message of the user shows: all of it, or nothing; ``None`` for any other."""
    mark = None if item is None else marks.get(item.seq)
    if item is None or mark is None or item.layer != "constraint" or item.kind != "original":
        return None
    if mark.name == "superseded":
        return Entry(kind="hidden", record=item)
    return replace(message_entry(item, len(item.text), 0), pinned=True)


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
