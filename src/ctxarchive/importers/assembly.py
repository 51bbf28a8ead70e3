"""Items in the order of the file, made into a valid conversation as they come.

Opens and closes turns, pairs calls with results, holds user text while calls are open. A stream:
nothing here may look ahead, so that the items of a log's beginning are the beginning of its items.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from ctxarchive.importers.blocks import Block, result_data, user_data
from ctxarchive.importers.injected import injected_source
from ctxarchive.importers.log import Entry, Item, RecordedCompaction
from ctxarchive.importers.pairs import Pairs
from ctxarchive.importers.records import Record
from ctxarchive.importers.routing import Routing

NO_RESULT = "The log holds no result for this call."
"""What stands as the result of a call that the log leaves unanswered."""


class Assembly:
    """Builds the items of one log.

    Args:
        turns: whether turn events are made here; a log that holds its own brings them itself.
    """

    def __init__(self, *, turns: bool = True) -> None:
        self.items: list[Item] = []
        self.surface: list[int] = []
        """Indices of the items on the log's own surface, in surface order."""
        self.index: dict[Hashable, int] = {}
        """Item indices by the key their maker gave them."""
        self.warnings: list[str] = []
        self.routing = Routing()
        self.open_from: int | None = None
        """After the end: where the unit begins that holds calls without a result."""
        self._turns = turns
        self._turn = 0
        self._turn_used = False
        self._pairs = Pairs()
        self._held: list[tuple[Entry, Hashable]] = []
        self._safe = 0
        self._last: Record | None = None
        self._last_time: int | None = None

    def note(self, entry: Entry, *, key: Hashable = None) -> None:
        """Add an event of the log only."""
        self._put(entry, key)
        self._settle()

    def route(self, entries: Iterable[Entry]) -> None:
        """Add what a change of the :attr:`routing` gave."""
        for entry in entries:
            self.note(entry)

    def user(self, entry: Entry, *, prompt: bool, key: Hashable = None) -> None:
        """Add a user message, once no call is open.

        Args:
            entry: the message.
            prompt: whether it is one that starts a turn.
            key: what to find its index by.
        """
        if self._pairs.open:
            self._held.append((entry, key))
            return
        self._enter_turn(entry, starts=prompt and self._turn_used)
        self._turn_used = self._turn_used or prompt
        self._place(entry, key)
        self._settle()

    def assistant(
        self,
        entry: Entry,
        calls: Mapping[str, str],
        record: Record,
        *,
        group: Hashable,
        key: Hashable = None,
    ) -> None:
        """Add a model's message; calls of other groups that are still open get a stand-in result.

        Args:
            entry: the message.
            calls: ids and tool names of its calls.
            record: where it stands.
            group: names the answer it is part of.
            key: what to find its index by.

        Raises:
            LogFormatError: ``invalid``, when a call's id is that of one still open.
        """
        others = self._pairs.of_others(group)
        if others:
            self._close(others, entry.time, record)
        for call_id in calls:
            if call_id in self._pairs.open:
                raise record.invalid(f"tool call {call_id!r} is made while it is already open")
        self._enter_turn(entry, starts=False)
        self._turn_used = True
        self._pairs.make(self._place(entry, key), calls, record, group=group)
        self._settle()

    def result(
        self,
        record: Record,
        call_id: Any,
        content: list[Block],
        *,
        is_error: bool,
        time: int | None,
        key: Hashable = None,
    ) -> None:
        """Add a tool's answer.

        A second answer, or one that comes after its call was closed, is kept as text.

        Raises:
            LogFormatError: ``invalid``, when its call is not known.
        """
        if not isinstance(call_id, str) or not self._pairs.knows(call_id):
            raise record.invalid(f"a tool result answers the call {call_id!r}, which is not there")
        if call_id not in self._pairs.open:
            if not content:
                return
            source = {**injected_source("late-result"), "callId": call_id}
            data = user_data(content, source)
            self.user(
                Entry(type="user/message", data=data, time=time, origin=record.origin),
                prompt=False,
                key=key,
            )
            return
        data = result_data(call_id, self._pairs.open[call_id].name, content, is_error=is_error)
        entry = Entry(type="tool/result", data=data, time=time, origin=record.origin)
        self.answer(entry, call_id, key=key)

    def answer(self, entry: Entry, call_id: str, *, key: Hashable = None) -> None:
        """Add a finished ``tool/result`` of a call that is open."""
        self._pairs.answer(self._place(entry, key), call_id)
        self._settle()

    def is_open(self, call_id: str) -> bool:
        """Whether a call of this id waits for its result."""
        return call_id in self._pairs.open

    def replace(
        self,
        entry: Entry,
        record: Record,
        *,
        calls: Iterable[str] = (),
        answer: str | None = None,
        key: Hashable = None,
    ) -> None:
        """Add an entry that takes the place of the surface items it names.

        Args:
            entry: the replacement.
            record: where it stands.
            calls: ids of the calls it makes.
            answer: id of the call it answers.
            key: what to find its index by.

        Raises:
            LogFormatError: ``invalid``, when it would part a call from its result.
        """
        first = self.surface.index(entry.replaces[0])
        gone = self.surface[first : first + len(entry.replaces)]
        if not self._pairs.replaceable(gone, calls, answer):
            raise record.invalid("a replacement parts a tool call from its result")
        index = self._put(entry, key)
        self._pairs.replace(index, calls, answer)
        self.surface[first : first + len(gone)] = [index]
        self._settle()

    def close_calls(self, record: Record, time: int | None) -> None:
        """Give every open call a stand-in result."""
        if self._pairs.open:
            self._close(list(self._pairs.open), time, record)

    def compaction(self, item: RecordedCompaction, record: Record, *, key: Hashable = None) -> None:
        """Add a compaction; one that would part a call from its result gives way headward."""
        if not self.surface:
            self.warnings.append(
                f"line {record.line}: the log begins after what its compaction replaced"
            )
            data = user_data(item.content, injected_source("continuation"))
            self.user(
                Entry(type="user/message", data=data, time=item.time, origin=item.origin),
                prompt=False,
                key=key,
            )
            return
        index = self._put(item, key)
        if item.shadows is None:
            self.surface = [index]
        else:
            first = self.surface.index(item.shadows[0])
            self.surface[first : first + len(item.shadows)] = [index]
        self._settle()

    def balanced(self, indices: Iterable[int]) -> tuple[int, ...]:
        """The run of surface items that ``indices`` span, cut back to where it parts no pair.

        Empty where nothing is left of it.
        """
        wanted = set(indices)
        places = [place for place, at in enumerate(self.surface) if at in wanted]
        if not places:
            return ()
        first, last = places[0], places[-1]
        while last + 1 < len(self.surface) and self._is_stand_in(self.surface[last + 1]):
            last += 1
        run = self.surface[first : last + 1]
        return tuple(run[: self._pairs.balanced(run)])

    def finish(self, *, finished: bool) -> tuple[Item, ...]:
        """The items; of a log still being written, those that nothing to come can change."""
        if not finished:
            return tuple(self.items[: self._safe])
        if self._last is not None:
            if self._pairs.open:
                self.open_from = self._safe
            self.close_calls(self._last, self._last_time)
            if self._turns and self._turn:
                self._put(self._turn_event("turn/end", self._last_time, self._last), None)
        return tuple(self.items)

    def seen(self, record: Record, time: int | None) -> None:
        """Remember the record that is being read: what ends the log stands at its last one."""
        self._last = record
        self._last_time = time if time is not None else self._last_time

    def _enter_turn(self, entry: Entry, *, starts: bool) -> None:
        if not self._turns or (self._turn and not starts):
            return
        for kind in ("turn/end", "turn/start") if self._turn else ("turn/start",):
            self._turn += kind == "turn/start"
            data = {"turn": self._turn}
            self._put(Entry(type=kind, data=data, time=entry.time, origin=entry.origin), None)
        self._turn_used = False

    def _turn_event(self, kind: str, time: int | None, record: Record) -> Entry:
        return Entry(type=kind, data={"turn": self._turn}, time=time, origin=record.origin)

    def _close(self, call_ids: list[str], time: int | None, record: Record) -> None:
        for call_id in call_ids:
            call = self._pairs.open[call_id]
            content = [{"type": "text", "text": NO_RESULT}]
            data = {**result_data(call_id, call.name, content, is_error=True), "synthetic": True}
            self.warnings.append(f"line {call.record.line}: no result for the call {call_id!r}")
            entry = Entry(type="tool/result", data=data, time=time, origin=record.origin)
            self.answer(entry, call_id)

    def _is_stand_in(self, index: int) -> bool:
        item = self.items[index]
        return isinstance(item, Entry) and item.data.get("synthetic") is True

    def _settle(self) -> None:
        """Where no call is open: let held text in, and note that so far nothing can change."""
        if self._pairs.open:
            return
        held, self._held = self._held, []
        for entry, key in held:
            self._enter_turn(entry, starts=False)
            self._place(entry, key)
        self._safe = len(self.items)

    def _place(self, entry: Entry, key: Hashable) -> int:
        index = self._put(entry, key)
        self.surface.append(index)
        return index

    def _put(self, item: Item, key: Hashable) -> int:
        self.items.append(item)
        if key is not None:
            self.index[key] = len(self.items) - 1
        return len(self.items) - 1
