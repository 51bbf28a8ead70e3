"""Whether a result is an older state of something: later records that name the same thing.

Bounded: so many look-ups a call, each for one literal token behind one record, within what the
caller may read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ctxarchive.knowledge.records import source_label
from ctxarchive.knowledge.store import Hit, KnowledgeBase
from ctxarchive.tools.reach import Reach

LOOKUPS: Final = 24
"""Most look-ups of one call."""

TRIED: Final = 3
"""Most identifiers of a result that are looked up."""

COUNTED: Final = 8
"""So many later records make an identifier too common to tell anything of one result."""

NAMED: Final = 3
"""Most later records that are named, the newest."""

_LONGEST = 80

_IDENTIFIER: Final = re.compile(
    r"(?<![\w./@-])(?:(?:[\w@.+-]+/)+[\w@.+-]*\w|[A-Za-z]\w*(?:[_.]\w+)+|[a-z]+[A-Z]\w+"
    r"|[A-Z][a-z]+[A-Z]\w*|[A-Z]{2,}-?\d{2,}|(?=[a-f]*\d)[0-9a-f]{7,40})(?![\w/-])"
)
"""A path, a name of several parts, an error's or ticket's number, a hash."""

_KEY: Final = re.compile(r'"\w+": ?')


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """Later records that mention an identifier of a result."""

    identifier: str
    places: tuple[tuple[str, int], ...]
    """Session and seq of the newest of them, oldest first."""
    more: bool
    """Whether there are others."""

    def told(self, session: str) -> str:
        """As a result says it; records of another session than ``session`` with their source."""
        own = [str(seq) for where, seq in self.places if where == session]
        others = [
            f"{source_label(where)} seq {seq}" for where, seq in self.places if where != session
        ]
        named = ", ".join([*([f"seq {', '.join(own)}"] if own else []), *others])
        verb = "mentions" if len(self.places) == 1 else "mention"
        return f"later: {named}{' and more' if self.more else ''} {verb} {self.identifier}"


class LaterMentions:
    """Finds them, for the results of one call."""

    def __init__(self, knowledge: KnowledgeBase, reach: Reach) -> None:
        self._knowledge = knowledge
        self._reach = reach
        self._left = LOOKUPS

    def of(self, hit: Hit, query: str) -> Later | None:
        """The later mentions of the rarest identifier of a result that has any."""
        best: Later | None = None
        fewest = COUNTED
        for identifier in _identifiers(hit, query):
            if self._left <= 0:
                break
            self._left -= 1
            found = self._behind(hit, identifier)
            if 0 < len(found) < fewest:
                fewest = len(found)
                newest = tuple(sorted(found[:NAMED], key=lambda place: place[1]))
                best = Later(identifier=identifier, places=newest, more=len(found) > NAMED)
        return best

    def _behind(self, hit: Hit, identifier: str) -> Sequence[tuple[str, int]]:
        """What mentions it later, the newest first; what a compaction or the host wrote is no news."""
        return self._knowledge.mentions(identifier, self._reach.behind(hit), COUNTED)


def _identifiers(hit: Hit, query: str) -> Iterator[str]:
    """What a result is about: what it shares with the query, else the longest of what it shows."""
    asked = [found for found in _found(query) if found.casefold() in hit.snippet.casefold()]
    shown = sorted(_found(hit.snippet.strip("…")), key=len, reverse=True)
    yield from list(dict.fromkeys([*asked, *shown]))[:TRIED]


def _found(text: str) -> list[str]:
    """The identifiers of a text, each once; of a path its last two parts, as others spell it too."""
    # A key of a call's arguments is no name of anything; a line break spelt in JSON is no letter.
    plain = _KEY.sub(" ", text.replace("\\n", " ").replace("\\t", " "))
    found = (
        "/".join(match.split("/")[-2:]) if "/" in match else match
        for match in _IDENTIFIER.findall(plain)
    )
    return [each for each in dict.fromkeys(found) if 4 <= len(each) <= _LONGEST]
