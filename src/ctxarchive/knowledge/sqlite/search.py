"""One question against the records: all words, then any of them, then substrings.

Candidates come from the index, and from a scan of what the index does not hold yet; a record is
judged by the same terms on both ways. ``bm25()`` is never called: it walks every row that holds a
word, whatever the scope.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from ctxarchive.errors import KnowledgeError
from ctxarchive.knowledge.folding import plain
from ctxarchive.knowledge.passages import PASSAGE
from ctxarchive.knowledge.query import ParsedQuery, locate, parse, snippet
from ctxarchive.knowledge.ranking import WEIGHTS, Candidate, Weights, exactness, explained
from ctxarchive.knowledge.records import Record
from ctxarchive.knowledge.sqlite.candidates import Candidates, Question, Ranked, as_in_json
from ctxarchive.knowledge.sqlite.connection import Row
from ctxarchive.knowledge.sqlite.index import Index
from ctxarchive.knowledge.sqlite.records import COLUMNS, KeyRange, Records, conditions
from ctxarchive.knowledge.store import Hit, SearchAnswer, SearchRequest, Tier

SCANNED_RECORDS: Final = 50_000
"""A substring scan goes no further back than this, in records."""
SCAN_SECONDS: Final = 0.3
"""Nor does it take longer than this, in processor time: another program's work hides nothing."""
WIDE_SCAN_SECONDS: Final = 0.03
"""Nor, in a search of the whole archive, than this."""
_SCAN_STEP: Final = 1_000


