"""The group of commands, and what every failure looks like.

A command's module is imported only when that command runs, so that ``--help`` stays fast.
"""

from __future__ import annotations

import sys
from importlib import import_module

import click

from ctxarchive.errors import CtxArchiveError

COMMANDS = {
    "compact": "Compact logs and show what each checkpoint keeps.",
    "search": "Search an archive.",
    "show": "Print one archived record, exactly.",
    "sessions": "List an archive's sessions.",
    "stats": "Say how large an archive is.",
    "verify": "Check an archive, and a log against it.",
}
"""Name and one-line help of every command."""


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


@click.group(
    cls=_Lazy,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Compaction that forgets nothing: files what leaves a context, and finds it again.",
)
@click.version_option(package_name="ctxarchive", prog_name="ctxarchive")
def app() -> None:
    """The command line."""


def run() -> None:
    """Run one command; an expected failure is one line on stderr and exit code 2."""
    try:
        code = app.main(prog_name="ctxarchive", standalone_mode=False)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("ctxarchive: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader has gone; closing stdout again would only complain about it.
        sys.stderr.close()
        sys.exit(1)
    except CtxArchiveError as error:
        click.echo(f"ctxarchive: {one_line(error)}", err=True)
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)


def one_line(error: BaseException) -> str:
    """An error's message on one line."""
    return " ".join(str(error).split()) or type(error).__name__
