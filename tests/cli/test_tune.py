"""``tune``: measures settings on logs, recommends one, and writes what it was asked to write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxarchive.archive.settings import AnchorWeights
from ctxarchive.cli.curve import Picture, Point, draw
from ctxarchive.config.settings import load_settings
from ctxarchive.replay.fitting_weights import Fit

Cli = Callable[..., Any]
SHARES = ("recall", "user_text", "reachable")


@pytest.fixture
def log(talk: Callable[..., Any], write_log: Callable[..., Path]) -> Callable[..., Path]:
    """Writes logs whose agents go back, after a compaction, to files they read before."""

    def make(name: str = "talk-1", *, turns: int = 8) -> Path:
        made = talk(name)
        made.turns(turns, words=200)
        made.compaction("This session is being continued. Summary: src/part_0.py was read.")
        made.step("Once more.", "diff src/part_4.py src/part_8.py", "the same")
        made.step("And this.", "sed -i s/a/b/ src/part_12.py src/part_0.py src/new_1.py", "done")
        made.turns(3)
        path = write_log(made, f"{name}.jsonl")
        assert isinstance(path, Path)
        return path

    return make


def test_the_default_sweep_tells_what_each_setting_shows(inside: Cli, log: Any) -> None:
    """Every figure of every setting; the current one is first, one is recommended."""
    ran = inside("tune", log(), "--json")
    assert ran.code == 0, ran.err
    found = ran.json
    (told,) = found["logs"]
    assert (told["compacted_at"], told["compactions"], told["measured"]) == ("recorded", 1, 1)
    assert told["needed"] == 3  # part_4, part_8 and part_12: the summary has part_0
    settings = found["settings"]
    assert settings[0]["name"] == "current"
    assert len(settings) > 50
    assert sum(each["current"] for each in settings) == 1
    (best,) = [each for each in settings if each["recommended"]]
    assert best["name"] == found["recommended"]["name"]
    for each in settings:
        assert all(0 <= each[name] <= 1 for name in SHARES)
        assert each["needed"] == 3
        assert each["checkpoint_tokens"]["mean"] > each["addition_tokens"]["mean"]
    assert settings[0]["recall"] == settings[0]["reachable"] == 1.0
    bounds = [each["max_addition_chars"] for each in found["curve"]]
    assert bounds == [500, 1_000, 2_000, 4_000, 8_000, 16_000]


def test_people_get_a_table_and_the_rule(inside: Cli, log: Any) -> None:
    """The recommended setting is marked."""
    ran = inside("tune", log(), "--sweep", "anchor_tokens=0,400", "--sweep", "keep_assistant=false")
    text = ran.out.decode()
    assert ran.code == 0
    for name in ("current", "anchor_tokens = 400", "keep_assistant = False", "recall", "rule:"):
        assert name in text
    assert sum(line.startswith("* ") for line in text.splitlines()) == 1


def test_the_recommendation_is_a_file_that_holds(inside: Cli, log: Any, tmp_path: Path) -> None:
    """It loads, keeps what was set before, and is not written over another unasked."""
    target = tmp_path / "tuned.toml"
    given = ("--set", "compaction.retain_tokens=900", "--set", "transcript.anchor_tokens=5000")
    ask = ("tune", log(turns=20), "--sweep", "transcript_tokens=100", *given, "--write", target)
    first = inside(*ask, "--json")
    assert first.code == 0, first.err
    settings = load_settings(target)
    assert settings.compaction.retain_tokens == 900
    assert settings.transcript.model_dump(mode="json") == first.json["recommended"]["transcript"]
    assert first.json["recommended"]["changes"] == {"transcript_tokens": 100}
    assert first.json["written"] == str(target)
    again = inside(*ask)
    assert again.code == 2
    assert "--force" in again.err
    target.write_text("# mine", "utf-8")
    assert inside(*ask, "--force").code == 0
    assert load_settings(target) == settings
    assert inside("tune", log(), "--only-curve", "--config", target).code == 0


def test_pictures_are_the_same_each_time(inside: Cli, log: Any, tmp_path: Path) -> None:
    """Figures only: no date, nothing of the log; and a PNG where one is asked for."""
    pytest.importorskip("matplotlib")
    pictures = [tmp_path / name for name in ("a.svg", "b.svg", "c.png")]
    for picture in pictures:
        ran = inside("tune", log(), "--only-curve", "--plot", picture)
        assert ran.code == 0, ran.err
    svg = pictures[0].read_text("utf-8")
    assert svg == pictures[1].read_text("utf-8")
    assert svg.startswith("<?xml")
    assert not [word for word in ("part_4", "talk-1", "dc:date", str(tmp_path)) if word in svg]
    assert pictures[2].read_bytes().startswith(b"\x89PNG")


def test_a_picture_marks_the_current_and_the_recommended_setting(tmp_path: Path) -> None:
    """Also where a bound leaves no room for anything, and where all lie together."""
    pytest.importorskip("matplotlib")
    points = [Point(label="500", tokens=0, recall=0), Point(label="1,000", tokens=9, recall=1)]
    sizes = []
    for recommended in (None, points[1]):
        picture = Picture(
            curve=points, current=points[1], recommended=recommended, compactions=1, needed=3
        )
        draw(picture, tmp_path / "drawn.svg")
        sizes.append((tmp_path / "drawn.svg").stat().st_size)
    assert sizes[0] < sizes[1]


def test_logs_are_shared_among_processes(cli: Cli, log: Any) -> None:
    """The same report, whatever the number of jobs."""
    logs = [log(f"talk-{number}") for number in range(3)]
    one, two = (cli("tune", *logs, "--only-curve", "--json", "--jobs", n) for n in (1, 2))
    assert one.code == two.code == 0, two.err
    assert one.json == two.json
    assert one.json["settings"][0]["needed"] == 9


def test_weights_are_fitted_on_one_half_and_reported_on_the_other(inside: Cli, log: Any) -> None:
    """Both figures, each log in one half; and cross-validated where asked."""
    logs = [log(f"talk-{number}") for number in range(4)]
    ran = inside("tune", *logs, "--only-curve", "--fit", "--cross-validate", "2", "--json")
    assert ran.code == 0, ran.err
    fit = ran.json["fit"]
    assert sorted(fit["fitted_on"] + fit["reported_on"]) == sorted(map(str, logs))
    assert len(fit["fitted_on"]) == len(fit["reported_on"]) == 2
    for half in ("fitted_on", "reported_on"):
        assert set(fit["recall"][half]) == {"current", "fitted"}
    fitted = fit["recall"]["fitted_on"]
    assert fitted["fitted"] >= fitted["current"]
    assert set(fit["cross_validated"]) == {"folds", "current", "fitted"}
    told = (fit["recall"]["reported_on"], fit["cross_validated"])
    assert fit["taken"] == all(each["fitted"] >= each["current"] + 0.005 for each in told)


def test_weights_that_do_no_better_elsewhere_are_not_taken() -> None:
    """A gain where they were fitted is none, and cross-validation has a say."""

    def fit(reported: float, crossed: float | None) -> Fit:
        both = {"current": 0.80, "fitted": reported}
        return Fit(
            weights=AnchorWeights(),
            fitted_on=(),
            reported_on=(),
            recall={"fitted_on": {"current": 0.5, "fitted": 0.9}, "reported_on": both},
            crossed=None if crossed is None else {"current": 0.80, "fitted": crossed},
            folds=None if crossed is None else 3,
        )

    assert fit(0.81, None).holds
    assert fit(0.81, 0.81).holds
    assert not fit(0.801, None).holds
    assert not fit(0.81, 0.79).holds


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--sweep", "anchor_tokenz=3"], "anchor_tokens"),
        (["--sweep", "anchor_tokens"], "KEY=VALUE"),
        (["--sweep", "anchor_tokens=3", "--only-curve"], "--only-curve"),
        (["--set", "transcript.nothing=3"], "nothing"),
        (["--points", "0.5,2"], "between 0 and 1"),
        (["--points", "half"], "between 0 and 1"),
        (["--cross-validate", "3"], "--fit"),
        (["--fit", "--only-curve"], "at least 2"),
        (["--plot", "curve.gif"], ".svg or .png"),
        (["--plot", "no/such/folder/curve.svg"], "no folder"),
        (["--write", "no/such/folder/a.toml"], "no folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_done_is_one_line(
    inside: Cli, log: Any, arguments: list[str], told: str
) -> None:
    """Which option, and what to do instead; nothing is printed on stdout."""
    ran = inside("tune", log(), *arguments)
    assert ran.code == 2
    assert told in ran.err
    assert len(ran.err.splitlines()) == 1
    assert ran.out == b""


def test_a_log_that_tells_nothing_is_told_and_fails(
    inside: Cli, talk: Callable[..., Any], write_log: Callable[..., Path]
) -> None:
    """No compaction, or nothing behind it: there is nothing to choose by."""
    short = talk("short")
    short.turns(2)
    ran = inside("tune", write_log(short, "short.jsonl"))
    assert ran.code == 1
    assert "--points" in ran.err
    assert ran.out == b""


def test_one_log_that_cannot_be_read_does_not_stop_the_others(
    inside: Cli, log: Any, tmp_path: Path
) -> None:
    """It is named, the exit code says so, and the rest is measured."""
    ran = inside("tune", tmp_path / "none.jsonl", log(), "--only-curve", "--json")
    assert ran.code == 1
    assert "none.jsonl" in ran.err
    assert len(ran.json["logs"]) == 1
    assert inside("tune", tmp_path / "none.jsonl").code == 2


def test_tuning_leaves_nothing_behind(
    inside: Cli, log: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No archive, no temporary folder, and the log as it was."""
    path = log()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    before = path.read_bytes()
    assert inside("tune", path, "--only-curve").code == 0
    assert list(scratch.iterdir()) == []
    assert path.read_bytes() == before
    assert {each.name for each in tmp_path.iterdir()} <= {path.name, "scratch", "home"}


def test_json_is_one_line(inside: Cli, log: Any) -> None:
    """As of every command."""
    ran = inside("tune", log(), "--only-curve", "--json")
    (line,) = ran.out.decode().splitlines()
    assert json.loads(line)["plots"] == []
