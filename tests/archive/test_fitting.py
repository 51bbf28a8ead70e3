"""The additions keep within their bounds, give way in order, and lose nothing on the way."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxarchive.archive.bounds import Limits
from ctxarchive.archive.fitting import Material, fit
from ctxarchive.archive.format import ParsedEntry, parse_additions
from ctxarchive.archive.settings import TranscriptConfig
from ctxarchive.archive.transcript import message_entry, span_entry
from ctxarchive.knowledge.records import Record, source_label
from ctxarchive.metering.tokenizers import CharacterEstimator, TiktokenEstimator

CONFIG = TranscriptConfig()
ROOMY = 10**9
ENOUGH = Limits(tokens=ROOMY, chars=None, transcript_chars=ROOMY)
INDEX = "## Archive Index\n- what is kept, and where\nhow to ask"
price = CharacterEstimator().count

KINDS = ("user", "finding", "narrative", "tool", "injected", "silent", "checkpoint")
"""Every kind of record that a span may hold."""


def make_record(kind: str, seq: int, size: int) -> Record:
    """A record of one kind whose text names its seq and has about ``size`` words."""
    text = "" if kind in {"silent", "empty"} else f"{kind} {seq} " + "word " * size
    role = {
        "injected": "user",
        "checkpoint": "user",
        "tool": "tool",
        "user": "user",
        "empty": "user",
    }
    layer = {"user": "constraint", "empty": "constraint", "finding": "finding", "tool": "finding"}
    return Record(
        session="s",
        seq=seq,
        layer=layer.get(kind, "narrative"),  # type: ignore[arg-type]
        kind=kind if kind in {"injected", "checkpoint"} else "original",  # type: ignore[arg-type]
        role=role.get(kind, "assistant"),
        name="bash" if kind == "tool" else None,
        event="{}",
        text=text,
    )


def material(standing: Sequence[Record], span: Sequence[Record], index: str = INDEX) -> Material:
    """What may be shown of some records."""
    everything = [*standing, *span, *elsewhere(standing, span)]
    return Material(
        standing=tuple(message_entry(record, 1_000, 500) for record in standing),
        span=tuple(span_entry(record, CONFIG, "make all") for record in span),
        index=index,
        constraints=sorted(r.seq for r in everything if r.layer == "constraint"),
        originals=sorted(r.seq for r in everything if r.kind != "checkpoint"),
    )


def elsewhere(standing: Sequence[Record], span: Sequence[Record]) -> list[Record]:
    """What is archived between those seqs and is in view already: at every second gap."""
    taken = {record.seq for record in [*standing, *span]}
    gaps = [seq for seq in range(1, max(taken, default=0)) if seq not in taken]
    return [make_record("narrative", seq, 3) for seq in gaps if seq % 4]


def shown(additions: str) -> list[ParsedEntry]:
    """The entries that are not runs."""
    return [entry for entry in parse_additions(additions)[0] if entry.role != "run"]


def told(additions: str) -> list[int]:
    """The seqs of the entries in view, and of the tools' results that a folded run names."""
    entries = parse_additions(additions)[0]
    return [seq for entry in entries for seq in (entry.named or (entry.seq,)) if told_of(entry)]


def told_of(entry: ParsedEntry) -> bool:
    """Whether an entry says anything of what it stands for."""
    return entry.role != "run" or bool(entry.named)


@st.composite
def materials(draw: st.DrawFn) -> tuple[list[Record], list[Record]]:
    """Older messages, and a span of every kind; seqs ascend, with gaps now and then."""
    seq = 0
    standing: list[Record] = []
    for _ in range(draw(st.integers(0, 6))):
        seq += draw(st.sampled_from([1, 1, 2]))
        words = draw(st.integers(0, 300))
        standing.append(make_record(draw(st.sampled_from(["user", "user", "empty"])), seq, words))
    span: list[Record] = []
    for _ in range(draw(st.integers(1, 30))):
        seq += draw(st.sampled_from([1, 1, 1, 2]))
        kind = draw(st.sampled_from(KINDS))
        span.append(make_record(kind, seq, draw(st.sampled_from([0, 5, 60, 400]))))
    return standing, span


limits = st.builds(
    lambda tokens, chars, transcript: Limits(
        tokens=tokens, chars=chars, transcript_chars=transcript
    ),
    st.integers(0, 4_000) | st.just(ROOMY),
    st.none() | st.integers(0, 12_000),
    st.integers(0, 12_000) | st.just(ROOMY),
)


def transcript_chars(additions: str) -> int:
    """Code points of the transcript with its heading."""
    start = additions.find("## Conversation Transcript")
    return 0 if start < 0 else len(additions[start:].partition("\n\n## Archive Index")[0])


