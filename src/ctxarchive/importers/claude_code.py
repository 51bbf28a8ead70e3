"""Claude Code's JSONL: one record a line, one assistant message over several lines.

The order is the file's; the tree of ``parentUuid`` is not followed. Progress reports, snapshots
and the structured copies of tool results were never shown to the model and are left out.
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
from ctxarchive.importers.injected import (
    USER,
    claude_code_reason,
    injected_source,
    starts_command,
)
from ctxarchive.importers.log import Entry, ImportedLog, RecordedCompaction
from ctxarchive.importers.models import known_context_window
from ctxarchive.importers.records import LogFile, Record
from ctxarchive.session.events import Origin

_SYNTHETIC = "<synthetic>"
"""The model name under which the harness writes answers of its own."""


def read_claude_code(file: LogFile, *, finished: bool, sidechains: bool) -> ImportedLog:
    """Read a Claude Code log.

    Args:
        file: its records.
        finished: whether the log is at its end.
        sidechains: whether to read what subagents did, too; in the place where it stands.

    Raises:
        LogFormatError: ``invalid``.
    """
    reader = _Reader()
    for record in file.records:
        reader.read(record, sidechains=sidechains)
    return reader.finish(file, finished=finished)


class _Reader:
    def __init__(self) -> None:
        self._assembly = Assembly()
        self._pending: list[Record] = []
        self._boundary: Record | None = None
        self._queue: list[str] = []
        self._first: dict[str, str] = {}
        self._created_at: int | None = None
        self._title: str | None = None
        self._left_out = 0

    def read(self, record: Record, *, sidechains: bool) -> None:
        if record.at("isSidechain") is True and not sidechains:
            self._flush()
            self._left_out += 1
            return
        self._describe(record)
        self._assembly.seen(record, record.time("timestamp"))
        kind = record.text("type")
        if kind == "assistant" and self._continues(record):
            self._pending.append(record)
            return
        self._flush()
        if kind == "assistant":
            self._drop_boundary(record)
            self._pending.append(record)
        elif kind == "user":
            self._user(record)
        elif kind == "system":
            self._system(record)
        elif kind == "queue-operation":
            self._queue_operation(record)
        elif kind == "attachment":
            self._attachment(record)

    def finish(self, file: LogFile, *, finished: bool) -> ImportedLog:
        if finished:
            self._flush()
            if self._boundary is not None:
                self._drop_boundary(self._boundary)
        assembly = self._assembly
        items = assembly.finish(finished=finished)
        if self._left_out:
            assembly.warnings.append(f"{self._left_out} sidechain records are left out")
        return ImportedLog(
            format="claude-code",
            path=file.path,
            session_id=self._first.get("sessionId") or file.stem,
            title=self._title,
            cwd=self._first.get("cwd"),
            created_at=self._created_at,
            model=assembly.routing.model,
            provider=assembly.routing.provider,
            context_window=assembly.routing.window,
            items=items,
            warnings=tuple(assembly.warnings),
            open_from=assembly.open_from,
        )

    def _describe(self, record: Record) -> None:
        for name in ("sessionId", "cwd"):
            if name not in self._first and (value := record.text(name)):
                self._first[name] = value
        if self._created_at is None:
            self._created_at = record.time("timestamp")
        if self._title is None and record.text("type") == "summary":
            self._title = record.text("summary")
        if record.text("type") == "custom-title":
            self._title = record.text("customTitle") or self._title

    def _continues(self, record: Record) -> bool:
        if not self._pending:
            return False
        message_id = record.text("message", "id")
        last = self._pending[-1]
        return (
            message_id is not None
            and message_id == last.text("message", "id")
            and record.at("isSidechain") == last.at("isSidechain")
        )

    def _flush(self) -> None:
        records, self._pending = self._pending, []
        if not records:
            return
        first, last = records[0], records[-1]
        blocks: list[Block] = []
        for record in records:
            blocks += assistant_blocks(record, record.at("message", "content"), "message.content")
        if not blocks:
            return
        time = first.time("timestamp")
        model = first.text("message", "model")
        source: dict[str, Any] = {"kind": "model", "provider": "anthropic", "model": model}
        if model == _SYNTHETIC or first.at("isApiErrorMessage") is True:
            source = injected_source("synthetic")
        elif model:
            self._assembly.route(
                self._assembly.routing.change(
                    first,
                    time=time,
                    provider="anthropic",
                    model=model,
                    window=known_context_window(model),
                )
            )
        message_id = first.text("message", "id")
        message: dict[str, Any] = {"role": "assistant", "content": blocks, "source": source}
        if message_id is not None:
            message["id"] = message_id
        data: dict[str, Any] = {"message": message}
        if isinstance(usage := last.at("message", "usage"), dict):
            data["recordedUsage"] = usage
        origin = Origin(line=first.line, id=first.text("uuid"))
        if last is not first:
            origin = Origin(line=first.line, last_line=last.line, id=first.text("uuid"))
        self._assembly.assistant(
            Entry(type="assistant/message", data=data, time=time, origin=origin),
            calls_of(blocks),
            first,
            group=message_id or first.line,
        )

    def _user(self, record: Record) -> None:
        content = content_list(record, record.at("message", "content"), "message.content")
        if content and record.at("isCompactSummary") is True and self._boundary is not None:
            self._compaction(record, content)
            return
        self._drop_boundary(record)
        results = any(block.get("type") == "tool_result" for block in content)
        run: list[Block] = []
        reason: str | None = None
        for block in content:
            if block.get("type") == "tool_result":
                self._say(record, run, reason, prompt=False)
                run = []
                self._result(record, block)
                continue
            if block.get("type") == "text":
                own = self._reason(record, block["text"])
                if run and own != reason:
                    self._say(record, run, reason, prompt=not results)
                    run = []
                reason = own
            elif not run:
                reason = "meta" if record.at("isMeta") is True else None
            run.append(block)
        self._say(record, run, reason, prompt=not results)

    def _reason(self, record: Record, text: str) -> str | None:
        if record.at("isMeta") is True:
            return "meta"
        if record.at("isCompactSummary") is True:
            return "continuation"
        return claude_code_reason(text)

    def _say(self, record: Record, run: list[Block], reason: str | None, *, prompt: bool) -> None:
        if not run:
            return
        source = USER if reason is None else injected_source(reason)
        text = first_text(run)
        local = text.lstrip().startswith("<command-name>")  # run by the harness, not by the model
        prompt = prompt and ((reason is None and not local) or starts_command(text))
        data = user_data(run, source, record.text("uuid"))
        entry = Entry(
            type="user/message", data=data, time=record.time("timestamp"), origin=record.origin
        )
        self._assembly.user(entry, prompt=prompt)

    def _result(self, record: Record, block: Block) -> None:
        self._assembly.result(
            record,
            block.get("tool_use_id"),
            content_list(record, block.get("content"), "a tool result"),
            is_error=block.get("is_error") is True,
            time=record.time("timestamp"),
        )

    def _system(self, record: Record) -> None:
        subtype = record.text("subtype")
        if subtype == "compact_boundary":
            self._drop_boundary(record)
            self._boundary = record
        elif subtype == "local_command" and (text := record.text("content")):
            # Put to the model with the next request, like the user records of the same kind.
            block = {"type": "text", "text": text}
            self._say(record, [block], "local-command", prompt=False)

    def _queue_operation(self, record: Record) -> None:
        """Text typed while the model worked.

        What is dequeued follows as a user record. What is removed was handed to the model within
        the turn, and this is the only place where the log holds it.
        """
        operation, text = record.text("operation"), record.text("content")
        if operation == "enqueue":
            self._queue.append(text or "")
        elif operation == "popAll":
            self._queue.clear()
        elif operation in {"dequeue", "remove"} and self._queue:
            text = self._queue.pop(0)
            if operation == "remove" and text:
                reason = "command" if text.startswith("/") else claude_code_reason(text)
                self._say(record, [{"type": "text", "text": text}], reason, prompt=False)

    def _attachment(self, record: Record) -> None:
        if record.text("attachment", "type") != "queued_command":
            return
        run = content_list(record, record.at("attachment", "prompt"), "attachment.prompt")
        self._say(record, run, claude_code_reason(first_text(run)), prompt=False)

    def _compaction(self, record: Record, content: list[Block]) -> None:
        boundary, self._boundary = self._boundary, None
        if boundary is None:
            return
        time = record.time("timestamp")
        self._assembly.close_calls(record, time)
        item = RecordedCompaction(
            summary="\n".join(b["text"] for b in content if b.get("type") == "text"),
            content=content,
            trigger=boundary.text("compactMetadata", "trigger") or "auto",
            shadows=None,
            pre_tokens=boundary.number("compactMetadata", "preTokens"),
            time=time,
            origin=Origin(line=boundary.line, last_line=record.line, id=record.text("uuid")),
        )
        self._assembly.compaction(item, record)

    def _drop_boundary(self, record: Record) -> None:
        if self._boundary is not None:
            self._assembly.warnings.append(
                f"line {self._boundary.line}: a compaction without summary is left out "
                f"(line {record.line} goes on without it)"
            )
            self._boundary = None
