"""pi's JSONL: a header, then messages, model changes and compactions, one entry a line.

Reads the linear files, in which ``firstKeptEntryIndex`` counts the file's entries from 0, header
included.
"""

from __future__ import annotations

from typing import Any

from ctxarchive.importers.assembly import Assembly
from ctxarchive.importers.blocks import (
    Block,
    assistant_blocks,
    calls_of,
    content_list,
    first_text,
    user_data,
)
from ctxarchive.importers.injected import USER, injected_reason, injected_source
from ctxarchive.importers.log import Entry, ImportedLog, RecordedCompaction
from ctxarchive.importers.models import known_context_window
from ctxarchive.importers.records import LogFile, Record


def read_pi(file: LogFile, *, finished: bool) -> ImportedLog:
    """Read a pi session.

    Raises:
        LogFormatError: ``invalid``.
    """
    reader = _Reader()
    for number, record in enumerate(file.records):
        reader.read(number, record)
    return reader.finish(file, finished=finished)


class _Reader:
    def __init__(self) -> None:
        self._assembly = Assembly()
        self._header: Record | None = None
        self._ids: dict[str, int] = {}
        self._lines: list[int] = []

    def read(self, number: int, record: Record) -> None:
        self._lines.append(record.line)
        if (entry_id := record.text("id")) is not None:
            self._ids[entry_id] = number
        time = record.time("timestamp")
        self._assembly.seen(record, time)
        kind = record.text("type")
        if kind == "session":
            self._header = self._header or record
            self._route(record, record.text("provider"), record.text("modelId"))
        elif kind == "model_change":
            self._route(record, record.text("provider"), record.text("modelId"))
        elif kind == "message":
            self._message(record)
        elif kind == "custom_message":
            blocks = content_list(record, record.at("content"), "content")
            self._user(record, blocks, record.text("customType") or "extension")
        elif kind in {"compaction", "branch_summary"}:
            self._summary(record)

    def finish(self, file: LogFile, *, finished: bool) -> ImportedLog:
        assembly = self._assembly
        header = self._header or Record(path=file.path, line=1, value={})
        return ImportedLog(
            format="pi",
            path=file.path,
            session_id=header.text("id") or file.stem,
            title=None,
            cwd=header.text("cwd"),
            created_at=header.time("timestamp"),
            model=assembly.routing.model,
            provider=assembly.routing.provider,
            context_window=assembly.routing.window,
            items=assembly.finish(finished=finished),
            warnings=tuple(assembly.warnings),
            open_from=assembly.open_from,
        )

    def _route(self, record: Record, provider: str | None, model: str | None) -> None:
        if model is not None:
            self._assembly.route(
                self._assembly.routing.change(
                    record,
                    time=record.time("timestamp"),
                    provider=provider,
                    model=model,
                    window=known_context_window(model),
                )
            )

    def _message(self, record: Record) -> None:
        role = record.text("message", "role")
        if role == "user":
            blocks = content_list(record, record.at("message", "content"), "message.content")
            reason = injected_reason(first_text(blocks))
            self._user(record, blocks, reason)
        elif role == "assistant":
            self._assistant(record)
        elif role == "toolResult":
            self._assembly.result(
                record,
                record.at("message", "toolCallId"),
                content_list(record, record.at("message", "content"), "a tool result"),
                is_error=record.at("message", "isError") is True,
                time=record.time("timestamp"),
            )
        elif role == "bashExecution":
            self._user(record, [{"type": "text", "text": _bash_text(record)}], "bash")

    def _user(self, record: Record, blocks: list[Block], reason: str | None) -> None:
        if not blocks:
            return
        source = USER if reason is None else injected_source(reason)
        data = user_data(blocks, source)
        entry = Entry(
            type="user/message", data=data, time=record.time("timestamp"), origin=record.origin
        )
        self._assembly.user(entry, prompt=reason is None)

    def _assistant(self, record: Record) -> None:
        provider, model = record.text("message", "provider"), record.text("message", "model")
        blocks = assistant_blocks(record, record.at("message", "content"), "message.content")
        time = record.time("timestamp")
        if not blocks:
            # An aborted or failed request: nothing the model could see again.
            failure = {
                key: value
                for key in ("stopReason", "errorMessage")
                if (value := record.text("message", key)) is not None
            }
            self._assembly.note(
                Entry(type="assistant/attempt", data=failure, time=time, origin=record.origin)
            )
            return
        self._route(record, provider, model)
        source = {"kind": "model", "provider": provider, "model": model}
        data: dict[str, Any] = {
            "message": {"role": "assistant", "content": blocks, "source": source}
        }
        if isinstance(usage := record.at("message", "usage"), dict):
            data["recordedUsage"] = usage
        self._assembly.assistant(
            Entry(type="assistant/message", data=data, time=time, origin=record.origin),
            calls_of(blocks),
            record,
            group=record.line,
        )

    def _summary(self, record: Record) -> None:
        summary, time = record.text("summary"), record.time("timestamp")
        if summary is None:
            raise record.invalid("a compaction without summary text")
        if record.text("type") == "branch_summary":
            self._user(record, [{"type": "text", "text": summary}], "branch-summary")
            return
        assembly = self._assembly
        assembly.close_calls(record, time)
        kept = self._first_kept(record)
        shadows: tuple[int, ...] | None = None
        if kept is not None:
            before = (at for at in assembly.surface if (assembly.items[at].origin.line or 0) < kept)
            shadows = assembly.balanced(before)
            if not shadows and assembly.surface:
                assembly.warnings.append(
                    f"line {record.line}: a compaction that replaces nothing is left out"
                )
                return
        item = RecordedCompaction(
            summary=summary,
            content=[{"type": "text", "text": summary}],
            trigger=record.text("trigger") or "auto",
            shadows=shadows,
            pre_tokens=record.number("tokensBefore"),
            time=time,
            origin=record.origin,
        )
        assembly.compaction(item, record)

    def _first_kept(self, record: Record) -> int | None:
        """The line of the first entry that stays; ``None`` where nothing does."""
        number = record.number("firstKeptEntryIndex")
        kept_id = record.text("firstKeptEntryId")
        if number is None and kept_id is not None:
            number = self._ids.get(kept_id)
        if number is None:
            return None
        if not 0 <= number < len(self._lines):
            raise record.invalid(f"the first kept entry {number} is not before the compaction")
        return self._lines[number]


def _bash_text(record: Record) -> str:
    """A command that the user ran himself, as text for the model."""
    command, output = record.text("message", "command"), record.text("message", "output")
    body = f"```\n{output}\n```" if output else "(no output)"
    text = f"Ran `{command or ''}`\n{body}"
    if record.at("message", "cancelled") is True:
        return text + "\n\n(command cancelled)"
    code = record.number("message", "exitCode")
    return text + f"\n\nCommand exited with code {code}" if code else text
