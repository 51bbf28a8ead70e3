"""The package as a whole: its names, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ctxarchive


def test_every_public_name_is_there_and_documented() -> None:
    """``__all__`` is what can be had, and each of it says what it is."""
    assert sorted(ctxarchive.__all__) == ctxarchive.__all__
    for name in ctxarchive.__all__:
        assert getattr(ctxarchive, name).__doc__, name
    assert set(ctxarchive.__all__) <= set(dir(ctxarchive))


def test_an_unknown_name_is_an_attribute_error() -> None:
    """Nothing is invented."""
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        ctxarchive.nothing_of_the_kind  # noqa: B018 - the access is what is tested


def test_importing_the_package_loads_no_dependency() -> None:
    """The cost of the dependencies is paid where they are used."""
    code = (
        "import sys, ctxarchive\n"
        "heavy = {'pydantic', 'apsw', 'tiktoken', 'click', 'rich', 'anthropic', 'sqlite_utils'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
