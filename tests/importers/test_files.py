"""The file below the formats: what cannot be read is named, with what to do about it."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from ctxarchive.errors import LogFormatError
from ctxarchive.importers.read import detect, read_log

LINE = json.dumps({"role": "user", "content": "hello"}).encode() + b"\n"


@pytest.mark.parametrize(
    ("content", "code", "line", "words"),
    [
        (b"", "empty", None, "empty"),
        (b" \n\n", "empty", None, "empty"),
        (b"\x89PNG\r\n\x1a\n\0\0", "unknown", None, "not a log"),
        (b"just words\n", "unknown", None, "not a log"),
        (b'{"a": 1}\n', "unknown", None, "no log that any importer knows"),
        (b"[1, 2]", "unknown", None, "no log that any importer knows"),
        (LINE + b"{oops}\n" + LINE, "damaged", 2, "line 2: not JSON"),
        (LINE + b"{oops}\n", "damaged", 2, "line 2: not JSON"),
        (LINE + b"5\n" + LINE, "damaged", 2, "not a JSON object"),
        (LINE + LINE[:-9], "truncated", 2, "cut the last line off, or wait"),
        (b'[{"role": "user", "content": "he', "truncated", 1, "ends early"),
        (b'[{"role": oops}, 5]', "damaged", 1, "not JSON"),
        (b'{"type":"user","message":{"content":"x"', "truncated", 1, "cut the last line off"),
        (LINE + b'{"role":"imp","content":"x"}\n', "invalid", 2, "role 'imp'"),
        (LINE + b"\xff\xfe\n" + LINE, "damaged", 2, "not JSON"),
        (LINE + b'{"role":"user","content":' + b"[" * 99999 + b"\n", "damaged", 2, "not JSON"),
        (b"\x1f\x8b\x08nonsense, not gzip at all", "damaged", None, "not a whole gzip file"),
    ],
)
def test_a_bad_file_is_one_line_with_its_name_the_line_and_the_way_out(
    tmp_path: Path, content: bytes, code: str, line: int | None, words: str
) -> None:
    """Every refusal has a closed code and names file, line and remedy in one line."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(content)
    with pytest.raises(LogFormatError) as caught:
        read_log(path)
    message = str(caught.value)
    assert (caught.value.code, caught.value.line) == (code, line)
    assert words in message
    assert message.startswith(str(path))
    assert "\n" not in message
    assert "; " in message


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path: Path) -> None:
    """A path that is not a file is refused for what it is."""
    for path, code in [(tmp_path / "none", "missing"), (tmp_path, "not-a-file")]:
        with pytest.raises(LogFormatError) as caught:
            read_log(path)
        assert caught.value.code == code
    with pytest.raises(LogFormatError):
        read_log(tmp_path / "nul\0byte")


def test_a_line_not_yet_written_is_no_error_in_a_log_being_written(tmp_path: Path) -> None:
    """With ``finished=False`` a cut-off end is simply not there."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(LINE + LINE[:-9])
    assert [
        item.type for item in read_log(path, finished=False).items if hasattr(item, "type")
    ] == [
        "turn/start",
        "user/message",
    ]
    assert detect(path) == "chat"
    path.write_bytes(LINE[:-9])
    with pytest.raises(LogFormatError, match="no whole line yet"):
        read_log(path, finished=False)


def two_members(data: bytes) -> bytes:
    return gzip.compress(data[: len(LINE)]) + gzip.compress(data[len(LINE) :])


def two_frames(data: bytes) -> bytes:
    pack = zstandard.ZstdCompressor().compress
    return pack(data[: len(LINE)]) + pack(data[len(LINE) :])


@pytest.mark.parametrize("pack", [gzip.compress, two_members, two_frames])
def test_compressed_logs_are_read_whatever_their_name(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    """Compression is told by the first bytes; several members are one file; a cut is an error."""
    plain, packed = tmp_path / "plain.jsonl", tmp_path / "packed.jsonl"
    data = LINE * 50
    plain.write_bytes(data)
    packed.write_bytes(pack(data))
    assert read_log(packed).items == read_log(plain).items
    packed.write_bytes(pack(data) + pack(data)[:1])
    with pytest.raises(LogFormatError, match="ends early"):
        read_log(packed)
    packed.write_bytes(pack(data)[:-4])
    with pytest.raises(LogFormatError) as caught:
        read_log(packed)
    assert caught.value.code == "truncated"
    assert len(read_log(packed, finished=False).items) <= len(read_log(plain).items)


def test_the_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without zstandard the message says what to install."""
    path = tmp_path / "log.jsonl.zst"
    path.write_bytes(two_frames(LINE))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(LogFormatError, match=r"pip install ctxarchive\[zstd\]") as caught:
        read_log(path)
    assert caught.value.code == "extra"


def test_the_files_name_begins_the_id_of_a_log_that_has_none(tmp_path: Path) -> None:
    """Only the endings that tell the format are cut from it; a hash of the beginning follows."""
    path = tmp_path / "talk.v1.5.jsonl.gz"
    path.write_bytes(gzip.compress(LINE))
    name = read_log(path).session_id
    assert name.startswith("talk.v1.5-")
    path.write_bytes(gzip.compress(LINE + LINE))
    assert read_log(path).session_id == name, "a list that grows stays the same session"
    other = tmp_path / "other" / path.name
    other.parent.mkdir()
    other.write_bytes(gzip.compress(LINE.replace(b"hello", b"good-bye")))
    assert read_log(other).session_id != name, "another conversation under the same name"
