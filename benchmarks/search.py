"""How fast searches are at 10,000, 100,000 and 1,000,000 records, beside other engines.

Run: python benchmarks/search.py [RECORDS ...] [--peers NAMES] [--context-mode COMMAND] [--json]

One run builds the archive and, of the same texts, an FTS5 table ranked by ``bm25()``, a tantivy index
(where that package is installed) and a JSONL file for grep, and asks all of them the same queries.
Times are processor time of this process, which another program's work does not lengthen by waiting;
grep and context-mode are other programs, so theirs are elapsed time. Agreement is the share of the
ten best by full ``bm25()`` that are among our ten best, when only BM25 counts in our score.

context-mode (a package of npm) runs as it comes: COMMAND starts its server, which is asked through
its tools; it is given the first 10,000 records at most.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import random
import shlex
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast

import apsw

from ctxarchive.knowledge.ranking import Weights
from ctxarchive.knowledge.records import LAYERS, Record, SourceRef
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase
from ctxarchive.knowledge.store import Scope, SearchRequest

SESSION = 1_000
"""Records of a session."""
BATCH = 5_000
WORDS = 30_000
ASKED = 40
"""Queries of each class."""
MOST_FOR_CONTEXT_MODE = 10_000

Ask = Callable[[str], list[int]]


class Corpus:
    """Texts shaped like a log's: words by Zipf's law, some identifiers and paths among them."""

    def __init__(self, total: int) -> None:
        self.total = total
        source = random.Random(5)  # noqa: S311 - the same texts in every run
        plain = [
            "".join(source.choices("aeioulnrstdmkpgh", k=source.randint(3, 10)))
            for _ in range(WORDS)
        ]
        self.words = list(dict.fromkeys(plain))
        for place in range(50, len(self.words), 7):
            parts = source.sample(self.words[:3000], 2)
            self.words[place] = source.choice(
                ["_".join(parts), parts[0] + parts[1].title(), f"src/{'/'.join(parts)}.py"]
            )
        self._weights = list(
            itertools.accumulate(1 / (rank + 3) ** 1.05 for rank in range(len(self.words)))
        )

    def texts(self) -> Iterator[str]:
        """Every text, of 20 to 100 words."""
        source = random.Random(6)  # noqa: S311
        for _ in range(self.total):
            size = source.randint(20, 100)
            yield " ".join(source.choices(self.words, cum_weights=self._weights, k=size))

    def queries(self) -> dict[str, list[str]]:
        """What is asked, by class."""
        source = random.Random(7)  # noqa: S311
        some = [word for word in self.words if word.isalpha() and word.islower()]

        def of(first: int, last: int) -> str:
            return some[source.randrange(first, min(last, len(some)))]

        def five() -> str:
            rest = [some[min(len(some) - 1, int(10 ** source.uniform(1.7, 4.3)))] for _ in range(4)]
            return " ".join([of(0, 10), *rest])

        def phrase() -> str:
            return f'"{of(0, 30)} {of(0, 300)}"'

        asks: dict[str, Callable[[], str]] = {
            "rare word": lambda: of(5_000, 20_000),
            "medium word": lambda: of(100, 1_000),
            "common word": lambda: of(0, 20),
            "five, one common": five,
            "phrase": phrase,
            "prefix": lambda: f"{of(100, 5_000)[:5]}*",
            "substring": lambda: of(1_000, 9_000)[1:-1] + "q",
        }
        return {name: [ask() for _ in range(ASKED)] for name, ask in asks.items()}


def render(event: str, head: str) -> str:
    """The head and the JSON's text."""
    text: str = json.loads(event)["text"]
    return f"{head}\n{text}" if head else text


def batches(corpus: Corpus) -> Iterator[list[tuple[int, str]]]:
    """Numbered texts."""
    numbered = enumerate(corpus.texts())
    while batch := list(itertools.islice(numbered, BATCH)):
        yield batch


def build_ours(folder: Path, corpus: Corpus) -> SqliteKnowledgeBase:
    """The archive, filed and indexed."""
    archive = SqliteKnowledgeBase.open(folder / "a.db", render=render)
    for batch in batches(corpus):
        archive.put(
            [
                Record(
                    session=f"session-{number // SESSION}",
                    seq=number % SESSION,
                    layer=LAYERS[number % 3],
                    role="tool",
                    event=json.dumps({"text": text}),
                    text=text,
                )
                for number, text in batch
            ]
        )
        archive.index_pending()
    return archive


def ours(archive: SqliteKnowledgeBase, scope: Callable[[], Scope]) -> Ask:
    """Our search, within what ``scope`` says next."""

    def ask(query: str) -> list[int]:
        answer = archive.search(SearchRequest(query=query, scope=scope(), limit=10))
        return [int(hit.session.split("-")[1]) * SESSION + hit.seq for hit in answer.hits]

    return ask


