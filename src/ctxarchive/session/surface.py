"""The surface: the ordered seqs a model currently sees. Pure state, no events, no files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ctxarchive.errors import SessionError


class Surface:
    """An ordered set of seqs that grows at its end and shrinks by replacement.

    After a replacement seqs are no longer ascending: membership is a matter of position.
    """

    def __init__(self) -> None:
        self._seqs: list[int] = []
        self._position: dict[int, int] = {}
        self._generation = 0

    @property
    def replace_generation(self) -> int:
        """How many replacements have happened; while it stays, the surface has only grown."""
        return self._generation

    @property
    def nodes(self) -> tuple[int, ...]:
        """The seqs in surface order; a copy of O(length)."""
        return tuple(self._seqs)

    def __len__(self) -> int:
        return len(self._seqs)

    def __iter__(self) -> Iterator[int]:
        return iter(self._seqs)

    def __contains__(self, seq: object) -> bool:
        return seq in self._position

    def __getitem__(self, position: int) -> int:
        return self._seqs[position]

    def since(self, position: int) -> list[int]:
        """The seqs from ``position`` on."""
        return self._seqs[position:]

    def position(self, seq: int) -> int:
        """Where ``seq`` stands.

        Raises:
            SessionError: ``surface``, when it is not on the surface.
        """
        try:
            return self._position[seq]
        except KeyError:
            raise SessionError("surface", f"seq {seq} is not on the surface") from None

    def span(self, start: int, end: int) -> tuple[int, ...]:
        """The seqs from ``start`` to ``end``, both included, by surface position.

        Raises:
            SessionError: ``surface``, when either is absent or they are out of order.
        """
        first, last = self.position(start), self.position(end)
        if first > last:
            raise SessionError("surface", f"seq {start} stands after seq {end} on the surface")
        return tuple(self._seqs[first : last + 1])

    def append(self, seq: int) -> None:
        """Add ``seq`` at the end."""
        self._position[seq] = len(self._seqs)
        self._seqs.append(seq)

    def extend(self, seqs: Sequence[int]) -> None:
        """Add ``seqs`` at the end, in their order."""
        length = len(self._seqs)
        self._position.update(zip(seqs, range(length, length + len(seqs)), strict=True))
        self._seqs.extend(seqs)

    def replace(self, start: int, end: int, seq: int) -> tuple[int, ...]:
        """Put ``seq`` in the place of ``start`` to ``end`` and return what it shadows.

        Raises:
            SessionError: ``surface``, when the run is not one of the surface.
        """
        shadowed = self.span(start, end)
        first = self._position[start]
        self._seqs[first : first + len(shadowed)] = [seq]
        for gone in shadowed:
            del self._position[gone]
        for place in range(first, len(self._seqs)):
            self._position[self._seqs[place]] = place
        self._generation += 1
        return shadowed
