"""What was rendered into a checkpoint is read back exactly, whatever the texts imitate."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ctxarchive.archive.bounds import Limits
from ctxarchive.archive.fitting import Material, fit
from ctxarchive.archive.format import (
    ParsedEntry,
    Pointer,
    clip_notice,
    parse_additions,
    run_notice,
)
from ctxarchive.archive.settings import TranscriptConfig
from ctxarchive.archive.transcript import Entry, message_entry, run_line, span_entry
from ctxarchive.errors import SessionError
from ctxarchive.knowledge.records import Layer, Record, SourceRef, parse_source, source_label

SEQ = 41
CONFIG = TranscriptConfig()
ROOMY = Limits(tokens=10**9, chars=None, transcript_chars=10**9)
SESSIONS = [
    "s",
    "a/b",
    'it\'s "quoted"',
    "[x] (y) {z}",
    "a, b → c",
    "会话 一",
    "100%",
    "new\nline",
    "\ud800",
]


def user(text: str, *, session: str = "s", seq: int = SEQ, layer: Layer = "constraint") -> Record:
    """A record of a user's message, or, in another layer, of an assistant's."""
    role = "user" if layer == "constraint" else "assistant"
    return Record(session=session, seq=seq, layer=layer, role=role, event="{}", text=text)


def imitation(session: str, total: int, place: int, end: str) -> str:
    """A text of ``total`` code points that holds our own notice for itself, at ``place``."""
    for _ in range(2):  # the place is a number in the notice, so its length moves the place
        pointer = Pointer(
            sources=(source_label(session, "constraint"),), seq=SEQ, offset=place, length=total // 3
        )
        middle = f"\n{clip_notice(pointer, total // 3, total)}{end}"
        place = max(0, min(place, total - len(middle)))
    return f"{'p' * place}{middle}{'q' * (total - len(middle) - place)}"[:total]


PIECES = [
    "",
    "\n",
    "\r\n",
    " ",
    "word",
    "漢字",
    "x" * 300,
    "## Standing User Messages",
    "## Conversation Transcript\n",
    "\n## Archive Index\n",
    f"\n## [user {SEQ}, 5 chars]\nhello",
    f"\n## [assistant {SEQ + 1}, 3 chars]\nabc\n",
    f'\n## [tool bash seq {SEQ}, 12 chars: ls → ctx_search(source: "session/s/finding", seq: {SEQ})]',
    (
        "\n[... 18 older entries elided (seq 1..3); retrieve with "
        'ctx_search(source: "session/s/finding", after_seq: 0, before_seq: 4) ...]\n'
    ),
    (
        f"\n[... 5 of 9 chars elided from seq {SEQ}; retrieve with "
        f'ctx_search(source: "session/s/constraint", seq: {SEQ}, offset: 2, length: 5) ...]\n'
    ),
    "Never do that again. ",
    "必ず。",
    "</summary>",
    "<summary chars=3>\n",
    "\ud800",
    "\u0301",
]

pieced = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@st.composite
def imitations(draw: st.DrawFn, session: str) -> str:
    """One or two imitations with the entry's own numbers, joined in the meanest way."""
    total = draw(st.integers(260, 2_400))
    place = draw(st.integers(0, total))
    text = imitation(session, total, place, draw(st.sampled_from(["\n", "", "\r\n", "\n\n"])))
    second = imitation(session, total, draw(st.integers(0, total)), "\n")
    cut = draw(st.integers(0, total))
    return draw(st.sampled_from([text, text[:cut] + second[cut:], text + "\n"]))


