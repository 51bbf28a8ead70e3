"""The judged questions on real logs: that they are sound, and how many the tool still answers.

The figures are of ``benchmarks/retrieval.py``, which a test loads by its path.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "retrieval.py"

KINDS = {"natural", "paraphrase", "identifier", "error", "command", "number", "date", "user"}

FLOOR = 0.57
"""Share of the judged questions with an answer among the first five; 0.611 when it was set."""


@pytest.fixture(scope="module")
def retrieval() -> Iterator[ModuleType]:
    """The benchmark as a module."""
    if not BENCHMARK.is_file():
        pytest.skip("the benchmarks are not part of this distribution")
    spec = importlib.util.spec_from_file_location("retrieval", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["retrieval"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["retrieval"]


@pytest.fixture(scope="module")
def logs(retrieval: ModuleType, logs_dir: Path) -> dict[str, Any]:
    """The records of every judged log, by its path."""
    paths = [log for judged in retrieval.judged_sets() for log in judged["logs"]]
    return {log: retrieval.records_of(logs_dir / log) for log in paths}


def test_the_set_is_large_and_its_halves_share_no_log(retrieval: ModuleType) -> None:
    """At least 60 questions on 12 logs, split by log."""
    fit, held_out = (set(judged["logs"]) for judged in retrieval.judged_sets())
    assert [judged["half"] for judged in retrieval.judged_sets()] == ["fit", "held-out"]
    assert not fit & held_out
    assert len(fit | held_out) >= 12
    questions = list(retrieval.judged_questions())
    assert len(questions) >= 60
    assert min(sum(q.half == half for q in questions) for half in ("fit", "held-out")) >= 25


def test_every_judged_question_is_whole(retrieval: ModuleType) -> None:
    """A question, its kind, ascending seqs and a reason; none is asked twice of one log."""
    for judged in retrieval.judged_sets():
        for log, entry in judged["logs"].items():
            asked = [question["question"] for question in entry["questions"]]
            assert len(set(asked)) == len(asked), log
            for question in entry["questions"]:
                assert set(question) == {"question", "kind", "seqs", "reason"}, question
                assert question["kind"] in KINDS
                assert question["seqs"]
                assert question["seqs"] == sorted(set(question["seqs"]))
                assert question["question"].strip()
                assert "\n" not in question["question"]
                assert question["reason"].strip()


def test_the_judged_logs_are_the_ones_that_were_judged(
    retrieval: ModuleType, logs_dir: Path
) -> None:
    """A log that changed would have other seqs."""
    for judged in retrieval.judged_sets():
        for log, entry in judged["logs"].items():
            found = hashlib.sha256((logs_dir / log).read_bytes()).hexdigest()
            assert found.startswith(entry["sha256"]), log
            assert len(entry["sha256"]) == 16


def test_every_paraphrase_is_of_a_judged_question(retrieval: ModuleType) -> None:
    """Of its own half, and each differs from it."""
    found = list(retrieval.paraphrased_questions())
    said = json.loads((retrieval.JUDGED / "paraphrases.json").read_text("utf-8"))
    assert len(found) == sum(len(said[half]) for half in retrieval.HALVES) >= 60
    asked = {question.text for question in retrieval.judged_questions()}
    assert not asked & {question.text for question in found}


def test_every_judged_answer_is_a_record_with_a_text(
    retrieval: ModuleType, logs: dict[str, Any]
) -> None:
    """A seq without a record could never be found."""
    texts = {log: {record.seq: record.text for record in filed} for log, filed in logs.items()}
    for question in retrieval.judged_questions():
        for seq in question.seqs:
            assert texts[question.log].get(seq), f"{question.log} seq {seq}: {question.text}"


def test_the_tool_answers_no_fewer_judged_questions_than_before(
    retrieval: ModuleType, logs: dict[str, Any], tmp_path: Path
) -> None:
    """The share with an answer among the first five does not fall below the floor."""
    answered = retrieval.answers(logs, retrieval.judged_questions(), tmp_path, peers=False)
    share = retrieval.figures(answered, "ctx_search")["hit@5"]
    assert share >= FLOOR, f"hit@5 is {share:.3f}"


def test_an_answer_that_cannot_be_read_is_no_answer(retrieval: ModuleType) -> None:
    """The benchmark counts what the tool says it found, so that another format is noticed."""
    heading = "[session/s/finding seq 7] assistant, 4 chars\ntext\n→ call"
    assert retrieval.seqs_in(f"# 'q': 1 found, matched by all words\n\n{heading}") == [7]
    assert retrieval.seqs_in(f"# 'q': 3 found, by any\n\n{heading}\n\n[2 more; narrow]") == [7]
    assert retrieval.seqs_in("# 'q': nothing found (tried all words)") == []
    with pytest.raises(ValueError, match="2 results told, 1 read"):
        retrieval.seqs_in(f"# 'q': 2 found, matched by all words\n\n{heading}")
