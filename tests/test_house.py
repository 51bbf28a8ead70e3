"""The shape of the tree: what the import contracts cannot say."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted((ROOT / "src").rglob("*.py"))
BANNED = {"utils", "util", "helpers", "common", "types", "misc"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_module_says_what_it_is_for_and_stays_small(path: Path) -> None:
    """A docstring, at most 500 lines, no function above 60, and a name that says something."""
    text = path.read_text("utf-8")
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "no docstring"
    assert len(text.splitlines()) <= 500
    assert path.stem not in BANNED
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 90, f"{node.name} is too long"


def test_no_tracked_file_names_a_machine_or_a_registry() -> None:
    """The project speaks of itself alone, and no lock file records where packages came from."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    names = listed.stdout.split()
    assert not [name for name in names if name.endswith((".lock", "package-lock.json"))]
    traces = [str(place) for place in (ROOT, Path.home()) if len(place.parts) > 2]
    traces += ["index-" + "url", "_resolved" + '": "http']
    for name in names:
        path = ROOT / name
        if path.is_file():
            text = path.read_bytes().decode("utf-8", "replace")
            assert not [trace for trace in traces if trace in text], name
