"""Bad input: one clear line on stderr, exit code 2, nothing lost and nothing changed."""

from __future__ import annotations

import ctypes
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00"
RESULT_WITHOUT_CALL = {
    "type": "user",
    "sessionId": "s",
    "uuid": "u",
    "message": {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "call-7", "content": "x"}],
    },
}


def refused(ran: Any, *parts: str) -> None:
    """One line on stderr that holds ``parts``, exit code 2, nothing on stdout."""
    assert ran.code == 2, ran
    assert ran.out == b""
    assert ran.err.startswith("ctxarchive: ")
    assert ran.err.endswith("\n")
    assert ran.err.count("\n") == 1, ran.err
    assert "Traceback" not in ran.err
    for part in parts:
        assert part in ran.err, ran.err


BAD_LOGS: dict[str, tuple[bytes | None, tuple[str, ...]]] = {
    "missing.jsonl": (None, ("no such file", "check the path")),
    "empty.jsonl": (b"", ("the file is empty", "give a log")),
    "blank.jsonl": (b"\n \n", ("the file is empty",)),
    "picture.png": (PNG, ("not a log that any importer knows", "give JSON")),
    "cut.jsonl": (
        b'{"type":"user","sessionId":"s","message":{"role":"user","content":"hi"}}\n{"type":"us',
        ("line 2", "the last line is cut off", "wait until the writer has finished"),
    ),
    "torn.jsonl": (
        b'{"type":"user","sessionId":"s","message":{"role":"user","content":"hi"}}\n{"ty\n{}\n',
        ("line 2", "not JSON", "restore that line"),
    ),
    "orphan.jsonl": (
        json.dumps(RESULT_WITHOUT_CALL).encode() + b"\n",
        ("line 1", "'call-7'", "mend or drop it"),
    ),
    "latin.jsonl": (
        b'{"type":"user","sessionId":"s","message":{"role":"user","content":"caf\xe9"}}\n{}\n',
        ("line 1", "not JSON", "utf-8"),
    ),
    "utf16.jsonl": ('{"type":"user"}\n'.encode("utf-16"), ("not a log that any importer knows",)),
    "other.json": (b'{"name":"package","version":"1.0"}\n', ("other.json",)),
    "cut.gz": (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xab", ("compressed file ends early",)),
}


@pytest.mark.parametrize("name", BAD_LOGS)
def test_a_bad_log_is_one_line(inside: Callable[..., Any], tmp_path: Path, name: str) -> None:
    """The line names the file, the place in it and what to do; no archive and no folder is made."""
    content, parts = BAD_LOGS[name]
    log, archive, out = tmp_path / name, tmp_path / "a.db", tmp_path / "out"
    if content is not None:
        log.write_bytes(content)
    refused(inside("compact", log, "--archive", archive, "--out", out, "--json"), str(log), *parts)
    assert not archive.exists()
    assert not out.exists()
    if content is not None:
        assert log.read_bytes() == content


def test_a_folder_is_no_log(cli: Callable[..., Any], tmp_path: Path) -> None:
    """Through a real process."""
    ran = cli("compact", tmp_path, "--archive", tmp_path / "a.db")
    refused(ran, str(tmp_path), "name the log inside it")
    assert not (tmp_path / "a.db").exists()


def test_a_log_cut_anywhere_in_its_last_line_is_refused_by_that_line(
    inside: Callable[..., Any], write_log: Callable[..., Path], tmp_path: Path
) -> None:
    """The number is the line's own."""
    whole = write_log().read_bytes()
    lines = whole.count(b"\n")
    cut = tmp_path / "cut.jsonl"
    for taken in (3, 40, 90):
        cut.write_bytes(whole[:-taken])
        refused(
            inside("compact", cut, "--archive", tmp_path / "a.db"), f"{cut} line {lines}: the last"
        )


def test_another_applications_database_is_left_as_it_was(
    cli: Callable[..., Any],
    inside: Callable[..., Any],
    write_log: Callable[..., Path],
    tmp_path: Path,
) -> None:
    """Byte for byte, whatever command it is given to, and nothing appears beside it."""
    foreign, log = tmp_path / "mail.db", write_log()
    with closing(sqlite3.connect(foreign)) as database:
        database.execute("CREATE TABLE mail(sender)")
        database.commit()
    before = foreign.read_bytes()
    commands: list[list[Any]] = [
        ["compact", log, "--archive", foreign, "--window", "4000"],
        ["search", foreign, "x"],
        ["show", foreign, "s", "1"],
        ["sessions", foreign],
        ["stats", foreign],
        ["verify", foreign, "--log", log],
        ["rebuild", foreign],
    ]
    for arguments in commands:
        refused(inside(*arguments), str(foreign), "an SQLite database, but not an archive")
    refused(cli(*commands[0]), "name another file")
    assert foreign.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir() if path != log) == ["mail.db"]


