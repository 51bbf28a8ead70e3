"""``ctxarchive verify``: what it finds, and what it lets pass."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from ctxarchive.archive.engine import ArchiveCompactionEngine
from ctxarchive.archive.opening import open_archive
from ctxarchive.compaction.engine import Routing
from ctxarchive.session.jsonl import write_session
from ctxarchive.session.log import Session


@pytest.fixture
def copy(compacted: Any, tmp_path: Path) -> Path:
    """A copy of the archive, to be damaged."""
    for path in compacted.archive.parent.glob("a.*db*"):
        shutil.copy(path, tmp_path / path.name)
    return tmp_path / "a.db"


@contextmanager
def sqlite(archive: Path) -> Iterator[sqlite3.Connection]:
    """The records' file as any SQLite tool opens it."""
    with closing(sqlite3.connect(archive)) as database:
        yield database
        database.commit()


def test_a_sound_archive_passes(cli: Callable[..., Any], compacted: Any) -> None:
    """With nothing, with the session's JSONL, with the source log: exit code 0 and the counts."""
    records = len(compacted.report["compactions"][0]["shadowed_seqs"])
    ran = cli("verify", compacted.archive, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json == {
        "archive": str(compacted.archive),
        "ok": True,
        "records": records,
        "compared": 0,
        "findings": [],
        "redacted": 0,
        "purged": 0,
    }
    for log in (compacted.stored, compacted.log):
        ran = cli("verify", compacted.archive, "--log", log)
        assert (ran.code, ran.err) == (0, "")
        said = f"{records} records, {records} compared with the log: no findings\n"
        assert ran.out.decode() == said


def findings(ran: Any) -> set[tuple[str, int | None]]:
    assert ran.code == 1
    assert ran.err == ""
    assert not ran.json["ok"]
    return {(finding["code"], finding["seq"]) for finding in ran.json["findings"]}


def test_a_missing_record_is_found(inside: Callable[..., Any], compacted: Any, copy: Path) -> None:
    """Against the session by its seq, against the source log by its line."""
    seq = compacted.report["compactions"][0]["shadowed_seqs"][5]
    with sqlite(copy) as database:
        database.execute("DELETE FROM records WHERE key & 4294967295 = ?", (seq,))
    assert ("missing", seq) in findings(inside("verify", copy, "--log", compacted.stored, "--json"))
    ran = inside("verify", copy, "--log", compacted.log, "--json")
    assert ("missing", None) in findings(ran)
    line = json.loads(compacted.stored.read_bytes().splitlines()[seq + 1])["origin"]["line"]
    told = [found["message"] for found in ran.json["findings"] if found["code"] == "missing"]
    assert told == [f"line {line} of the log: not archived"]


def test_a_changed_record_is_found(inside: Callable[..., Any], compacted: Any, copy: Path) -> None:
    """A single character of an event's JSON."""
    seq = compacted.report["compactions"][0]["shadowed_seqs"][0]
    with sqlite(copy) as database:
        database.execute(
            "UPDATE records SET event = replace(event, 'Please', 'Pleese')"
            " WHERE key & 4294967295 = ?",
            (seq,),
        )
    for log in (compacted.stored, compacted.log):
        found = findings(inside("verify", copy, "--log", log, "--json"))
        assert ("different", seq) in found
    lines = inside("verify", copy, "--log", compacted.stored).out.decode().splitlines()
    assert f"different {compacted.session!r} seq {seq}: differs from the log's event" in lines


def test_a_record_that_no_log_has_is_found(
    inside: Callable[..., Any], compacted: Any, copy: Path
) -> None:
    """The source log is all there is to a session."""
    seq = compacted.report["compactions"][0]["shadowed_seqs"][0]
    with sqlite(copy) as database:
        database.execute(
            "UPDATE records SET event = replace(event, '\"line\":1', '\"line\":9999')"
            " WHERE key & 4294967295 = ?",
            (seq,),
        )
    assert ("stray", seq) in findings(inside("verify", copy, "--log", compacted.log, "--json"))


def test_a_damaged_index_is_found_and_rebuilt(inside: Callable[..., Any], copy: Path) -> None:
    """Damage in the file, and a file that is no index; the records are not touched by it."""
    index = copy.with_name("a.search.db")
    whole = bytearray(index.read_bytes())
    middle = len(whole) // 2
    whole[middle : middle + 4_096] = b"\xff" * 4_096
    for damaged in (bytes(whole), b"no database at all" * 300):
        index.write_bytes(damaged)
        assert findings(inside("verify", copy, "--json"))
        assert inside("rebuild", copy).code == 0
        assert inside("verify", copy).code == 0


def test_damaged_records_are_found(inside: Callable[..., Any], copy: Path) -> None:
    """A page of the promise itself: exit code 1 or 2, one line, no traceback."""
    whole = bytearray(copy.read_bytes())
    half = len(whole) // 2 // 4_096 * 4_096
    whole[half : half + 12_288] = b"\xff" * 12_288
    copy.write_bytes(bytes(whole))
    ran = inside("verify", copy, "--json")
    assert ran.code in {1, 2}
    assert ran.err.count("\n") == ran.code - 1


def test_an_archive_without_an_index_passes(inside: Callable[..., Any], copy: Path) -> None:
    """The index can be made anew at any time; what is not indexed is searched by scanning."""
    copy.with_name("a.search.db").unlink()
    assert inside("verify", copy).code == 0
    assert inside("search", copy, "parser").code == 0


def test_a_log_that_the_archive_never_saw_is_refused(
    inside: Callable[..., Any],
    write_log: Callable[..., Path],
    talk: Callable[..., Any],
    compacted: Any,
) -> None:
    """It is not taken for one of which nothing had to be filed."""
    for session in ("elsewhere", "talk-1~0123abcd~x", "talk"):
        ran = inside("verify", compacted.archive, "--log", write_log(talk(session, usual=True)))
        assert (ran.code, ran.out) == (2, b"")
        assert "compact it into this archive first, or name the --session-id" in ran.err


def test_a_log_of_which_nothing_was_filed_passes(
    inside: Callable[..., Any], write_log: Callable[..., Path], tmp_path: Path
) -> None:
    """A replay leaves a trace of every log, also where no window was full."""
    log, archive = write_log(), tmp_path / "b.db"
    assert inside("compact", log, "--archive", archive, "--out", tmp_path / "o").code == 0
    (stored,) = (tmp_path / "o").glob("*.jsonl")
    for path in (log, stored):
        ran = inside("verify", archive, "--log", path)
        assert (ran.code, ran.out) == (0, b"0 records, 0 compared with the log: no findings\n")


def test_several_events_of_one_line_are_told_apart(
    inside: Callable[..., Any],
    write_log: Callable[..., Path],
    talk: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """Text around a result, and two equal calls answered in one record."""
    made = talk("lines")
    for _ in range(12):
        number = len(made.records)
        calls = [
            {
                "type": "tool_use",
                "id": f"{number}-{place}",
                "name": "Bash",
                "input": {"command": "date"},
            }
            for place in range(2)
        ]
        made.user("What time is it?")
        made.assistant(*calls)
        results = [
            {
                "type": "tool_result",
                "tool_use_id": call["id"],
                "content": f"{number} o'clock, {call['id']}. " * 30,
            }
            for call in calls
        ]
        words = [{"type": "text", "text": f"{word} {number}"} for word in ("before", "after")]
        content = [words[0], *results, words[1]]
        made.add("user", message={"role": "user", "content": content})
        made.assistant({"type": "text", "text": "Noted."})
    log, archive = write_log(made), tmp_path / "a.db"
    ran = inside("compact", log, "--archive", archive, "--at", "end", "--json")
    assert ran.json["compactions"]
    assert inside("verify", archive, "--log", log).code == 0


class Agent:
    """The owner of a session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.options = Routing(context_window=100_000)


def shortened_session() -> Session:
    """A session whose tool result was shortened."""
    session = Session.create("short")
    call = {"type": "tool-call", "id": "c", "name": "read", "arguments": "{}"}

    def result(text: str) -> dict[str, Any]:
        block = {
            "type": "tool-result",
            "toolCallId": "c",
            "content": [{"type": "text", "text": text}],
        }
        return {"message": {"role": "tool", "content": [block]}}

    session.append("turn/start", {"turn": 1})
    session.append(
        "user/message", {"content": [{"type": "text", "text": "Go."}]}, surface_op="append"
    )
    session.append(
        "assistant/message",
        {"message": {"role": "assistant", "content": [call]}},
        surface_op="append",
    )
    original = session.append("tool/result", result("a long text " * 500), surface_op="append")
    seqs = [original.seq]
    session.append(
        "compaction/prune",
        {
            "shadowedRange": {"start": seqs[0], "end": seqs[0]},
            "shadowedSeqs": seqs,
            "shadowedTokenCount": 1_500,
        },
    )
    session.append(
        "tool/result",
        result("a long text " * 200 + "[...]"),
        surface_op={"op": "replace", "startSeq": seqs[0], "endSeq": seqs[0]},
        source_event_seqs=seqs,
    )
    return session


def test_a_shortened_result_counts_by_its_original(
    inside: Callable[..., Any], tmp_path: Path
) -> None:
    """Nothing is owed while it is in view; once compacted, its original is, under its own seq."""
    session, archive, log = shortened_session(), tmp_path / "a.db", tmp_path / "short.jsonl"
    with open_archive(archive) as knowledge:
        knowledge.register(session.id)
        write_session(log, session)
        ran = inside("verify", archive, "--log", log)
        assert (ran.code, ran.out) == (0, b"0 records, 0 compared with the log: no findings\n")
        agent = Agent(session)
        engine = ArchiveCompactionEngine(knowledge)
        made = anyio.run(engine.compact_region, session.surface[0], session.surface[-1], agent)
        write_session(log, session)
    assert 3 not in made.shadowed_seqs
    assert inside("verify", archive, "--log", log).code == 0
    with sqlite(archive) as database:
        database.execute("DELETE FROM records WHERE key & 4294967295 = 3")
    assert ("missing", 3) in findings(inside("verify", archive, "--log", log, "--json"))


def test_damage_in_the_records_is_a_finding_and_no_refusal(
    cli: Callable[..., Any], copy: Path
) -> None:
    """The file is read as far as it goes; exit code 1, and one line that names it."""
    size = copy.stat().st_size
    with copy.open("r+b") as file:
        file.seek(size // 2)
        file.write(b"\xff" * (size // 4))
    ran = cli("verify", copy, "--json")
    assert ran.code == 1
    assert ran.json["ok"] is False
    assert {finding["code"] for finding in ran.json["findings"]} & {"records-damaged", "json"}