@given(parts=materials(), bounds=limits, keep=st.booleans())
def test_the_additions_fit_every_bound_or_are_empty(
    *, parts: tuple[list[Record], list[Record]], bounds: Limits, keep: bool
) -> None:
    """Whatever the budget; the index, where it is there, is whole."""
    config = TranscriptConfig(keep_assistant=keep)
    additions = fit(material(*parts), bounds, price, config)
    assert price(additions) <= bounds.tokens
    assert bounds.chars is None or len(additions) <= bounds.chars
    assert transcript_chars(additions) <= bounds.transcript_chars
    assert additions == "" or additions.endswith(INDEX)


@given(materials(), st.integers(0, 3_000))
def test_the_bound_in_tokens_holds_by_a_real_tokenizer_too(
    parts: tuple[list[Record], list[Record]], tokens: int
) -> None:
    """Lines are priced one by one; the whole is no dearer than its lines."""
    count = TiktokenEstimator().count
    bounds = Limits(tokens=tokens, chars=None, transcript_chars=ROOMY)
    assert count(fit(material(*parts), bounds, count, CONFIG)) <= tokens


@given(materials())
def test_with_room_for_everything_everything_is_shown(
    parts: tuple[list[Record], list[Record]],
) -> None:
    """But for what is never transcribed: checkpoints, the host's own words, silent calls."""
    standing, span = parts
    roomy = Limits(tokens=ROOMY, chars=None, transcript_chars=ROOMY)
    found = fit(material(standing, span), roomy, price, CONFIG)
    hidden = {"injected", "checkpoint"}
    wanted = [r.seq for r in standing]
    wanted += [r.seq for r in span if r.kind not in hidden and r.text]
    assert told(found) == wanted
    assert all(told_of(entry) for entry in parse_additions(found)[0])


@given(parts=materials(), bounds=limits, keep=st.booleans())
def test_a_run_s_pointer_returns_exactly_what_was_dropped(
    *, parts: tuple[list[Record], list[Record]], bounds: Limits, keep: bool
) -> None:
    """Read as the tool reads it: by layer, between the bounds, with a text, no checkpoint."""
    standing, span = parts
    additions = fit(material(standing, span), bounds, price, TranscriptConfig(keep_assistant=keep))
    entries, _ = parse_additions(additions)
    visible = {entry.seq for entry in entries if entry.role != "run"}
    returned: list[int] = []
    for entry in entries:
        if entry.role != "run":
            continue
        assert entry.pointer is not None
        assert entry.pointer.after_seq is not None
        assert entry.pointer.before_seq is not None
        hits = [
            record.seq
            for record in [*standing, *span, *elsewhere(standing, span)]
            if entry.pointer.after_seq < record.seq < entry.pointer.before_seq
            and {source_label("s", record.layer), source_label("s")} & set(entry.pointer.sources)
            and record.text
            and record.kind != "checkpoint"
        ]
        assert len(hits) == entry.chars
        assert visible.isdisjoint(hits)
        assert set(entry.named) <= set(hits)
        returned += hits
    assert len(returned) == len(set(returned))
    if entries:
        assert set(returned) <= {record.seq for record in [*standing, *span]}
        dropped = {r.seq for r in [*standing, *span] if r.kind == "original" and r.text} - visible
        assert dropped <= set(returned)


def order_of_going(span: list[Record], standing: list[Record]) -> list[int]:
    """The seqs in the order in which they go out of view as the budget shrinks."""
    stuff = material(standing, span)
    roomy = fit(stuff, Limits(tokens=ROOMY, chars=None, transcript_chars=ROOMY), price, CONFIG)
    gone: dict[int, None] = {}
    known = set(told(roomy))
    for tokens in range(price(roomy) + 50, 0, -5):
        bounds = Limits(tokens=tokens, chars=None, transcript_chars=ROOMY)
        left = set(told(fit(stuff, bounds, price, CONFIG)))
        gone.update(dict.fromkeys(sorted(known - left)))
    return list(gone)


