"""Codex rollouts: each line an envelope of ``type`` and ``payload``; the model's items one a line.

``event_msg`` lines tell the interface again what ``response_item`` lines tell the model: of them
only turn boundaries and the context window are read.
"""

from __future__ import annotations

from typing import Any

from ctxarchive.importers.assembly import Assembly
from ctxarchive.importers.blocks import Block, arguments_text, call_block, calls_of, user_data
from ctxarchive.importers.injected import USER, codex_reason, injected_source
from ctxarchive.importers.log import Entry, ImportedLog, RecordedCompaction
from ctxarchive.importers.models import known_context_window
from ctxarchive.importers.records import LogFile, Record
from ctxarchive.session.events import Origin

_OUTPUTS = {"function_call_output", "custom_tool_call_output", "tool_search_output"}
_NOT_FOR_THE_MODEL = {"ghost_snapshot"}


def read_codex(file: LogFile, *, finished: bool) -> ImportedLog:
    """Read a Codex rollout.

    Raises:
        LogFormatError: ``invalid``.
    """
    reader = _Reader()
    for record in file.records:
        reader.read(record)
    return reader.finish(file, finished=finished)


class _Reader:
    def __init__(self) -> None:
        self._assembly = Assembly()
        self._meta: Record | None = None
        self._provider: str | None = None
        self._model: str | None = None
        self._window: int | None = None
        self._turn = 0
        self._pending: list[tuple[Record, list[Block]]] = []

    def read(self, record: Record) -> None:
        self._assembly.seen(record, record.time("timestamp"))
        kind = record.text("type")
        blocks = _model_blocks(record) if kind == "response_item" else None
        if blocks is not None:
            self._pending.append((record, blocks))
            return
        self._flush()
        if kind == "session_meta":
            self._session_meta(record)
        elif kind == "turn_context":
            self._model = record.text("payload", "model") or self._model
            self._route(record)
        elif kind == "event_msg":
            self._event(record)
        elif kind == "response_item":
            self._item(record)
        elif kind == "compacted":
            self._compacted(record)

    def finish(self, file: LogFile, *, finished: bool) -> ImportedLog:
        if finished:
            self._flush()
        assembly = self._assembly
        meta = self._meta or Record(path=file.path, line=1, value={})
        return ImportedLog(
            format="codex",
            path=file.path,
            session_id=meta.text("payload", "id") or file.stem,
            title=None,
            cwd=meta.text("payload", "cwd"),
            created_at=meta.time("payload", "timestamp") or meta.time("timestamp"),
            model=self._model,
            provider=self._provider,
            context_window=self._window or known_context_window(self._model),
            items=assembly.finish(finished=finished),
            warnings=tuple(assembly.warnings),
            open_from=assembly.open_from,
        )

    def _session_meta(self, record: Record) -> None:
        if self._meta is not None:
            return
        self._meta = record
        self._provider = record.text("payload", "model_provider") or "openai"
        system = record.text("payload", "base_instructions", "text") or record.text(
            "payload", "instructions"
        )
        self._route(record, {"system": system} if system is not None else None)

    def _route(self, record: Record, extra: dict[str, Any] | None = None) -> None:
        self._assembly.route(
            self._assembly.routing.change(
                record,
                time=record.time("timestamp"),
                provider=self._provider,
                model=self._model,
                window=self._window or known_context_window(self._model),
                extra=extra,
            )
        )

    def _event(self, record: Record) -> None:
        kind = record.text("payload", "type")
        if kind in {"task_started", "task_complete", "turn_aborted"}:
            # No call outlives its turn.
            self._turn += 1
            self._assembly.close_calls(record, record.time("timestamp"))
        window = record.number("payload", "model_context_window") or record.number(
            "payload", "info", "model_context_window"
        )
        if window and window != self._window:
            self._window = window
            if self._model is not None:
                self._route(record)

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        blocks = [block for _, part in pending for block in part]
        if not blocks:
            return
        first, last = pending[0][0], pending[-1][0]
        line, last_line = first.line, last.line if last is not first else None
        record_id = first.text("payload", "id")
        source = {"kind": "model", "provider": self._provider, "model": self._model}
        message: dict[str, Any] = {"role": "assistant", "content": blocks, "source": source}
        where: dict[str, Any] = {"line": line, "id": record_id}
        if last_line is not None:
            where["last_line"] = last_line
        self._assembly.assistant(
            Entry(
                type="assistant/message",
                data={"message": message},
                time=first.time("timestamp"),
                origin=Origin(**where),
            ),
            calls_of(blocks),
            first,
            group=self._turn,
        )

    def _item(self, record: Record) -> None:
        kind, time = record.text("payload", "type"), record.time("timestamp")
        if kind in _OUTPUTS:
            content, failed = _output(record)
            self._assembly.result(
                record,
                record.at("payload", "call_id"),
                content,
                is_error=failed,
                time=time,
            )
        elif kind == "message" and record.text("payload", "role") == "assistant":
            # The answer to the harness's own request for a summary; the checkpoint holds it.
            data: dict[str, Any] = {"compactionOutput": record.at("payload", "content")}
            self._assembly.note(
                Entry(type="assistant/attempt", data=data, time=time, origin=record.origin)
            )
        elif kind == "message":
            self._user(record, time)

    def _user(self, record: Record, time: int | None) -> None:
        user = record.text("payload", "role") == "user"
        run: list[Block] = []
        reason: str | None = None
        for block in _content(record, record.at("payload", "content")):
            own = reason if run else None
            if not user:
                own = record.text("payload", "role") or "developer"
            elif block.get("type") == "text":
                own = codex_reason(block["text"])
            if run and own != reason:
                self._say(record, run, reason, time)
                run = []
            reason = own
            run.append(block)
        if run:
            self._say(record, run, reason, time)

    def _say(self, record: Record, run: list[Block], reason: str | None, time: int | None) -> None:
        source = USER if reason is None else injected_source(reason)
        data = user_data(run, source, record.text("payload", "id"))
        entry = Entry(type="user/message", data=data, time=time, origin=record.origin)
        self._assembly.user(entry, prompt=reason is None)

    def _compacted(self, record: Record) -> None:
        """A compaction replaces the whole history by what ``replacement_history`` lists.

        All of it becomes the checkpoint's content: old prompts and instructions that it repeats
        are no new messages, and go where the compaction goes.
        """
        time = record.time("timestamp")
        self._assembly.close_calls(record, time)
        summary = record.text("payload", "message") or ""
        history = record.at("payload", "replacement_history")
        content: list[Block] = []
        for item in history if isinstance(history, list) else ():
            if not isinstance(item, dict):
                raise record.invalid("an item of replacement_history is not an object")
            message = item.get("type") == "message"
            content += _content(record, item.get("content")) if message else [item]
        if summary and all(summary not in block.get("text", "") for block in content):
            content.append({"type": "text", "text": summary})
        if not content:
            self._assembly.warnings.append(f"line {record.line}: an empty compaction is left out")
            return
        texts = [block["text"] for block in content if block.get("type") == "text"]
        item = RecordedCompaction(
            summary=summary or "\n".join(texts),
            content=content,
            trigger="auto",
            shadows=None,
            pre_tokens=None,
            time=time,
            origin=record.origin,
        )
        self._assembly.compaction(item, record)


