"""One call's queries, asked and answered in words within a budget.

What does not fit is named by its seq, with the call that asks again; nothing is silently left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ctxarchive.knowledge.records import source_label
from ctxarchive.knowledge.store import (
    Hit,
    KnowledgeBase,
    Scope,
    SearchAnswer,
    SearchRequest,
    Tier,
)
from ctxarchive.tools.arguments import CtxSearchInput, clip
from ctxarchive.tools.holdings import holdings
from ctxarchive.tools.later import LaterMentions
from ctxarchive.tools.reach import Reach
from ctxarchive.tools.wording import TIERS, day, hit_call, hit_heading, query_call, within

DEFAULT_LIMIT: Final = 5
MOST: Final = 50
"""Most results of a query."""

ROUNDS: Final = 40
"""Most searches for the newest or oldest of all that matches: seqs have 32 bits."""

OUTSIDE: Final = 3
"""Most records outside the bounds of a query without results that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What one query came to."""

    answer: SearchAnswer
    hits: tuple[Hit, ...]
    """In the order asked for, at most as many as asked for."""
    more: bool
    """Whether there are others."""


class Searching:
    """Answers the queries of one call.

    Args:
        knowledge: what is searched.
        reach: what may be read.
        mark: what a person said of a result's record since, as a heading tells it.
        asked: the call.
        room: bound of the whole answer, in code points.
    """

    def __init__(
        self,
        knowledge: KnowledgeBase,
        reach: Reach,
        mark: Callable[[Hit], str],
        asked: CtxSearchInput,
        room: int,
    ) -> None:
        self._knowledge = knowledge
        self._reach = reach
        self._mark = mark
        self._asked = asked
        self._room = room
        self._scope = reach.scope(asked)
        self._later = LaterMentions(knowledge, reach)
        self._shown: dict[tuple[str, int], str] = {}
        """Records that an earlier query of this call shows, with the place that it shows."""
        self._home: str | None = None
        """The session that the first line names, so that no heading has to."""

    def answer(self) -> str:
        """What the model reads."""
        queries = list(dict.fromkeys(self._asked.queries or ()))
        found = [self._find(query) for query in queries]
        texts: list[str] = []
        left = self._room
        sessions = Counter(hit.session for each in found for hit in each.hits)
        if sessions:
            current = self._reach.session
            home = current if current in sessions else next(iter(sessions))
            first = f"From {source_label(home or '')}, times in UTC:"
            if len(first) <= left // 4:
                self._home = home
                texts.append(first)
                left -= len(first) + 2
        for place, each in enumerate(found):
            # What one answer leaves over, the later ones may use.
            text = self._told(each, left // (len(found) - place) - 2)
            left -= len(text) + 2
            texts.append(text)
        return "\n\n".join(texts)

    # -- asking

    def _find(self, query: str) -> _Found:
        limit = self._asked.limit or DEFAULT_LIMIT
        order = self._asked.order or "best"
        if order != "best":
            answer, hits = self._by_age(query, limit, newest=order == "newest")
        else:
            # One more than is shown says whether there are more.
            answer = self._search(query, self._scope, limit + 1)
            hits = list(answer.hits)
        return _Found(answer=answer, hits=tuple(hits[:limit]), more=len(hits) > limit)

    def _search(
        self, query: str, scope: Scope, limit: int, *, loosest: Tier = "substring"
    ) -> SearchAnswer:
        request = SearchRequest(query=query, scope=scope, limit=limit, loosest=loosest)
        return self._knowledge.search(request)

    def _by_age(self, query: str, limit: int, *, newest: bool) -> tuple[SearchAnswer, list[Hit]]:
        """What matches, by age: of one session all of it, of several the best so many."""
        alone = len({source.session for source in self._scope.sources or ()}) == 1
        most = 2 * limit + 2 if alone else MOST
        answer = self._search(query, self._scope, most)
        hits = answer.hits
        if alone and len(hits) == most:
            hits = self._outermost(answer, limit, newest=newest)
        one = len({hit.session for hit in hits}) == 1
        ordered = sorted(
            hits, key=lambda hit: (0 if one else hit.time or 0, hit.seq), reverse=newest
        )
        return answer, ordered

    def _outermost(self, answer: SearchAnswer, limit: int, *, newest: bool) -> tuple[Hit, ...]:
        """More than ``limit`` of a session's newest or oldest hits, by halving what they lie in.

        A bound behind which at least so many match, yet fewer than are asked for, is what is looked
        for: behind it nothing is missing.
        """
        most = len(answer.hits)
        edge, first = (max, min) if newest else (min, max)
        near = first(hit.seq for hit in answer.hits)
        far: int | None = None
        bound = edge(hit.seq for hit in answer.hits)
        outermost: tuple[Hit, ...] = ()
        for _ in range(ROUNDS):
            rest = (
                replace(self._scope, after_seq=bound)
                if newest
                else replace(self._scope, before_seq=bound)
            )
            found = self._search(answer.query, rest, most, loosest=answer.tier)
            hits = found.hits if found.tier == answer.tier else ()
            if limit < len(hits) < most:
                return hits
            if len(hits) <= limit:
                far, outermost = bound, hits
            else:
                near = bound
            # Until something is behind which too few are: as far as anything was seen.
            bound = edge(hit.seq for hit in hits) if far is None else near + (far - near) // 2
            if bound in {near, far}:
                break
        return outermost or answer.hits

    # -- telling

    def _told(self, found: _Found, room: int) -> str:
        if not found.hits:
            return self._nothing(found.answer, room)
        lines = [self._title(found)]
        left = room - len(lines[0])
        for place, hit in enumerate(found.hits):
            rest = found.hits[place:]
            text = self._hit(hit, found.answer.query)
            reserve = 0 if len(rest) == 1 else len(self._unshown(rest[1:], found, left)) + 2
            if len(text) + 2 + reserve > left:
                lines.append(self._unshown(rest, found, left - 2))
                break
            lines.append(text)
            left -= len(text) + 2
            self._shown.setdefault((hit.session, hit.seq), hit.snippet)
        return within("\n\n".join(lines), room)

    def _title(self, found: _Found) -> str:
        order = self._asked.order or "best"
        title = (
            f"# {clip(repr(found.answer.query))}: {len(found.hits)} found, matched by "
            f"{TIERS[found.answer.tier]}, {order} first"
        )
        limit = self._asked.limit or DEFAULT_LIMIT
        if not found.more:
            return title
        if limit >= MOST:
            return f"{title}; there are more: narrow it with after_seq or before_seq"
        return f"{title}; more with limit: {min(MOST, 2 * limit)}"

    def _hit(self, hit: Hit, query: str) -> str:
        heading = hit_heading(hit, self._mark(hit), self._home)
        key = (hit.session, hit.seq)
        if self._shown.get(key) == hit.snippet:
            return f"{heading}: shown above"
        lines = [heading]
        same = next((seq for (_, seq), shown in self._shown.items() if shown == hit.snippet), None)
        if same is not None and hit.snippet:
            lines[0] += f": the same passage as seq {same}"
        else:
            lines.append(hit.snippet)
        if not _complete(hit):
            lines.append(f"→ {hit_call(hit, self._reach.session)}")
        later = self._later.of(hit, query)
        if later is not None:
            lines.append(later.told(hit.session))
        return "\n".join(lines)

    def _unshown(self, hits: Sequence[Hit], found: _Found, room: int) -> str:
        """Results that have no room, by seq; where not even those have, how to ask for them."""
        named = [
            f"{'' if hit.session == self._home else source_label(hit.session) + ' '}{hit.seq}"
            for hit in hits
        ]
        told = f"[{len(hits)} more, not shown: seq {', '.join(named)}]"
        if len(told) <= room // 2:
            return told
        call = query_call(found.answer.query, self._asked, self._asked.limit)
        told = f"[{len(hits)} more, not shown] continue with {call}"
        return told if len(told) <= room else f"[{len(hits)} more: ask this query alone]"

    def _nothing(self, answer: SearchAnswer, room: int) -> str:
        tried = "; ".join(answer.tried) or "all words, any word, substring"
        lines = [f"# {clip(repr(answer.query))}: nothing found (tried {tried})"]
        outside = self._outside(answer.query)
        lines += outside or [_advice(answer.query)]
        lines += holdings(self._knowledge, self._reach, self._scope.sources)
        return within("\n".join(lines), room)

    def _outside(self, query: str) -> list[str]:
        """What the same query finds without the bounds that the call set."""
        asked = self._asked
        wide = CtxSearchInput(queries=asked.queries)
        narrow = (asked.source, asked.after_seq, asked.before_seq, asked.after, asked.before)
        if all(bound is None for bound in narrow):
            return []
        hits = self._search(query, self._reach.scope(wide), OUTSIDE).hits
        if not hits:
            return []
        named = ", ".join(
            f"{'' if hit.session == self._reach.session else source_label(hit.session) + ' '}"
            f"seq {hit.seq} ({' '.join(filter(None, (hit.layer, day(hit.time))))})"
            for hit in hits
        )
        return [f"Outside these bounds: {named}. Try {query_call(query, wide, None)}"]


def _complete(hit: Hit) -> bool:
    """Whether a result shows all of its record."""
    return hit.chars == len(hit.snippet) and not hit.snippet.startswith("…")


def _advice(query: str) -> str:
    words = re.findall(r"\w+", query)
    if '"' in query:
        return "Try it without the quotes, or fewer words."
    if len(words) > 1:
        return "Try one word of it, or a path, identifier or number that stood near it."
    return "Try the beginning of it with a *, another spelling, or what stood near it."
