"""What the scripted model of the example session types: files, replacements and one-off commands.

Data only; nothing here is run but by the recording, in its temporary copy.
"""

from __future__ import annotations

_BUILD = """python - <<'PY'
from pathlib import Path
from ctxarchive.session.jsonl import write_session
from ctxarchive.session.log import Session
"""

SURFACE_TRY = """python - <<'PY'
from ctxarchive.session.surface import Surface
surface = Surface()
for seq in range(4):
    surface.append(seq)
print("before", surface.nodes)
print("shadowed", surface.replace(1, 2, 4))
print("after", surface.nodes)
print("positions", {seq: surface.position(seq) for seq in surface})
print("generation", surface.replace_generation)
PY"""

SURFACE_REFUSED = """python - <<'PY'
from ctxarchive.errors import SessionError
from ctxarchive.session.surface import Surface
surface = Surface()
for seq in (0, 4, 3):
    surface.append(seq)
try:
    surface.span(3, 4)
except SessionError as error:
    print(f"SessionError {error.code}: {error}")
print("span by position:", surface.span(4, 3))
PY"""

SCRIPT_1 = '''"""Counts the events of a stored session by type."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from ctxarchive.session.jsonl import read_session


def counts(path: Path) -> dict[str, int]:
    """Events by type, the most frequent first, and those on the surface last."""
    found = dict(Counter(event.type for event in read_session(path).events).most_common())
    found["surface"] = len(read_session(path).replay().surface)
    return found


def main() -> int:
    """Print the counts of one session."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    arguments = parser.parse_args()
    found = counts(arguments.path)
    total = sum(found.values()) - found["surface"]
    for name, count in found.items():
        print(f"{name:<24}{count:>8}{count / max(total, 1):>8.1%}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
'''

TEST_1 = '''"""scripts/session_stats.py on real session files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ctxarchive.session.jsonl import write_session
from ctxarchive.session.log import Session

SCRIPT = Path(__file__).parents[1] / "scripts" / "session_stats.py"


def _stored(folder: Path, text: str = "hello") -> Path:
    session = Session.create("stats")
    message = {"content": [{"type": "text", "text": text}]}
    for _ in range(2):
        session.append("user/message", message, surface_op="append")
    session.append(
        "user/message",
        message,
        surface_op={"op": "replace", "startSeq": 0, "endSeq": 1},
    )
    path = folder / "stats.jsonl"
    write_session(path, session)
    return path


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_types_are_counted_and_the_surface_comes_last(tmp_path: Path) -> None:
    """Three messages on the log, one of them on the surface."""
    lines = _run(str(_stored(tmp_path))).stdout.splitlines()
    assert lines[0].split()[:2] == ["user/message", "3"]
    assert lines[-1].split()[:2] == ["surface", "1"]
'''

UNCITED = """        surface_op={"op": "replace", "startSeq": 0, "endSeq": 1},
    )
"""
CITED = """        surface_op={"op": "replace", "startSeq": 0, "endSeq": 1},
        source_event_seqs=[0, 1],
    )
"""

RUN_SAMPLE = "python scripts/session_stats.py sample.jsonl"
SAMPLE = (
    _BUILD
    + """session = Session.create("sample")
for turn in range(1, 41):
    session.append("turn/start", {"turn": turn})
    message = {"content": [{"type": "text", "text": f"question {turn}"}]}
    session.append("user/message", message, surface_op="append")
    answer = {"role": "assistant", "content": [{"type": "text", "text": f"answer {turn}"}]}
    data = {"turn": turn, "step": 1, "message": answer}
    session.append("assistant/message", data, surface_op="append")
    session.append("turn/end", {"turn": turn})
write_session(Path("sample.jsonl"), session)
PY
"""
    + RUN_SAMPLE
)

PERCENT_LINE = """    total = sum(found.values()) - found["surface"]
    for name, count in found.items():
        print(f"{name:<24}{count:>8}{count / max(total, 1):>8.1%}")
"""
PLAIN_LINE = """    for name, count in found.items():
        print(f"{name:<24}{count:>8}")
"""

TEXT_LINES = PLAIN_LINE
JSON_LINES = """    if arguments.json:
        print(json.dumps(found, ensure_ascii=False, sort_keys=True))
        return 0
    for name, count in found.items():
        print(f"{name:<24}{count:>8}")
"""
PATH_OPTION = '    parser.add_argument("path", type=Path)\n'
JSON_OPTION = (
    PATH_OPTION
    + '    parser.add_argument("--json", action="store_true", help="one line, keys sorted")\n'
)
JSON_IMPORT = "import argparse\nimport json\n"
TEST_END = '    assert lines[-1].split()[:2] == ["surface", "1"]\n'
TEST_JSON_END = '    assert _run(str(path)).stdout.splitlines()[-1].split() == ["surface", "1"]\n'
TEST_JSON = (
    TEST_END
    + '''

def test_json_is_one_line_with_sorted_keys(tmp_path: Path) -> None:
    """Texts beyond ASCII do not matter, and the default output stays."""
    path = _stored(tmp_path, text="設定ファイルを読み込めません: /repo/設定.toml")
    assert _run("--json", str(path)).stdout == '{"surface": 1, "user/message": 3}\\n'
'''
    + TEST_JSON_END
)