def fts5(folder: Path, corpus: Corpus) -> Ask:
    """A contentless FTS5 table; any of the words, ranked by ``bm25()``."""
    base = apsw.Connection(str(folder / "fts.db"))
    base.execute("PRAGMA page_size = 16384; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL")
    base.execute("CREATE VIRTUAL TABLE t USING fts5(text, content = '', tokenize = 'unicode61')")
    for batch in batches(corpus):
        with base:
            base.executemany("INSERT INTO t(rowid, text) VALUES (?, ?)", batch)

    def ask(query: str) -> list[int]:
        match = query
        if not query.startswith('"'):
            words = (f'"{word.rstrip("*")}"{" *" * word.endswith("*")}' for word in query.split())
            match = " OR ".join(words)
        rows = base.execute(
            "SELECT rowid FROM t WHERE t MATCH ? ORDER BY bm25(t) LIMIT 10", (match,)
        )
        return [number for (number,) in rows]

    return ask


def by_bm25(index: Path) -> Ask:
    """Our own index, all of it ranked by ``bm25()``: what a choice of candidates may not lose."""
    base = apsw.Connection(str(index), flags=apsw.SQLITE_OPEN_READONLY)

    def ask(query: str) -> list[int]:
        rows = base.execute(
            "SELECT p.key FROM originals JOIN passages AS p ON p.id = originals.rowid"
            " WHERE originals MATCH ? ORDER BY bm25(originals) LIMIT 10",
            (" OR ".join(f'"{word}"' for word in query.split()),),
        )
        return [((key >> 32) - 1) * SESSION + (key & 0xFFFFFFFF) for (key,) in rows]

    return ask


def tantivy(folder: Path, corpus: Corpus) -> Ask:
    """A tantivy index on disk, asked by its own query parser."""
    engine: Any = importlib.import_module("tantivy")
    builder = engine.SchemaBuilder()
    builder.add_integer_field("number", stored=True)
    builder.add_text_field("text", stored=False)
    place = folder / "tantivy"
    place.mkdir()
    index = engine.Index(builder.build(), path=str(place))
    writer = index.writer(200_000_000, 1)
    for batch in batches(corpus):
        for number, text in batch:
            writer.add_document(engine.Document(number=number, text=text))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()

    def ask(query: str) -> list[int]:
        parsed = index.parse_query(query.replace("*", ""), ["text"])
        found = searcher.search(parsed, 10).hits
        return [searcher.doc(address)["number"][0] for _, address in found]

    return ask


def grep(folder: Path, corpus: Corpus) -> Ask:
    """``grep`` over JSONL, the first ten lines that hold any of the words."""
    file = folder / "log.jsonl"
    with file.open("w", encoding="utf-8") as out:
        for batch in batches(corpus):
            out.writelines(json.dumps({"n": number, "text": text}) + "\n" for number, text in batch)

    def ask(query: str) -> list[int]:
        words = [query.strip('"')] if query.startswith('"') else query.replace("*", "").split()
        given = [option for word in words for option in ("-e", word)]
        run = subprocess.run(
            ["grep", "-F", "-m", "10", *given, str(file)], capture_output=True, check=False
        )
        return [json.loads(line)["n"] for line in run.stdout.splitlines()]

    return ask


def context_mode(command: str, corpus: Corpus) -> Ask:
    """context-mode's server, by its tools ``ctx_index`` and ``ctx_search``."""
    server = subprocess.Popen(
        shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    to, back = cast("IO[str]", server.stdin), cast("IO[str]", server.stdout)
    number = itertools.count(1)

    def call(method: str, params: dict[str, Any]) -> Any:
        asked = next(number)
        to.write(json.dumps({"jsonrpc": "2.0", "id": asked, "method": method, "params": params}))
        to.write("\n")
        to.flush()
        for line in back:
            answer = json.loads(line)
            if answer.get("id") == asked:
                return answer.get("result", answer)
        raise RuntimeError("the server ended")

    call(
        "initialize",
        {
            "protocolVersion": "2024-11-05",
            "capabilities": {},
            "clientInfo": {"name": "benchmark", "version": "1"},
        },
    )
    to.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}) + "\n")
    to.flush()
    for place, text in enumerate(itertools.islice(corpus.texts(), MOST_FOR_CONTEXT_MODE)):
        arguments = {"content": f"# {place}\n\n{text}", "source": f"record-{place}"}
        call("tools/call", {"name": "ctx_index", "arguments": arguments})

    def ask(query: str) -> list[int]:
        answer = call("tools/call", {"name": "ctx_search", "arguments": {"queries": [query]}})
        return [1] if "record-" in json.dumps(answer) else []

    return ask


