"""Many compactions of one session: what the index tells of the earlier ones, and what stays."""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxarchive.archive.anchor_ranking import GONE_AFTER
from ctxarchive.archive.engine import ArchiveCompactionEngine
from ctxarchive.archive.generations import (
    APART,
    FAN,
    Generation,
    Generations,
    file_names,
    range_of,
    rarest,
    summed,
    words_of,
)
from ctxarchive.archive.history import history_of
from ctxarchive.archive.index import EARLIER_TITLE, Holding, index_text
from ctxarchive.archive.rendering import render
from ctxarchive.archive.settings import TranscriptConfig
from ctxarchive.compaction.policy import CompactionPolicy
from ctxarchive.compaction.summarizer import Summary, SummaryInput
from ctxarchive.knowledge.sqlite.store import SqliteKnowledgeBase
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.metering.tokenizers import CharacterEstimator
from ctxarchive.session.log import Session
from ctxarchive.session.messages import joined_text
from ctxarchive.testing.sessions import IdleAgent, assistant, result, user
from ctxarchive.tools.ctx_search import CtxSearchTool

LINE = re.compile(
    r"- seq (?P<first>\d+)\.\.(?P<last>\d+), (?:(?P<many>\d+) compactions, last )?"
    r"checkpoint (?P<checkpoint>\d+)(?:, (?P<when>\d{4}-[\d: .-]*\d))?(?:: (?P<words>.+))?"
)
THIRTY = """\
- seq 0..156, 16 compactions, last checkpoint 158, 2023-11-14..2023-11-15: aaatopic, aabtopic, \
aactopic, aadtopic, aaetopic, aaftopic
- seq 160..236, 8 compactions, last checkpoint 238, 2023-11-15: aaqtopic, aartopic, aastopic, \
aattopic, aautopic, aavtopic
- seq 240..276, 4 compactions, last checkpoint 278, 2023-11-15..2023-11-16: aaytopic, aaztopic, \
abatopic, abbtopic
- seq 280..286, checkpoint 288, 2023-11-16 02:13: abctopic
- seq 290..296, checkpoint 298, 2023-11-16 03:13: abdtopic
"""
LAYERS = {"finding": Holding(records=7, first_seq=2, last_seq=90)}


# --- words -----------------------------------------------------------------------------------


@given(st.text() | st.text(st.sampled_from("aB1_.-/ 漢カか한\n"), max_size=40))
def test_a_word_is_short_readable_and_stands_in_its_text(text: str) -> None:
    """On one line, and none that could be taken for anything else of ours."""
    for word in words_of(text, 1) | file_names(text, 1):
        assert 2 <= len(word) <= 30
        assert re.fullmatch(r"[\w.-]+", word)
        assert word in text.lower() or word in text


def test_hashes_and_numbers_are_no_words() -> None:
    """They tell nobody what a span was about."""
    assert words_of("at 72a7142b655090da or deadbeef1, 18473 of 3.11.2, x of 4f", 1) == {}


def test_words_are_taken_from_any_script() -> None:
    """Those without spaces give their runs of one script."""
    assert set(words_of("重试预算 is RetryBudget in retry/policy.py", 1)) == {
        "重试预算",
        "RetryBudget",
        "retry",
        "policy.py",
    }
    assert set(words_of("データベースの移行、재시도 예산", 1)) == {"データベース", "移行", "재시도"}
    assert set(words_of("Größe prüfen", 1)) == {"größe", "prüfen"}


def test_a_call_tells_the_names_of_its_files() -> None:
    """Without the folders, which are the same all along."""
    assert file_names("cd /repo && cat src/retry/policy.py setup.cfg | head", 2) == {
        "repo": 2,
        "policy.py": 2,
        "setup.cfg": 2,
    }


COUNTS = st.dictionaries(st.from_regex(r"[a-z]{3,12}", fullmatch=True), st.integers(1, 9))


