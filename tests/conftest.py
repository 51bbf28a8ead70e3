"""What every test may use: hypothesis profiles and the folder of real logs.

No fixture here replaces a part of the package.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# No deadline anywhere: a slow machine is not a wrong program.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("dev", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Every asynchronous test runs under both event loops."""
    name = request.param
    assert isinstance(name, str)
    return name


@pytest.fixture(scope="session")
def logs_dir() -> Path:
    """The folder of real logs; without one the test is skipped."""
    folder = os.environ.get("CTXARCHIVE_LOGS")
    if not folder:
        pytest.skip("CTXARCHIVE_LOGS names no folder of real logs")
    path = Path(folder)
    assert path.is_dir(), f"CTXARCHIVE_LOGS: {path} is not a folder"
    return path


@pytest.fixture(scope="session")
def log_paths(logs_dir: Path) -> Callable[[str], list[Path]]:
    """Gives the files of the real logs that match a pattern, e.g. ``codex/*.jsonl``, sorted."""

    def find(pattern: str) -> list[Path]:
        found = sorted(path for path in logs_dir.glob(pattern) if path.is_file())
        assert found, f"no log in CTXARCHIVE_LOGS matches {pattern}"
        return found

    return find
