"""The candidates of one question: from the index, and from a scan of what it does not hold yet.

A passage is judged by the same terms on both ways. Only the newest, or the worthiest, of what
matches become candidates, so that a search costs by what it shows, not by what the archive holds;
``bm25()`` of FTS5 is asked only of expressions that few rows match, since it walks them all.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from ctxarchive.knowledge.folding import fold
from ctxarchive.knowledge.passages import passages
from ctxarchive.knowledge.query import Document, ParsedQuery, Term
from ctxarchive.knowledge.ranking import Candidate, Statistics, Weights, rank, statistics_of
from ctxarchive.knowledge.records import LAYERS, Kind
from ctxarchive.knowledge.selection import (
    COMMON,
    COMMON_HERE,
    Combination,
    combined,
    first_of,
    minimal,
)
from ctxarchive.knowledge.spelling import SHORTEST, near
from ctxarchive.knowledge.sqlite.connection import Row, Value
from ctxarchive.knowledge.sqlite.index import Index, Stretch
from ctxarchive.knowledge.sqlite.layout import INJECTED, SEVERAL, TABLES, ids_of
from ctxarchive.knowledge.sqlite.records import KeyRange, Records, conditions
from ctxarchive.knowledge.store import Scope, SearchRequest

STRICT: Final = 200
"""The newest so many passages of a range that hold every term are ranked."""
SPELT: Final = 1_000
"""Where none of those holds the query as it is spelt, so many are searched for one that does."""
LOOSE: Final = 200
"""About so many passages that hold the worthiest combinations of words are ranked."""
WIDE: Final = 400
"""Likewise, in a search of the whole archive."""
RANKED_ROWS: Final = 12_000
"""In a search of the whole archive, FTS5 ranks combinations of about so many rows besides."""
REACH: Final = 1.7
"""A score is taken to be at most so many times the weights of the words; the bound is 2.2."""
_COUNTED: Final = 20_000
"""Rows that hold a term are counted up to this; beyond, the vocabulary knows, or a guess does."""
_BEST: Final = 30
_SPREAD_ROWS: Final = 5_000
_SPREAD: Final = 20
_SUGGESTED: Final = 8


@dataclass(slots=True)
class Question:
    """One search under way."""

    request: SearchRequest
    parsed: ParsedQuery
    ranges: list[KeyRange]
    attached: bool
    """Whether there is an index to ask."""
    scanned: list[tuple[Candidate, tuple[int, ...]]]
    """What is not indexed and holds any of the words: counted by loose terms, and by strict ones."""
    tried: list[str]

    @property
    def wide(self) -> bool:
        """Whether the whole archive is asked."""
        return self.request.scope.sources is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """Candidates in order, and by what they were ranked."""

    best: list[tuple[float, Candidate]]
    terms: tuple[Term, ...]
    statistics: Statistics


class Candidates:
    """Finds what may answer, over one archive."""

    def __init__(self, records: Records, index: Index, weights: Weights) -> None:
        self._records = records
        self._index = index
        self._weights = weights

    def strict(self, question: Question) -> Ranked:
        """What holds every term, in one passage or in several of a record."""
        terms = question.parsed.terms
        expression = " AND ".join(term.expression() for term in terms)
        rows = list(self._rows(question, expression, _phrases(terms), STRICT))
        found = [_candidate(row, terms) for row in rows]
        if len(found) >= STRICT and (spelt := as_in_json(question.parsed.spelt)):
            known = {candidate.key for candidate in found}
            found.extend(_candidate(row, terms) for row in self._older(question, spelt, known))
        found.extend(
            replace(candidate, counts=counts)
            for candidate, counts in question.scanned
            if any(counts)
        )
        whole = _holding_all(found, len(terms))
        found = [candidate for candidate in found if candidate.key in whole]
        if len(terms) > 1 and len(whole) < question.request.limit:
            found.extend(self._spread(question, whole))
        held = len({candidate.key for candidate in found})
        statistics = Statistics(frequency=(held,) * len(terms), total=held * 2 + 1)
        return self._ranked(found, terms, statistics)

    def loose(self, question: Question) -> Ranked:
        """What holds any of the terms, as far as it may be among the best."""
        question = self._with_known_forms(question)
        terms = question.parsed.loose
        found: dict[tuple[int, int], Candidate] = {}
        statistics = Statistics(frequency=(0,) * len(terms), total=1)
        if question.attached:
            statistics = self._statistics(question, terms)
            combinations = combined(
                statistics.frequency, statistics.total, COMMON if question.wide else COMMON_HERE
            )
            most = WIDE if question.wide else LOOSE
            number = first_of(combinations, most)
            asked = [
                place
                for place, held in enumerate(statistics.frequency)
                if _counts(held, statistics.total)
            ]
            if combinations:
                asked = asked or list(combinations[0].terms)
                self._ask(question, minimal(combinations[:number]), asked, found, most)
            self._rest(question, combinations[number:], asked, found, statistics)
            if not found:
                # Counted over whole sessions; the scope may end within one, before its common words.
                places = range(len(terms))
                each = [Combination(terms=(place,), worth=0.0, rows=0.0) for place in places]
                self._ask(question, each, places, found, most)
                statistics = statistics_of(tuple(found.values()), statistics)
        for scanned, _ in question.scanned:
            found[scanned.key, scanned.start] = scanned
        statistics = _with_scanned(statistics, question.scanned)
        return self._ranked(list(found.values()), terms, statistics)

    def _ranked(
        self, found: Sequence[Candidate], terms: tuple[Term, ...], statistics: Statistics
    ) -> Ranked:
        best = rank(found, statistics, self._weights)
        return Ranked(best=best, terms=terms, statistics=statistics)

    def _with_known_forms(self, question: Question) -> Question:
        """The question without the forms of a word that the index does not hold."""
        if not question.attached:
            return question
        known = self._index.vocabulary.known
        terms = (
            replace(term, words=(term.words[0], *(w for w in term.words[1:] if known(w[0]))))
            if term.forms
            else term
            for term in question.parsed.loose
        )
        return replace(question, parsed=replace(question.parsed, loose=tuple(terms)))

    def _ask(
        self,
        question: Question,
        combinations: Sequence[Combination],
        asked: Sequence[int],
        found: dict[tuple[int, int], Candidate],
        most: int,
    ) -> None:
        """Add the newest passages that hold a combination, with the counts of all that is asked."""
        terms = question.parsed.loose
        counted = [terms[place] for place in asked]
        every = " OR ".join(term.expression() for term in counted)
        some = " OR ".join(_all_of(each, terms) for each in combinations)
        for row in self._rows(question, f"({every}) AND ({some})", _phrases(counted), most):
            each = _candidate(row, counted, asked, len(terms))
            if any(each.counts):
                found[each.key, each.start] = each

    def _rest(
        self,
        question: Question,
        combinations: Sequence[Combination],
        asked: Sequence[int],
        found: dict[tuple[int, int], Candidate],
        statistics: Statistics,
    ) -> None:
        """Combinations that too many rows hold to count in all: the best, or the newest, of each."""
        left = float(RANKED_ROWS)
        enough = question.request.limit
        known, threshold = -1, 0.0
        for each in combinations:
            if known != len(found):
                known, threshold = len(found), self._threshold(found, statistics, enough)
            if threshold and each.worth * REACH <= threshold:
                return
            if question.wide and each.rows <= left:
                left -= each.rows
                self._best(question, each, found)
            elif not threshold or not question.wide:
                self._ask(question, [each], asked, found, _BEST)
            if not question.wide and len(found) >= LOOSE:
                return

    def _threshold(
        self, found: dict[tuple[int, int], Candidate], statistics: Statistics, place: int
    ) -> float:
        """The score of the candidate at a place; 0 where there are fewer."""
        best = rank(list(found.values()), statistics, self._weights)
        return best[place - 1][0] if len(best) >= place else 0.0

    def _best(
        self, question: Question, each: Combination, found: dict[tuple[int, int], Candidate]
    ) -> None:
        """Add what FTS5 ranks highest of a combination, with the score that it gives."""
        terms = question.parsed.loose
        held = tuple(1 if place in each.terms else 0 for place in range(len(terms)))
        for keys in question.ranges:
            source, condition, bindings = _scoped(question.request.scope, keys)
            for row in self._records.connection.all(
                "SELECT p.key, p.start, p.sort, originals.rank FROM search.originals"
                f" CROSS JOIN {source.format(table='originals')}"
                " WHERE originals MATCH :expression AND originals.rowid BETWEEN :from AND :to"
                f" AND {condition} ORDER BY originals.rank LIMIT {_BEST}",
                {**bindings, "expression": _all_of(each, terms)},
            ):
                if (row[0], row[1]) not in found:
                    found[row[0], row[1]] = Candidate(
                        key=row[0],
                        kind=_kind(row[2], "originals"),
                        counts=held,
                        length=0,
                        start=row[1],
                        given=-row[3],
                    )

    def corrections(self, question: Question) -> dict[str, str]:
        """For words that nothing in the scope holds, the nearest that something there does hold."""
        if not question.attached:
            return {}
        found: dict[str, str] = {}
        for term in question.parsed.terms:
            word = term.words[0][0]
            if not term.single or len(word) < SHORTEST or not word.isalpha():
                continue
            if any(
                each.counts[place]
                for each, _ in question.scanned
                for place, loose in enumerate(question.parsed.loose)
                if (word,) in loose.words
            ):
                continue
            if self._held(question, word):
                continue
            for other in near(word, self._index.vocabulary.like(word))[:_SUGGESTED]:
                if self._held(question, other):
                    found[word] = other
                    break
        return found

    def _held(self, question: Question, word: str) -> bool:
        """Whether a passage of the scope holds a word."""
        expression = Term(words=((word,),)).expression()
        return any(True for _ in self._rows(question, expression, 0, 1))

    def _statistics(self, question: Question, terms: Sequence[Term]) -> Statistics:
        """How many passages of the scope hold each term, and how many there are."""
        connection = self._records.connection
        rows, average = self._index.vocabulary.totals()
        total = rows
        if not question.wide:
            total = 0
            for keys in question.ranges:
                total += connection.value(
                    "SELECT count(*) FROM search.passages WHERE id BETWEEN ? AND ?",
                    ids_of(keys.first, keys.last),
                )
        frequency = []
        for term in terms:
            held = 0
            for keys in question.ranges:
                low, high = ids_of(keys.first, keys.last)
                held += connection.value(
                    "SELECT count(*) FROM (SELECT 1 FROM search.originals WHERE originals MATCH ?"
                    f" AND rowid BETWEEN ? AND ? LIMIT {_COUNTED})",
                    (term.expression(), low, high),
                )
            if held >= _COUNTED and question.wide:
                held = (
                    self._index.vocabulary.frequency(term.words[0][0])
                    if term.single
                    else total // COMMON
                )
            frequency.append(min(held, total))
        return Statistics(frequency=tuple(frequency), total=max(1, total), average=average)

    def _rows(self, question: Question, expression: str, phrases: int, most: int) -> Iterator[Row]:
        """Newest passages of the index that match: key, start, sort, counts of phrases, table."""
        if not question.attached:
            return
        for keys in question.ranges:
            source, condition, bindings = _scoped(question.request.scope, keys)
            for table in TABLES:
                yield from self._records.connection.all(
                    f"SELECT p.key, p.start, p.sort, phrase_counts({table}, {phrases}), '{table}'"
                    f" FROM search.{table} CROSS JOIN {source.format(table=table)}"
                    f" WHERE {table} MATCH :expression AND {table}.rowid BETWEEN :from AND :to"
                    f" AND {condition} ORDER BY {table}.rowid DESC LIMIT {most}",
                    {**bindings, "expression": expression},
                )

    def _spread(self, question: Question, known: Collection[int]) -> Iterator[Candidate]:
        """Records of several passages that hold all terms, though no passage of them does.

        In a search of the whole archive, only the newest that hold each term are looked at.
        """
        if not question.attached:
            return
        terms = question.parsed.terms
        for keys in question.ranges:
            source, condition, bindings = _scoped(question.request.scope, keys)
            both: dict[int, tuple[int, int]] | None = None
            for term in terms:
                rows = self._records.connection.all(
                    "SELECT p.key, p.start, p.sort FROM search.originals"
                    f" CROSS JOIN {source.format(table='originals')}"
                    " WHERE originals MATCH :expression AND originals.rowid BETWEEN :from AND :to"
                    f" AND {condition} AND p.sort >= {SEVERAL}"
                    f" ORDER BY originals.rowid DESC LIMIT {_SPREAD_ROWS}",
                    {**bindings, "expression": term.expression()},
                )
                held = {key: (start, sort) for key, start, sort in rows}
                both = held if both is None else {key: both[key] for key in both if key in held}
                if not both:
                    break
            for key in sorted(set(both or ()) - set(known), reverse=True)[:_SPREAD]:
                start, sort = (both or {})[key]
                yield Candidate(
                    key=key,
                    kind=_kind(sort, "originals"),
                    counts=(1,) * len(terms),
                    length=0,
                    start=start,
                )

    def _older(self, question: Question, spelt: str, found: Collection[int]) -> Iterator[Row]:
        """Passages of records that hold the query as it is spelt, where the newest hold its words."""
        if self.spelling(spelt, list(found)):
            return
        phrases = _phrases(question.parsed.terms)
        for keys in question.ranges:
            source, condition, bindings = _scoped(question.request.scope, keys)
            for table in TABLES:
                yield from self._records.connection.all(
                    "SELECT f.key, f.start, f.sort, f.counts, f.name FROM"
                    f" (SELECT p.key, p.start, p.sort, phrase_counts({table}, {phrases}) AS counts,"
                    f" '{table}' AS name FROM search.{table}"
                    f" CROSS JOIN {source.format(table=table)}"
                    f" WHERE {table} MATCH :expression AND {table}.rowid BETWEEN :from AND :to"
                    f" AND {condition} ORDER BY {table}.rowid DESC LIMIT {SPELT}) AS f"
                    " CROSS JOIN main.records AS e ON e.key = f.key"
                    " WHERE instr(e.event, :spelt) OR instr(e.head, :spelt) LIMIT :most",
                    {
                        **bindings,
                        "expression": " AND ".join(
                            term.expression() for term in question.parsed.terms
                        ),
                        "spelt": spelt,
                        "most": question.request.limit,
                    },
                )

    def scan(self, question: Question) -> Iterator[tuple[Candidate, tuple[int, ...]]]:
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

    def _unindexed(self, question: Question, stretch: Stretch) -> Iterator[Row]:
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

    def spelling(self, spelt: str, keys: Sequence[int]) -> list[int]:
        """Which of some records hold a text as it is spelt."""
        rows = self._records.connection.all(
            "SELECT key FROM main.records WHERE key IN (SELECT value FROM json_each(:keys))"
            " AND (instr(event, :spelt) OR instr(head, :spelt)) ORDER BY key DESC",
            {"keys": json.dumps(keys), "spelt": spelt},
        )
        return [key for (key,) in rows]


def _with_scanned(
    statistics: Statistics, scanned: Sequence[tuple[Candidate, tuple[int, ...]]]
) -> Statistics:
    """The statistics with what the index does not hold; of that, only what matches is known."""
    held = (
        sum(1 for each, _ in scanned if each.counts[place])
        for place in range(len(statistics.frequency))
    )
    return Statistics(
        frequency=tuple(map(sum, zip(statistics.frequency, held, strict=True))),
        total=statistics.total + 2 * len(scanned),
        average=statistics.average,
    )


def _all_of(combination: Combination, terms: Sequence[Term]) -> str:
    return "(" + " AND ".join(terms[place].expression() for place in combination.terms) + ")"


def _counts(held: int, total: int) -> bool:
    """Whether a term that so many rows hold weighs anything."""
    return 0 < held * 2 <= total


def _phrases(terms: Sequence[Term]) -> int:
    return sum(term.phrases for term in terms)


def as_in_json(spelt: str) -> str:
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


def _kind(sort: int, table: str) -> Kind:
    if table == "derived":
        return "checkpoint"
    return "injected" if sort & INJECTED else "original"


def _candidate(
    row: Row, terms: Sequence[Term], asked: Sequence[int] | None = None, all_terms: int = 0
) -> Candidate:
    """The candidate of a row that counts the phrases of some terms; ``asked`` are their places."""
    key, start, sort, packed, table = row
    length = int.from_bytes(packed[-4:], "big")
    counts = tuple(packed[:-4])
    if len(counts) != len(terms):  # otherwise one phrase a term: its count is the term's
        ends = accumulate(term.phrases for term in terms)
        counts = tuple(
            sum(counts[end - term.phrases : end]) for term, end in zip(terms, ends, strict=True)
        )
    if asked is not None and len(asked) != all_terms:
        spread = [0] * all_terms
        for place, count in zip(asked, counts, strict=True):
            spread[place] = count
        counts = tuple(spread)
    return Candidate(key=key, kind=_kind(sort, table), counts=counts, length=length, start=start)


def _holding_all(candidates: Sequence[Candidate], terms: int) -> set[int]:
    """The records that hold each of the terms, in one passage or another."""
    held: dict[int, int] = {}
    for each in candidates:
        bits = sum(1 << place for place, count in enumerate(each.counts) if count)
        held[each.key] = held.get(each.key, 0) | bits
    return {key for key, bits in held.items() if bits == (1 << terms) - 1}
