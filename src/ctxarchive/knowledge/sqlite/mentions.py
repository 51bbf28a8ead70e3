"""Which records hold a text as it is spelt: a bounded look through the newest, without the index.

Nothing is rendered or ranked: it is for asking whether something was spoken of again.
"""

from __future__ import annotations

import json
import re
from typing import Final

from ctxarchive.knowledge.records import SEQ_LIMIT
from ctxarchive.knowledge.sqlite.connection import unpack
from ctxarchive.knowledge.sqlite.records import KeyRange, Records, conditions
from ctxarchive.knowledge.store import Scope

LOOKED_AT: Final = 2_000
"""Of each range of a scope, no more than so many of the newest records are looked at."""


def mentions(records: Records, text: str, scope: Scope, limit: int) -> list[tuple[str, int]]:
    """See ``KnowledgeBase.mentions``."""
    spelt = json.dumps(text, ensure_ascii=False)[1:-1]
    # A line break or a tab in front of it is spelt in JSON, and that ends in a letter.
    alone = re.compile(rf"(?:(?<!\w)|(?<=\\[nrt])){re.escape(spelt)}(?!\w)")
    found: list[tuple[str, int]] = []
    connection = records.connection
    with connection.reading():
        for keys in reversed(records.ranges(scope)):
            lowest = connection.value(
                "SELECT min(key) FROM (SELECT key FROM main.records WHERE key BETWEEN ? AND ?"
                f" ORDER BY key DESC LIMIT {LOOKED_AT})",
                (keys.first, keys.last),
            )
            if lowest is None:
                continue
            near = KeyRange(first=lowest, last=keys.last, layers=keys.layers)
            condition, bindings = conditions(scope, near)
            rows = connection.all(
                f"SELECT key, event, head FROM main.records WHERE {condition} AND kind = 'original'"
                " AND (instr(event, :spelt) OR instr(head, :text)) ORDER BY key DESC LIMIT :most",
                {**bindings, "spelt": spelt, "text": text, "most": 2 * limit},
            )
            for key, event, head in rows:
                if len(found) < limit and alone.search(f"{unpack(head)}\n{unpack(event)}"):
                    found.append((records.session(key >> 32), key & SEQ_LIMIT - 1))
    return found
