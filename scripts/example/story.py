"""The scripted model's moves for the example session, and what the user says.

Each turn is a generator: it yields a move and is sent what the tools answered, so that every
number in the prose is taken from a real output. Runs nothing itself.
"""

from __future__ import annotations

import re

from example import code
from example.moves import Moves, Say, User, bash, edit, find, read, todo

TESTS = "python -m pytest -q -p no:cacheprovider tests/test_session_stats.py"
SCRIPT = "scripts/session_stats.py"
ESCAPED = r"\u2028"
PASSED = r"(\d+ passed)"
INSERTIONS = r"(\d+ insertions?)"
SHARE = r"(\d+\.\d%)"
USER_LINE = r"^(user/message .*)$"
LINE_NUMBER = r"^(\d+):"
SEPARATORS = r"(\d+) separators"
LINES = r"(\d+) lines on disk"
EQUAL = r"equal: (\w+)"
SESSION_ERROR = r"^\S*(SessionError: .*)$"
EXIT = r"exit code: (\d+)"
FUNCTION_CALLS = r"(\d+) function calls"
WITHOUT = r"(\d+) without"
AFTER = r"^after (.*)$"
READ_TIME = r"^(read .*)$"
REPLAY_TIME = r"^(replay .*)$"
REFUSAL = r"(SessionError.*)$"
TEST_FILE = "tests/test_session_stats.py"


def look_around() -> Moves:
    """The task, its rules, and a first look."""
    yield User(
        "Hi. I want a small script, scripts/session_stats.py, that prints how many events of each "
        "type a stored session holds and how many of them are on the surface. Before you write "
        "anything, look at how src/ctxarchive/session is laid out and tell me which calls you "
        "would build on. Two rules: never touch src/ctxarchive/session/events.py, and add no new "
        "dependency."
    )
    log, files, sizes = yield Say(
        "I'll start with the history, the file list and the sizes of the session package.",
        bash("git log --oneline -15"),
        bash("git ls-files src tests scripts | head -120"),
        bash("wc -lc src/ctxarchive/session/*.py"),
    )
    newest, total = find(r"^(\w{7,})", log), find(r"(\d+)\s+\d+ total", sizes)
    surface, log_text = yield Say(
        f"HEAD is {newest}; the session package has {total} lines over "
        f"{files.count('src/ctxarchive/session/')} files. The two that matter for the counts are "
        "surface.py and log.py.",
        read("src/ctxarchive/session/surface.py"),
        read("src/ctxarchive/session/log.py"),
    )
    (jsonl,) = yield Say(
        f"surface.py is {surface.count(chr(10))} lines and pure; log.py ({log_text.count(chr(10))} "
        "lines) owns the list of events. Reading from disk is in jsonl.py.",
        read("src/ctxarchive/session/jsonl.py"),
    )
    yield Say(
        "",
        bash("grep -rn 'def replay\\|def read_session\\|def write_session' src/ctxarchive"),
        bash("grep -n 'python\\|dependencies' -A 12 pyproject.toml | sed -n 1,60p"),
    )
    codes = ", ".join(sorted(set(re.findall(r'SessionError\(\s*"(\w+)', jsonl))))
    yield Say(
        "Nothing written yet. I would build on two calls: `read_session(path)` in "
        "src/ctxarchive/session/jsonl.py, which returns a StoredSession with `.events` and "
        f"`.torn_line` (codes it raises: {codes}), "
        "and `StoredSession.replay()`, which gives a Session whose `.surface` has a length. "
        "Counter and argparse from the standard library are enough, so no dependency is added, "
        "and events.py stays as it is."
    )


def surface_question() -> Moves:
    """Why the surface stays in order after a replacement."""
    yield User(
        "Good. One question first: in a log I saw the surface as 0, 5, 3 and took it for a bug. "
        "Why does the surface stay in order after a replace, when the seqs plainly do not?"
    )
    grep, _ = yield Say(
        "Let me look at where positions are kept and try it.",
        bash("grep -n '_position\\|_generation\\|def ' src/ctxarchive/session/surface.py"),
        bash("cat tests/session/test_surface.py"),
    )
    (shown,) = yield Say(
        f"`_position` is indexed in {grep.count('_position[')} places. A direct try:",
        bash(code.SURFACE_TRY),
    )
    (refused,) = yield Say(
        f"The surface reads {find(AFTER, shown)}. And the other direction, which must be refused:",
        bash(code.SURFACE_REFUSED),
    )
    yield Say(
        "Not a bug. The surface is ordered by position, not by seq: `replace(1, 2, 4)` on "
        f"0, 1, 2, 3 gives {find(AFTER, shown)}, because seq 4 is the newest entry of the log "
        "but stands where 1 and 2 stood. Positions are renumbered from the first replaced place "
        "on, and `replace_generation` counts it. Whoever compares seqs to decide membership goes "
        f"wrong; `span()` goes by position and refuses a run out of order: {find(REFUSAL, refused)}"
    )


