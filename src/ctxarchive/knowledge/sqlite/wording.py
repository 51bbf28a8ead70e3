"""Whether a text stands in something stored, however JSON spells it there. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

_DEPTH: Final = 4
"""JSON inside of JSON strings is read so deep: a call's arguments, and what they quote."""


class Wording:
    """A text, and what it looks like inside of JSON."""

    def __init__(self, text: str) -> None:
        self.text = text
        spelt = {text}
        for _ in range(_DEPTH - 1):
            spelt |= {
                json.dumps(each, ensure_ascii=escaped)[1:-1]
                for each in spelt
                for escaped in (False, True)
            }
        self._spelt: Final = tuple(sorted(spelt, key=len))

    def is_in(self, text: str) -> bool:
        """Whether it stands in ``text`` as it is, or as JSON spells it."""
        return any(each in text for each in self._spelt)

    def is_in_json(self, text: str) -> bool:
        """Whether it stands in ``text``, or in any string of the JSON that this is."""
        return self.is_in(text) or any(map(self.is_in, _strings(text, _DEPTH)))


def _strings(text: str, depth: int) -> Iterator[str]:
    """All strings of a JSON text, names too, and those of the JSON inside of them."""
    if depth == 0 or "\\" not in text or not text.lstrip().startswith(("{", "[", '"')):
        return  # without an escape every string stands in the text as it is
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return
    for string in _walk(value):
        yield string
        yield from _strings(string, depth - 1)


def _walk(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        at = waiting.pop()
        if isinstance(at, str):
            yield at
        elif isinstance(at, dict):
            waiting += at.keys()
            waiting += at.values()
        elif isinstance(at, list):
            waiting += at
