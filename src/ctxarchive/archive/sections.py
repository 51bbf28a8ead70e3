"""One section of a checkpoint as lines: entries, dropped runs, and folded runs of tool results. Pure.

Neighbours that are left out, and tools' results, share one line: it names what the tools did and
holds one call, which returns every entry between its seqs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from ctxarchive.archive.transcript import Entry, folded_line, run_line


def section(
    entries: Iterable[tuple[Entry, bool]], archived: Sequence[int], *, what: str
) -> list[str]:
    """The lines of a section.

    Args:
        entries: each with whether it is left out.
        archived: seqs of all that a run's call could return, ascending.
        what: how a dropped run's line calls its entries.
    """
    runs: list[_Run | str] = [_Run()]
    for entry, dropped in entries:
        on_line = dropped or entry.kind == "tool"
        if entry.record is None or not (on_line or entry.kind == "hidden"):
            runs += [entry.shown, _Run()]
            continue
        run = runs[-1]
        if not isinstance(run, _Run) or not run.reaches(entry, archived):
            run = _Run()
            runs.append(run)
        if on_line:
            run.add(entry, dropped=dropped)
        elif run.entries:
            run.pass_by(entry)
    lines = (run.line(what) if isinstance(run, _Run) else run for run in runs)
    return [line for line in lines if line]


class _Run:
    """Neighbours that share a line."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._passed: list[Entry] = []
        """Hidden entries behind them, which belong to the line only if something follows."""
        self._tools: list[Entry] = []

    def reaches(self, entry: Entry, archived: Sequence[int]) -> bool:
        """Whether nothing archived lies between the run's end and ``entry``."""
        last = [*self.entries[-1:], *self._passed[-1:]]
        return not last or _adjacent(last[-1].seq, entry.seq, archived)

    def add(self, entry: Entry, *, dropped: bool) -> None:
        """Take in an entry that is left out, or the result of a tool."""
        self.entries += [*self._passed, entry]
        self._passed = []
        if not dropped and entry.record is not None and entry.record.text:
            self._tools.append(entry)

    def pass_by(self, entry: Entry) -> None:
        """Take in a hidden entry."""
        self._passed.append(entry)

    def line(self, what: str) -> str:
        """The run's line; empty where it holds nothing."""
        records = [entry.record for entry in self.entries if entry.record is not None]
        told = sum(1 for record in records if record.text or record.images)
        if not told:
            return ""
        if not self._tools:
            return run_line(records, what=what)
        return self._tools[0].shown if told == 1 else folded_line(records, self._tools)


def _adjacent(before: int, after: int, archived: Sequence[int]) -> bool:
    """Whether nothing archived lies between two seqs, which must ascend."""
    if after <= before:
        return False
    place = bisect_right(archived, before)
    return place < len(archived) and archived[place] == after
