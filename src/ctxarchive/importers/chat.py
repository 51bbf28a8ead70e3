"""Plain lists of chat messages, in the shape of OpenAI's or Anthropic's API.

System messages become the request header's system prompt: they are not part of the conversation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from ctxarchive.importers.assembly import Assembly
from ctxarchive.importers.blocks import (
    Block,
    assistant_blocks,
    call_block,
    calls_of,
    content_list,
    user_data,
)
from ctxarchive.importers.injected import USER, injected_reason, injected_source
from ctxarchive.importers.log import Entry, ImportedLog
from ctxarchive.importers.models import known_context_window
from ctxarchive.importers.records import LogFile, Record
from ctxarchive.session.jsontext import dump_json


def read_chat(file: LogFile, *, finished: bool) -> ImportedLog:
    """Read a list of messages.

    Raises:
        LogFormatError: ``invalid``.
    """
    around, messages = _messages(file)
    reader = _Reader(around)
    for record in messages:
        reader.read(record)
    assembly = reader.assembly
    return ImportedLog(
        format="chat",
        path=file.path,
        session_id=around.text("id") or around.text("session_id") or _made_id(file, messages),
        title=around.text("title"),
        cwd=None,
        created_at=around.time("created_at"),
        model=assembly.routing.model,
        provider=assembly.routing.provider,
        context_window=assembly.routing.window,
        items=assembly.finish(finished=finished),
        warnings=tuple(assembly.warnings),
        open_from=assembly.open_from,
    )


def _made_id(file: LogFile, messages: Sequence[Record]) -> str:
    """The file's name and a hash of how the conversation begins.

    Two files of one name in different folders are different sessions, and one that grows stays one.
    """
    first = next((at for at, record in enumerate(messages) if record.text("role") == "user"), -1)
    beginning = dump_json([record.value for record in messages[: first + 1]])
    digest = hashlib.blake2b(beginning.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{file.stem}-{digest}"


def _messages(file: LogFile) -> tuple[Record, list[Record]]:
    """What stands around the messages, and the messages."""
    nothing = Record(path=file.path, line=1, value={})
    document = file.document
    if document is None and file.records and "messages" in file.records[0].value:
        if len(file.records) > 1:
            raise file.records[1].invalid("another conversation begins; give each its own file")
        document = file.records[0].value
    if document is None:
        return nothing, list(file.records)
    if isinstance(document, dict):
        nothing = Record(path=file.path, line=1, value=document)
        document = document.get("messages")
    records: list[Record] = []
    for position, value in enumerate(document if isinstance(document, list) else (), 1):
        if not isinstance(value, dict):
            raise Record(path=file.path, line=position, value={}).invalid(
                "a message is not an object"
            )
        records.append(Record(path=file.path, line=position, value=value))
    return nothing, records


class _Reader:
    def __init__(self, around: Record) -> None:
        self.assembly = Assembly()
        self._around = around
        self._system: list[str] = []
        self._functions = 0
        tools = around.at("tools")
        extra = {"tools": tools} if isinstance(tools, list) else {}
        if around.at("system") is not None:
            self._add_system(around, around.at("system"), extra)
        elif extra or around.text("model"):
            self._route(around, extra)

    def read(self, record: Record) -> None:
        self.assembly.seen(record, self._time(record))
        role = record.text("role")
        if role in {"system", "developer"}:
            self._add_system(record, record.at("content"), {})
        elif role == "user":
            self._user(record)
        elif role == "assistant":
            self._assistant(record)
        elif role in {"tool", "function"}:
            legacy = role == "function"
            self._result(
                record,
                f"function-{self._functions}" if legacy else record.at("tool_call_id"),
                record.at("content"),
                is_error=record.at("is_error") is True,
            )
        else:
            raise record.invalid(f"the role {role!r} is none of a chat")

    @staticmethod
    def _time(record: Record) -> int | None:
        return record.time("timestamp") or record.time("created_at")

    def _add_system(self, record: Record, content: Any, extra: dict[str, Any]) -> None:
        blocks = content_list(record, content, "the system prompt")
        self._system += [block["text"] for block in blocks if block.get("type") == "text"]
        self._route(record, {**extra, "system": "\n\n".join(self._system)})

    def _route(self, record: Record, extra: dict[str, Any]) -> None:
        model = self._around.text("model")
        self.assembly.route(
            self.assembly.routing.change(
                record,
                time=self._time(record),
                provider=self._around.text("provider"),
                model=model,
                window=self._around.number("context_window") or known_context_window(model),
                extra=extra,
            )
        )

    def _user(self, record: Record) -> None:
        content = content_list(record, record.at("content"), "content")
        results = any(block.get("type") == "tool_result" for block in content)
        run: list[Block] = []
        reason: str | None = None
        for block in content:
            if block.get("type") == "tool_result":
                self._say(record, run, reason, prompt=not results)
                run = []
                self._result(
                    record,
                    block.get("tool_use_id"),
                    block.get("content"),
                    is_error=block.get("is_error") is True,
                )
                continue
            own = reason if run else None
            if block.get("type") == "text":
                own = injected_reason(block["text"])
            if run and own != reason:
                self._say(record, run, reason, prompt=not results)
                run = []
            reason = own
            run.append(_image(block))
        self._say(record, run, reason, prompt=not results)

    def _say(self, record: Record, run: list[Block], reason: str | None, *, prompt: bool) -> None:
        if not run:
            return
        source = USER if reason is None else injected_source(reason)
        data = user_data(run, source, record.text("id"))
        entry = Entry(type="user/message", data=data, time=self._time(record), origin=record.origin)
        self.assembly.user(entry, prompt=prompt and reason is None)

    def _assistant(self, record: Record) -> None:
        blocks: list[Block] = []
        if reasoning := record.text("reasoning_content"):
            blocks.append({"type": "reasoning", "text": reasoning})
        blocks += assistant_blocks(record, record.at("content"), "content")
        if refusal := record.text("refusal"):
            blocks.append({"type": "refusal", "refusal": refusal})
        calls = record.at("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            blocks.append(_call(record, call))
        if isinstance(legacy := record.at("function_call"), dict):
            self._functions += 1
            name = f"function-{self._functions}"
            blocks.append(call_block(record, name, legacy.get("name"), legacy.get("arguments")))
        if not blocks:
            return
        source = {"kind": "model", "model": record.text("model") or self._around.text("model")}
        message: dict[str, Any] = {"role": "assistant", "content": blocks, "source": source}
        data: dict[str, Any] = {"message": message}
        if isinstance(usage := record.at("usage"), dict):
            data["recordedUsage"] = usage
        entry = Entry(
            type="assistant/message", data=data, time=self._time(record), origin=record.origin
        )
        self.assembly.assistant(entry, calls_of(blocks), record, group=record.line)

    def _result(self, record: Record, call_id: Any, content: Any, *, is_error: bool) -> None:
        self.assembly.result(
            record,
            call_id,
            [_image(block) for block in content_list(record, content, "a tool result")],
            is_error=is_error,
            time=self._time(record),
        )


def _call(record: Record, call: Any) -> Block:
    function = call.get("function") if isinstance(call, dict) else None
    if isinstance(function, dict):
        arguments = function.get("arguments")
        return call_block(record, call.get("id"), function.get("name"), arguments)
    custom = call.get("custom") if isinstance(call, dict) else None
    if isinstance(custom, dict):
        return call_block(record, call.get("id"), custom.get("name"), custom.get("input"))
    raise record.invalid("a tool call holds no function")


def _image(block: Block) -> Block:
    """OpenAI's image block as an image of ours; every other block as it came."""
    if block.get("type") != "image_url":
        return block
    place = block.get("image_url")
    return {**block, "type": "image", "url": place.get("url") if isinstance(place, dict) else place}
