"""The gate's own promises: what scripts/test says before it can do anything."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_an_old_python_is_named_in_one_line(tmp_path: Path) -> None:
    """Without Python 3.11 the gate says so at once, before it installs or checks anything."""
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.10.4" && exit 0\nexit 1\n')
    old.chmod(0o755)
    ran = subprocess.run(
        [ROOT / "scripts" / "test"],
        env={"PATH": f"{tmp_path}{os.pathsep}{os.defpath}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert ran.stderr == (
        "scripts/test: python3 on PATH must be Python 3.11 or newer (Python 3.10.4)\n"
    )
    assert ran.stdout == ""
