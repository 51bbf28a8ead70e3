"""What is measured of settings is what a replay under them gives, and the choice follows its rule."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from ctxarchive import open_archive
from ctxarchive.archive.format import parse_additions
from ctxarchive.archive.settings import AnchorWeights, TranscriptConfig
from ctxarchive.compaction.checkpoint import parse_frame
from ctxarchive.config.settings import Settings
from ctxarchive.errors import ConfigError
from ctxarchive.importers.log import ImportedLog
from ctxarchive.importers.playback import import_session
from ctxarchive.importers.read import read_log
from ctxarchive.knowledge.store import KnowledgeBase
from ctxarchive.replay.measuring import Desk, Measured, Measurer, PreparedLog
from ctxarchive.replay.needs import identifiers, in_view, needed
from ctxarchive.replay.reaching import NOTHING, Follower, Reach, reach
from ctxarchive.replay.run import Replayer, ReplaySettings
from ctxarchive.replay.scenes import Occasion, scenes
from ctxarchive.replay.tuning import (
    Result,
    Setting,
    altered,
    curve,
    recommend,
    setting,
    steps,
    sweep,
)
from ctxarchive.replay.weights import fit_weights, folds, halves
from ctxarchive.tools.ctx_search import CtxSearchTool

# Sessions of different settings have ids of one length: so counted, their budgets are the same.
SETTINGS = Settings(estimator="characters")
PROSE = "It keeps every token it has met and drops none of them, whatever the budget says. "


class Story:
    """A Claude Code log in the making."""

    def __init__(self, session: str = "story") -> None:
        self.session = session
        self.records: list[dict[str, Any]] = []

    def add(self, kind: str, **more: Any) -> None:
        """One record."""
        number = len(self.records)
        time = f"2026-03-04T10:{number // 60:02}:{number % 60:02}.000Z"
        values = {"type": kind, "sessionId": self.session, "uuid": f"u{number}", "timestamp": time}
        self.records.append({**values, **more})

    def user(self, text: str, **more: Any) -> None:
        """What the user says."""
        self.add("user", message={"role": "user", "content": text}, **more)

    def says(self, text: str) -> None:
        """What the assistant says."""
        self._assistant({"type": "text", "text": text})

    def call(self, command: str, output: str) -> None:
        """A call and its result."""
        name = f"call-{len(self.records)}"
        self._assistant(
            {"type": "tool_use", "id": name, "name": "Bash", "input": {"command": command}}
        )
        block = {"type": "tool_result", "tool_use_id": name, "content": output}
        self.add("user", message={"role": "user", "content": [block]})

    def _assistant(self, block: dict[str, Any]) -> None:
        number = len(self.records)
        message = {"id": f"m{number}", "role": "assistant", "model": "claude-x", "content": [block]}
        self.add("assistant", message=message)

    def compaction(self, summary: str) -> None:
        """A compaction as the harness records it."""
        self.add("system", subtype="compact_boundary", compactMetadata={"trigger": "auto"})
        self.user(summary, isCompactSummary=True)

    def work(self, turns: range) -> None:
        """Turns with a long request, calls and prose."""
        for turn in turns:
            self.user(f"Always keep step_{turn}. {PROSE * (1 + turn % 3 * 9)}")
            self.call(f"cat src/part_{turn}.py", f"class PartOf{turn}Parser: pass\n{PROSE * 50}")
            self.call(f"grep -n limit_{turn} src/", f"src/part_{turn}.py: limit_{turn} = {turn}")
            self.says(f"Read src/part_{turn}.py: limit_{turn} is set. {PROSE * (1 + turn % 4 * 3)}")

    def write(self, folder: Path) -> Path:
        """The log as a file."""
        path = folder / f"{self.session}.jsonl"
        path.write_text("".join(json.dumps(each) + "\n" for each in self.records), "utf-8")
        return path


def usual(session: str = "story") -> Story:
    """Two compactions, and behind each the use of names from before."""
    story = Story(session)
    story.work(range(8))
    story.compaction("Summary: src/part_0.py was read.")
    story.call("sed -i s/limit_3/limit_4/ src/part_3.py && cat src/part_0.py", "done")
    story.work(range(20, 26))
    story.compaction("Summary: the parts up to 25 were read.")
    story.call("pytest src/part_21.py -k PartOf22Parser", "2 passed")
    story.work(range(40, 43))
    return story


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The usual log."""
    return usual().write(tmp_path)