def first_version() -> Moves:
    """The script, its test with a bug, and the fix."""
    yield User(
        "Clear, thanks. Now write it. Plain text output, argparse, one line a type, the surface "
        "count last. With a test in tests/test_session_stats.py that writes a real session file."
    )
    yield Say(
        "Plan first, and the event classes once more before I rely on their names (read only).",
        todo(
            "~ scripts/session_stats.py, plain text",
            "- tests/test_session_stats.py on a real file",
            "- run the whole session suite",
            "- commit",
        ),
        read("src/ctxarchive/session/events.py"),
    )
    wrote, _ = yield Say(
        "Writing the script, and its test: a session of two messages of which a third replaces "
        "the first two.",
        edit(SCRIPT, code.SCRIPT_1),
        edit(TEST_FILE, code.TEST_1),
    )
    (failed,) = yield Say(f"{wrote.capitalize()}. Running the test.", bash(TESTS))
    error = find(r"^E\s+(\S*SessionError: .*)$", failed)
    yield Say(
        f"It fails, and in my test, not in the script: `{error}`. Let me see the check in log.py.",
        bash("grep -n 'does not cite' -B 8 -A 6 src/ctxarchive/session/log.py"),
    )
    _, passed = yield Say(
        "A replacement has to name every shadowed seq in `source_event_seqs`; my test left it out. "
        "Fixing the test.",
        edit(TEST_FILE, code.CITED, old=code.UNCITED),
        bash(TESTS),
    )
    (suite,) = yield Say(
        f"{find(PASSED, passed)}. Now the whole session suite, to be sure nothing else moved.",
        bash("python -m pytest -v -p no:cacheprovider tests/session"),
    )
    _, committed = yield Say(
        f"tests/session: {find(PASSED, suite)}.",
        bash("git status --short"),
        bash(
            "git add scripts tests && git commit -q -m 'scripts: count the events of a session' && git show --stat --format=%s HEAD"
        ),
    )
    yield Say(
        "",
        todo(
            "x scripts/session_stats.py, plain text",
            "x tests/test_session_stats.py on a real file",
            "x run the whole session suite",
            "x commit",
        ),
    )
    yield Say(
        f"Done and committed ({find(INSERTIONS, committed)}). The one failure on the way was "
        f"`{error}`: a replacement must cite all it shadows. The script prints one line a type "
        "with its share in percent, and the surface count last."
    )


def counts_only() -> Moves:
    """A correction: no percentages, and a rule for the tests."""
    yield User(
        "No, not percentages; always use plain counts, right-aligned, nothing else on the line. "
        "And never touch the existing tests under tests/session, whatever happens."
    )
    (before,) = yield Say("Let me see the present output on a real file.", bash(code.SAMPLE))
    _, after, tests = yield Say(
        f"The share is the last column ({find(SHARE, before)} for the first line). Taking it out.",
        edit(SCRIPT, code.PLAIN_LINE, old=code.PERCENT_LINE),
        bash(code.RUN_SAMPLE),
        bash(TESTS),
    )
    yield Say(
        "",
        bash("git commit -qam 'scripts: counts only' && git log --oneline -2"),
        bash("git status --short tests/session; git diff --stat HEAD~2 -- tests/session"),
    )
    yield Say(
        f"Counts only now, e.g. `{find(USER_LINE, after)}`; {find(PASSED, tests)}. "
        "tests/session is untouched: its diff against HEAD~2 is empty."
    )


