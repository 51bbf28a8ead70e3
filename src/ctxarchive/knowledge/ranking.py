"""In which order the candidates of a search are shown.

Pure. BM25 (Robertson and Zaragoza, 2009) over the statistics of the scope's own candidates, with
what the archive knows besides: an exact hit outranks a scattered one, an original outranks text
derived from it, and of two equals the newer is first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ctxarchive.knowledge.records import Kind
from ctxarchive.knowledge.selection import weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What a score is made of; the defaults were fitted on half of the judged questions."""

    k1: float = 1.2
    """BM25: how soon more of the same word counts no more."""
    b: float = 0.75
    """BM25: how much a long passage must hold to score as a short one; 0 for no matter, to 1."""
    injected: float = 0.7
    """Factor for text of the host."""
    checkpoint: float = 0.25
    """Factor for text derived from events, so that the event itself comes first."""
    newest: float = 0.15
    """The newest of the candidates gains this share of its score, the oldest nothing."""
    elsewhere: float = 0.1
    """Share of the weight of a word that another passage of the record holds, not its best."""
    exact: float = 1.0
    """What an identifier of the query that stands in the text literally adds, as a share."""

    def of_kind(self, kind: Kind) -> float:
        """The factor for a kind of record."""
        if kind == "original":
            return 1.0
        return self.injected if kind == "injected" else self.checkpoint


WEIGHTS: Final = Weights()


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A passage that matched."""

    key: int
    """The store's key; of one session, a higher one is newer."""
    kind: Kind
    counts: tuple[int, ...]
    """How often each term of the query occurs, in the order of the terms."""
    length: int
    """Words of the passage."""
    start: int = 0
    """Where the passage begins in the record's text, in code points."""
    given: float | None = None
    """The score that the index gave, where it did the counting itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What BM25 knows of the scope."""

    frequency: tuple[int, ...]
    """For each term, how many passages of the scope hold it, as far as is known."""
    total: int
    """Passages of the scope."""
    average: float = 0.0
    """Words of a passage on average, in the archive; 0 for that of the candidates."""


def rank(
    candidates: Sequence[Candidate], statistics: Statistics, weights: Weights = WEIGHTS
) -> list[tuple[float, Candidate]]:
    """Score candidates, best first; ties go to the newer. Of a record, its best passage counts.

    What the best passage lacks and another passage of the record holds counts a little.
    """
    if not candidates:
        return []
    lengths = [each.length for each in candidates if each.length]
    average = statistics.average or max(1.0, sum(lengths) / max(1, len(lengths)))
    rarity = [weight(held, statistics.total) for held in statistics.frequency]
    order = {key: place for place, key in enumerate(sorted({each.key for each in candidates}))}
    newest = max(1, len(order) - 1)
    best: dict[int, tuple[float, Candidate]] = {}
    held: dict[int, set[int]] = {}
    for each in candidates:
        score = _bm25(each, rarity, average, weights)
        held.setdefault(each.key, set()).update(
            place for place, count in enumerate(each.counts) if count
        )
        if each.key not in best or best[each.key][0] < score:
            best[each.key] = score, each
    scored = []
    for key, (score, each) in best.items():
        elsewhere = sum(rarity[place] for place in held[key] if not each.counts[place])
        recent = 1 + weights.newest * order[key] / newest
        scored.append(
            ((score + weights.elsewhere * elsewhere) * weights.of_kind(each.kind) * recent, each)
        )
    return sorted(scored, key=lambda pair: (-pair[0], -pair[1].key))


def _bm25(candidate: Candidate, rarity: Sequence[float], average: float, weights: Weights) -> float:
    if candidate.given is not None:
        return candidate.given
    length = candidate.length or average
    norm = weights.k1 * (1 - weights.b + weights.b * length / average)
    return sum(
        each * count * (weights.k1 + 1) / (count + norm)
        for each, count in zip(rarity, candidate.counts, strict=True)
        if count
    )


def explained(
    score: float,
    candidate: Candidate,
    terms: Sequence[str],
    statistics: Statistics,
    weights: Weights = WEIGHTS,
) -> tuple[str, ...]:
    """Why a candidate has its score, a line for each thing that counts; words as they were asked."""
    lines = [f"score {score:.3f} before what stands literally; passage at {candidate.start}"]
    if candidate.given is not None:
        lines.append(f"words {candidate.given:.3f}, as the index counts them")
    average = statistics.average or candidate.length or 1.0
    for place, (term, count) in enumerate(zip(terms, candidate.counts, strict=True)):
        if count and candidate.given is None:
            rarity = [0.0] * len(terms)
            rarity[place] = weight(statistics.frequency[place], statistics.total)
            part = _bm25(candidate, rarity, average, weights)
            held = f"held by {statistics.frequency[place]} of {statistics.total} passages"
            lines.append(f"{term!r} {part:.3f}: {count} times in {candidate.length} words, {held}")
    if candidate.kind != "original":
        lines.append(f"{candidate.kind} x {weights.of_kind(candidate.kind)}")
    return tuple(lines)


def exactness(text: str, needles: Sequence[str], weights: Weights = WEIGHTS) -> float:
    """A factor of at least 1 for how many of the query's chunks stand in ``text`` as they are.

    Args:
        text: the record's text in ``plain`` form.
        needles: the chunks in ``plain`` form.
        weights: what a literal match is worth.
    """
    # Of several chunks, plain words say nothing more by standing literally than by being there.
    if len(needles) > 1:
        needles = [needle for needle in needles if not needle.isalpha()]
    if not needles:
        return 1.0
    found = sum(_whole(text, needle) for needle in needles)
    return 1 + weights.exact * found / len(needles)


def _whole(text: str, needle: str) -> float:
    """1 where the needle stands as a word of its own, half where it is inside one, else 0."""
    at = text.find(needle)
    tries = 0
    while at >= 0 and tries < 64:
        before = text[at - 1 : at]
        after = text[at + len(needle) : at + len(needle) + 1]
        if not (_joins(before) or _joins(after)):
            return 1.0
        at = text.find(needle, at + 1)
        tries += 1
    return 0.5 if tries else 0.0


def _joins(character: str) -> bool:
    return character.isalnum() or character == "_"


def statistics_of(found: Sequence[Candidate], statistics: Statistics) -> Statistics:
    """Statistics of what was found alone; of the rest, as much again is taken to hold nothing."""
    places = range(len(statistics.frequency))
    held = tuple(sum(1 for each in found if each.counts[place]) for place in places)
    return Statistics(frequency=held, total=2 * len(found) + 1, average=statistics.average)
