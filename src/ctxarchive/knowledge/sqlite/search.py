"""One question against the records: all words, then any of them, then substrings.

Candidates come from the index, and from a scan of what the index does not hold yet; a record is
judged by the same terms on both ways. ``bm25()`` is never called: it walks every row that holds a
word, whatever the scope.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final

from ctxarchive.errors import KnowledgeError
from ctxarchive.knowledge.folding import fold, plain
from ctxarchive.knowledge.passages import passages
from ctxarchive.knowledge.query import Document, ParsedQuery, Term, locate, parse, snippet
from ctxarchive.knowledge.ranking import Candidate, exactness, rank
from ctxarchive.knowledge.records import LAYERS, Kind, Record
from ctxarchive.knowledge.sqlite.connection import Row, Value
from ctxarchive.knowledge.sqlite.index import INJECTED, TABLES, Index, Stretch, ids_of
from ctxarchive.knowledge.sqlite.records import COLUMNS, KeyRange, Records, conditions
from ctxarchive.knowledge.store import Hit, Scope, SearchAnswer, SearchRequest, Tier

STRICT_CANDIDATES: Final = 200
"""The newest so many records of a range that hold every term are ranked."""
SPELT_CANDIDATES: Final = 1_000
"""Where none of those holds the query as it is spelt, so many are searched for one that does."""
LOOSE_CANDIDATES: Final = 100
"""The newest so many records of a range that hold a term, for each term."""
SCANNED_RECORDS: Final = 50_000
"""A substring scan goes no further back than this, in records."""
SCAN_SECONDS: Final = 1.0
"""Nor does it take longer than this."""
_SCAN_STEP: Final = 1_000


@dataclass(slots=True)
class _Question:
    """One search under way."""

    request: SearchRequest
    parsed: ParsedQuery
    ranges: list[KeyRange]
    attached: bool
    """Whether there is an index to ask."""
    scanned: list[tuple[Candidate, tuple[int, ...]]] = field(default_factory=list)
    """What is not indexed and holds any of the words: counted by loose terms, and by strict ones."""
    tried: list[str] = field(default_factory=list)


class Searcher:
    """Answers questions over one archive."""

    def __init__(self, records: Records, index: Index) -> None:
        self._records = records
        self._index = index

    def search(self, request: SearchRequest) -> SearchAnswer:
        """See ``KnowledgeBase.search``."""
        parsed = parse(request.query)
        connection = self._records.connection
        with connection.held():
            attached = self._index.attach(repair=True)
            with connection.reading():
                ranges = self._records.ranges(request.scope)
                question = _Question(request, parsed, ranges, attached)
                tier, hits = self._answer(question)
        return SearchAnswer(
            query=request.query, tier=tier, hits=tuple(hits), tried=tuple(question.tried)
        )

    def _answer(self, question: _Question) -> tuple[Tier, list[Hit]]:
        parsed = question.parsed
        if not parsed.needles and not parsed.terms:
            question.tried.append("nothing: the query is empty")
            return "none", []
        if not question.ranges or question.request.limit <= 0:
            question.tried.append("nothing: the scope is empty")
            return "none", []
        if parsed.terms:
            question.scanned = list(self._scan(question))
            question.tried.append(f"strict: all of {len(parsed.terms)}")
            required = (*parsed.phrases, *parsed.signs)
            if hits := self._hits(question, self._strict(question), required):
                return "strict", hits
        # A single chunk that is no word of the archive is more likely a part of one than several.
        single = len(parsed.needles) == 1
        if single and (hits := self._substrings(question)):
            return "substring", hits
        if len(parsed.loose) > 1:
            question.tried.append(f"any: one or more of {len(parsed.loose)}")
            if hits := self._hits(question, self._any(question), parsed.phrases):
                return "any", hits
        if not single and (hits := self._substrings(question)):
            return "substring", hits
        return "none", []

    # -- candidates

    def _strict(self, question: _Question) -> list[tuple[float, Candidate]]:
        terms = question.parsed.terms
        found = [
            _candidate(row, terms)
            for row in self._match(question, question.parsed.expression(), STRICT_CANDIDATES)
        ]
        if len(found) >= STRICT_CANDIDATES and (spelt := _as_in_json(question.parsed.spelt)):
            known = {candidate.key for candidate in found}
            found.extend(_candidate(row, terms) for row in self._older(question, spelt, known))
        found.extend(
            replace(candidate, counts=counts)
            for candidate, counts in question.scanned
            if any(counts)
        )
        whole = _holding_all(found, len(terms))
        found = [candidate for candidate in found if candidate.key in whole]
        return rank(found, [len(whole)] * len(terms))

    def _any(self, question: _Question) -> list[tuple[float, Candidate]]:
        terms = question.parsed.loose
        counts: dict[tuple[int, int], list[int]] = {}
        about: dict[tuple[int, int], Candidate] = {}
        for place, term in enumerate(terms):
            for row in self._match(question, term.expression(), LOOSE_CANDIDATES):
                candidate = _candidate(row, (term,))
                if candidate.counts[0]:
                    at = (candidate.key, candidate.start)
                    about[at] = candidate
                    counts.setdefault(at, [0] * len(terms))[place] = candidate.counts[0]
        for scanned, _ in question.scanned:
            about[scanned.key, scanned.start] = scanned
            counts[scanned.key, scanned.start] = list(scanned.counts)
        candidates = [replace(each, counts=tuple(counts[at])) for at, each in about.items()]
        frequency = [
            sum(1 for each in candidates if each.counts[place]) for place in range(len(terms))
        ]
        return rank(candidates, frequency)

    def _match(self, question: _Question, expression: str, most: int) -> Iterator[Row]:
        """Newest passages of the index that match: key, start, kind, counts of phrases."""
        if not question.attached:
            return
        for keys in question.ranges:
            source, condition, bindings = _scoped(question.request.scope, keys)
            for table in TABLES:
                yield from self._records.connection.all(
                    f"SELECT p.key, p.start, p.sort, phrase_counts({table}), '{table}'"
                    f" FROM search.{table} CROSS JOIN {source.format(table=table)}"
                    f" WHERE {table} MATCH :expression AND {table}.rowid BETWEEN :from AND :to"
                    f" AND {condition} ORDER BY {table}.rowid DESC LIMIT {most}",
                    {**bindings, "expression": expression},
                )

    def _older(self, question: _Question, spelt: str, found: Collection[int]) -> Iterator[Row]:
        """Passages of records that hold the query as it is spelt, where the newest hold its words."""
        if self._spelling(spelt, list(found)):
            return
        for keys in question.ranges:
            source, condition, bindings = _scoped(question.request.scope, keys)
            for table in TABLES:
                yield from self._records.connection.all(
                    "SELECT f.key, f.start, f.sort, f.counts, f.name FROM"
                    f" (SELECT p.key, p.start, p.sort, phrase_counts({table}) AS counts,"
                    f" '{table}' AS name FROM search.{table}"
                    f" CROSS JOIN {source.format(table=table)}"
                    f" WHERE {table} MATCH :expression AND {table}.rowid BETWEEN :from AND :to"
                    f" AND {condition} ORDER BY {table}.rowid DESC LIMIT {SPELT_CANDIDATES}) AS f"
                    " CROSS JOIN main.records AS e ON e.key = f.key"
                    " WHERE instr(e.event, :spelt) OR instr(e.head, :spelt) LIMIT :most",
                    {
                        **bindings,
                        "expression": question.parsed.expression(),
                        "spelt": spelt,
                        "most": question.request.limit,
                    },
                )

    def _scan(self, question: _Question) -> Iterator[tuple[Candidate, tuple[int, ...]]]:
        """What the index does not hold, judged by the terms themselves."""
        parsed = question.parsed
        for stretch in self._index.stretches(attached=question.attached):
            for key, kind, head, event in self._unindexed(question, stretch):
                for part in passages(self._records.readable(event, head)):
                    document = Document(fold(part.text))
                    counts = tuple(term.count(document) for term in parsed.loose)
                    if any(counts):
                        candidate = Candidate(
                            key=key,
                            kind=kind,
                            counts=counts,
                            length=document.length,
                            start=part.start,
                        )
                        yield candidate, tuple(term.count(document) for term in parsed.terms)

    def _unindexed(self, question: _Question, stretch: Stretch) -> Iterator[Row]:
        for keys in question.ranges:
            first, last = max(keys.first, stretch.first), min(keys.last, stretch.last)
            if first > last:
                continue
            within = KeyRange(first=first, last=last, layers=keys.layers)
            condition, bindings = conditions(question.request.scope, within)
            yield from self._records.connection.all(
                f"SELECT key, kind, head, event FROM main.records WHERE {condition}"
                " AND (:filing IS NULL OR filing = :filing)",
                {**bindings, "filing": stretch.filing},
            )

    # -- hits

    def _hits(
        self,
        question: _Question,
        ranked: Sequence[tuple[float, Candidate]],
        required: Sequence[str],
    ) -> list[Hit]:
        """The best candidates that hold literally what is required, exact ones first.

        Those that hold the query as it is spelt come before all that hold only its words, however
        many of those there are: ``./run`` before ``bin/run``, ``filePath`` before ``file_path``.
        """
        parsed = question.parsed
        limit = question.request.limit
        hits: list[tuple[bool, Hit]] = []
        looked = 0
        for score, candidate in ranked:
            if len(hits) >= 2 * limit + 5:
                break
            looked += 1
            hits.extend(self._hit(candidate, parsed, score, required))
        spelt_in_json = _as_in_json(parsed.spelt)
        if spelt_in_json and sum(spelt for spelt, _ in hits) < limit:
            rest = {candidate.key: (score, candidate) for score, candidate in ranked[looked:]}
            for key in self._spelling(spelt_in_json, list(rest)):
                score, candidate = rest[key]
                hits.extend(self._hit(candidate, parsed, score, required))
        lift = max((hit.score for spelt, hit in hits if not spelt), default=0.0)
        order = [
            replace(hit, score=hit.score + lift) if spelt and lift else hit for spelt, hit in hits
        ]
        return sorted(order, key=lambda hit: -hit.score)[:limit]

    def _hit(
        self, candidate: Candidate, parsed: ParsedQuery, score: float, required: Sequence[str]
    ) -> Iterator[tuple[bool, Hit]]:
        """A candidate's hit, and whether it is an original that holds the query as it is spelt."""
        record = self._record(candidate.key)
        text = plain(record.text)
        if all(literal in text for literal in required):
            spelt = bool(parsed.spelt) and parsed.spelt in record.text
            factor = exactness(text, parsed.needles)
            yield (
                spelt and record.kind == "original",
                _hit(record, parsed, score * factor, candidate.start),
            )

    def _spelling(self, spelt: str, keys: Sequence[int]) -> list[int]:
        """Which of some records hold a text as it is spelt."""
        rows = self._records.connection.all(
            "SELECT key FROM main.records WHERE key IN (SELECT value FROM json_each(:keys))"
            " AND (instr(event, :spelt) OR instr(head, :spelt)) ORDER BY key DESC",
            {"keys": json.dumps(keys), "spelt": spelt},
        )
        return [key for (key,) in rows]

    def _record(self, key: int) -> Record:
        """A record for showing; of one that cannot be rendered, its JSON as it stands."""
        row = self._records.connection.one(
            f"SELECT {COLUMNS} FROM main.records WHERE key = ?", (key,)
        )
        if row is None:
            raise KnowledgeError("corrupt", f"{self._index.path}: holds a record that is not filed")
        return self._records.record(row, lenient=True)

    def _substrings(self, question: _Question) -> list[Hit]:
        """The newest records whose text holds every chunk of the query, words or not."""
        parsed = question.parsed
        hits: list[Hit] = []
        looked = 0
        stop = time.monotonic() + SCAN_SECONDS
        for rows, passed in self._steps(question):
            looked += passed
            for key, head, event in rows:
                text = plain(self._records.readable(event, head))
                if all(needle in text for needle in parsed.needles):
                    record = self._record(key)
                    hits.append(_hit(record, parsed, exactness(text, parsed.needles)))
            done = len(hits) >= question.request.limit
            if done or looked >= SCANNED_RECORDS or time.monotonic() > stop:
                break
        question.tried.append(f"substring: the newest {looked} records of the scope")
        return hits[: question.request.limit]

    def _steps(self, question: _Question) -> Iterator[tuple[list[Row], int]]:
        """The scope newest first, in steps: rows that may hold the query, and how many passed."""
        connection = self._records.connection
        filters, anchors = _anchor_conditions(question.parsed.anchors)
        for keys in reversed(question.ranges):
            last = keys.last
            while last >= keys.first:
                lowest, passed = connection.all(
                    "SELECT min(key), count(*) FROM (SELECT key FROM main.records"
                    f" WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT {_SCAN_STEP})",
                    (keys.first, last),
                )[0]
                if not passed:
                    break
                step = KeyRange(first=lowest, last=last, layers=keys.layers)
                condition, bindings = conditions(question.request.scope, step)
                yield (
                    connection.all(
                        f"SELECT key, head, event FROM main.records WHERE {condition}{filters}"
                        " ORDER BY key DESC",
                        {**bindings, **anchors},
                    ),
                    passed,
                )
                last = lowest - 1


