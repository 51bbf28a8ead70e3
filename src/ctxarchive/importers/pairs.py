"""Which tool calls of a log are open, and which surface items make or answer them. No text here."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ctxarchive.importers.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCall:
    """A call that waits for its result."""

    name: str
    """The tool's name."""
    group: Hashable
    """The answer it is part of."""
    record: Record
    """Where it was made."""


class Pairs:
    """The calls of one log, as far as it has been read."""

    def __init__(self) -> None:
        self.open: dict[str, OpenCall] = {}
        self._gone: set[str] = set()
        self._calls: dict[int, tuple[str, ...]] = {}
        self._answers: dict[int, tuple[str, ...]] = {}

    def knows(self, call_id: str) -> bool:
        """Whether a call of this id has been made."""
        return call_id in self.open or call_id in self._gone

    def of_others(self, group: Hashable) -> list[str]:
        """The open calls that are not part of ``group``."""
        return [call_id for call_id, call in self.open.items() if call.group != group]

    def make(
        self, index: int, calls: Mapping[str, str], record: Record, *, group: Hashable
    ) -> None:
        """The item at ``index`` makes calls: their ids, and the names of their tools."""
        self._calls[index] = tuple(calls)
        for call_id, name in calls.items():
            self.open[call_id] = OpenCall(name=name, group=group, record=record)

    def answer(self, index: int, call_id: str) -> None:
        """The item at ``index`` answers an open call."""
        self._answers[index] = (call_id,)
        del self.open[call_id]
        self._gone.add(call_id)

    def replaceable(self, gone: Sequence[int], calls: Iterable[str], answer: str | None) -> bool:
        """Whether an item with these calls and this answer can stand for the items ``gone``."""
        made = {call for at in gone for call in self._calls.get(at, ())}
        answered = {call for at in gone for call in self._answers.get(at, ())}
        mine = set() if answer is None else {answer}
        return made - answered == set(calls) and answered - made == mine

    def replace(self, index: int, calls: Iterable[str], answer: str | None) -> None:
        """The item at ``index`` stands for others that made or answered the same."""
        self._calls[index] = tuple(calls)
        self._answers[index] = () if answer is None else (answer,)

    def balanced(self, run: Sequence[int]) -> int:
        """How many items from the head of ``run`` on can go without parting a call from its result.

        Zero where it begins with a result whose call stands before it.
        """
        waiting: set[str] = set()
        length = 0
        for number, at in enumerate(run, 1):
            waiting.update(self._calls.get(at, ()))
            answers = self._answers.get(at, ())
            if not waiting.issuperset(answers):
                break
            waiting.difference_update(answers)
            if not waiting:
                length = number
        return length
