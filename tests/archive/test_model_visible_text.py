"""Everything of the archive that a model reads, pinned word for word."""

from __future__ import annotations

from ctxarchive.archive.bounds import Limits
from ctxarchive.archive.fitting import Material, fit
from ctxarchive.archive.generations import Generation, Generations
from ctxarchive.archive.index import index_text
from ctxarchive.archive.settings import TranscriptConfig
from ctxarchive.archive.transcript import message_entry, span_entry
from ctxarchive.compaction.checkpoint import frame
from ctxarchive.knowledge.records import Record
from ctxarchive.knowledge.store import LayerInfo

SMALL = TranscriptConfig(
    user_clip_at=200, user_clip_keep=5, assistant_min_split=200, assistant_keep=6
)

RECORDS = (
    Record(session="a/b", seq=2, layer="constraint", role="user", event="{}", text="never touch Z"),
    Record(session="a/b", seq=4, layer="constraint", role="user", event="{}", text="U" * 230),
    Record(session="a/b", seq=5, layer="narrative", role="assistant", event="{}", text="I look."),
    Record(
        session="a/b", seq=6, layer="finding", role="tool", name="bash", event="{}", text="o" * 40
    ),
    Record(session="a/b", seq=7, layer="finding", role="assistant", event="{}", text="漢" * 300),
    Record(session="a/b", seq=8, layer="narrative", role="assistant", event="{}", text="n" * 20),
)

CHECKPOINT = """\
This checkpoint condenses an earlier part of this conversation, which is no longer in view. Treat \
it as background, not as new instructions: what the user asked in it still holds, and the work \
goes on from where the conversation stands.

<summary chars=7>
summary
</summary>

## Standing User Messages
## [user 2, 13 chars]
never touch Z

## Conversation Transcript
## [user 4, 230 chars]
UUUUU
[... 220 of 230 chars elided from seq 4; retrieve with ctx_search(source: \
"session/a%2Fb/constraint", seq: 4, offset: 5, length: 220) ...]
UUUUU
## [assistant 5, 7 chars]
I look.
## [tool bash seq 6, 40 chars: git log → ctx_search(source: "session/a%2Fb/finding", seq: 6)]
## [assistant 7, 300 chars]
漢漢漢漢漢漢
[... 288 of 300 chars elided from seq 7; retrieve with ctx_search(source: \
"session/a%2Fb/finding", seq: 7, offset: 6, length: 288) ...]
漢漢漢漢漢漢
## [assistant 8, 20 chars]
nnnnnnnnnnnnnnnnnnnn

## Archive Index
- source "session/a%2Fb/constraint": 2 records, seq 2..4 (what the user asked)
- source "session/a%2Fb/finding": 1 record, seq 6..7 (what tools returned and what was concluded)
- source "session/a%2Fb/narrative": 9 records, seq 5..8 (what was said and planned)
Earlier compactions (times in UTC), each with its rarest words:
- seq 0..27, 3 compactions, last checkpoint 29, 1970-01-01: RetryBudget
- seq 30..37, checkpoint 39
- seq 40..47, checkpoint 49
- seq 50..57, checkpoint 59: policy.py, jitter
- seq 60..67, checkpoint 69: changelog
Everything left out above is kept word for word. Run the ctx_search call printed where it was left \
out, or search: ctx_search(queries: ["..."]) with a concrete token you expect in the original (a \
path, an identifier, an error code, a number), not a paraphrase. These calls need the archive_find \
tool; without it, ask the user."""

DROPPED = """\
## Standing User Messages
## [user 2, 13 chars]
never touch Z

## Conversation Transcript
## [user 4, 230 chars]
UUUUU
[... 220 of 230 chars elided from seq 4; retrieve with ctx_search(source: \
"session/a%2Fb/constraint", seq: 4, offset: 5, length: 220) ...]
UUUUU
## [4 entries, seq 5..8: bash 6 git log → ctx_search(source: "session/a%2Fb", after_seq: 4, \
before_seq: 9)]

## Archive Index"""


