"""Many processes on one archive: nothing is lost, nothing else than the typed error, and all is sound."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxarchive.knowledge.records import Record
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase
from ctxarchive.knowledge.store import Selection

Make = Callable[..., Record]
Open = Callable[..., SqliteKnowledgeBase]

WORKER = """
import json, random, sys, time
from ctxarchive.errors import KnowledgeError
from ctxarchive.knowledge.records import Record
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase
from ctxarchive.knowledge.store import Scope, SearchRequest

def render(event, head):
    return json.loads(event)["text"]

def record(session, seq):
    text = f"word{seq} of {session} " + "some more of it " * (seq % 40)
    return Record(session=session, seq=seq, layer="finding", role="tool",
                  event=json.dumps({"text": text}), text=text)

path, name, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
chance = random.Random(name)
until = time.monotonic() + seconds
filed = searches = locked = 0
with SqliteKnowledgeBase.open(path, render=render) as archive:
    while time.monotonic() < until:
        try:
            if chance.random() < 0.5:
                archive.put([record(name, filed + n) for n in range(10)])
                filed += 10
                print(filed, flush=True)
            elif chance.random() < 0.3:
                archive.index_pending()
            else:
                other = f"w{chance.randrange(8)}"
                answer = archive.search(SearchRequest(query=f"word{chance.randrange(200)} {other}"))
                archive.range(Scope(), 5)
                searches += 1
        except KnowledgeError as error:
            if error.code != "locked":
                raise
            locked += 1
print(json.dumps({"filed": filed, "searches": searches, "locked": locked}), flush=True)
"""


def start(path: Path, name: str, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(path), name, str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def together(path: Path, open_archive: Open, seconds: float) -> list[dict[str, Any]]:
    """Eight processes for so long; what each says it did."""
    working = [start(path, f"w{number}", seconds) for number in range(8)]
    told = []
    for process in working:
        out, failed = process.communicate(timeout=seconds + 120)
        assert process.returncode == 0, failed
        told.append(json.loads(out.splitlines()[-1]))
    with open_archive(path) as archive:
        for number, did in enumerate(told):
            assert list(archive.archived(f"w{number}")) == list(range(did["filed"]))
        assert archive.verify() == []
        archive.index_pending()
        assert archive.verify() == []
    return told


def test_eight_processes_file_and_search_one_archive(path: Path, open_archive: Open) -> None:
    told = together(path, open_archive, 6)
    assert sum(did["filed"] for did in told) > 100
    assert sum(did["searches"] for did in told) > 20


@pytest.mark.slow
def test_eight_processes_for_two_minutes(path: Path, open_archive: Open) -> None:
    told = together(path, open_archive, 120)
    assert all(did["filed"] > 100 for did in told)


def killed(path: Path, open_archive: Open, rounds: int) -> None:
    """Kill a writer at a chance moment, so often; what it was told is kept is there each time."""
    chance = random.Random(7)  # noqa: S311
    for round_ in range(rounds):
        name = f"k{round_}"
        process = start(path, name, 60)
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(chance.uniform(0, 0.08))
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate(timeout=60)
        whole = [line for line in (first + rest).splitlines(keepends=True) if line.endswith("\n")]
        with open_archive(path) as archive:
            seqs = list(archive.archived(name))
            assert seqs == list(range(len(seqs)))
            assert len(seqs) >= int(whole[-1])
            assert archive.verify() == []


def test_a_writer_that_is_killed_leaves_a_sound_archive(path: Path, open_archive: Open) -> None:
    killed(path, open_archive, 5)


@pytest.mark.slow
def test_a_writer_that_is_killed_two_hundred_times(path: Path, open_archive: Open) -> None:
    killed(path, open_archive, 200)


def test_a_backup_taken_while_others_write_is_one_moment(path: Path, open_archive: Open) -> None:
    """Of every session the first so many records, and sound by itself."""
    open_archive(path).close()
    working = [start(path, f"w{number}", 4) for number in range(3)]
    for process in working:
        assert process.stdout is not None
        process.stdout.readline()
    copies = [path.with_name(f"copy{number}.db") for number in range(4)]
    with open_archive(path) as archive:
        for copy in copies:
            archive.backup(copy)
            time.sleep(0.2)
    for process in working:
        _, failed = process.communicate(timeout=60)
        assert process.returncode == 0, failed
    sizes = []
    for copy in copies:
        with open_archive(copy) as archive:
            assert archive.verify() == []
            for info in archive.sessions():
                seqs = list(archive.archived(info.session))
                assert seqs == list(range(len(seqs)))
            sizes.append(archive.stats().records)
            archive.index_pending()
            assert archive.verify() == []
    assert sizes == sorted(sizes)


def test_a_purge_while_others_write_takes_what_it_says(path: Path, open_archive: Open) -> None:
    open_archive(path).close()
    working = [start(path, f"w{number}", 4) for number in range(3)]
    for process in working:
        assert process.stdout is not None
        process.stdout.readline()
    with open_archive(path) as archive:
        for seq in range(4):
            done = archive.purge(Selection(sessions=("w0",), first_seq=seq, last_seq=seq))
            assert done.records == 1
    for process in working:
        _, failed = process.communicate(timeout=60)
        assert process.returncode == 0, failed
    with open_archive(path) as archive:
        archive.optimize()
        assert list(archive.purged("w0")) == [0, 1, 2, 3]
        assert next(iter(archive.archived("w0"))) == 4
        assert archive.verify() == []
        archive.index_pending()
        assert archive.verify() == []