def times(ask: Ask, queries: Sequence[str], clock: Callable[[], float]) -> list[float]:
    """Milliseconds of each query, the second time it is asked by its class."""
    ask(queries[0])
    measured = []
    for query in queries:
        start = clock()
        ask(query)
        measured.append((clock() - start) * 1000)
    return measured


def run(
    total: int, peers: Sequence[str], command: str | None, *, agreement: bool
) -> dict[str, Any]:
    """Build and ask at one size."""
    corpus = Corpus(total)
    queries = corpus.queries()
    report: dict[str, Any] = {"records": total, "built_s": {}, "ms": {}}
    source = random.Random(8)  # noqa: S311

    def session() -> Scope:
        name = f"session-{source.randrange(total // SESSION)}"
        return Scope(sources=(SourceRef(session=name),))

    def layer() -> Scope:
        name = f"session-{source.randrange(total // SESSION)}"
        return Scope(sources=(SourceRef(session=name, layer="finding"),))

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def built(engine: str, make: Callable[[], Any]) -> Any:
            start = time.perf_counter()
            made = make()
            report["built_s"][engine] = round(time.perf_counter() - start, 1)
            return made

        archive = built("ctxarchive", lambda: build_ours(folder, corpus))
        engines: dict[str, tuple[Ask, Callable[[], float]]] = {
            "ctxarchive": (ours(archive, Scope), time.process_time),
            "ctxarchive, session": (ours(archive, session), time.process_time),
            "ctxarchive, session + layer": (ours(archive, layer), time.process_time),
        }
        makers: dict[str, Callable[[], Ask]] = {
            "fts5": lambda: fts5(folder, corpus),
            "tantivy": lambda: tantivy(folder, corpus),
            "grep": lambda: grep(folder, corpus),
        }
        for peer in peers:
            clock = time.perf_counter if peer == "grep" else time.process_time
            engines[peer] = (built(peer, makers[peer]), clock)
        if command:
            asked = built("context-mode", lambda: context_mode(command, corpus))
            engines["context-mode"] = (asked, time.perf_counter)
        for kind, asked_for in queries.items():
            report["ms"][kind] = {
                engine: quantiles(times(ask, asked_for, clock))
                for engine, (ask, clock) in engines.items()
            }
        gets = [
            milliseconds(lambda: archive.get(f"session-{source.randrange(total // SESSION)}", 7))
            for _ in range(500)
        ]
        report["ms"]["get"] = {"ctxarchive": quantiles(gets)}
        if agreement:
            plain = Weights(newest=0, elsewhere=0, exact=0)
            bm25 = SqliteKnowledgeBase.open(
                folder / "a.db", render=render, mode="ro", weights=plain
            )
            best, full = ours(bm25, Scope), by_bm25(folder / "a.search.db")
            shared = [
                len(set(found) & set(full(query))) / 10
                for query in queries["five, one common"]
                if len(found := best(query)) == 10  # fewer: records that hold all the words
            ]
            bm25.close()
            report["agreement"] = round(statistics.mean(shared), 3)
        stats = archive.stats()
        report["bytes_per_text"] = round((stats.record_bytes + stats.index_bytes) / stats.chars, 2)
        archive.close()
    return report


def milliseconds(work: Callable[[], object]) -> float:
    """How long ``work`` takes."""
    start = time.process_time()
    work()
    return (time.process_time() - start) * 1000


def quantiles(measured: Sequence[float]) -> tuple[float, float]:
    """Median and 95th percentile."""
    ordered = sorted(measured)
    return round(ordered[len(ordered) // 2], 2), round(ordered[int(len(ordered) * 0.95)], 2)


def show(report: dict[str, Any]) -> None:
    """The report as a table: p50 / p95 ms, and how many times as long the peer's p95 is."""
    print(f"\n{report['records']} records; built in (s): {report['built_s']}")
    print(
        f"both files {report['bytes_per_text']} x the text; agreement with bm25's ten best: "
        f"{report.get('agreement', 'not asked')}"
    )
    for kind, engines in report["ms"].items():
        print(kind)
        base = engines["ctxarchive"][1]
        for engine, (median, high) in engines.items():
            ratio = "" if engine.startswith("ctxarchive") else f"  x {high / max(base, 0.001):.2f}"
            print(f"  {engine:28} {median:9.2f} / {high:9.2f}{ratio}")


def main() -> None:
    """Build, ask and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--peers", default="fts5,tantivy,grep")
    parser.add_argument("--context-mode", dest="command")
    parser.add_argument("--no-agreement", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    peers = [name for name in given.peers.split(",") if name]
    for total in given.records:
        report = run(total, peers, given.command, agreement=not given.no_agreement)
        if given.json:
            print(json.dumps(report))
        else:
            show(report)


if __name__ == "__main__":
    main()