@pytest.mark.parametrize("content", [b"hello\n", b"hello, this is a letter\n" * 200, PNG])
def test_a_file_that_is_no_database_is_left_as_it_was(
    inside: Callable[..., Any], write_log: Callable[..., Path], tmp_path: Path, content: bytes
) -> None:
    """Also one so small that SQLite would take it for an empty database."""
    letter = tmp_path / "letter.txt"
    letter.write_bytes(content)
    for arguments in (
        ["compact", write_log(), "--archive", letter],
        ["search", letter, "x"],
        ["rebuild", letter],
    ):
        refused(inside(*arguments), str(letter), "not an SQLite database")
    assert letter.read_bytes() == content


def test_an_archive_of_a_later_version_is_left_alone(
    inside: Callable[..., Any], write_log: Callable[..., Path], tmp_path: Path
) -> None:
    """It says which schema it met and which it knows."""
    archive, log = tmp_path / "a.db", write_log()
    assert inside("compact", log, "--archive", archive).code == 0
    with closing(sqlite3.connect(archive)) as database:
        database.execute("PRAGMA user_version = 99")
        database.commit()
    refused(inside("compact", log, "--archive", archive), str(archive), "schema 99")


def test_an_absent_archive_is_not_made_by_reading(
    inside: Callable[..., Any], tmp_path: Path
) -> None:
    """Nor by rebuild."""
    absent = tmp_path / "absent.db"
    for arguments in (
        ["search", absent, "x"],
        ["show", absent, "s", "1"],
        ["sessions", absent],
        ["stats", absent],
        ["verify", absent],
        ["rebuild", absent],
    ):
        refused(inside(*arguments), f"{absent}: no such archive")
    assert not list(tmp_path.glob("absent*"))


def test_a_place_where_nothing_can_be_made_is_named(
    inside: Callable[..., Any], write_log: Callable[..., Path], tmp_path: Path
) -> None:
    """A folder that is a file, for the archive and for --out; both before any work."""
    log, file = write_log(), tmp_path / "file"
    file.write_text("mine", "utf-8")
    for below in ("a.db", "deep/a.db"):
        refused(inside("compact", log, "--archive", file / below), str(file), "is not a folder")
    for out in (file, file / "out"):
        ran = inside("compact", log, "--archive", tmp_path / "a.db", "--out", out)
        refused(ran, f"--out {out}", "not a folder")
    refused(inside("compact", log, "--archive", tmp_path), str(tmp_path), "is a folder")
    assert file.read_text("utf-8") == "mine"
    assert not (tmp_path / "a.db").exists()


