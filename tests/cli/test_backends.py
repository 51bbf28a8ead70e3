"""Which backend a replay mounts, who writes its summaries, and what its settings reach."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WINDOW = ("--window", "4000")


@pytest.fixture
def other_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with two backends: one marks its summaries, one cannot be loaded."""
    site = tmp_path / "site"
    info = site / "other-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[ctxarchive.backends]\nother = marking_backend:make\nbroken = marking_backend:nothing\n"
    )
    (site / "marking_backend.py").write_text(
        "from dataclasses import replace\n"
        "from pathlib import Path\n\n"
        "from ctxarchive.compaction.basic import BasicCompactionEngine\n"
        "from ctxarchive.config.mounting import Mount\n\n\n"
        "class Marking(BasicCompactionEngine):\n"
        "    async def summarize(self, input):\n"
        "        made = await super().summarize(input)\n"
        "        return replace(made, text='MARKED ' + made.text, summarizer='marking')\n\n\n"
        "def make(request):\n"
        "    if request.settings.archive is not None:\n"
        "        Path(request.settings.archive).write_text('opened by the backend')\n"
        "    return Mount(engine=Marking(**request.engine_options()))\n"
    )
    monkeypatch.syspath_prepend(str(site))


@pytest.mark.usefixtures("other_package")
def test_another_packages_backend_makes_the_compactions(
    inside: Callable[..., Any], write_log: Callable[..., Path], tmp_path: Path
) -> None:
    """By its entry point's name; it is given --archive, and nothing of ours is filed."""
    kept = tmp_path / "kept.db"
    ran = inside("compact", write_log(), "--backend", "other", "--archive", kept, *WINDOW, "--json")
    assert (ran.code, ran.err) == (0, "")
    (made,) = ran.json["compactions"]
    assert made["summary"].startswith("MARKED ")
    assert made["summarizer"] == "marking"
    assert made["pointers"] == []
    assert ran.json["archive"] is None
    assert kept.read_text() == "opened by the backend"


@pytest.mark.usefixtures("other_package")
def test_a_backend_that_is_not_to_be_had_is_named(
    inside: Callable[..., Any], write_log: Callable[..., Path]
) -> None:
    """Not registered, or registered and not to be loaded: never another one in its place."""
    ran = inside("compact", write_log(), "--backend", "nobody", *WINDOW)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "command line: backend: 'nobody' is not registered: use " in ran.err
    assert "'other'" in ran.err
    ran = inside("compact", write_log(), "--backend", "broken", *WINDOW)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "backend: 'broken' cannot be loaded" in ran.err


@pytest.fixture
def long_results(write_log: Callable[..., Path], talk: Callable[..., Any]) -> Path:
    """A log whose results are longer than the pruner's bound."""
    made = talk("pruned")
    made.turns(12, words=900)
    return write_log(made, "pruned.jsonl")


@pytest.mark.parametrize("backend", ["archive", "basic"])
def test_tool_results_are_shortened_where_the_settings_say_so(
    inside: Callable[..., Any], long_results: Path, tmp_path: Path, backend: str
) -> None:
    """The session holds the shortened ones; the archive holds the originals."""
    archive, out = tmp_path / "a.db", tmp_path / "out"
    values = {"max_chars": 1000, "head_chars": 300, "tail_chars": 100}
    given = [part for key in values for part in ("--set", f"prune.{key}={values[key]}")]
    arguments = ("compact", long_results, "--backend", backend, "--archive", archive)
    options = ("--window", "9000", "--out", out, "--json")
    ran = inside(*arguments, *options, *given)
    assert (ran.code, ran.err) == (0, "")
    (stored,) = out.glob("*.jsonl")
    text = stored.read_text("utf-8")
    assert '"compaction/prune"' in text
    assert "chars pruned here" in text
    plain = inside(*arguments, *options)
    assert plain.json["session"] != ran.json["session"]
    if backend == "archive":
        assert inside("verify", archive, "--log", stored).code == 0
        assert inside("verify", archive, "--log", long_results).code == 0
        again = inside(*arguments, *options, *given)
        assert (again.code, again.json["warnings"]) == (0, [])


