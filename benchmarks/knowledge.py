"""What filing, indexing and searching cost beside bare SQLite, in one run on one machine.

Run: python benchmarks/knowledge.py [RECORDS]   (default 100,000 records are there beforehand)
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import apsw

from ctxarchive.knowledge.records import Record, SourceRef
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase
from ctxarchive.knowledge.store import Scope, SearchRequest

SPAN = 500
SPAN_BYTES = 2_000_000
SESSION_RECORDS = 1_000
COMMON = ["the", "file", "error", "return", "value", "test", "path", "line", "not", "import"]


def render(event: str, head: str) -> str:
    """The head and the JSON's text."""
    text: str = json.loads(event)["text"]
    return f"{head}\n{text}" if head else text


def words(source: random.Random) -> list[str]:
    """A vocabulary shaped like a coding log's: plain words, identifiers, paths."""
    plain = [
        "".join(source.choices("aeioulnrstdmkpgh", k=source.randint(3, 9))) for _ in range(8000)
    ]
    camel = ["".join(part.title() for part in source.sample(plain, 3)) for _ in range(1500)]
    snake = ["_".join(source.sample(plain, 2)) for _ in range(1500)]
    paths = ["src/" + "/".join(source.sample(plain, 3)) + ".py" for _ in range(500)]
    return [*plain, *camel, *snake, *paths]


def text_of(source: random.Random, vocabulary: list[str], size: int) -> str:
    """About ``size`` characters, a third of them common words, the rest by a heavy tail."""
    parts: list[str] = []
    length = 0
    while length < size:
        rank = min(len(vocabulary) - 1, int(source.paretovariate(0.6)))
        word = source.choice(COMMON) if source.random() < 0.3 else vocabulary[rank]
        parts.append(word + source.choice(["", "", "", ",", ".", "\n", " = ", "()"]))
        length += len(parts[-1]) + 1
    return " ".join(parts)


def records(
    source: random.Random, vocabulary: list[str], first: int, count: int, size: int
) -> Iterator[Record]:
    """Records in sessions of ``SESSION_RECORDS``."""
    for number in range(first, first + count):
        text = text_of(source, vocabulary, size)
        yield Record(
            session=f"session-{number // SESSION_RECORDS}",
            seq=number % SESSION_RECORDS,
            layer=source.choice(["constraint", "finding", "finding", "narrative"]),
            role="tool",
            event=json.dumps({"text": text}),
            text=text,
        )


def milliseconds(work: Callable[[], object]) -> float:
    """How long ``work`` takes."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def bare(folder: Path, spans: list[list[Record]]) -> tuple[float, float]:
    """The floors: the same bytes into one plain table, and the same text into one FTS5 table."""
    plain = apsw.Connection(str(folder / "plain.db"))
    plain.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
    plain.execute("CREATE TABLE r(key INTEGER PRIMARY KEY, event)")
    index = apsw.Connection(str(folder / "fts.db"))
    index.execute(
        "PRAGMA page_size = 16384; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL"
    )
    index.execute(
        "CREATE VIRTUAL TABLE t USING fts5(text, content = '', contentless_delete = 1,"
        " tokenize = 'unicode61 remove_diacritics 2')"
    )
    filing, indexing = [], []
    for place, span in enumerate(spans):
        keyed = [(place * SPAN + number, record) for number, record in enumerate(span)]

        def file(rows: list[tuple[int, Record]] = keyed) -> None:
            with plain:
                plain.executemany("INSERT INTO r VALUES (?, ?)", ((k, r.event) for k, r in rows))

        def fill(rows: list[tuple[int, Record]] = keyed) -> None:
            with index:
                index.executemany(
                    "INSERT INTO t(rowid, text) VALUES (?, ?)", ((k, r.text) for k, r in rows)
                )

        filing.append(milliseconds(file))
        indexing.append(milliseconds(fill))
    return statistics.median(filing), statistics.median(indexing)


def searches(
    archive: SqliteKnowledgeBase, source: random.Random, vocabulary: list[str], sessions: int
) -> dict[str, list[float]]:
    """Times of searches scoped to one session and layer, and archive-wide, by kind of query."""
    kinds: dict[str, Callable[[], str]] = {
        "rare word": lambda: source.choice(vocabulary[500:]),
        "common word": lambda: source.choice(COMMON),
        "five words": lambda: " ".join([*source.sample(COMMON, 2), *source.sample(vocabulary, 3)]),
        "nothing": lambda: f"nosuchword{source.randint(0, 999)}",
    }
    times: dict[str, list[float]] = {}
    for wide in (False, True):
        for kind, ask in kinds.items():
            for _ in range(20 if wide else 100):
                session = f"session-{source.randrange(sessions)}"
                scope = (
                    Scope()
                    if wide
                    else Scope(sources=(SourceRef(session=session, layer="finding"),))
                )
                request = SearchRequest(query=ask(), scope=scope)
                name = f"{'archive' if wide else 'session'}: {kind}"
                times.setdefault(name, []).append(milliseconds(partial(archive.search, request)))
    return times


def main() -> None:
    """Fill, file, index, get, search; print times and ratios."""
    total = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    total -= total % SESSION_RECORDS
    source = random.Random(7)  # noqa: S311 - the same texts in every run
    vocabulary = words(source)
    spans = [
        list(records(source, vocabulary, total + i * SPAN, SPAN, SPAN_BYTES // SPAN))
        for i in range(8)
    ]
    with tempfile.TemporaryDirectory() as name:
        floor_file, floor_index = bare(Path(name), spans)
        archive = SqliteKnowledgeBase.open(Path(name) / "a.db", render=render)
        for first in range(0, total, 5_000):
            archive.put(records(source, vocabulary, first, min(5_000, total - first), 1_000))
            archive.index_pending()
        filing, indexing = [], []
        for span in spans:
            filing.append(milliseconds(partial(archive.put, span)))
            indexing.append(milliseconds(archive.index_pending))
        filed, indexed = statistics.median(filing), statistics.median(indexing)
        print(f"archive of {total} records; a span of {SPAN} records, {SPAN_BYTES / 1e6:.0f} MB")
        print(
            f"filing    {filed:7.1f} ms (max {max(filing):.1f})  {filed / floor_file:4.2f} x bare inserts ({floor_file:.1f} ms)"
        )
        print(
            f"indexing  {indexed:7.1f} ms (max {max(indexing):.1f})  {indexed / floor_index:4.2f} x bare FTS5 ({floor_index:.1f} ms)"
        )
        gets = []
        for _ in range(500):
            number = source.randrange(total)
            session, seq = f"session-{number // SESSION_RECORDS}", number % SESSION_RECORDS
            gets.append(milliseconds(partial(archive.get, session, seq)))
        print(f"get       {statistics.median(gets):7.3f} ms, p95 {sorted(gets)[474]:.3f}")
        for kind, times in searches(archive, source, vocabulary, total // SESSION_RECORDS).items():
            ordered = sorted(times)
            print(
                f"search    {kind:24} p50 {ordered[len(ordered) // 2]:7.2f} ms  p95 {ordered[int(len(ordered) * 0.95)]:7.2f} ms"
            )
        stats = archive.stats()
        archive.close()
        size = sum(file.stat().st_size for file in Path(name).glob("a.*"))
        print(f"size      {size / stats.chars:.2f} x the text ({stats.chars / 1e6:.0f} MB)")


if __name__ == "__main__":
    main()
