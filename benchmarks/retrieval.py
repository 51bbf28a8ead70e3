"""How well ``ctx_search`` finds what real logs hold, beside FTS5's own ranking and grep.

Run: CTXARCHIVE_LOGS=FOLDER python benchmarks/retrieval.py [--only judged|paraphrases|identifiers]
     [--half fit|held-out] [--semantic] [--misses] [--json]

Three sets of questions. The judged ones stand in ``tests/tools/judged``: what a model would ask its
archive later, with every event that answers, found by hand; most of them are asked in other words too. The identifiers are drawn from the logs
at run time: a token, and every event that holds it. All three engines are asked within the one
session; the peers get a table of that session alone, so that their statistics are its own. The tool
is asked as a model asks it, and what it prints is read as text.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import apsw

from ctxarchive.archive.history import history_of
from ctxarchive.archive.recording import record
from ctxarchive.archive.rendering import render
from ctxarchive.importers.playback import import_session
from ctxarchive.importers.read import read_log
from ctxarchive.integrations.semantic import static_embeddings
from ctxarchive.knowledge.records import Record
from ctxarchive.knowledge.semantic import SemanticModel
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase
from ctxarchive.tools.ctx_search import CtxSearchTool

JUDGED = Path(__file__).parent.parent / "tests" / "tools" / "judged"
LOGS = "CTXARCHIVE_LOGS"
HALVES = ("fit", "held-out")

REWORDED = "other words"

LIMIT = 10
DEPTHS = (1, 5, 10)

PER_CLASS = 50
"""Identifiers drawn of each class of rarity."""

RARITY = ((1, "in 1 event"), (5, "in 2-5"), (20, "in 6-20"), (sys.maxsize, "in more"))
"""The most events that hold an identifier of a class, and what the class is called."""

# A path, a name with inner capitals or underscores, a hash, a long number.
IDENTIFIER = re.compile(
    r"(?<![\w./-])(?:(?:[\w-]+/)+[\w-]+\.\w+|[a-z]+(?:[A-Z]\w*)+|[A-Z][a-z]+[A-Z]\w*"
    r"|[A-Za-z]\w*_\w+|(?=[a-f]*\d)[0-9a-f]{7,40}|\d{5,})(?![\w/-])"
)
LONGEST = 80

# As the tool heads a result: its source, its seq.
HEADING = re.compile(r"^\[[^\n]*?\bseq (\d+)\]", re.MULTILINE)
FOUND = re.compile(r": (\d+) found")
MORE = re.compile(r"^\[(\d+) more", re.MULTILINE)

Ask = Callable[[str], list[int]]
"""A query to the seqs of the records found, best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question, and every event that answers it."""

    log: str
    """Path within the folder of logs."""
    group: str
    """Kind of a judged question, or an identifier's class of rarity."""
    half: str
    """``fit`` or ``held-out``; empty for an identifier."""
    text: str
    seqs: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A question with the place of the first right answer, from 1 on; 0 where there is none."""

    question: Question
    places: Mapping[str, int]
    """By engine."""


def judged_sets(folder: Path = JUDGED) -> list[dict[str, Any]]:
    """The judged sets as they stand in their files."""
    return [json.loads((folder / f"{half}.json").read_text("utf-8")) for half in HALVES]


def judged_questions() -> Iterator[Question]:
    """Every judged question."""
    for judged in judged_sets():
        for log, entry in judged["logs"].items():
            for asked in entry["questions"]:
                yield Question(
                    log=log,
                    group=asked["kind"],
                    half=judged["half"],
                    text=asked["question"],
                    seqs=frozenset(asked["seqs"]),
                )


def paraphrased_questions() -> Iterator[Question]:
    """The judged questions in other words, as far as there are such."""
    said = json.loads((JUDGED / "paraphrases.json").read_text("utf-8"))
    for asked in judged_questions():
        if asked.text in said[asked.half]:
            yield replace(asked, group=REWORDED, text=said[asked.half][asked.text])


def records_of(path: Path) -> list[Record]:
    """What the archive engine files of a log whose own compactions are left out."""
    session = import_session(read_log(path), recorded=False)
    history = history_of(session)
    filed: list[Record] = []
    for seq in history.content:
        call = history.calls.get(seq)
        name, head = (None, "") if call is None else (call.name, call.line)
        made = record(session.id, session.event_at(seq), name=name, head=head)
        if made is not None:
            filed.append(made)
    return filed


def _order(*parts: str) -> bytes:
    """A place that is arbitrary and the same in every run."""
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "replace"), digest_size=8).digest()


def identifier_questions(logs: Mapping[str, Sequence[Record]]) -> list[Question]:
    """Identifiers of every log with the events that hold them, as many of each class of rarity."""
    classes: dict[str, list[Question]] = defaultdict(list)
    for log, records in logs.items():
        holders: dict[str, set[int]] = defaultdict(set)
        for filed in records:
            # A call's arguments are JSON as written: a line break is no letter of a name.
            for token in set(IDENTIFIER.findall(re.sub(r"\\[nrt]", " ", filed.text))):
                if len(token) <= LONGEST:
                    holders[token].add(filed.seq)
        for token, seqs in holders.items():
            group = next(name for most, name in RARITY if len(seqs) <= most)
            classes[group].append(
                Question(log=log, group=group, half="", text=token, seqs=frozenset(seqs))
            )
    chosen: list[Question] = []
    for _, group in RARITY:
        # Log by log in turn: the longest log does not drown the others.
        turns: dict[str, int] = defaultdict(int)
        keyed: list[tuple[int, bytes, Question]] = []
        for question in sorted(classes[group], key=lambda q: _order(q.log, q.text)):
            keyed.append((turns[question.log], _order(question.log, question.text), question))
            turns[question.log] += 1
        keyed.sort(key=lambda entry: entry[:2])
        chosen += [question for _, _, question in keyed[:PER_CLASS]]
    return chosen


def seqs_in(answer: str) -> list[int]:
    """The seqs of the results that the tool printed, in order.

    Raises:
        ValueError: when fewer can be read than the answer says there are.
    """
    found = FOUND.search(answer)
    seqs = [int(seq) for seq in HEADING.findall(answer)]
    more = MORE.search(answer)
    told = 0 if found is None else int(found[1])
    if len(seqs) + (0 if more is None else int(more[1])) < told:
        raise ValueError(f"{told} results told, {len(seqs)} read: {answer[:200]!r}")
    return seqs


def tool(knowledge: SqliteKnowledgeBase, session: str) -> Ask:
    """``ctx_search`` as the model of that session has it."""
    search = CtxSearchTool(knowledge, session=session)
    return lambda query: seqs_in(search.run({"queries": [query], "limit": LIMIT}))


def fts5(records: Sequence[Record]) -> Ask:
    """One FTS5 table, ``porter unicode61``: any of the words, ranked by ``bm25()``."""
    base = apsw.Connection(":memory:")
    base.execute("CREATE VIRTUAL TABLE t USING fts5(text, tokenize = 'porter unicode61')")
    base.executemany(
        "INSERT INTO t(rowid, text) VALUES (?, ?)", ((filed.seq, filed.text) for filed in records)
    )

    def ask(query: str) -> list[int]:
        words = [word.replace('"', "") for word in query.split() if re.search(r"\w", word)]
        match = " OR ".join(f'"{word}"' for word in words)
        rows = base.execute(
            "SELECT rowid FROM t WHERE t MATCH ? ORDER BY bm25(t) LIMIT ?", (match, LIMIT)
        )
        return [seq for (seq,) in rows]

    return ask


def grep(records: Sequence[Record]) -> Ask:
    """Records that hold any of the words somewhere: most words first, then the newest."""
    texts = [(filed.seq, filed.text.lower()) for filed in records]

    def ask(query: str) -> list[int]:
        words = {word.strip("?.,:!\"'()").lower() for word in query.split()} - {""}
        counted = ((sum(word in text for word in words), seq) for seq, text in texts)
        return [seq for _, seq in sorted((c for c in counted if c[0]), reverse=True)[:LIMIT]]

    return ask


def answers(
    logs: Mapping[str, Sequence[Record]],
    questions: Iterable[Question],
    folder: Path,
    *,
    peers: bool = True,
    semantic: SemanticModel | None = None,
) -> list[Answered]:
    """Ask every engine every question.

    Args:
        logs: the records of each log.
        questions: what to ask.
        folder: where the archive is made.
        peers: whether to ask the peers too.
        semantic: asked too, beside the words, where given.
    """
    answered: list[Answered] = []
    archive = folder / "archive.db"
    with ExitStack() as opened:
        knowledge = opened.enter_context(SqliteKnowledgeBase.open(archive, render=render))
        both = knowledge
        if semantic is not None:
            both = opened.enter_context(
                SqliteKnowledgeBase.open(archive, render=render, semantic=semantic)
            )
        for records in logs.values():
            knowledge.put(records)
        knowledge.index_pending()

        @functools.cache
        def engines(log: str) -> dict[str, Ask]:
            records = logs[log]
            ours: dict[str, Ask] = {"ctx_search": tool(knowledge, records[0].session)}
            if semantic is not None:
                ours["with meaning"] = tool(both, records[0].session)
            theirs = {"fts5 porter OR": fts5(records), "grep": grep(records)} if peers else {}
            return ours | theirs

        for question in questions:
            places: dict[str, int] = {}
            for name, ask in engines(question.log).items():
                found = ask(question.text)
                right = (at for at, seq in enumerate(found, 1) if seq in question.seqs)
                places[name] = next(right, 0)
            answered.append(Answered(question=question, places=places))
    return answered


def figures(answered: Sequence[Answered], engine: str) -> dict[str, float]:
    """Share of questions with a right answer among the first so many, and mean reciprocal rank."""
    places = [entry.places[engine] for entry in answered]
    shares = {
        f"hit@{depth}": sum(0 < place <= depth for place in places) / len(places)
        for depth in DEPTHS
    }
    return {**shares, "mrr": sum(1 / place for place in places if place) / len(places)}


def tables(answered: Sequence[Answered]) -> dict[str, list[Answered]]:
    """The answers by set, by half, and by group."""
    found: dict[str, list[Answered]] = defaultdict(list)
    for entry in answered:
        question = entry.question
        kind = "judged" if question.half else "identifiers"
        if question.group == REWORDED:
            kind = "paraphrases"
        found[kind].append(entry)
        if question.half:
            found[f"{kind}, {question.half}"].append(entry)
        if kind != "paraphrases":
            found[f"{kind}: {question.group}"].append(entry)
    return dict(sorted(found.items(), key=lambda item: item[0].replace(", ", " ")))


def as_json(answered: Sequence[Answered]) -> dict[str, Any]:
    """Every figure, and every question with the places of its first right answers."""
    return {
        "tables": {
            title: {
                "questions": len(entries),
                "engines": {engine: figures(entries, engine) for engine in entries[0].places},
            }
            for title, entries in tables(answered).items()
        },
        "questions": [
            {
                "log": entry.question.log,
                "question": entry.question.text,
                "group": entry.question.group,
                "half": entry.question.half,
                "seqs": sorted(entry.question.seqs),
                "places": dict(entry.places),
            }
            for entry in answered
        ],
    }


def show(answered: Sequence[Answered], *, misses: bool) -> None:
    """Print the tables, and what the tool does not find among its first five."""
    for title, entries in tables(answered).items():
        print(f"\n{title} ({len(entries)} questions)")
        print(f"  {'':16}" + "".join(f"{f'hit@{depth}':>8}" for depth in DEPTHS) + f"{'MRR':>8}")
        for engine in entries[0].places:
            values = figures(entries, engine).values()
            print(f"  {engine:16}" + "".join(f"{value:8.3f}" for value in values))
    if misses:
        print("\nnot among the first five of ctx_search (places, 0 is not among ten):")
        for entry in answered:
            if not 0 < entry.places["ctx_search"] <= 5:
                places = ", ".join(f"{name} {place}" for name, place in entry.places.items())
                print(f"  {entry.question.log}: {entry.question.text!r} ({places})")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--only", choices=("judged", "paraphrases", "identifiers"))
    parser.add_argument("--half", choices=HALVES, help="of the judged questions")
    parser.add_argument("--semantic", action="store_true", help="also by meaning (the extra)")
    parser.add_argument("--misses", action="store_true", help="list what is not found")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    root = os.environ.get(LOGS)
    if not root:
        print(f"skipped: {LOGS} names no folder of real logs", file=sys.stderr)
        return
    asked = [q for q in judged_questions() if options.half in {None, q.half}]
    logs = {log: records_of(Path(root) / log) for log in dict.fromkeys(q.log for q in asked)}
    questions = asked if options.only in {None, "judged"} else []
    if options.only in {None, "paraphrases"}:
        questions += [q for q in paraphrased_questions() if options.half in {None, q.half}]
    if options.only in {None, "identifiers"}:
        questions += identifier_questions(logs)
    semantic = static_embeddings() if options.semantic else None
    with tempfile.TemporaryDirectory() as folder:
        answered = answers(logs, questions, Path(folder), semantic=semantic)
    if options.json:
        print(json.dumps(as_json(answered), indent=2, ensure_ascii=False))
    else:
        show(answered, misses=options.misses)


if __name__ == "__main__":
    main()
