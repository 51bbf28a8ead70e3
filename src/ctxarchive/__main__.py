"""The ``ctxarchive`` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; says what to install where its extra is missing."""
    try:
        from ctxarchive.cli.app import run  # noqa: PLC0415 - the message below needs to catch it
    except ModuleNotFoundError as error:
        if error.name not in {"click", "rich", "platformdirs"}:
            raise
        sys.exit(
            f"ctxarchive: {error.name} is missing; install it with: pip install 'ctxarchive[cli]'"
        )
    run()


if __name__ == "__main__":
    main()