def desk(log: Path, tmp_path: Path, occasion: Occasion | None = None) -> Desk:
    """The log, ready to be measured."""
    return Desk(log, SETTINGS, occasion or Occasion(), tmp_path / "desk.db")


# --- scenes ----------------------------------------------------------------------------------


def replayed(log: ImportedLog, config: TranscriptConfig, knowledge: KnowledgeBase) -> list[str]:
    """The additions of a whole replay under ``config``, with the session's id written X."""
    settings = SETTINGS.model_copy(update={"transcript": config})
    how = ReplaySettings(at="recorded", summarizer="recorded", settings=settings)
    replay = anyio.run(Replayer(log, how, knowledge).run)
    found = (parse_frame(made.checkpoint).additions for made in replay.compactions)
    return [each.replace(replay.session.id, "X") for each in found]


def test_a_scene_builds_what_a_replay_under_that_setting_would_show(
    log: Path, tmp_path: Path
) -> None:
    """For each constant, each bound and some weights, in turn, character for character."""
    # An earlier checkpoint in a span is as long as its setting made it: no bound may depend on it.
    base = TranscriptConfig(max_checkpoint_ratio=0.95)
    settings = SETTINGS.model_copy(update={"transcript": base})
    tried = [*curve(base), *sweep(base, setting(base, {}))]
    weights = [each for each in tried if "anchor_weights" in each.name]
    read = read_log(log)
    with open_archive(tmp_path / "a.db") as one, open_archive(tmp_path / "b.db") as other:
        replay, made = scenes(read, settings, Occasion(), one)
        assert len(made) == 2
        for each in [each for each in tried if each not in weights] + weights[::5]:
            shown = [scene.additions(each.config) for scene in made]
            built = [text.replace(replay.session.id, "X") for text in shown]
            assert built == replayed(read, each.config, other), each.name


def test_without_recorded_compactions_a_log_is_compacted_on_pressure(tmp_path: Path) -> None:
    """At a window; and what stays in view behind the span is not needed from the archive."""
    story = Story()
    story.work(range(30))
    made = desk(story.write(tmp_path), tmp_path, Occasion(window=6_000))
    assert made.prepared.compacted_at == "pressure"
    assert made.prepared.compactions >= 1


def test_a_log_is_compacted_at_given_points(log: Path, tmp_path: Path) -> None:
    """As often as there are points, and not where its harness did."""
    made = desk(log, tmp_path, Occasion(points=(0.7, 0.4)))
    assert made.prepared.compacted_at == "points"
    assert made.prepared.compactions == 2
    with open_archive(tmp_path / "points.db") as knowledge:
        replay, _ = scenes(read_log(log), SETTINGS, Occasion(points=(0.4, 0.7)), knowledge)
    items = len(read_log(log).items)
    cuts = [each.checkpoint_seq / items for each in replay.compactions]
    assert cuts == pytest.approx([0.4, 0.7], abs=0.1)


# --- needs -----------------------------------------------------------------------------------


def needs(story: Story, tmp_path: Path, *, summary: str = "", kept: int = 0) -> frozenset[str]:
    """What is needed of a story whose first 24 records are the span, and ``kept`` stay in view."""
    events = import_session(read_log(story.write(tmp_path))).events
    said = [event for event in events if event.message is not None]
    found = needed(
        span=said[:24], kept=said[24 : 24 + kept], summary=summary, later=said[24 + kept :]
    )
    assert found is not None
    return found


def before() -> Story:
    """Twelve calls that name things, and room behind them."""
    story = Story()
    for number in range(12):
        story.call(f"cat src/part_{number}.py", f"value_{number}")
    return story


def test_a_name_is_needed_when_a_later_call_is_the_first_to_use_it(tmp_path: Path) -> None:
    """Known before, not in the summary, and not shown by anything since."""
    story = before()
    story.call("cat src/part_1.py src/part_2.py src/new_one.py", "value_4")
    story.says("Now src/part_3.py comes.")
    story.call("cat src/part_3.py; echo value_4 value_5", "fine")
    for _ in range(4):
        story.call("ls", "nothing")
    assert needs(story, tmp_path) == {"src/part_1.py", "src/part_2.py", "value_5"}
    assert needs(story, tmp_path, summary="It read src/part_1.py.") == {"src/part_2.py", "value_5"}