class Searcher:
    """Answers questions over one archive."""

    def __init__(self, records: Records, index: Index, weights: Weights = WEIGHTS) -> None:
        self._records = records
        self._index = index
        self._candidates = Candidates(records, index, weights)
        self._weights = weights

    def search(self, request: SearchRequest) -> SearchAnswer:
        """See ``KnowledgeBase.search``."""
        parsed = parse(request.query)
        connection = self._records.connection
        with connection.held():
            attached = self._index.attach(repair=True)
            with connection.reading():
                ranges = self._records.ranges(request.scope)
                question = Question(request, parsed, ranges, attached, [], [])
                tier, hits = self._answer(question)
        return SearchAnswer(
            query=request.query, tier=tier, hits=tuple(hits), tried=tuple(question.tried)
        )

    def _answer(self, question: Question) -> tuple[Tier, list[Hit]]:
        parsed = question.parsed
        if not parsed.needles and not parsed.terms:
            question.tried.append("nothing: the query is empty")
            return "none", []
        if not question.ranges or question.request.limit <= 0:
            question.tried.append("nothing: the scope is empty")
            return "none", []
        if parsed.terms:
            question.scanned = list(self._candidates.scan(question))
            question.tried.append(f"strict: all of {len(parsed.terms)}")
            required = (*parsed.phrases, *parsed.signs)
            if hits := self._hits(question, self._candidates.strict(question), required):
                return "strict", hits
        if question.request.loosest == "strict":
            return "none", []
        # A single chunk that is no word of the archive is more likely a part of one than several.
        widely = question.request.loosest == "substring"
        single = len(parsed.needles) == 1
        if widely and single and (hits := self._substrings(question)):
            return "substring", hits
        loose = self._corrected(question)
        if len(loose.parsed.loose) > 1 or any(term.phrases > 1 for term in loose.parsed.loose):
            question.tried.append(f"any: one or more of {len(loose.parsed.loose)}")
            if hits := self._hits(loose, self._candidates.loose(loose), parsed.phrases):
                return "any", hits
        if widely and not single and (hits := self._substrings(question)):
            return "substring", hits
        return "none", []

    def _corrected(self, question: Question) -> Question:
        """The question with the words added that were meant by those that nothing holds."""
        corrections = self._candidates.corrections(question)
        if not corrections:
            return question
        for word, other in corrections.items():
            question.tried.append(f"spelling: {word} for {other}, which is there")
        terms = [term for other in corrections.values() for term in parse(other).loose]
        parsed = question.parsed
        corrected = replace(
            question,
            parsed=replace(
                parsed,
                loose=tuple(dict.fromkeys([*parsed.loose, *terms])),
                needles=(*parsed.needles, *corrections.values()),
            ),
        )
        return replace(corrected, scanned=list(self._candidates.scan(corrected)))

    # -- hits

    def _hits(
        self,
        question: Question,
        ranked: Ranked,
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
        for score, candidate in ranked.best:
            if len(hits) >= 2 * limit + 5:
                break
            looked += 1
            hits.extend(self._hit(question, ranked, (score, candidate), required))
        spelt_in_json = as_in_json(parsed.spelt)
        if spelt_in_json and sum(spelt for spelt, _ in hits) < limit:
            rest = {candidate.key: (score, candidate) for score, candidate in ranked.best[looked:]}
            for key in self._candidates.spelling(spelt_in_json, list(rest)):
                score, candidate = rest[key]
                hits.extend(self._hit(question, ranked, (score, candidate), required))
        lift = max((hit.score for spelt, hit in hits if not spelt), default=0.0)
        order = [
            replace(hit, score=hit.score + lift, why=_lifted(hit, lift)) if spelt and lift else hit
            for spelt, hit in hits
        ]
        return sorted(order, key=lambda hit: -hit.score)[:limit]

    def _hit(
        self,
        question: Question,
        ranked: Ranked,
        scored: tuple[float, Candidate],
        required: Sequence[str],
    ) -> Iterator[tuple[bool, Hit]]:
        """A candidate's hit, and whether it is an original that holds the query as it is spelt."""
        score, candidate = scored
        parsed = question.parsed
        record = self._record(candidate.key)
        if required and not _holds(plain(record.text), required):
            return
        passage = record.text[candidate.start : candidate.start + 2 * PASSAGE]
        factor = exactness(plain(passage), parsed.needles, self._weights)
        hit = _hit(record, parsed, score * factor, candidate.start)
        if question.request.explain:
            terms = [" ".join(term.words[0]) for term in ranked.terms]
            why = explained(score, candidate, terms, ranked.statistics, self._weights)
            hit = replace(hit, why=(*why, f"stands literally x {factor:.2f}"))
        spelt = bool(parsed.spelt) and parsed.spelt in record.text
        yield spelt and record.kind == "original", hit

    def _record(self, key: int) -> Record:
        """A record for showing; of one that cannot be rendered, its JSON as it stands."""
        row = self._records.connection.one(
            f"SELECT {COLUMNS} FROM main.records WHERE key = ?", (key,)
        )
        if row is None:
            raise KnowledgeError("corrupt", f"{self._index.path}: holds a record that is not filed")
        return self._records.record(row, lenient=True)

    def _substrings(self, question: Question) -> list[Hit]:
        """The newest records whose text holds every chunk of the query, words or not."""
        parsed = question.parsed
        hits: list[Hit] = []
        looked = 0
        bound = WIDE_SCAN_SECONDS if question.wide else SCAN_SECONDS
        stop = time.thread_time() + bound
        for rows, passed in self._steps(question):
            looked += passed
            for place, (key, head, event) in enumerate(rows, start=1):
                if place % 32 == 0 and time.thread_time() > stop:
                    looked -= len(rows) - place
                    break
                text = plain(self._records.readable(event, head))
                if all(needle in text for needle in parsed.needles):
                    record = self._record(key)
                    hits.append(_hit(record, parsed, exactness(text, parsed.needles)))
            done = len(hits) >= question.request.limit
            if done or looked >= SCANNED_RECORDS or time.thread_time() > stop:
                break
        question.tried.append(f"substring: the newest {looked} records of the scope")
        return hits[: question.request.limit]

    def _steps(self, question: Question) -> Iterator[tuple[list[Row], int]]:
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


def _holds(text: str, required: Sequence[str]) -> bool:
    return all(literal in text for literal in required)


def _lifted(hit: Hit, lift: float) -> tuple[str, ...]:
    """Why a hit that holds the query as it is spelt comes before all others."""
    return (*hit.why, f"spelt as asked + {lift:.3f}") if hit.why else ()


def _anchor_conditions(anchors: Sequence[str]) -> tuple[str, dict[str, str]]:
    """A cheap condition that whatever holds the query fulfils; JSON may spell letters as escapes."""
    named = {f"anchor{place}": f"%{anchor}%" for place, anchor in enumerate(anchors[:8]) if anchor}
    tests = [
        f" AND (event LIKE :{name} OR head LIKE :{name} OR instr(event, '\\u00'))" for name in named
    ]
    return "".join(tests), named


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
