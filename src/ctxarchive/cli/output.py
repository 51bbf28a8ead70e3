"""How commands print: JSON on stdout, progress on stderr and only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ctxarchive.session.jsontext import dump_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


def echo_json(value: Any) -> None:
    """One JSON value on one line of stdout."""
    write(dump_json(value) + "\n")


def write(text: str) -> None:
    r"""Exactly ``text`` on stdout as UTF-8; a lone surrogate goes out as its three bytes."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass"))
    sys.stdout.buffer.flush()


def console() -> Console:
    """Where tables go: stdout."""
    from rich.console import Console

    return Console(highlight=False)


@contextmanager
def progress() -> Iterator[Progress | None]:
    """A progress bar on stderr, or ``None`` where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield bar


def note(text: str) -> None:
    """One line for the person, on stderr."""
    click.echo(f"ctxarchive: {text}", err=True)