def without_privileges() -> None:
    """Take from a child of root the right to write everywhere (Linux: prctl, PR_CAPBSET_DROP)."""
    if os.geteuid() == 0:
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="root gives up its privileges only on Linux")
def test_a_read_only_folder_is_named(
    cli: Callable[..., Any],
    write_log: Callable[..., Path],
    talk: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """For an archive to be made, one that is there, and --out; what is there still reads."""
    log, sealed = write_log(), tmp_path / "sealed"
    sealed.mkdir()
    archive = sealed / "a.db"
    assert cli("compact", log, "--archive", archive, "--window", "4000").code == 0
    before = archive.read_bytes()
    sealed.chmod(0o500)
    options = {"preexec_fn": without_privileges}
    try:
        refused(cli("compact", log, "--archive", sealed / "b.db", **options), "b.db", "written")
        more = write_log(talk("talk-2", usual=True), "more.jsonl")
        arguments = ["--archive", archive, "--window", "4000"]
        refused(cli("compact", more, *arguments, **options), "a.db", "written")
        arguments = ["--archive", tmp_path / "a.db", "--out", sealed]
        refused(cli("compact", log, *arguments, **options), f"--out {sealed}", "written")
        assert cli("search", archive, "parser", **options).code == 0
    finally:
        sealed.chmod(0o700)
    assert archive.read_bytes() == before


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that takes no files")
def test_a_folder_that_takes_no_files_is_named(
    inside: Callable[..., Any], write_log: Callable[..., Path], tmp_path: Path
) -> None:
    """For everybody, root included; nothing that was there is lost."""
    log = write_log()
    refused(inside("compact", log, "--archive", "/proc/self/a.db"), "/proc/self/a.db")
    refused(inside("compact", log, "--archive", "/proc/self/new/a.db"), "/proc/self/new")
    ran = inside("compact", log, "--archive", tmp_path / "a.db", "--out", "/proc/self/new")
    refused(ran, "--out /proc/self/new")
    assert inside("compact", log, "--archive", tmp_path / "a.db").code == 0


BAD_CONFIGS: dict[str, tuple[bytes | None, tuple[str, ...]]] = {
    "missing.toml": (None, ("No such file",)),
    "key.toml": (b"[compaction]\nretain_ration = 0.1\n", ("compaction.retain_ration", "did you")),
    "section.toml": (b"zzz = 1\n", ("zzz: unknown key; known are backend, estimator",)),
    "nested.toml": (
        b'[[compaction.model_policies]]\nprovider = "p"\nmodel = "m"\nqqq = 1\n',
        ("compaction.model_policies.0.qqq: unknown key; known are provider",),
    ),
    "not.toml": (b"this is not TOML\n", ("not TOML", "line 1")),
    "binary.toml": (b"\xff\xfe\x00", ("not UTF-8",)),
    "contrary.toml": (
        b"[compaction]\nretain_ratio = 0.9\n",
        ("compaction", "retain_ratio 0.9 is not below threshold_ratio 0.8"),
    ),
    "clip.toml": (b"[transcript]\nuser_clip_keep = 900\n", ("transcript", "user_clip_keep")),
    "type.toml": (b'[compaction]\nmax_tokens = "many"\n', ("compaction.max_tokens",)),
    "pair.toml": (b'[compaction]\nsummarization_model = "m"\n', ("go together",)),
    "choice.toml": (b'backend = "both"\n', ("backend", "'archive' or 'basic'")),
}


@pytest.mark.parametrize("name", BAD_CONFIGS)
def test_a_bad_config_is_one_line(
    inside: Callable[..., Any], write_log: Callable[..., Path], tmp_path: Path, name: str
) -> None:
    """The line names the file and the key; nothing is compacted."""
    content, parts = BAD_CONFIGS[name]
    config = tmp_path / name
    if content is not None:
        config.write_bytes(content)
    ran = inside("compact", write_log(), "--archive", tmp_path / "a.db", "--config", config)
    refused(ran, str(config), *parts)
    assert "Value error" not in ran.err
    assert not (tmp_path / "a.db").exists()


def test_a_tail_that_fills_the_window_is_refused(
    inside: Callable[..., Any], write_log: Callable[..., Path], tmp_path: Path
) -> None:
    """What only the window shows is refused when the window is known, and the log is named."""
    config, log = tmp_path / "tail.toml", write_log()
    config.write_text("[compaction]\nretain_tokens = 50000\n", "utf-8")
    arguments = ["--archive", tmp_path / "a.db", "--config", config, "--window", "4000"]
    refused(inside("compact", log, *arguments), str(log), "50000", "3200")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["compact"], ["LOGS", "see ctxarchive compact --help"]),
        (["compact", "x", "--window", "10"], ["--window", "1000"]),
        (["compact", "x", "--at", "noon"], ["--at", "'pressure', 'recorded', 'end'"]),
        (["compact", "x", "--summarizer", "recorded"], ["only with --at recorded"]),
        (["compact", "x", "--summarizer", "recorded", "--at", "end"], ["only with --at recorded"]),
        (["compact", "x", "--set", "backend"], ["--set 'backend'", "KEY=VALUE"]),
        (["compact", "x", "--set", "transcript.user_clip=1"], ["did you mean user_clip_"]),
        (["compact", "x", "--set", "compaction.auto.x=1"], ["auto is no section"]),
        (["compact", "x", "--set", "compaction.retain_ratio=0.9"], ["threshold_ratio 0.8"]),
        (["compact", "x", "--no-such"], ["--no-such", "see ctxarchive compact --help"]),
        (["search", "a.db"], ["QUERY", "see ctxarchive search --help"]),
        (["search", "a.db", "x", "--limit", "0"], ["--limit"]),
        (["show", "a.db", "s", "one"], ["'one'", "see ctxarchive show --help"]),
        (["no-such"], ["'no-such'", "see ctxarchive --help"]),
        (["--no-such"], ["--no-such", "see ctxarchive --help"]),
    ],
)
def test_bad_usage_is_one_line(
    inside: Callable[..., Any], arguments: list[str], parts: list[str]
) -> None:
    """With where to read what is right."""
    refused(inside(*arguments), *parts)


