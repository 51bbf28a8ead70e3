"""The demo a newcomer runs first: it works, and shows what it promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def show(*arguments: str) -> str:
    """What the demo prints; it must not fail."""
    environment = {**os.environ, "COLUMNS": "120", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "show_demo.py"), *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_the_demo_shows_the_whole_job() -> None:
    """Context before and after, the checkpoint, two pointers followed, one search."""
    text = show("--full")
    assert "without compaction" in text
    assert "as the model sees it" in text
    assert "## Archive Index" in text
    assert text.count("the log's own words") == 2
    assert "matched by all words" in text
    assert "not what the log holds" not in text


def test_the_short_demo_says_where_the_rest_of_the_checkpoint_is() -> None:
    """An excerpt says so."""
    text = show()
    assert "more lines: .demo/checkpoint.md, or --full" in text
    assert (ROOT / ".demo" / "checkpoint.md").read_text("utf-8").startswith("This checkpoint")