def _anchor_conditions(anchors: Sequence[str]) -> tuple[str, dict[str, str]]:
    """A cheap condition that whatever holds the query fulfils; JSON may spell letters as escapes."""
    named = {f"anchor{place}": f"%{anchor}%" for place, anchor in enumerate(anchors[:8]) if anchor}
    tests = [
        f" AND (event LIKE :{name} OR head LIKE :{name} OR instr(event, '\\u00'))" for name in named
    ]
    return "".join(tests), named


def _as_in_json(spelt: str) -> str:
    """A text as JSON holds it; empty where JSON may write it in several ways."""
    return spelt if json.dumps(spelt) == f'"{spelt}"' else ""


def _scoped(scope: Scope, keys: KeyRange) -> tuple[str, str, dict[str, Value]]:
    """One range of a scope, for passages: what to join, the condition on it, and its bindings.

    Records are joined only where times bound the scope: all else is told by the passage itself.
    """
    low, high = ids_of(keys.first, keys.last)
    timed = scope.after_time is not None or scope.before_time is not None
    condition, bindings = conditions(scope, keys, table="r" if timed else "p", layered=timed)
    if keys.layers is not None and not timed:
        places = ", ".join(str(LAYERS.index(layer)) for layer in sorted(keys.layers))
        condition += f" AND p.sort & {INJECTED - 1} IN ({places})"
    source = "search.passages AS p ON p.id = {table}.rowid"
    if timed:
        source += " CROSS JOIN main.records AS r ON r.key = p.key"
    return source, condition, {**bindings, "from": low, "to": high}