def test_pruning_that_a_replay_cannot_do_is_said(
    inside: Callable[..., Any], long_results: Path, tmp_path: Path
) -> None:
    """Results are shortened on pressure only."""
    arguments = ("compact", long_results, "--archive", tmp_path / "a.db", "--at", "end", "--json")
    (told,) = inside(*arguments, "--set", "prune={}").json["warnings"]
    assert told == "prune: tool results are shortened on pressure only, not at 'end'"


def test_a_summary_that_the_log_does_not_hold_is_said_and_who_wrote_one_instead(
    inside: Callable[..., Any],
    write_log: Callable[..., Path],
    talk: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """On stderr, in the warnings, and for each compaction by name."""
    made = talk("two")
    made.turns(12)
    made.compaction("Summary: the parts up to here were read.")
    made.turns(12)
    made.compaction(" ")
    made.turns(2)
    log = write_log(made)
    arguments = ("compact", log, "--archive", tmp_path / "a.db", "--at", "recorded", "--json")
    ran = inside(*arguments, "--summarizer", "recorded")
    writers = [compaction["summarizer"] for compaction in ran.json["compactions"]]
    assert writers == ["recorded", "extractive"]
    (told,) = ran.json["warnings"]
    assert "the log holds no summary of this compaction; the extractive summarizer wrote" in told
    assert ran.err == (
        f"ctxarchive: {log}: compaction 1: the log holds no summary; the extractive summarizer "
        "wrote one instead\n"
    )
    plain = inside(*arguments)
    assert plain.err == ""
    assert {c["summarizer"] for c in plain.json["compactions"]} == {"extractive"}


def test_two_runs_of_a_replay_differ_in_the_counts_of_what_was_filed_only(
    inside: Callable[..., Any], write_log: Callable[..., Path], tmp_path: Path
) -> None:
    """And the one may be filed over the other: all of it is there already."""
    log, archive = write_log(), tmp_path / "a.db"
    sessions = []
    for name in ("first", "second"):
        arguments = ("compact", log, "--archive", archive, *WINDOW, "--out", tmp_path / name)
        assert inside(*arguments).code == 0
        (stored,) = (tmp_path / name).glob("*.jsonl")
        sessions.append([json.loads(line) for line in stored.read_bytes().splitlines()])
        assert inside("verify", archive, "--log", stored).code == 0
    first, second = sessions
    differing = [one["type"] for one, other in zip(first, second, strict=True) if one != other]
    assert differing == ["archive/filed"]
    for one, other in zip(first, second, strict=True):
        if one["type"] == "archive/filed":
            assert one["data"]["already"] == 0
            assert other["data"]["already"] > 0
            assert one["data"]["throughSeq"] == other["data"]["throughSeq"]


def test_a_replays_own_sessions_of_two_runs_do_not_conflict(
    inside: Callable[..., Any], write_log: Callable[..., Path], tmp_path: Path
) -> None:
    """Compacted in their turn into one archive, the second adds nothing and is refused nothing."""
    log, archive, again = write_log(), tmp_path / "a.db", tmp_path / "b.db"
    reports = []
    for name in ("first", "second"):
        arguments = ("compact", log, "--archive", archive, *WINDOW, "--out", tmp_path / name)
        assert inside(*arguments).code == 0
        (stored,) = (tmp_path / name).glob("*.jsonl")
        ran = inside("compact", stored, "--archive", again, "--at", "end", "--json")
        assert (ran.code, ran.err) == (0, "")
        reports.append(ran.json)
    (made,), (more,) = (report["compactions"] for report in reports)
    assert made["archived"]["already"] == 0
    assert sum(more["archived"].values()) == more["archived"]["already"] > 0
    assert more["checkpoint"] == made["checkpoint"]