def test_what_stays_in_view_behind_the_span_is_not_needed(tmp_path: Path) -> None:
    """The retained tail shows it."""
    story = before()
    story.call("cat src/part_1.py", "value_4")
    for _ in range(6):
        story.call("cat src/part_1.py src/part_2.py", "fine")
    assert needs(story, tmp_path, kept=2) == {"src/part_2.py"}


def test_too_little_behind_a_compaction_tells_nothing(tmp_path: Path) -> None:
    """Then the compaction is not measured, rather than measured as perfect."""
    story = before()
    story.call("cat src/part_1.py", "value_4")
    events = import_session(read_log(story.write(tmp_path))).events
    said = [event for event in events if event.message is not None]
    assert needed(span=said[:24], kept=(), summary="", later=said[24:]) is None
    assert needed(span=said[:4], kept=(), summary="", later=said[4:]) is None


def test_an_identifier_is_in_view_whole() -> None:
    """Inside a path it is, inside a longer name it is not."""
    assert in_view("part_1.py", "see src/part_1.py")
    assert not in_view("part_1", "see part_12")
    assert identifiers("a/b.py fooBar x Foo 12345 ab") == {"a/b.py", "fooBar", "12345"}


# --- pointers --------------------------------------------------------------------------------


def test_every_elided_character_is_reached_by_following_the_pointers(
    log: Path, tmp_path: Path
) -> None:
    """Under the defaults; what is shown and what is reached make up all there is."""
    made = desk(log, tmp_path)
    for each in made.measure(SETTINGS.transcript, follow=True):
        assert each.reach.elided > 1_000
        assert each.reach.reached == each.reach.elided
        assert 0 < each.reach.user_shown < each.reach.user_chars


def test_only_what_an_answer_really_held_counts_as_reached(log: Path, tmp_path: Path) -> None:
    """An archive that answers otherwise than the record reads reaches nothing of it."""
    with open_archive(tmp_path / "scenes.db") as knowledge:
        replay, made = scenes(read_log(log), SETTINGS, Occasion(), knowledge)
        entries, _ = parse_additions(made[0].additions(SETTINGS.transcript))
        records = made[0].records
        tool = CtxSearchTool(knowledge, session=replay.session.id)
        true = Follower(tool, {record.seq: record.text for record in records})
        false = Follower(tool, {record.seq: record.text.upper() for record in records})
        assert reach(entries, records, true).reached == reach(entries, records, true).elided
        assert reach(entries, records, false).reached == 0
        # A record that nothing points to is elided, and not reached.
        lost = replace(records[0], seq=9_999, text="lost")
        assert reach(entries, [*records, lost], true).elided == (
            reach(entries, records, true).elided + 4
        )


def test_several_processes_measure_what_one_measures(tmp_path: Path) -> None:
    """The number of jobs changes how long it takes and nothing else."""
    logs = [usual(name).write(tmp_path) for name in ("one", "two", "three")]
    configs = [each.config for each in curve(SETTINGS.transcript)]
    found = []
    for jobs in (1, 2):
        folder = tmp_path / str(jobs)
        folder.mkdir()
        with Measurer(
            logs, settings=SETTINGS, occasion=Occasion(), folder=folder, jobs=jobs
        ) as measurer:
            prepared = dict(measurer.prepare())
            assert all(isinstance(log, PreparedLog) for log in prepared.values())
            found.append(measurer.measure(configs, sorted(prepared)))
    assert found[0] == found[1]


# --- choosing --------------------------------------------------------------------------------


def result(
    name: str, tokens: int, recall: int, *, user: int = 100, reached: int = 100, **changes: Any
) -> Result:
    """A result over one checkpoint, its shares in hundredths."""
    reached_of = Reach(user_chars=100, user_shown=user, elided=100, reached=reached)
    measured = Measured(
        needed=100, in_view=recall, addition_chars=0, addition_tokens=tokens, reach=reached_of
    )
    made = Setting(name=name, config=TranscriptConfig(), changes=changes)
    return Result(setting=made, measured=(measured,))


CURRENT = result("current", 1_000, 95)