def _candidate(row: Row, terms: Sequence[Term]) -> Candidate:
    key, start, sort, packed, table = row
    kind: Kind = "original"
    if table == "derived":
        kind = "checkpoint"
    elif sort & INJECTED:
        kind = "injected"
    length = int.from_bytes(packed[-4:], "big")
    counts = tuple(packed[:-4])
    if len(counts) != len(terms):  # otherwise one phrase a term: its count is the term's
        ends = accumulate(term.phrases for term in terms)
        counts = tuple(
            sum(counts[end - term.phrases : end]) for term, end in zip(terms, ends, strict=True)
        )
    return Candidate(key=key, kind=kind, counts=counts, length=length, start=start)


def _holding_all(candidates: Sequence[Candidate], terms: int) -> set[int]:
    """The records that hold each of the terms, in one passage or another."""
    held: dict[int, int] = {}
    for each in candidates:
        bits = sum(1 << place for place, count in enumerate(each.counts) if count)
        held[each.key] = held.get(each.key, 0) | bits
    return {key for key, bits in held.items() if bits == (1 << terms) - 1}


def _hit(record: Record, parsed: ParsedQuery, score: float, start: int = 0) -> Hit:
    offset = locate(record.text, parsed, start)
    return Hit(
        session=record.session,
        seq=record.seq,
        layer=record.layer,
        kind=record.kind,
        role=record.role,
        name=record.name,
        time=record.time,
        chars=len(record.text),
        score=score,
        snippet=snippet(record.text, offset),
        offset=offset,
    )
