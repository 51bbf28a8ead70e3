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
        print(  # noqa: T201 - nothing else is there to print with
            f"ctxarchive: {error.name} is missing; install it with: pip install 'ctxarchive[cli]'",
            file=sys.stderr,
        )
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