@given(st.lists(COUNTS, min_size=1, max_size=4), st.integers(0, 8))
def test_the_rarest_words_are_the_same_whatever_the_order(
    spans: list[dict[str, int]], most: int
) -> None:
    """A pure function of the counts."""
    totals = summed(spans)
    total, size = sum(totals.values()), sum(spans[0].values())
    found = rarest(spans[0], size, totals, total, most=most)
    backwards = dict(reversed(spans[0].items()))
    assert found == rarest(backwards, size, totals, total, most=most)
    assert len(found) <= most
    assert set(found) <= set(spans[0])


def test_the_rarest_words_tell_a_span_from_the_rest_of_the_session() -> None:
    """What is as frequent everywhere is left out, and so is what another word says already."""
    about = {"the": 40, "should": 20, "migration": 6, "migrations": 3, "schema.sql": 4}
    rest = {"the": 400, "should": 180, "retry": 30, "policy.py": 20}
    totals = summed([about, rest])
    chosen = rarest(about, sum(about.values()), totals, sum(totals.values()), most=8)
    assert chosen == ["schema.sql", "migration"]


# --- ranges ----------------------------------------------------------------------------------


def generation(
    place: int, words: dict[str, int] | None = None, *, timed: bool = True
) -> Generation:
    """The compaction that took ten events from view."""
    moment = 1_700_000_000_000 + place * 3_600_000 if timed else None
    name = "".join(chr(97 + place // 26**power % 26) for power in (2, 1, 0))
    words = {f"{name}topic": 5} if words is None else words
    return Generation(
        compactions=1,
        first_seq=place * 10,
        last_seq=place * 10 + 6,
        checkpoint_seq=place * 10 + 8,
        first_time=moment,
        last_time=moment,
        words=words,
        size=sum(words.values()),
    )


def generations(count: int, *, timed: bool = True) -> Generations:
    """So many compactions, one after the other."""
    found = Generations()
    for place in range(count):
        each = generation(place, timed=timed)
        found.hear(each.words)
        found.add(each)
    return found


@given(st.integers(0, 300), st.integers(1, 12))
def test_every_compaction_is_in_one_range_and_ranges_grow_with_age(count: int, most: int) -> None:
    """None is forgotten, the newest is by itself where there are two lines."""
    kept = generations(count)
    told = [range_of(each) for each in kept.told(most)]
    assert len(told) == min(most, len(kept.kept))
    assert sum(each.compactions for each in told) == count
    assert [each.first_seq for each in told] == sorted(each.first_seq for each in told)
    for before, after in pairwise(told):
        assert before.last_seq < after.first_seq
    if count:
        assert (told[0].first_seq, told[-1].last_seq) == (0, count * 10 - 4)
        assert told[-1].checkpoint_seq == count * 10 - 2
    if count >= 30:
        older = [each.compactions for each in told[: len(told) - most // 2]]
        assert older == sorted(older, reverse=True)
    assert all(each.compactions == 1 for each in told[len(told) - min(4, most // 2) :])


def test_what_is_kept_of_ten_thousand_compactions_is_little() -> None:
    """It grows with their logarithm."""
    assert len(generations(10_000).kept) <= APART * 7
    assert len(generations(APART).kept) == APART
    assert len(generations(APART + 1).kept) == APART + 1 - FAN + 1


# --- the index -------------------------------------------------------------------------------


@given(st.integers(0, 120), st.integers(0, 1_600), st.booleans())
def test_an_index_keeps_its_bound_and_names_every_compaction(
    count: int,
    most: int,
    timed: bool,  # noqa: FBT001 - hypothesis passes by name
) -> None:
    """However many there were; where there is no room for one line, it has none of them."""
    text = index_text("s", LAYERS, generations(count, timed=timed), max_chars=most)  # type: ignore[arg-type]
    assert len(text) <= most
    assert text.endswith("ask the user.") if text else most < 500
    lines = [match for line in text.splitlines() if (match := LINE.fullmatch(line))]
    assert (EARLIER_TITLE in text) == bool(lines)
    if lines:
        assert sum(int(line["many"] or 1) for line in lines) == count
        assert (int(lines[0]["first"]), int(lines[-1]["last"])) == (0, count * 10 - 4)
        assert all(bool(line["when"]) == timed for line in lines)
    if most >= 700 and count:
        assert lines
    if most >= 1_200 and count > 8:
        assert lines[-1]["many"] is None
        assert lines[-1]["words"]
        assert lines[0]["words"]


def test_the_index_of_many_compactions_reads_like_this() -> None:
    """The newest one by one, older ones in ranges with their days."""
    lines = index_text("s", LAYERS, generations(30), max_chars=1_000).splitlines()  # type: ignore[arg-type]
    assert lines[2:-1] == [EARLIER_TITLE, *THIRTY.splitlines()]


# --- a session of many generations -----------------------------------------------------------

RULE = "Always run ./check before you commit, and never touch vendor/legacy.c."
TOPICS = (
    "migration", "telemetry", "pagination", "currency", "thumbnail", "calendar", "webhook",
    "sandbox", "translation", "checkout", "invoice", "passkey", "heatmap", "playlist", "firmware",
)  # fmt: skip


class Short:
    """A summarizer with one answer."""

    async def summarize(self, input: SummaryInput) -> Summary:  # noqa: ARG002
        """The answer."""
        return Summary(text="in short", summarizer="fixed")


def topic(place: int) -> str:
    """What a span is about: a word that comes back after a long time, and a name that does not."""
    return TOPICS[place % len(TOPICS)]


def work(session: Session, place: int, *, steps: int = 6) -> None:
    """One span: a request, calls on a file of its own and on one of every span, and an answer."""
    own = f"src/{topic(place)}/{topic(place)}_store_{place}.py"
    if place == 0:
        user(session, RULE)
    user(
        session, f"Now the {topic(place)} part: make {topic(place)} work for all, request {place}."
    )
    for step in range(steps):
        path = "src/kernel/dispatcher.py" if step == 0 else own
        arguments = json.dumps({"file_path": path, "old_string": f"a{step}", "new_string": "b"})
        call_id = f"c{place}-{step}"
        assistant(session, f"I edit the {topic(place)} code.", (call_id, "edit", arguments))
        result(session, call_id, f"edited {path}\n" + f"line {place} {step} of output\n" * 150)
    assistant(session, f"The {topic(place)} part is done; the check is green.")


def checkpoint_text(session: Session, seq: int) -> str:
    """The text of a checkpoint."""
    message = session.event_at(seq).message
    assert message is not None
    return joined_text(message.content)


def index_of(text: str) -> tuple[str, str]:
    """A checkpoint's index without its anchors, and the anchors."""
    index = text[text.rindex("## Archive Index") :]
    bare, _, rest = index.partition(
        "Tokens of what was left out; each is the query that finds it:\n"
    )
    anchors, _, how = rest.partition("Everything left out above")
    return f"{bare}Everything left out above{how}", anchors


@pytest.fixture
def knowledge(tmp_path: Path) -> SqliteKnowledgeBase:
    """A new archive."""
    return SqliteKnowledgeBase.open(tmp_path / "a.db", render=render)


def live(knowledge: SqliteKnowledgeBase, count: int) -> tuple[Session, list[int], list[float]]:
    """A session of so many compactions: the seqs of its checkpoints, and the seconds of each."""
    session = Session.create("0b9a5f0e-5a57-4c62-9d20-d7f6a6ab8f43")
    engine = ArchiveCompactionEngine(
        knowledge,
        summarizer=Short(),
        policy=CompactionPolicy(min_span_tokens=0, min_reclaim_tokens=0, retain_tokens=0),
        meter=TokenMeter(CharacterEstimator()),
    )
    agent = IdleAgent(session)
    checkpoints: list[int] = []
    seconds: list[float] = []

    async def run() -> None:
        for place in range(count):
            work(session, place)
            started = time.process_time()
            done = await engine.compact_now(agent)
            seconds.append(time.process_time() - started)
            assert done is not None
            checkpoints.append(done.checkpoint_seq)

    anyio.run(run)
    assert not any(event.type == "archive/failed" for event in session.events)
    return session, checkpoints, seconds


def check_index(tool: CtxSearchTool, bare: str, made: Sequence[int], seen: set[str]) -> None:
    """One index: within its bound, every compaction in it, everything it names is there."""
    assert len(bare.rstrip()) <= TranscriptConfig().max_index_chars
    labels = re.findall(r'- source "([^"]+)": \d+ records?, seq (\d+)\.\.(\d+)', bare)
    assert labels
    for label, *ends in labels:
        for seq in ends:
            assert f"[{label} seq {seq}]" in tool.run({"source": label, "seq": int(seq)})
    lines = [match for line in bare.splitlines() if (match := LINE.fullmatch(line))]
    assert sum(int(line["many"] or 1) for line in lines) == len(made)
    for line in lines:
        assert int(line["checkpoint"]) in made
        if line[0] not in seen:
            check_line(tool, line)
            seen.add(line[0])


def check_line(tool: CtxSearchTool, line: re.Match[str]) -> None:
    """One line: its checkpoint, its ends, and each of its words is found in its range."""
    assert "This checkpoint condenses" in tool.run({"seq": int(line["checkpoint"])})
    first, last = int(line["first"]), int(line["last"])
    within = {"after_seq": first - 1, "before_seq": last + 1}
    assert f" seq {first}]" in tool.run(within)
    assert f" seq {last}]" in tool.run({"seq": last})
    for word in line["words"].split(", "):
        found = tool.run({"queries": [word], "limit": 1, **within})
        assert "found, matched by all words" in found
        assert word.lower() in found.partition("\n")[2].lower()


def test_a_hundred_compactions_of_one_session(knowledge: SqliteKnowledgeBase) -> None:
    """Each index within its bound and true, the user's rule in view, the time flat."""
    with knowledge:
        session, checkpoints, seconds = live(knowledge, 100)
        tool = CtxSearchTool(knowledge, session=session.id)
        seen: set[str] = set()
        for place, seq in enumerate(checkpoints):
            text = checkpoint_text(session, seq)
            check_index(tool, index_of(text)[0], checkpoints[:place], seen)
            assert text.count(RULE) == 1
            elided = re.findall(r"\[\.\.\. (\d+) older user messages elided", text)
            assert text.count("work for all, request ") + sum(map(int, elided)) == place + 1
    # The standing messages grow to what their budget holds, and nothing else does.
    assert statistics.median(seconds[-20:]) < 3 * statistics.median(seconds[10:30]) + 0.01


def test_every_event_is_read_once_for_the_words_of_its_span() -> None:
    """However many compactions follow: what was said before is not read again."""
    session = Session.create("s")
    for place in range(3):
        work(session, place)
    history = history_of(session)
    heard = history.generations.size
    assert heard == sum(history.generations.totals.values())
    assert history_of(session).generations.size == heard


def test_what_is_still_used_stays_an_anchor_and_what_is_not_fades(
    knowledge: SqliteKnowledgeBase,
) -> None:
    """A path of every span is in view after twenty compactions, one of the first alone is not."""
    with knowledge:
        session, checkpoints, _ = live(knowledge, 21)
    first = {
        place: index_of(checkpoint_text(session, seq))[1].split()
        for place, seq in enumerate(checkpoints)
    }
    for place, anchors in first.items():
        shown = checkpoint_text(session, checkpoints[place])
        assert "src/kernel/dispatcher.py" in shown
        assert len(anchors) == len(set(anchors))
    own = "src/migration/migration_store_0.py"
    assert own in first[1]
    assert own in first[GONE_AFTER - 1]
    assert own not in first[GONE_AFTER]
    assert own not in first[20]