def test_a_name_cannot_make_a_second_line(cli: Callable[..., Any], tmp_path: Path) -> None:
    """Line breaks and escape sequences of a name are shown harmless, in a real process too."""
    ran = cli("compact", tmp_path / "two\nlines\x1b[31m\u202e.jsonl")
    refused(ran, r"two lines\x1b[31m\u202e.jsonl: no such file")


def test_a_failure_nobody_foresaw_is_one_line_too(env: dict[str, str]) -> None:
    """It says that it is a defect, and how to see where; exit code 1."""
    code = (
        "import sys, click, ctxarchive.cli.app as app\n"
        "@app.app.command('boom')\n"
        "def boom(): raise RuntimeError('two\\nlines')\n"
        "app.COMMANDS['boom'] = ''\n"
        "sys.modules['ctxarchive.cli.boom'] = type(sys)('boom')\n"
        "sys.modules['ctxarchive.cli.boom'].command = boom\n"
        "sys.exit(app.main(['boom']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith(
        "ctxarchive: unexpected RuntimeError: two lines; this is a defect"
    )
    assert done.stderr.count("\n") == 1
    shown = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**env, "CTXARCHIVE_TRACEBACK": "1"},
        check=False,
    )
    assert "Traceback" in shown.stderr


LINES = [
    json.dumps(RESULT_WITHOUT_CALL),
    '{"type":"user","sessionId":"s","uuid":"u","message":{"role":"user","content":"hi"}}',
    '{"type":"assistant","sessionId":"s","message":{"id":"m","role":"assistant","content":[]}}',
    '{"type":"session","format":"ctxarchive","version":1,"id":"x"}',
    '{"type":"session_meta","payload":{"id":"x"}}',
    '{"role":"user","content":"hi"}',
    '{"messages":[{"role":"tool","content":"x","tool_call_id":"c"}]}',
    "[" * 2_000,
    "null",
    "[]",
    "{}",
]


@given(
    parts=st.lists(
        st.one_of(st.sampled_from(LINES).map(str.encode), st.binary(max_size=40)), max_size=6
    ),
    glue=st.sampled_from([b"\n", b"", b"\r\n", b"\x00"]),
    cut=st.integers(0, 30),
)
@settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_garbage_never_gives_a_traceback(
    inside: Callable[..., Any], tmp_path: Path, parts: list[bytes], glue: bytes, cut: int
) -> None:
    """As a log, as an archive, as a config: done, or one line. Unforeseen errors are let through."""
    garbage = tmp_path / "garbage"
    content = glue.join(parts)
    content = content[: len(content) - cut] if cut < len(content) else content
    garbage.write_bytes(content)
    log = ["compact", garbage, "--backend", "basic", "--window", "1000", "--at", "end", "--json"]
    for arguments in (
        log,
        ["search", garbage, "x"],
        ["verify", garbage],
        [*log, "--config", garbage],
    ):
        ran = inside(*arguments)
        assert ran.code in {0, 2}
        assert ran.err.count("\n") == (1 if ran.code else 0)
    assert garbage.read_bytes() == content