def json_flag() -> Moves:
    """The --json flag, asked for in Chinese; a Japanese string in the test."""
    yield User(
        "请加上 --json 选项：输出必须只有一行 JSON，键名用英文并按字母顺序排序。"
        "不要改动默认的文本输出。测试里请放一段日文，确认非 ASCII 文本不会出问题。"
    )
    yield Say(
        "明白：`--json` 只输出一行，键按字母排序；默认输出保持不变。先看一下现在的脚本。",
        todo(
            "~ --json: one line, keys sorted",
            "- test with a Japanese text",
            "- default output unchanged",
        ),
        read(SCRIPT),
        bash("grep -rn 'ensure_ascii\\|sort_keys' src/ctxarchive/session"),
    )
    yield Say(
        "dump_json in events.py writes `ensure_ascii=False`; I only call json.dumps here and leave "
        "events.py alone.",
        edit(SCRIPT, code.JSON_LINES, old=code.TEXT_LINES),
        edit(SCRIPT, code.JSON_OPTION, old=code.PATH_OPTION),
        edit(SCRIPT, code.JSON_IMPORT, old="import argparse\n"),
        edit(TEST_FILE, code.TEST_JSON, old=code.TEST_END),
    )
    tests, shown, japanese, text = yield Say(
        "",
        bash(TESTS),
        bash(f"python {SCRIPT} --json sample.jsonl"),
        bash(f"grep -n '設定ファイル' {TEST_FILE}"),
        bash(code.RUN_SAMPLE),
    )
    yield Say(
        "",
        bash("git commit -qam 'scripts: --json' && git show --stat --format=%s HEAD"),
        todo(
            "x --json: one line, keys sorted",
            "x test with a Japanese text",
            "x default output unchanged",
        ),
    )
    yield Say(
        f"完成：`{shown}`。测试 {find(PASSED, tests)}；日文字符串在 {TEST_FILE} 第 "
        f"{find(LINE_NUMBER, japanese)} 行。默认输出不变（{text.count(chr(10)) + 1} 行）。"
    )


def line_separators() -> Moves:
    """A look through the whole package for a fault of a kind."""
    yield User(
        "Next: check the whole session package for anything that reads a log with str.splitlines() "
        "or universal newlines. U+2028 or U+0085 inside a text would break it there. Read all of "
        "it, don't just grep; you may grep as well."
    )
    whole, grep = yield Say(
        "Reading the package in one go.",
        bash("cat src/ctxarchive/session/*.py"),
        bash("grep -rn 'splitlines\\|newline\\|split(b\\|open(' src/ctxarchive/session"),
    )
    tried, tests = yield Say(
        f"{len(whole.encode())} bytes read; splitlines occurs {grep.count('splitlines')} times. The "
        'reader splits bytes at b"\\n". A try with every separator that str.splitlines knows:',
        bash(code.SEPARATORS),
        bash("cat tests/session/test_jsonl.py"),
    )
    yield Say(
        f"No such reader in the package: the file is read as bytes and split at 0x0A only, and JSON "
        f"escapes the 0x0A of a text. The try wrote {find(SEPARATORS, tried)} separators and "
        f"{find(LINES, tried)} lines came to disk, read back equal: "
        f"{find(EQUAL, tried)}. tests/session/test_jsonl.py holds the same as an example "
        f"(`\\u2028` occurs {tests.count(ESCAPED)} time(s) there)."
    )


def who_depends() -> Moves:
    """Which other rooms read the surface."""
    yield User(
        "And who else relies on the order of the surface? Name the files outside session/, and say "
        "whether one of them compares seqs where it should compare positions. Also check that our "
        "rule about layers holds: always import downwards, never from scripts into src."
    )
    files, contracts, upwards = yield Say(
        "",
        bash("git grep -c 'surface' -- src/ctxarchive ':!src/ctxarchive/session'"),
        bash("sed -n '/importlinter/,$p' pyproject.toml"),
        bash(
            "git grep -nE '^(from|import) (scripts|example)' -- src || echo 'no such import in src'"
        ),
    )
    names = [line.partition(":")[0] for line in files.splitlines()]
    uses, compared = yield Say(
        f"{len(names)} files outside session/ mention the surface. Reading those that use it most, "
        "and searching for comparisons of seqs.",
        bash(
            "cat $(git grep -c 'surface' -- src/ctxarchive ':!src/ctxarchive/session' "
            "| sort -t: -k2 -rn | head -3 | cut -d: -f1)"
        ),
        bash("git grep -nE 'seq *(<|>|<=|>=) ' -- src/ctxarchive | head -30; true"),
    )
    (messages,) = yield Say("", read("src/ctxarchive/session/messages.py"))
    lines = [line for line in compared.splitlines() if line.startswith("src/")]
    yield Say(
        f"{len(names)} files: {', '.join(names)}. The three I read ({uses.count(chr(10))} lines) "
        f"name `surface.position` {uses.count('surface.position')} times and `surface.span` "
        f"{uses.count('surface.span')} times. {len(lines)} lines in src compare a seq with < or >, "
        "all in the output above: that is right where the order of the log is meant. messages.py "
        f"({messages.count(chr(10))} lines) knows no surface. The contract in pyproject.toml lists "
        f"{contracts.count('[[tool.importlinter.contracts]]')} rules, and of imports from scripts: {upwards}."
    )


