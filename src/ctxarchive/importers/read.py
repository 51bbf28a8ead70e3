"""The door of the room: a path in, an imported log out."""

from __future__ import annotations

from pathlib import Path

from ctxarchive.errors import LogFormatError
from ctxarchive.importers.chat import read_chat
from ctxarchive.importers.claude_code import read_claude_code
from ctxarchive.importers.codex import read_codex
from ctxarchive.importers.detect import format_of
from ctxarchive.importers.dsh import read_dsh
from ctxarchive.importers.log import ImportedLog, LogFormat
from ctxarchive.importers.pi import read_pi
from ctxarchive.importers.records import LogFile, read_records


def detect(path: Path) -> LogFormat:
    """Which format a file has.

    Raises:
        LogFormatError: as :func:`read_log`, but for ``invalid``; a cut-off end does no harm.
    """
    return format_of(read_records(path, finished=False))


def read_log(path: Path, *, finished: bool = True, sidechains: bool = False) -> ImportedLog:
    """Read a log of any known format.

    Args:
        path: plain, gzip or zstandard.
        finished: whether the log is at its end. If not, what its next lines could still change
            is left out: the items are then the beginning of what the whole log will give.
        sidechains: whether to read what Claude Code's subagents did in the same file, too.

    Raises:
        LogFormatError: the code says what is wrong with the file, the message names the line and
            what to do.
    """
    file = read_records(path, finished=finished)
    try:
        return _read(file, finished=finished, sidechains=sidechains)
    except RecursionError:
        raise LogFormatError(
            "invalid", f"{path}: nested too deeply to be a log; take that record out"
        ) from None


def _read(file: LogFile, *, finished: bool, sidechains: bool) -> ImportedLog:
    match format_of(file):
        case "claude-code":
            return read_claude_code(file, finished=finished, sidechains=sidechains)
        case "pi":
            return read_pi(file, finished=finished)
        case "codex":
            return read_codex(file, finished=finished)
        case "chat":
            return read_chat(file, finished=finished)
        case "dsh":
            return read_dsh(file, finished=finished, own=False)
        case "ctxarchive":
            return read_dsh(file, finished=finished, own=True)