def index() -> str:
    """An index with more compactions than are told one by one."""
    earlier = Generations(totals={"the": 90}, size=90)
    told = ("RetryBudget", "the", "", "", "", "policy.py jitter the", "changelog")
    for place, words in enumerate(told):
        heard = dict.fromkeys(words.split(), 2)
        earlier.hear(heard)
        earlier.add(
            Generation(
                compactions=1,
                first_seq=place * 10,
                last_seq=place * 10 + 7,
                checkpoint_seq=place * 10 + 9,
                first_time=None if place else 0,
                last_time=None if place else 0,
                words=heard,
                size=len(heard) * 2,
            )
        )
    layers = {
        "constraint": LayerInfo(records=2, first_seq=2, last_seq=4, chars=1),
        "finding": LayerInfo(records=1, first_seq=6, last_seq=7, chars=1),
        "narrative": LayerInfo(records=9, first_seq=5, last_seq=8, chars=1),
    }
    return index_text("a/b", layers, earlier, max_chars=1_040, tool_name="archive_find")  # type: ignore[arg-type]


def additions(config: TranscriptConfig, end: str) -> str:
    """The additions of those records with room for everything."""
    standing, *span = RECORDS
    material = Material(
        standing=(message_entry(standing, 200, 5),),
        span=tuple(span_entry(record, config, "git log") for record in span),
        index=end,
        constraints=(2, 4),
        originals=(2, 4, 5, 6, 7, 8),
    )
    return fit(material, Limits(tokens=10**6, chars=None, transcript_chars=10**6), len, config)


def test_a_checkpoint_reads_like_this() -> None:
    """Preamble, summary, standing messages, transcript, index."""
    assert frame("summary", additions(SMALL, index())) == CHECKPOINT


def test_a_checkpoint_without_assistant_prose_reads_like_this() -> None:
    """A run names its seqs, what its tools did, its sources and bounds."""
    hidden = SMALL.model_copy(update={"keep_assistant": False})
    assert additions(hidden, "## Archive Index") == DROPPED


FOLDED = """\
## Conversation Transcript
## [user 4, 148 chars]
Look at it when you have the time, please, whichever way you like. Never touch prod. \
Look at it when you have the time, whichever way you like best.
## [4 entries, seq 5..9: bash 5 git log · 6 git log (failed: fatal: bad revision) · read 9 git log → \
ctx_search(source: "session/s", after_seq: 4, before_seq: 10)]

## Archive Index"""

QUOTED = """\
## Standing User Messages
## [user 4, chars 67..84]
Never touch prod.

## Conversation Transcript
[... 5 older entries elided (seq 4..9); retrieve with ctx_search(source: "session/s", \
after_seq: 3, before_seq: 10) ...]

## Archive Index"""


def test_a_folded_run_and_a_quote_read_like_this() -> None:
    """Neighbouring results on one line; what stays of a user's message that is left out."""
    asked = FOLDED.split("\n")[2]
    said = Record(session="s", seq=4, layer="constraint", role="user", event="{}", text=asked)
    between = Record(
        session="s", seq=7, layer="narrative", role="assistant", event="{}", text="I look again."
    )
    tools = [
        Record(
            session="s", seq=seq, layer="finding", role="tool", name=name, event="{}", text="out"
        )
        for seq, name in ((5, "bash"), (6, "bash"), (9, "read"))
    ]
    failures = ("", "fatal: bad revision", "")
    lines = [
        span_entry(tool, SMALL, "git log", failure)
        for tool, failure in zip(tools, failures, strict=True)
    ]
    material = Material(
        standing=(),
        span=(span_entry(said, SMALL, ""), *lines[:2], span_entry(between, SMALL, ""), lines[2]),
        index="## Archive Index",
        constraints=(4,),
        originals=(4, 5, 6, 7, 9),
    )
    hidden = SMALL.model_copy(update={"keep_assistant": False})
    for tokens, text in ((10**6, FOLDED), (len(QUOTED) + 5, QUOTED)):
        bounds = Limits(tokens=tokens, chars=None, transcript_chars=10**6)
        assert fit(material, bounds, len, hidden) == text
