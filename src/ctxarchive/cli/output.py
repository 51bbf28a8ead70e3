"""How commands print: JSON and lines on stdout, notes and progress on stderr.

What a log or an archive says is shown without its control characters: a title must not be able to
move a terminal's cursor, nor make two lines of one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any

import click

from ctxarchive.session.jsontext import dump_json

_WIDE = 10_000
"""Columns where stdout is no terminal: nothing is folded that a program may read by line."""

_JOINERS = "\u200c\u200d"
"""Not printable by themselves, but parts of words and of emoji."""

Advance = Callable[[int], None]
"""Told how much of the work is done."""


def echo_json(value: Any) -> None:
    """One JSON value on one line of stdout."""
    write(dump_json(value) + "\n")


def write(text: str) -> None:
    r"""Exactly ``text`` on stdout as UTF-8; a lone surrogate goes out as its three bytes."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass"))
    sys.stdout.buffer.flush()


def line(text: str) -> None:
    """One line for the person, on stdout."""
    click.echo(plain(text))


def note(text: str) -> None:
    """One line for the person, on stderr; where that cannot be written, nobody can be told."""
    try:
        click.echo(f"ctxarchive: {' '.join(plain(text).split())}", err=True)
    except OSError:
        abandon(sys.stderr)


def abandon(stream: IO[str]) -> None:
    """Let what a stream still holds go nowhere: at exit it would be tried again, and fail again."""
    with suppress(OSError, ValueError):  # a stream without a file has nothing to be tried
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)


def plain(text: str) -> str:
    """``text`` on one line: a space for white space of any kind, escapes for what is unprintable."""
    return "".join(character if character.isprintable() else _told(character) for character in text)


def _told(character: str) -> str:
    if character.isspace():
        return " "
    if character in _JOINERS:
        return character
    return character.encode("unicode_escape").decode("ascii")


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int) -> None:
    """A table on stdout.

    Args:
        titles: of the columns.
        rows: cells, a row as long as ``titles``.
        texts: so many columns from the left are text, the others are numbers.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False)
    for place, title in enumerate(titles):
        made.add_column(title, justify="left" if place < texts else "right", overflow="fold")
    for row in rows:
        made.add_row(*(Text(plain(cell)) for cell in row))
    width = None if sys.stdout.isatty() else _WIDE
    Console(width=width, highlight=False, markup=False, emoji=False).print(made)


@contextmanager
def progress(name: str, total: int) -> Iterator[Advance | None]:
    """A progress bar on stderr while the body runs; ``None`` where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(escape(plain(name)), total=total)
        yield lambda done: bar.update(task, completed=done)