@pytest.mark.parametrize(
    ("tried", "chosen"),
    [
        ([result("cheaper", 500, 94)], "cheaper"),
        ([result("too poor", 500, 93)], "current"),
        ([result("hardly cheaper", 990, 95)], "current"),
        ([result("hides the user", 500, 95, user=98)], "current"),
        ([result("loses pointers", 500, 95, reached=99)], "current"),
        ([result("switches off", 500, 95, transcript_tokens=0)], "current"),
        ([result("unbounded", 500, 95, transcript_tokens=None)], "unbounded"),
        ([result("better", 3_000, 99), result("as good", 2_000, 98)], "as good"),
        ([result("first", 500, 95), result("equal", 500, 95)], "first"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0].setting.name,
)
def test_the_recommended_setting_follows_the_rule(tried: Sequence[Result], chosen: str) -> None:
    """Fewest tokens among those that are as good, and the current one in doubt."""
    assert recommend(CURRENT, tried).setting.name == chosen


def test_nothing_needed_is_nothing_lost() -> None:
    """A share of nothing is all of it."""
    empty = Measured(needed=0, in_view=0, addition_chars=0, reach=NOTHING)
    made = Result(setting=CURRENT.setting, measured=(empty,))
    assert (made.recall, made.user_text, made.reachable) == (1.0, 1.0, 1.0)


def test_a_sweep_changes_one_thing_at_a_time_and_nothing_twice() -> None:
    """Every weight and every kind of constant has its turn; the current setting is not among them."""
    base = TranscriptConfig()
    made = sweep(base, setting(base, {}))
    configs = [each.config for each in made]
    assert base not in configs
    assert len({config.model_dump_json() for config in configs}) == len(configs)
    swept = {key for each in made for key in each.changes}
    assert {f"anchor_weights.{name}" for name in AnchorWeights.model_fields} <= swept
    assert {"user_clip_at", "assistant_keep", "anchor_tokens", "max_addition_chars"} <= swept


def test_a_setting_that_may_not_be_is_refused_by_name() -> None:
    """Unknown keys, contradictions, and sections that are none."""
    base = TranscriptConfig()
    for key, value in (
        ("user_clip_att", 3),
        ("anchor_weights.fade", 7),
        ("user_clip_at", 10),
        ("tool_essence.x", 1),
    ):
        with pytest.raises(ConfigError, match=key.rpartition(".")[0] or key[:9]):
            altered(base, {key: value})


# --- fitting ---------------------------------------------------------------------------------


def test_a_coordinate_search_finds_what_scores_best() -> None:
    """From any start, in one weight after the other, and the same twice."""

    def scores(tried: Sequence[AnchorWeights]) -> list[float]:
        return [-abs(weights.calls - 4) - abs(weights.recency) for weights in tried]

    found = fit_weights(AnchorWeights(), scores)
    assert (found.calls, found.recency) == (4.0, 0.0)
    assert found == fit_weights(AnchorWeights(), scores)


def test_where_nothing_scores_better_the_weights_stay() -> None:
    """Equal is not better."""
    assert fit_weights(AnchorWeights(), lambda tried: [0.5] * len(tried)) == AnchorWeights()


def test_no_step_of_the_search_leaves_what_a_weight_may_be() -> None:
    """Each value that is tried would be accepted from a file."""
    for name in AnchorWeights.model_fields:
        for value in steps(AnchorWeights(), name):
            assert getattr(AnchorWeights.model_validate({name: value}), name) == value


def test_halves_do_not_depend_on_the_order_of_the_logs() -> None:
    """Each log is in one of them, by its own name."""
    names = [f"log-{number}" for number in range(9)]
    first, second = halves(names, names)
    assert sorted(first + second) == names
    assert abs(len(first) - len(second)) <= 1
    assert halves(names[::-1], names[::-1]) == (first, second)
    assert sorted(each for part in folds(names, names, 4) for each in part) == names


# --- real logs -------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["pi/*.jsonl", "codex/*.jsonl", "openai-chat/airline-0.json"])
def test_real_logs_of_any_format_are_measured_and_wholly_reached(
    pattern: str, log_paths: Any, tmp_path: Path
) -> None:
    """Every elided character comes back through the pointers that the checkpoint prints."""
    (path, *_) = log_paths(pattern)
    occasion = Occasion() if pattern.startswith("pi") else Occasion(points=(0.6,))
    with open_archive(tmp_path / "real.db") as knowledge:
        settings = Settings.model_validate({"compaction": {"min_span_tokens": 0}})
        replay, made = scenes(read_log(path), settings, occasion, knowledge)
        tool = CtxSearchTool(knowledge, session=replay.session.id)
        assert made
        for scene in made:
            follower = Follower(tool, {record.seq: record.text for record in scene.records})
            entries, _ = parse_additions(scene.additions(settings.transcript))
            if entries:
                found = reach(entries, scene.records, follower)
                assert found.reached == found.elided
