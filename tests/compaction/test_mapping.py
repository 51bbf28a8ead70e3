"""The mapping of the seam's statements to tests cannot drift: every test it names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from ctxarchive.compaction.pruner import MARKER
from ctxarchive.session.repair import NOT_STARTED, STARTED

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    line
    for line in (ROOT / "docs" / "seam.md").read_text("utf-8").splitlines()
    if line.startswith("| ") and not line.startswith(("| statement", "|---"))
]


def test_every_behaviour_of_the_manual_path_has_a_row() -> None:
    """There are 31 of them."""
    page = (ROOT / "docs" / "seam.md").read_text("utf-8")
    manual = page.partition("## The manual path")[2].partition("\n## ")[0]
    assert manual.count("\n| ") - 1 == 31


@pytest.mark.parametrize("row", ROWS)
def test_every_row_names_a_test_that_is_there_or_a_reason(row: str) -> None:
    """As ``path::name``; a row without a test says why there is none."""
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", row)
    if not named:
        assert "no test: " in row
    for path, name in named:
        tree = ast.parse((ROOT / "tests" / path).read_text("utf-8"))
        found = {
            node.name if not isinstance(node, ast.Assign) else ast.unparse(node.targets[0])
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign)
        }
        assert name in found, f"{path} has no {name}"


@pytest.mark.parametrize("text", [MARKER, STARTED, NOT_STARTED])
def test_every_text_a_model_reads_is_shown_verbatim(text: str) -> None:
    """Inside a code block."""
    page = (ROOT / "docs" / "seam.md").read_text("utf-8")
    assert any(
        block.strip() == text.strip() for block in re.findall(r"(?ms)^```\n(.*?)^```$", page)
    )