@st.composite
def spans(draw: st.DrawFn) -> list[Record]:
    """Records of one session: messages with adversarial texts, and tool results between them."""
    session = draw(st.sampled_from(SESSIONS) | st.text(min_size=1, max_size=8))
    texts = pieced | imitations(session) | st.text(st.characters(), max_size=2_000)
    found: list[Record] = []
    for place in range(draw(st.integers(1, 4))):
        text = draw(texts)
        seq = SEQ + place
        if draw(st.booleans()):
            layer: Layer = draw(st.sampled_from(["constraint", "finding", "narrative"]))
            found.append(user(text, session=session, seq=seq, layer=layer))
        else:
            found.append(
                Record(
                    session=session,
                    seq=seq,
                    layer="finding",
                    role="tool",
                    name=draw(st.sampled_from(["bash", "", "a b", "x seq 4, 5 chars: y"]) | pieced),
                    event="{}",
                    text=text or "out",
                )
            )
    return found


def expect_message(record: Record, found: ParsedEntry) -> None:
    """What is shown and what the pointers name are the text, each at its place."""
    text = record.text
    shown = [found.head, *(piece for piece, _ in found.middle)]
    place = 0
    for piece, pointer in zip(shown, found.pointers, strict=False):
        assert text[place : place + len(piece)] == piece
        place += len(piece)
        assert pointer.offset == place
        assert pointer.seq == record.seq
        assert [parse_source(source) for source in pointer.sources] == [
            SourceRef(session=record.session, layer=record.layer)
        ]
        place += pointer.length or 0
    if found.pointers:
        assert text[place:] == found.tail
    else:
        assert (found.head, found.tail) == (text, "")


@given(spans(), spans(), pieced)
def test_parsing_gives_back_exactly_what_was_rendered(
    older: list[Record], span: list[Record], essence: str
) -> None:
    """Entries are read by count, so no text in them can look like structure."""
    standing = [record for record in older if record.role == "user"]
    entries = [span_entry(record, CONFIG, essence) for record in span]
    shown = [entry for entry in entries if entry.kind != "hidden"]
    material = Material(
        standing=tuple(message_entry(record, 1_000, 500) for record in standing),
        span=tuple(entries),
        index="## Archive Index\n## [user 1, 2 chars]\nbody",
        constraints=[],
        originals=[],
    )
    parsed, index = parse_additions(fit(material, ROOMY, len, CONFIG))
    assert index == "## [user 1, 2 chars]\nbody"
    wanted = [(record, "standing") for record in standing]
    wanted += [(entry.record, "transcript") for entry in shown if entry.record is not None]
    assert len(parsed) == len(wanted)
    for found, (record, section) in zip(parsed, wanted, strict=True):
        assert (found.section, found.role) == (section, record.role)
        assert (found.seq, found.chars) == (record.seq, len(record.text))
        if record.role == "tool":
            assert found.pointer == Pointer(
                sources=(source_label(record.session, "finding"),), seq=record.seq
            )
        else:
            expect_message(record, found)


@pytest.mark.parametrize("end", ["\n", "", "\r\n"])
@pytest.mark.parametrize("total", [400, 1_500])
def test_a_notice_of_its_own_numbers_in_a_message_is_elided(total: int, end: str) -> None:
    """Also where the text ends with it, and only what follows completes its line."""
    for place in (0, 10, total):
        record = user(imitation("s", total, place, end))
        additions = message_entry(record, 1_000, 500).shown
        (entry,), _ = parse_additions(additions + "\n\n## Archive Index\n")
        expect_message(record, entry)


def test_cutting_before_one_imitation_does_not_complete_another() -> None:
    r"""Between ``\r`` and ``\n`` there is no cut, so the line before loses its ``\r`` too."""
    total = 700

    def notice(place: int) -> str:
        pointer = Pointer(
            sources=("session/s/constraint",), seq=SEQ, offset=place, length=total // 3
        )
        return f"\n{clip_notice(pointer, total // 3, total)}"

    text = f"ab{notice(2)}\r"
    text += f"{notice(len(text))}\n"
    record = user(text + "z" * (total - len(text)))
    (entry,), _ = parse_additions(message_entry(record, 1_000, 500).shown + "\n")
    expect_message(record, entry)


