"""The group of commands, and what every failure looks like.

A command's module is imported only when that command runs, so that ``--help`` stays fast.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from ctxarchive.cli.output import abandon, note
from ctxarchive.errors import CtxArchiveError

COMMANDS = {
    "compact": "Compact logs and show what each checkpoint keeps.",
    "search": "Search an archive.",
    "show": "Print one archived record, exactly.",
    "sessions": "List an archive's sessions.",
    "pin": "Keep a message of the user in view.",
    "unpin": "Take the pin off a message.",
    "supersede": "Take a message of the user out of view.",
    "stats": "Say how large an archive is.",
    "verify": "Check an archive, and a log against it.",
    "rebuild": "Make an archive's search index anew.",
    "purge": "Delete records for good.",
    "export": "Write an archive's records as JSONL or CSV.",
    "backup": "Copy an archive while it is in use.",
    "optimize": "Make an archive's files as small as they can be.",
    "tune": "Try settings on logs, and recommend one.",
    "report": "Show a session's life as one HTML file.",
}
"""Name and one-line help of every command."""

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
"""Exit codes. ``FAILED``: nothing found, verification failed, some of several inputs failed, or the
output could not be written."""

TRACEBACK = "CTXARCHIVE_TRACEBACK"
"""Environment variable that lets an unexpected error show where it was raised."""


class _Lazy(click.Group):
    """A group that knows its commands' names and helps without loading them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"ctxarchive.cli.{cmd_name}")
        command = module.command
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # Told here: click itself would put an empty line before it.
            note("interrupted")
            ctx.exit(INTERRUPTED)


@click.group(
    cls=_Lazy,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Compaction that forgets nothing: files what leaves a context, and finds it again.",
)
@click.version_option(package_name="ctxarchive", prog_name="ctxarchive")
@click.pass_context
def app(ctx: click.Context) -> None:
    """The command line."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(BAD_INPUT)


def run() -> None:
    """Run the command that the process was started with, and exit."""
    sys.exit(main())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; a failure is one line on stderr.

    Args:
        arguments: the command and its arguments; the process's own where ``None``.

    Returns:
        The exit code.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Text for people only: what a terminal's encoding lacks is shown escaped.
            stream.reconfigure(errors="backslashreplace")
    given = None if arguments is None else list(arguments)
    try:
        code = app.main(given, prog_name="ctxarchive", standalone_mode=False)
        _finish_output()
    except click.UsageError as error:
        note(_usage(error))
        return BAD_INPUT
    except click.ClickException as error:
        note(error.format_message())
        return BAD_INPUT
    except (click.Abort, KeyboardInterrupt):
        note("interrupted")
        return INTERRUPTED
    except CtxArchiveError as error:
        note(str(error) or type(error).__name__)
        return BAD_INPUT
    except OSError as error:
        return _refused(error)
    except Exception as error:  # one line, whatever it is
        if os.environ.get(TRACEBACK):
            raise
        note(
            f"unexpected {type(error).__name__}: {error}; this is a defect, set {TRACEBACK}=1 to "
            "see where"
        )
        return FAILED
    return code if isinstance(code, int) else DONE


def _finish_output() -> None:
    """Write what stdout still holds, while a failure can be told."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.flush()


def _usage(error: click.UsageError) -> str:
    """What is wrong with a command line, and where to read what is right."""
    path = "ctxarchive" if error.ctx is None else error.ctx.command_path
    told = error.format_message().rstrip(".")
    if isinstance(error, click.NoSuchOption):
        told += "; an argument that begins with - goes behind --"
    return f"{told}; see {path} --help"


def _refused(error: OSError) -> int:
    """Tell what the file system refused; an error without a file's name is of the output."""
    if error.filename:
        note(f"{error.filename}: {error.strerror}")
        return BAD_INPUT
    if not isinstance(error, BrokenPipeError):  # a reader that has enough is told nothing
        note(f"the output cannot be written: {error.strerror or error}")
    abandon(sys.stdout)
    return FAILED