def exit_codes() -> Moves:
    """A correction of behaviour: exit code 2 and the path in the message."""
    yield User(
        "I just called it with a wrong path and got a traceback. Use exit code 2, not 1, for a "
        "file that is missing or damaged, and always name the path in the message, on stderr."
    )
    before, errors, _ = yield Say(
        "Reproducing it, and reading what SessionError carries.",
        bash(f"python {SCRIPT} absent.jsonl"),
        read("src/ctxarchive/errors.py"),
        read("tests/session/test_log.py"),
    )
    yield Say(
        f"Confirmed: `{find(SESSION_ERROR, before)}` as a traceback, exit code "
        f"{find(EXIT, before)}. SessionError is one of {errors.count('(CtxArchiveError)')} "
        "classes under CtxArchiveError and its message names the path already; catching the base "
        "is right here.",
        edit(SCRIPT, code.CATCH, old=code.NO_CATCH),
        edit(SCRIPT, code.SYS_IMPORT, old=code.JSON_ONLY_IMPORT),
        edit(SCRIPT, code.ERROR_IMPORT, old=code.JSONL_IMPORT),
    )
    absent, damaged = yield Say(
        "",
        bash(f"python {SCRIPT} absent.jsonl"),
        bash(
            f"(head -n 2 sample.jsonl; echo '{{broken'; tail -n 1 sample.jsonl) > bad.jsonl; python {SCRIPT} bad.jsonl"
        ),
    )
    _, tests = yield Say(
        "Both name the path. A test for each.",
        edit(TEST_FILE, code.TEST_ERRORS, old=code.TEST_JSON_END),
        bash(TESTS),
    )
    yield Say(
        "", bash("rm bad.jsonl; git commit -qam 'scripts: exit code 2'; git log --oneline -4")
    )
    yield Say(
        f"Exit code {find(EXIT, absent)} for both now. Missing: "
        f"`{absent.splitlines()[0]}`. Damaged: `{damaged.splitlines()[0]}`. {find(PASSED, tests)}."
    )


def how_fast() -> Moves:
    """A measurement."""
    yield User("How slow is it on a session of 20,000 events, and where does the time go?")
    made, profile = yield Say(
        "Making one and profiling the script on it.",
        bash(code.BIG),
        bash(
            f"python -m cProfile -s cumulative {SCRIPT} big.jsonl | grep -v 'importlib\\|built-in' | head -60"
        ),
    )
    (timed,) = yield Say(
        f"{made}. cProfile counts {find(FUNCTION_CALLS, profile)} function calls; it slows "
        "everything down, so the time once more without it, split in two.",
        bash(code.TIMED),
    )
    meter, pairing = yield Say(
        "Most is validation, as expected. Whether somebody else pays that on every read:",
        read("src/ctxarchive/metering/meter.py"),
        read("src/ctxarchive/session/pairing.py"),
    )
    yield Say(
        f"{find(READ_TIME, timed)}; {find(REPLAY_TIME, timed)}. Reading is pydantic "
        "validation of each line, once; the replay only walks the surface. My script calls "
        "read_session twice, which doubles the larger part: worth mending. meter.py "
        f"({meter.count(chr(10))} lines) and pairing.py ({pairing.count(chr(10))} lines) cache per event "
        "and do not read files."
    )