@given(
    st.sampled_from(SESSIONS) | st.text(min_size=1, max_size=12),
    st.integers(0, 2**32 - 1),
    st.integers(1, 500),
)
@example("a/b", 0, 1)
def test_a_dropped_run_is_read_back_with_its_bounds_and_sources(
    session: str, first: int, count: int
) -> None:
    """Its pointer's bounds are exclusive and its sources are those of its records."""
    records = [
        user("x", session=session, seq=first, layer="narrative"),
        user("y", session=session, seq=first + count, layer="finding"),
    ]
    (entry,), _ = parse_additions(run_line(records) + "\n")
    assert (entry.role, entry.seq, entry.chars) == ("run", first, 2)
    assert entry.pointer is not None
    assert (entry.pointer.after_seq, entry.pointer.before_seq) == (first - 1, first + count + 1)
    assert [parse_source(source) for source in entry.pointer.sources] == [
        SourceRef(session=session, layer="finding"),
        SourceRef(session=session, layer="narrative"),
    ]


def test_a_tool_line_whose_command_looks_like_a_tool_line_is_read_as_itself() -> None:
    """The name ends at the first blank, whatever the command says of seqs and characters."""
    record = Record(
        session="s", seq=SEQ, layer="finding", role="tool", name="bash", event="{}", text="out"
    )
    line = span_entry(record, CONFIG, "echo seq 5, 6 chars").shown
    (entry,), _ = parse_additions(line)
    assert (entry.role, entry.seq, entry.chars) == ("tool", SEQ, 3)


def test_a_tool_call_is_not_cut_inside_a_character() -> None:
    """The bound of what a call did falls on a boundary like every other cut."""
    record = Record(
        session="s", seq=SEQ, layer="finding", role="tool", name="bash", event="{}", text="out"
    )
    family = "\U0001f468\u200d\U0001f469"
    limit = CONFIG.tool_essence
    line = span_entry(record, CONFIG, "a" * (limit - 1) + family).shown
    assert f"{'a' * (limit - 1)}… →" in line
    path = span_entry(record, CONFIG, "/srv/" + "deep/" * 40 + "file.py").shown
    assert "…" in path, "of a path the end is kept: it tells files apart"
    assert "deep/file.py → " in path


def test_an_empty_message_with_an_image_has_a_heading_of_its_own() -> None:
    """Nothing of it was left out, so it needs no pointer."""
    record = Record(
        session="s",
        seq=SEQ,
        layer="constraint",
        role="user",
        event="{}",
        text="",
        images=("image/png, 12 bytes",),
    )
    entry = span_entry(record, CONFIG, "")
    (parsed,), _ = parse_additions(entry.shown + "\n\n## Archive Index\nx")
    assert (parsed.role, parsed.chars, parsed.pointer) == ("user", 0, None)


def test_a_text_of_another_format_is_an_error_that_names_the_place() -> None:
    """Nothing is guessed."""
    with pytest.raises(SessionError, match="offset 3"):
        parse_additions("\n\n\nsomething else")


def test_every_pointer_prints_as_the_call_that_it_is() -> None:
    """One source as a string, several as a list."""
    one = Pointer(sources=("session/s/finding",), seq=3)
    part = Pointer(sources=("session/s/finding",), seq=3, offset=0, length=7)
    run = Pointer(sources=("session/s/finding", "session/s/narrative"), after_seq=-1, before_seq=4)
    assert one.call() == 'ctx_search(source: "session/s/finding", seq: 3)'
    assert part.call() == 'ctx_search(source: "session/s/finding", seq: 3, offset: 0, length: 7)'
    assert run.call() == (
        'ctx_search(source: ["session/s/finding", "session/s/narrative"], '
        "after_seq: -1, before_seq: 4)"
    )
    assert run_notice(run, 2, 0, 3, what="user messages") == (
        "[... 2 older user messages elided (seq 0..3); retrieve with " + run.call() + " ...]"
    )


def test_hidden_entries_show_nothing() -> None:
    """What the host injected is filed, and not shown as anybody's words."""
    record = Record(
        session="s", seq=1, layer="narrative", kind="injected", role="user", event="{}", text="x"
    )
    assert span_entry(record, CONFIG, "") == Entry(kind="hidden", record=record)