def test_parts_give_way_by_worth_and_within_one_worth_oldest_first() -> None:
    """Narrative; then talk, a quarter of the span after the other; then the user's words."""
    kinds = ["user", "narrative", "tool", "tool", "finding", "user", "narrative", "finding"] * 3
    span = [make_record(kind, 100 + place, 90) for place, kind in enumerate(kinds)]
    standing = [make_record("user", place, 90) for place in range(1, 4)]
    gone = order_of_going(span, standing)
    kind_of = {record.seq: kind for record, kind in zip(span, kinds, strict=True)}
    groups = [kind_of.get(seq, "standing") for seq in gone]
    assert [seq for seq in gone if kind_of.get(seq) == "narrative"] == [
        101,
        106,
        109,
        114,
        117,
        122,
    ]
    assert groups[:6] == ["narrative"] * 6
    talk = gone[6:18]
    assert {kind_of[seq] for seq in talk} == {"tool", "finding"}
    quarters = [(seq - 100) // 6 for seq in talk]
    assert quarters == sorted(quarters)
    assert groups[18:] == ["standing"] * 3 + ["user"] * 6


def test_user_messages_of_the_span_are_clipped_before_any_is_dropped() -> None:
    """They are what survives longest, but for the index."""
    span = [make_record("user", 10 + place, 150) for place in range(8)]
    stuff = material([], span)
    for tokens in range(400, 4_000, 50):
        bounds = Limits(tokens=tokens, chars=None, transcript_chars=ROOMY)
        entries = shown(fit(stuff, bounds, price, CONFIG))
        if 0 < len(entries) < 8:
            assert all(entry.pointer is not None for entry in entries)


def test_the_index_goes_last() -> None:
    """It stands alone where nothing else fits, and falls only by its own size."""
    stuff = material([], [make_record("user", 10 + place, 100) for place in range(10)])
    least = price(INDEX) + 3
    assert fit(stuff, Limits(tokens=least, chars=None, transcript_chars=0), price, CONFIG) == INDEX
    none = Limits(tokens=price(INDEX) - 1, chars=None, transcript_chars=ROOMY)
    assert fit(stuff, none, price, CONFIG) == ""


def test_without_assistant_prose_every_message_of_it_is_pointed_to() -> None:
    """Turning prose off hides it; it does not put it out of reach."""
    kinds = ["user", "narrative", "finding", "tool", "narrative", "user"]
    span = [make_record(kind, place, 50) for place, kind in enumerate(kinds)]
    roomy = Limits(tokens=ROOMY, chars=None, transcript_chars=ROOMY)
    entries, _ = parse_additions(
        fit(material([], span), roomy, price, TranscriptConfig(keep_assistant=False))
    )
    assert [(entry.role, entry.seq, entry.chars) for entry in entries] == [
        ("user", 0, len(span[0].text)),
        ("run", 1, 4),
        ("user", 5, len(span[5].text)),
    ]
    assert entries[1].named == (3,), "the tool's result is named among them"


def test_neighbouring_tool_results_share_one_line() -> None:
    """It names each with its seq, and its call returns them all."""
    kinds = ["user", "tool", "silent", "tool", "injected", "tool", "finding", "tool", "user"]
    span = [make_record(kind, place, 50) for place, kind in enumerate(kinds)]
    text = fit(material([], span), ENOUGH, price, CONFIG)
    line = (
        "## [4 entries, seq 1..5: bash 1 make all · 3 make all · 5 make all → "
        'ctx_search(source: "session/s", after_seq: 0, before_seq: 6)]'
    )
    assert line in text.split("\n")
    assert (
        '## [tool bash seq 7, 257 chars: make all → ctx_search(source: "session/s/finding", seq: 7)]'
        in text
    )


def test_talk_has_a_bound_of_its_own() -> None:
    """Assistant prose and tool lines give way to it; what the user said does not."""
    kinds = ["user", "finding", "tool", "tool", "narrative"] * 8
    span = [make_record(kind, place, 60) for place, kind in enumerate(kinds)]
    users = [record.seq for record in span if record.role == "user"]
    for tokens in (0, 200, 400):
        bounds = Limits(tokens=ROOMY, chars=None, transcript_chars=ROOMY, talk_tokens=tokens)
        seqs = told(fit(material([], span), bounds, price, CONFIG))
        assert [seq for seq in seqs if seq in users] == users
        talk = [seq for seq in seqs if seq not in users]
        assert bool(talk) == (tokens > 0)
        assert sum(price(span[seq].text[:8]) for seq in talk) <= tokens
        assert talk == sorted(talk)
        if talk:
            assert min(talk) > 20, "the newest stay"


@pytest.mark.parametrize("size", [0, 5])
def test_what_its_notice_would_outweigh_is_not_dropped_alone(size: int) -> None:
    """A run line in the place of a short remark would make the whole longer."""
    kinds = ["user", "narrative"] * 20
    span = [make_record(kind, place, size) for place, kind in enumerate(kinds)]
    stuff = material([], span)
    roomy = Limits(tokens=ROOMY, chars=None, transcript_chars=ROOMY)
    whole = price(fit(stuff, roomy, price, CONFIG))
    for tokens in range(whole, 100, -10):
        bounds = Limits(tokens=tokens, chars=None, transcript_chars=ROOMY)
        entries, _ = parse_additions(fit(stuff, bounds, price, CONFIG))
        runs = [entry for entry in entries if entry.role == "run"]
        assert all(entry.chars > 1 for entry in runs)


@given(materials(), st.integers(200, 3_000))
def test_more_room_never_shows_much_less(
    parts: tuple[list[Record], list[Record]], tokens: int
) -> None:
    """Half as much again never leaves fewer messages of the user in view."""
    stuff = material(*parts)

    def users(budget: int) -> int:
        bounds = Limits(tokens=budget, chars=None, transcript_chars=ROOMY)
        return sum(entry.role == "user" for entry in shown(fit(stuff, bounds, price, CONFIG)))

    assert users(tokens + tokens // 2) >= users(tokens)