def read_once() -> Moves:
    """The double reading is mended, and recent changes are looked through."""
    yield User(
        "Then read the file once. After that look at what the last commits changed in jsonl.py and "
        "tell me whether our script depends on any of it. Keep counts() as a function, I import it."
    )
    _, tests, lint = yield Say(
        "",
        edit(SCRIPT, code.ONE_READ, old=code.TWO_READS),
        bash(TESTS),
        bash(f"ruff check --output-format concise {SCRIPT} {TEST_FILE}"),
    )
    history, _ = yield Say(
        f"{find(PASSED, tests)}; ruff says: {lint.splitlines()[-1]}",
        bash("git log -p -6 --format='%n%h %s' -- src/ctxarchive/session/jsonl.py"),
        read("tests/session/test_sink.py"),
    )
    changes = re.findall(r"^(\w{7,} .+)$", history, re.MULTILINE)
    used, _ = yield Say(
        f"{len(changes)} commits touch jsonl.py, the newest `{changes[0]}`. What we import from it:",
        bash(f"grep -n 'import\\|stored\\.' {SCRIPT}"),
        bash("git commit -qam 'scripts: read the file once'; git status --short"),
    )
    yield Say(
        f"The script reads once now; `counts(path)` keeps its name and answer. Of the {len(changes)} "
        "commits that touch jsonl.py it depends only on `read_session`, `.events`, and `.replay()` "
        f"({used.count('stored.')} uses of `stored`); the sink, its lock and its flush are not ours. "
        "sample.jsonl and big.jsonl are mine, untracked, and not committed."
    )


def last_wishes() -> Moves:
    """More than fits: some done, one begun, the rest open."""
    yield User(
        "Last things for today: accept .jsonl.gz too, a --by-turn table, and a paragraph about the "
        "script in the docs. Do them in this order and stop when --by-turn needs a decision from "
        "me; then list what is open. Still: counts only, keys sorted, events.py untouched."
    )
    yield Say(
        "",
        todo(
            "~ accept .jsonl.gz",
            "- --by-turn table",
            "- paragraph in docs/",
            "- remove sample.jsonl and big.jsonl",
        ),
        bash("grep -rn 'gzip\\|\\.gz' src/ctxarchive | head -20; ls docs 2>/dev/null"),
        bash("grep -n 'read_bytes\\|def read_session' src/ctxarchive/session/jsonl.py"),
    )
    yield Say(
        "read_session takes a path, not a stream, so the script unpacks into a temporary file.",
        edit(SCRIPT, code.GZIP_USE[0], old=code.GZIP_USE[1]),
        edit(SCRIPT, code.GZIP, old=code.NO_GZIP),
        *(
            edit(SCRIPT, new, old=old)
            for new, old in (code.GZIP_IMPORT, code.TEMP_IMPORT, code.STORED_IMPORT)
        ),
    )
    tests, zipped = yield Say(
        "",
        bash(TESTS),
        bash(f"gzip -k sample.jsonl && python {SCRIPT} --json sample.jsonl.gz"),
    )
    _, turns, _ = yield Say(
        f"gzip works ({find(PASSED, tests)}, `{zipped}`). For --by-turn: what an event says of its turn.",
        bash("git commit -qam 'scripts: .jsonl.gz'; git log --oneline -7"),
        bash("grep -n 'turn' src/ctxarchive/session/events.py src/ctxarchive/session/log.py"),
        read("tests/session/test_events.py"),
    )
    (without,) = yield Say(
        "",
        bash(code.TURNS),
    )
    yield Say(
        "",
        todo(
            "x accept .jsonl.gz",
            "~ --by-turn table: waits for a decision",
            "- paragraph in docs/",
            "- remove sample.jsonl and big.jsonl",
        ),
        bash(
            "git status --short; rm -f sample.jsonl.gz; git diff --stat HEAD~6 -- src/ctxarchive tests/session"
        ),
    )
    yield Say(
        "I stop here. Done: .jsonl.gz, committed. Begun: --by-turn. It needs your decision: "
        f"{turns.count('turn: int | None')} payload classes allow a turn of null and user "
        f"messages have none, so of the events of sample.jsonl {find(WITHOUT, without)} carry no turn "
        "number. Either they count for the turn that is open at their seq, or they get a line of "
        "their own. Open after that: the paragraph in docs/, and removing sample.jsonl and "
        "big.jsonl. Not touched, by the diff against HEAD~6: src/ctxarchive and tests/session."
    )


def story() -> Moves:
    """The whole session, turn by turn."""
    turns = (
        look_around,
        surface_question,
        first_version,
        counts_only,
        json_flag,
        line_separators,
        who_depends,
        exit_codes,
        how_fast,
        read_once,
        last_wishes,
    )
    for turn in turns:
        yield from turn()
