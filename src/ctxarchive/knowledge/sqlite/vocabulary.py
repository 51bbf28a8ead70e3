"""What the index that is attached knows of words: how many passages hold one, and which are like it.

Reads only. It remembers between searches what is dear to ask; what it remembers is of one process.
"""

from __future__ import annotations

from typing import Final

from ctxarchive.knowledge.spelling import SAME
from ctxarchive.knowledge.sqlite.connection import Connection

_WORDS: Final = 5_000
"""At most so many words are looked at, or remembered."""


class Vocabulary:
    """The words of the index attached to the records' connection as ``search``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._frequencies: dict[str, tuple[int, int]] = {}
        self._known: dict[str, bool] = {}
        self._known_at = 0
        """Passages when ``_known`` was begun."""

    def totals(self) -> tuple[int, float]:
        """Passages in all, and their words on average; of the index that is attached."""
        connection = self._connection
        # FTS5 keeps them as its record 1: rows, then the words of each column.
        block = connection.value("SELECT block FROM search.originals_data WHERE id = 1")
        rows, words = [*varints(block or b""), 0, 0][:2]
        return rows, words / max(1, rows)

    def frequency(self, word: str) -> int:
        """How many passages hold a word; remembered until the archive has grown by a tenth."""
        rows, _ = self.totals()
        known = self._frequencies.get(word)
        if known is None or rows > known[1] * 1.1 or rows < known[1]:
            held = self._connection.value(
                "SELECT doc FROM search.vocabulary WHERE term = ?", (word,)
            )
            known = self._frequencies[word] = (held or 0, rows)
        return known[0]

    def known(self, word: str) -> bool:
        """Whether any passage holds a word; remembered until the index grows."""
        rows, _ = self.totals()
        if rows != self._known_at or len(self._known) > _WORDS:
            self._known, self._known_at = {}, rows
        if word not in self._known:
            found = self._connection.value(
                "SELECT 1 FROM search.originals WHERE originals MATCH ? LIMIT 1", (f'"{word}"',)
            )
            self._known[word] = found is not None
        return self._known[word]

    def like(self, word: str) -> list[tuple[str, int]]:
        """Words of the archive that begin as a word does, or with its first letters swapped."""
        found: list[tuple[str, int]] = []
        for start in dict.fromkeys([word[:SAME], word[1::-1]]):
            rows = self._connection.all(
                "SELECT term, doc FROM search.vocabulary WHERE term >= ? AND term < ?"
                f" AND length(term) BETWEEN ? AND ? LIMIT {_WORDS}",
                (start, start + "{", len(word) - 2, len(word) + 2),
            )
            found.extend((term, held) for term, held in rows)
        return found


def varints(packed: bytes) -> list[int]:
    """SQLite's variable-length integers in a row (https://sqlite.org/fileformat2.html)."""
    found = []
    value = 0
    for byte in packed:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            found.append(value)
            value = 0
    return found
