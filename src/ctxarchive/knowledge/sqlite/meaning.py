"""One question by words and by meaning at once: both orders fused, one result a record.

It adds to an answer by words and takes nothing away that stands in the same places; a query for
letters as they are is left to the words. Nothing here knows how a model works.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ctxarchive.knowledge.query import parse, snippet
from ctxarchive.knowledge.semantic import (
    DEPTH,
    FLOOR,
    PASSAGE,
    WINDOW,
    Nearness,
    SemanticModel,
    fuse,
    literal,
    windows,
)
from ctxarchive.knowledge.sqlite.records import COLUMNS, Records
from ctxarchive.knowledge.sqlite.vectors import Vectors
from ctxarchive.knowledge.store import Hit, SearchAnswer, SearchRequest


class Meaning:
    """Searches one archive by meaning beside its search by words."""

    def __init__(self, records: Records, vectors: Vectors, model: SemanticModel) -> None:
        self._records = records
        self._vectors = vectors
        self._model = model

    def search(
        self, request: SearchRequest, by_words: Callable[[SearchRequest], SearchAnswer]
    ) -> SearchAnswer:
        """See ``KnowledgeBase.search``.

        Args:
            request: the question.
            by_words: answers it by words alone.
        """
        if request.limit <= 0 or literal(parse(request.query)):
            return by_words(request)
        answer = by_words(replace(request, limit=max(DEPTH, request.limit)))
        (query,) = self._model.embed([request.query])
        looked, near = self._nearest(request, query)
        tried = (*answer.tried, f"meaning: the newest {looked} records of the scope")
        if not near:
            return replace(answer, hits=answer.hits[: request.limit], tried=tried)
        worded = {self._key(hit): hit for hit in answer.hits}
        hits: list[Hit] = []
        for key, score in fuse([list(worded), list(near)]).items():
            hit = worded.get(key) or self._hit(key, near[key], query)
            if hit is not None:  # its record may have gone since its vector was made
                hits.append(replace(hit, score=score))
            if len(hits) == request.limit:
                break
        return replace(answer, tier="semantic", hits=tuple(hits), tried=tried)

    def _key(self, hit: Hit) -> int:
        return (self._records.ordinal(hit.session) or 0) << 32 | hit.seq

    def _nearest(self, request: SearchRequest, query: bytes) -> tuple[int, dict[int, Nearness]]:
        """How many records were compared, and the nearest by key; of equal ones, the newest first."""
        ranges = self._records.ranges(request.scope)
        stored = self._vectors.read(request.scope, ranges) if ranges else []
        found = self._model.nearness(query, [data for _, data in stored])
        near = [
            (key, each) for (key, _), each in zip(stored, found, strict=True) if each.cosine > FLOOR
        ]
        near.sort(key=lambda entry: (-entry[1].cosine, -entry[0]))
        return len(stored), dict(near[:DEPTH])

    def _hit(self, key: int, near: Nearness, query: bytes) -> Hit | None:
        """A record that only its meaning found."""
        row = self._records.connection.one(
            f"SELECT {COLUMNS} FROM main.records WHERE key = ?", (key,)
        )
        if row is None:
            return None
        record = self._records.record(row, lenient=True)
        offset = self._offset(windows(record.text, near.passage), near.passage, query)
        return Hit(
            session=record.session,
            seq=record.seq,
            layer=record.layer,
            kind=record.kind,
            role=record.role,
            name=record.name,
            time=record.time,
            chars=len(record.text),
            score=near.cosine,
            snippet=snippet(record.text, offset),
            offset=offset,
        )

    def _offset(self, pieces: Sequence[str], passage: int, query: bytes) -> int:
        """Where the piece of a passage begins that is nearest to the query."""
        near = self._model.nearness(query, [b"".join(self._model.embed(pieces))])
        return passage * PASSAGE + near[0].passage * WINDOW
