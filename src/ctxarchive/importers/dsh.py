"""Sessions of DSH, and our own: logs that already speak in events.

Events are carried verbatim and put in new places; what names a place by seq is handed on as item
indices. A compaction's bracket becomes one recorded compaction. Reports of what was filed in an
archive are left out: they speak of another archive, in seqs that no longer hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ctxarchive.importers.assembly import Assembly
from ctxarchive.importers.blocks import content_list, first_text
from ctxarchive.importers.brackets import Bracket, read_compaction
from ctxarchive.importers.event_fields import answered, calls_made, payload
from ctxarchive.importers.injected import injected_reason, injected_source
from ctxarchive.importers.log import Entry, ImportedLog, LogFormat
from ctxarchive.importers.records import LogFile, Record

_DROPPED = {"archive/filed", "archive/failed"}


def read_dsh(file: LogFile, *, finished: bool, own: bool) -> ImportedLog:
    """Read a session of events.

    Args:
        file: its records.
        finished: whether the log is at its end.
        own: whether it is a session of ours, whose token counts are those of its own requests.

    Raises:
        LogFormatError: ``invalid``.
    """
    reader = _Reader(own=own)
    for record in file.records[1:]:
        reader.read(record)
    return reader.finish(file, finished=finished, log_format="ctxarchive" if own else "dsh")


class _Reader:
    def __init__(self, *, own: bool) -> None:
        self._own = own
        self._assembly = Assembly(turns=False)
        self._bracket: Bracket | None = None
        self._position = 0
        self._system: str | None = None
        self._title: str | None = None
        self._model: dict[str, Any] = {}
        self._prune: tuple[Record, int] | None = None

    def read(self, record: Record) -> None:
        self._assembly.seen(record, record.time("time"))
        seq = record.number("seq")
        key = self._position if seq is None else seq
        self._position = key + 1
        self._event(record, key)

    def finish(self, file: LogFile, *, finished: bool, log_format: LogFormat) -> ImportedLog:
        if finished:
            self._release_prune()
            self._abandon("it never ended")
        header, assembly = file.records[0], self._assembly
        return ImportedLog(
            format=log_format,
            path=file.path,
            session_id=header.text("id") or file.stem,
            title=self._title or header.text("title"),
            cwd=header.text("cwd"),
            created_at=header.time("createdAt"),
            model=self._model.get("model"),
            provider=self._model.get("provider"),
            context_window=self._model.get("contextWindow"),
            items=assembly.finish(finished=finished),
            warnings=tuple(assembly.warnings),
            open_from=assembly.open_from,
        )

    def _event(self, record: Record, key: int) -> None:
        kind = record.text("type")
        if kind is None:
            raise record.invalid("an event without type")
        if not isinstance(record.at("surfaceOp"), dict):
            self._release_prune()
        if kind in {"compaction/start", "session/end-seed"}:
            self._abandon(f"line {record.line} begins anew")
        if kind == "compaction/start":
            self._bracket = Bracket(start=record)
        elif self._bracket is not None:
            self._inside(self._bracket, record, kind, key)
        elif kind in {"compaction/summary", "compaction/end"}:
            self._assembly.warnings.append(
                f"line {record.line}: {kind} outside a compaction is left out"
            )
        elif kind not in _DROPPED:
            self._plain(record, kind, key)

    def _inside(self, bracket: Bracket, record: Record, kind: str, key: int) -> None:
        if kind == "compaction/summary":
            bracket.summary, bracket.summary_key = record, key
        elif kind == "compaction/end":
            self._end(bracket, record)
        elif bracket.takes(record):
            bracket.checkpoint, bracket.checkpoint_key = record, key
        else:
            bracket.inside.append((record, key))

    def _end(self, bracket: Bracket, record: Record) -> None:
        if record.at("data", "error") is not None:
            self._abandon("it failed")
        elif bracket.checkpoint is None:
            self._abandon("it has no checkpoint")
        else:
            self._let_out(bracket)
            self._compaction(bracket, record)

    def _abandon(self, why: str) -> None:
        """Drop a bracket that did not end well.

        Where its checkpoint is on the log the surface was replaced all the same, and what follows
        builds on that.
        """
        bracket = self._bracket
        if bracket is None:
            return
        kept = bracket.checkpoint is not None
        fate = "is kept for its checkpoint, though" if kept else "is left out,"
        self._assembly.warnings.append(f"line {bracket.start.line}: a compaction {fate} {why}")
        self._let_out(bracket)
        if bracket.checkpoint is not None:
            self._compaction(bracket, bracket.checkpoint)

    def _compaction(self, bracket: Bracket, end: Record) -> None:
        item = read_compaction(bracket, end, self._assembly)
        if item is None:
            self._assembly.warnings.append(
                f"line {bracket.start.line}: a compaction that replaces nothing is left out"
            )
            return
        self._assembly.compaction(item, end, key=bracket.checkpoint_key)
        if bracket.summary_key is not None and bracket.checkpoint_key in self._assembly.index:
            at = self._assembly.index[bracket.checkpoint_key]
            self._assembly.index[bracket.summary_key] = at

    def _let_out(self, bracket: Bracket) -> None:
        self._bracket = None
        for record, key in bracket.inside:
            self._event(record, key)

    def _plain(self, record: Record, kind: str, key: int) -> None:
        place: dict[str, Callable[[Record, int], None]] = {
            "user/message": self._user,
            "assistant/message": self._assistant,
            "tool/result": self._result,
            "system/message": self._system_message,
            "request/header": self._header,
            "compaction/prune": self._hold_prune,
        }
        if kind in place:
            place[kind](record, key)
            return
        data = record.value.get("data", {})
        if kind == "request/context" and isinstance(data, dict):
            self._model = {**self._model, **data}
        if kind == "session/title":
            self._title = record.text("data", "title") or self._title
        self._assembly.note(self._entry(record, data), key=key)

    def _entry(self, record: Record, data: Any, replaces: tuple[int, ...] = ()) -> Entry:
        cited = record.at("sourceEventSeqs")
        known = self._assembly.index
        sources = [
            known[seq]
            for seq in (cited if isinstance(cited, list) else ())
            if isinstance(seq, int) and seq in known
        ]
        return Entry(
            type=record.value["type"],
            data=data,
            time=record.time("time"),
            origin=record.origin,
            replaces=replaces,
            sources=tuple(at for at in sources if at not in replaces),
        )

    def _user(self, record: Record, key: int) -> None:
        data = payload(record)
        blocks = content_list(record, data.get("content"), "data.content")
        kind = record.text("data", "source", "kind") or "user"
        if kind == "user" and (reason := injected_reason(first_text(blocks))):
            data = {**data, "source": injected_source(reason)}
        if self._replaces(record, data, key):
            return
        self._assembly.user(self._entry(record, data), prompt=False, key=key)

    def _assistant(self, record: Record, key: int) -> None:
        data = payload(record)
        content = record.at("data", "message", "content")
        blocks = content_list(record, content, "data.message.content")
        if not self._own and "usage" in data:
            data = {**data, "recordedUsage": data["usage"]}
            del data["usage"]
        calls = calls_made(record, blocks)
        if self._replaces(record, data, key, calls=calls):
            return
        entry = self._entry(record, data)
        self._assembly.assistant(entry, calls, record, group=key, key=key)

    def _result(self, record: Record, key: int) -> None:
        data = payload(record)
        call_id = answered(record)
        if self._replaces(record, data, key, answer=call_id):
            return
        if call_id is not None and self._assembly.is_open(call_id):
            self._assembly.answer(self._entry(record, data), call_id, key=key)
            return
        content = record.at("data", "message", "content")
        blocks = content_list(record, content, "data.message.content")
        inner = next((b for b in blocks if b.get("type") == "tool-result"), None)
        if inner is not None:
            blocks = content_list(record, inner.get("content"), "a tool result")
        time = record.time("time")
        self._assembly.result(record, call_id, blocks, is_error=False, time=time, key=key)

    def _replaces(
        self,
        record: Record,
        data: dict[str, Any],
        key: int,
        *,
        calls: Iterable[str] = (),
        answer: str | None = None,
    ) -> bool:
        operation = record.at("surfaceOp")
        if not isinstance(operation, dict):
            return False
        bracket = Bracket(start=record, checkpoint=record, checkpoint_key=key)
        if bracket.is_checkpoint(record):
            item = read_compaction(bracket, record, self._assembly)
            if item is not None:
                self._assembly.compaction(item, record, key=key)
            return True
        run = bracket.run(record, self._assembly)
        if not run:
            raise record.invalid("a replacement of what is not on the surface")
        if self._prune is not None:
            prune, prune_key = self._prune
            self._prune = None
            self._assembly.note(self._entry(prune, payload(prune), run), key=prune_key)
        entry = self._entry(record, data, run)
        self._assembly.replace(entry, record, calls=calls, answer=answer, key=key)
        return True

    def _hold_prune(self, record: Record, key: int) -> None:
        self._release_prune()
        self._prune = (record, key)

    def _release_prune(self) -> None:
        """A price of a replacement that did not follow: it says nothing any more."""
        if self._prune is not None:
            line = self._prune[0].line
            self._assembly.warnings.append(f"line {line}: nothing was pruned; left out")
            self._prune = None

    def _system_message(self, record: Record, key: int) -> None:
        content = record.at("data", "message", "content")
        blocks = content_list(record, content, "data.message.content")
        self._system = "\n".join(b["text"] for b in blocks if b.get("type") == "text")
        self._header_entry(record, {"header": {}}, key)

    def _header(self, record: Record, key: int) -> None:
        self._header_entry(record, payload(record), key)

    def _header_entry(self, record: Record, data: dict[str, Any], key: int) -> None:
        header = data.get("header")
        if not isinstance(header, dict):
            raise record.invalid("a request/header without header")
        if self._system is not None and "system" not in header:
            data = {**data, "header": {**header, "system": self._system}}
        config = header.get("config")
        if isinstance(config, dict):
            self._model = {**self._model, **config}
        entry = self._entry(record, data)
        entry = Entry(type="request/header", data=data, time=entry.time, origin=entry.origin)
        self._assembly.note(entry, key=key)