SEPARATORS = (
    _BUILD
    + r"""from ctxarchive.session.jsonl import read_session
separators = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
session = Session.create("separators")
for separator in separators:
    text = f"left{separator}right"
    session.append("user/message", {"content": [{"type": "text", "text": text}]}, surface_op="append")
path = Path("separators.jsonl")
write_session(path, session)
back = read_session(path)
print(len(separators), "separators,", path.read_bytes().count(b"\n"), "lines on disk")
print("str.splitlines would have made", len(path.read_text("utf-8").splitlines()))
print("equal:", list(back.events) == list(session.events))
path.unlink()
PY"""
)

NO_CATCH = "    found = counts(arguments.path)\n"
CATCH = """    try:
        found = counts(arguments.path)
    except CtxArchiveError as error:
        print(error, file=sys.stderr)
        return 2
"""
JSON_ONLY_IMPORT = "import json\n"
SYS_IMPORT = "import json\nimport sys\n"
JSONL_IMPORT = "from ctxarchive.session.jsonl import read_session\n"
ERROR_IMPORT = "from ctxarchive.errors import CtxArchiveError\n" + JSONL_IMPORT
TEST_ERRORS = (
    TEST_JSON_END
    + '''

def test_a_missing_file_is_exit_code_2_and_named(tmp_path: Path) -> None:
    """No traceback: one line on stderr with the path."""
    ran = _run(str(tmp_path / "absent.jsonl"))
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.startswith(str(tmp_path / "absent.jsonl"))
    assert ran.stderr.count("\\n") == 1


def test_a_damaged_file_is_exit_code_2_and_names_the_line(tmp_path: Path) -> None:
    """Damage before the last line is no count of less."""
    path = _stored(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'{"seq":1', b"{broken", 1))
    ran = _run(str(path))
    assert ran.returncode == 2
    assert "line 3" in ran.stderr
'''
)

BIG = (
    _BUILD
    + """session = Session.create("big")
for number in range(10_000):
    message = {"content": [{"type": "text", "text": f"message {number} " + "word " * 40}]}
    session.append("user/message", message, surface_op="append")
    session.append("x/log-only", {"number": number})
write_session(Path("big.jsonl"), session)
print(f"big.jsonl: {len(session)} events, {Path('big.jsonl').stat().st_size} bytes")
PY"""
)

TIMED = """python - <<'PY'
import time
from pathlib import Path
from ctxarchive.session.jsonl import read_session
start = time.perf_counter()
stored = read_session(Path("big.jsonl"))
middle = time.perf_counter()
session = stored.replay()
end = time.perf_counter()
print(f"read {(middle - start) * 1000:.0f} ms for {len(stored.events)} events")
print(f"replay {(end - middle) * 1000:.0f} ms, {len(session.surface)} on the surface")
PY"""

TWO_READS = """    found = dict(Counter(event.type for event in read_session(path).events).most_common())
    found["surface"] = len(read_session(path).replay().surface)
    return found
"""
ONE_READ = """    stored = read_session(path)
    found = dict(Counter(event.type for event in stored.events).most_common())
    found["surface"] = len(stored.replay().surface)
    return found
"""

NO_GZIP = "def counts(path: Path)"
GZIP = """def _read(path: Path) -> StoredSession:
    if path.suffix != ".gz":
        return read_session(path)
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / path.stem
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        return read_session(plain)


def counts(path: Path)"""
GZIP_USE = ("    stored = _read(path)\n", "    stored = read_session(path)\n")
GZIP_IMPORT = ("import argparse\nimport gzip\n", "import argparse\n")
TEMP_IMPORT = ("import sys\nimport tempfile\n", "import sys\n")
STORED_IMPORT = (JSONL_IMPORT.replace("import ", "import StoredSession, "), JSONL_IMPORT)

TURNS = """python - <<'PY'
from collections import Counter
from pathlib import Path
from ctxarchive.session.jsonl import read_session
events = read_session(Path("sample.jsonl")).events
turns = Counter(getattr(event.data, "turn", None) for event in events)
print(len(events), "events,", turns[None], "without a turn number")
print({turn: count for turn, count in turns.items() if turn is not None and turn <= 5})
PY"""
