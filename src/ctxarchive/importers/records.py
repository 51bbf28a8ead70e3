"""The file below every format: decompressed, split into records, each with its line.

Decides what is damaged, cut off or empty. May not know what any format means.
"""

from __future__ import annotations

import json
import sys
import zlib
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ctxarchive.errors import LogFormatError
from ctxarchive.session.events import Origin

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_SUFFIXES = {"json", "jsonl", "ndjson", "gz", "zst", "zstd"}
_LARGEST = 1 << 53
"""No count and no time reaches this: a larger number says nothing."""

_CUT_OFF = "cut the last line off, or wait until the writer has finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One JSON object of a log."""

    path: Path
    line: int
    """1-based line of the file, or position in its list."""
    value: dict[str, Any]

    @property
    def origin(self) -> Origin:
        """Where the record stands, with the record's own id."""
        own = self.text("uuid") or self.text("id")
        return Origin(line=self.line) if own is None else Origin(line=self.line, id=own)

    def at(self, *keys: str) -> Any:
        """The value under a path of keys, ``None`` where the path ends early."""
        value: Any = self.value
        for key in keys:
            if not isinstance(value, dict):
                return None
            value = value.get(key)
        return value

    def text(self, *keys: str) -> str | None:
        """The text under a path of keys, ``None`` where there is none."""
        value = self.at(*keys)
        return value if isinstance(value, str) else None

    def number(self, *keys: str) -> int | None:
        """The whole number under a path of keys, ``None`` where there is none that can be."""
        value = self.at(*keys)
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= _LARGEST:
            return None
        return value

    def time(self, *keys: str) -> int | None:
        """The time under a path of keys in milliseconds, from ISO 8601 or a number."""
        return milliseconds(self.at(*keys))

    def invalid(self, what: str) -> LogFormatError:
        """The error that says what is wrong with this record."""
        return LogFormatError(
            "invalid",
            f"{self.path} line {self.line}: {what}; the log contradicts itself, mend or drop it",
            line=self.line,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """A file's content: records line by line, or one JSON document."""

    path: Path
    records: tuple[Record, ...] = ()
    document: Any = None
    """The decoded whole, where the file is one JSON value and not lines."""

    @property
    def stem(self) -> str:
        """The file's name without what tells its format: the id of a log that has none."""
        name = self.path.name
        while (end := name.rpartition("."))[0] and end[2] in _SUFFIXES:
            name = end[0]
        return name


def milliseconds(value: Any) -> int | None:
    """A timestamp as milliseconds since the epoch; ``None`` for anything else.

    Args:
        value: ISO 8601 text, or a number of milliseconds.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if 0 <= value < _LARGEST else None
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        return round(moment.timestamp() * 1000) if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def read_records(path: Path, *, finished: bool) -> LogFile:
    """Read a log's file, whatever its format.

    Args:
        path: plain, gzip or zstandard; told apart by their first bytes.
        finished: whether a cut-off end is an error, or simply not there yet.

    Raises:
        LogFormatError: ``missing``, ``not-a-file``, ``storage``, ``extra``, ``empty``,
            ``unknown``, ``damaged`` or ``truncated``.
    """
    data, whole = _decompress(path, _load(path))
    if not whole and finished:
        line = data.count(b"\n") + 1
        raise LogFormatError(
            "truncated",
            f"{path} line {line}: the compressed file ends early; copy it again, or wait until "
            "the writer has finished",
            line=line,
        )
    start = data.lstrip()[:1]
    if not start:
        raise LogFormatError("empty", f"{path}: the file is empty; give a log that holds messages")
    if start == b"[":
        return LogFile(path=path, document=_document(path, data))
    if start != b"{" and not data.startswith(b"\xef\xbb\xbf"):
        raise LogFormatError(
            "unknown",
            f"{path}: not a log that any importer knows; give JSON or JSON lines of an agent",
        )
    return _lines(path, data, finished=finished)


def _load(path: Path) -> bytes:
    try:
        if not path.exists():
            raise LogFormatError("missing", f"{path}: no such file; check the path")
        if not path.is_file():
            raise LogFormatError(
                "not-a-file",
                f"{path}: a folder; name the log inside it"
                if path.is_dir()
                else f"{path}: not a regular file; write the log to a file first",
            )
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise LogFormatError(
            "storage", f"{path}: {reason}; check that you may read the file"
        ) from error


def _decompress(path: Path, data: bytes) -> tuple[bytes, bool]:
    """The plain bytes, and whether the stream was whole."""
    if data.startswith(_GZIP):
        return _gunzip(path, data)
    if data.startswith(_ZSTD):
        return _unzstd(path, data)
    return data, True


def _gunzip(path: Path, data: bytes) -> tuple[bytes, bool]:
    parts: list[bytes] = []
    rest = data
    while rest.startswith(_GZIP):
        member = zlib.decompressobj(wbits=31)
        try:
            parts.append(member.decompress(rest))
        except zlib.error as error:
            raise _not_decodable(path, "gzip", error) from None
        if not member.eof:
            return b"".join(parts), False
        rest = member.unused_data
    return b"".join(parts), not rest.strip(b"\0")  # zeros pad, anything else is a cut-off member


def _unzstd(path: Path, data: bytes) -> tuple[bytes, bool]:
    try:
        import zstandard  # noqa: PLC0415  (an extra: only where such a file is read)
    except ImportError:
        raise LogFormatError(
            "extra",
            f"{path}: zstandard-compressed; install the extra: pip install ctxarchive[zstd]",
        ) from None
    parts: list[bytes] = []
    rest = data
    while rest.startswith(_ZSTD):
        frame = zstandard.ZstdDecompressor().decompressobj()
        try:
            parts.append(frame.decompress(rest))
        except zstandard.ZstdError as error:
            raise _not_decodable(path, "zstandard", error) from None
        if not frame.eof:
            return b"".join(parts), False
        rest = frame.unused_data
    return b"".join(parts), not rest.strip(b"\0")  # zeros pad, anything else is a cut-off member


def _not_decodable(path: Path, kind: str, error: Exception) -> LogFormatError:
    return LogFormatError(
        "damaged", f"{path}: not a whole {kind} file ({error}); copy it again from its source"
    )


def _document(path: Path, data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        if (reason := _beyond(error)) is not None:
            raise LogFormatError("damaged", f"{path}: {reason}; take that value out") from None
        line = getattr(error, "lineno", 1)
        at_end = getattr(error, "pos", 0) >= len(data.rstrip()) - 1 or "Unterminated" in str(error)
        if at_end:
            raise LogFormatError(
                "truncated",
                f"{path} line {line}: the JSON ends early ({error}); get the whole file, or wait "
                "until the writer has finished",
                line=line,
            ) from None
        raise LogFormatError(
            "damaged", f"{path} line {line}: not JSON ({error}); mend that line", line=line
        ) from None


def _lines(path: Path, data: bytes, *, finished: bool) -> LogFile:
    lines = data.split(b"\n")
    records: list[Record] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            if not records:
                document = _whole(data)
                if document is not None:
                    return LogFile(path=path, document=document)
            if (reason := _beyond(error)) is not None:
                raise _damaged(path, number, reason) from None
            if number == len(lines):
                if not finished:
                    break
                raise LogFormatError(
                    "truncated",
                    f"{path} line {number}: the last line is cut off ({error}); {_CUT_OFF}",
                    line=number,
                ) from None
            raise _damaged(path, number, f"not JSON ({error})") from None
        if not isinstance(value, dict):
            raise _damaged(path, number, "not a JSON object")
        records.append(Record(path=path, line=number, value=value))
    return LogFile(path=path, records=tuple(records))


def _whole(data: bytes) -> Any:
    """The file as one pretty-printed JSON document, or ``None``."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _beyond(error: Exception) -> str | None:
    """What of a value is more than can be read; ``None`` for what is no JSON at all."""
    if isinstance(error, RecursionError):
        return "not JSON that can be read: nested too deeply"
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return None
    digits = sys.get_int_max_str_digits()
    return f"not JSON that can be read: a whole number of more than {digits} digits"


def _damaged(path: Path, number: int, what: str) -> LogFormatError:
    return LogFormatError(
        "damaged",
        f"{path} line {number}: {what}; restore that line from a copy, or take it out",
        line=number,
    )