def _model_blocks(record: Record) -> list[Block] | None:
    """What the model itself said in this item; ``None`` where it is not the model's."""
    kind = record.text("payload", "type")
    if kind == "message":
        if record.text("payload", "role") != "assistant":
            return None
        if record.at("metadata", "compaction_output") is True:
            return None
        return _content(record, record.at("payload", "content"))
    if kind is None or kind in _OUTPUTS or kind in _NOT_FOR_THE_MODEL:
        return None
    payload: Block = record.value["payload"]
    return [_model_item(record, kind, payload)]


def _content(record: Record, content: Any) -> list[Block]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list):
        raise record.invalid("a message's content is neither text nor a list")
    return [_content_block(record, block) for block in content]


def _content_block(record: Record, block: Any) -> Block:
    if not isinstance(block, dict):
        raise record.invalid("a block of a message's content is not an object")
    kind, text = block.get("type", ""), block.get("text")
    if not isinstance(kind, str):
        raise record.invalid("a block of a message's content has a type that is no text")
    if kind in {"input_text", "output_text", "text"}:
        if not isinstance(text, str):
            raise record.invalid(f"an {kind} block holds no text")
        return {**block, "type": "text"}
    if kind == "input_image":
        return {**block, "type": "image", "url": block.get("image_url")}
    return block


def _model_item(record: Record, kind: str, payload: Block) -> Block:
    call_id = payload.get("call_id") or payload.get("id")
    if kind == "function_call":
        return call_block(record, call_id, payload.get("name"), payload.get("arguments"))
    if kind == "custom_tool_call":
        return call_block(record, call_id, payload.get("name"), payload.get("input"))
    if kind == "local_shell_call":
        return call_block(record, call_id, "local_shell", arguments_text(payload.get("action")))
    if kind == "tool_search_call":
        return call_block(record, call_id, "tool_search", payload.get("arguments"))
    if kind == "reasoning":
        parts = payload.get("summary")
        texts = [part.get("text") for part in parts or () if isinstance(part, dict)]
        text = "\n".join(text for text in texts if isinstance(text, str))
        return {**payload, "text": text}
    return payload


def _output(record: Record) -> tuple[list[Block], bool]:
    """A tool's output in any of its shapes, and whether it says that the tool failed."""
    output = record.at("payload", "output")
    if output is None:
        output = record.at("payload", "tools")
        return ([{"type": "text", "text": arguments_text(output)}] if output else []), False
    if isinstance(output, dict):
        failed = output.get("success") is False
        body = output.get("content_items") or output.get("content")
        return _content(record, "" if body is None else body), failed
    return _content(record, output), False
