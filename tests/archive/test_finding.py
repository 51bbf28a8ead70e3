"""What counts as a finding: examples, and agreement with labels given before the rule existed."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxarchive.archive.finding import states_finding

LABELS = Path(__file__).parent / "labels" / "assistant.jsonl"
GOAL = 0.85

FINDINGS = [
    "The suite took 209 s.",
    "Found it in src/auth/login.py, line 42.",
    "`save()` returns None when the file is locked. Let me look at the caller.",
    "The write failed with ENOSPC.",
    "There are 3 callers, so let me read each of them:",
    "The cause is a stale index: the cache isn't cleared after a merge.",
    "Looking at both functions, the helper is already shared.",
    "Let me sum up what changed:\n\n## Summary\n\n- `cache.py`: entries expire after 60 seconds",
    "I need the following details:\n\n1. Your name.\n2. Which card to charge: one holds $250.",
    "The port is 8473",
    "原因是缓存没有清除。",
    "测试失败，因为文件不存在。现在让我修复它。",
    "原因は設定ファイルの不足です。",
    "ファイルが見つかりませんでした。",
    "Der Test scheitert, weil die Datei fehlt.",
    "Die Ursache liegt an der alten Version.",
    "La prueba falla porque falta el archivo.",
    "Encontré la causa: el índice no existe.",
]

NARRATIVES = [
    "",
    " \n\t ",
    "👍",
    "Now let me read src/foo.py.",
    "Let me check `save()` at line 42 of src/store.py:",
    "Now update `tests/test_store.py`.",
    "Good catch. I'll fix the 3 callers in `store.py`.",
    "That gives me enough, so let me read `store.py` first.",
    "Now I also need to update `save()` in store.py.",
    "Lint passes. Now let me run the tests.",
    "Task 1 complete. Let me mark it and go on to Task 2:",
    "All clean, all committed.",
    "Now I need to:\n1. Create `Session` first\n2. Update main.py\n\nLet me find a good place:",
    "I need to look at these:\n\n- `store.py`\n- line 42 of `index.py`",
    "Next steps:\n1. `store.py` in two parts\n2. The tests of `index.py`",
    "To proceed, I'll need your user ID. Could you please provide it?",
    "Which option would you like?\n\n1. Change of plan\n2. Other reasons",
    "The truncation doesn't seem to work. Let me see why.",
    "现在让我读取 src/foo.py。",
    "接下来我将运行测试。",
    "設定ファイルを確認します。",
    "次に src/foo.py を見てみましょう。",
    "Ich werde jetzt src/foo.py lesen.",
    "Jetzt prüfe ich die Datei config.toml.",
    "Voy a leer src/foo.py.",
    "Ahora vamos a ejecutar las pruebas.",
]


@pytest.mark.parametrize("text", FINDINGS)
def test_a_message_that_asserts_something_learnt_is_a_finding(text: str) -> None:
    assert states_finding(text)


@pytest.mark.parametrize("text", NARRATIVES)
def test_a_message_that_only_announces_asks_or_reports_a_bare_status_is_narrative(
    text: str,
) -> None:
    assert not states_finding(text)


def test_a_finding_stays_one_when_the_next_action_is_announced_after_it() -> None:
    announced = "Let me look at the other callers next:"
    assert not states_finding(announced)
    assert states_finding(f"The limit is 8,192 bytes. {announced}")


@given(st.text(), st.text(alphabet="`|#-*1. :\n?让我Ilet'me"))
def test_any_text_is_decided_and_always_alike(one: str, other: str) -> None:
    for text in (one, other, one + other, f"{other}\n{one}"):
        assert states_finding(text) is states_finding(text)


@pytest.mark.parametrize(
    "unit",
    [
        " ",
        "a",
        "aA",
        "a/",
        "/",
        "_",
        "`",
        "``` ",
        "1",
        "now ",
        "i see ",
        "all tests pass ",
        "ok, ",
        "- ",
        "\n",
        "```\n",
        "#",
        ". ",
        "let me ",
        ", so ",
        "。",
        "確認",
        "looking at ",
        "\ud800",
        "\t",
        "*",
        "i see a ",
        "(",
        ",",
    ],
)
def test_a_megabyte_of_what_tempts_a_matcher_to_backtrack_is_decided(unit: str) -> None:
    """A structural check: a nested repetition would not return within the life of the run."""
    text = unit * (1_000_000 // len(unit))
    assert isinstance(states_finding(text), bool)


def test_what_follows_the_part_that_is_read_does_not_decide() -> None:
    """The bound that keeps a huge message cheap is stated, and is where it is stated to be."""
    announced = "Let me look. " * 800
    assert not states_finding(f"{announced}The port is 8473.")
    assert states_finding(f"{announced[: 13 * 700]}The port is 8473.")


def test_the_rule_agrees_with_the_labels_on_real_logs(capsys: pytest.CaptureFixture[str]) -> None:
    """Overall and on the odd lines, which the rule was not fitted on."""
    root = os.environ.get("CTXARCHIVE_LOGS")
    if not root:
        pytest.skip("CTXARCHIVE_LOGS names no folder of real logs")
    labels = [json.loads(line) for line in LABELS.read_text(encoding="utf-8").splitlines()]
    wanted = {label["log"] for label in labels}
    texts = {log: dict(_assistant_texts(Path(root) / log)) for log in wanted}
    counts: Counter[tuple[bool, str, str]] = Counter()
    for number, label in enumerate(labels, 1):
        text = texts[label["log"]][label["line"]]
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        assert digest[:16] == label["sha256"], f"{label['log']}:{label['line']} is another text"
        said = "finding" if states_finding(text) else "narrative"
        counts[number % 2 == 1, label["label"], said] += 1
    held_out = _agreement({key: n for key, n in counts.items() if key[0]})
    overall = _agreement(counts)
    with capsys.disabled():
        print(f"\nagreement: overall {overall:.3f}, held out {held_out:.3f}")  # noqa: T201
    assert len(labels) == 200
    assert overall >= GOAL
    assert held_out >= GOAL


def _agreement(counts: dict[tuple[bool, str, str], int]) -> float:
    agreed = sum(n for (_, label, said), n in counts.items() if label == said)
    return agreed / sum(counts.values())


def _assistant_texts(log: Path) -> Iterator[tuple[int, str]]:
    """Yield each assistant text and its line, read without the importers that others test."""
    raw = gzip.decompress(log.read_bytes()) if log.suffix == ".gz" else log.read_bytes()
    if log.suffix == ".json":
        entries = list(enumerate(json.loads(raw)))
    else:
        lines = raw.decode("utf-8").split("\n")
        entries = [(n, json.loads(line)) for n, line in enumerate(lines, 1) if line.strip()]
    for number, entry in entries:
        message = _message(entry)
        content = message.get("content") or []
        blocks = [content] if isinstance(content, str) else [b.get("text", "") for b in content]
        text = "\n".join(block for block in blocks if block.strip())
        if message.get("role") == "assistant" and text:
            yield number, text


def _message(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the message that an entry of any of the five formats wraps, or the entry itself."""
    for key in ("message", "payload", "data"):
        inner = entry.get(key)
        if isinstance(inner, dict):
            return _message(inner)
    return entry
