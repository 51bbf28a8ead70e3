"""What a span says without a model being asked: requests, files, errors, open items, rules.

Pure functions over messages. Tools are told apart by the shape of their arguments, not by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ctxarchive.session.messages import (
    Message,
    ToolCallBlock,
    ToolResultBlock,
    is_checkpoint_source,
    joined_text,
)

_PATH_KEYS = ("file_path", "filePath", "path", "notebook_path", "filename", "file", "target_file")
_EDIT_KEYS = frozenset(
    {
        "old_string", "new_string", "old_str", "new_str", "oldText", "newText", "content",
        "old", "new", "file_text", "edits", "insert_text", "new_source", "diff", "replacement",
    }
)  # fmt: skip
_PATCHED = re.compile(r"^\*\*\* (?:Update|Add|Delete) File: (.+)$", re.MULTILINE)
_WRITTEN = re.compile(r"(?:>>?|\btee(?: -a)?)\s*((?:[\w.~-]*/)*[\w.-]+\.\w{1,8})\b")
_PATH = re.compile(
    r"(?<![\w/.-])(?:~|\.{1,2})?/?(?:[\w.@-]+/)+[\w.@-]+|\b[\w-]+\.(?:py|ts|tsx|js|go|rs|java|c|h|cpp|md|toml|json|ya?ml|sh|sql|css|html)\b"
)
_ERROR = re.compile(
    r"^\W{0,4}(?:[\w./-]+:\d+(?::\d+)?:? )?(?:[\w.]*(?:Error|Exception|Failure)\b|(?:error|fatal|panic)\b"
    r"|ERROR\b|FATAL\b|FAILED\b|FAIL\b|Traceback \(most recent|E  +\S"
    r"|[Ee]xit code:? [1-9]\d*)|command not found|No such file|Permission denied"
)
_BARE_ERROR = re.compile(
    r"\W{0,4}(?:FAIL(?:ED)?|ERROR|[Ee]rror|fatal|panic|[Ee]xit code:? \d+|Traceback.*)[\s:.]*"
)
_DIFF_LINE = re.compile(r"[+-](?!--|\+\+)")
_NO_ERROR = re.compile(r"\b(?:0|no) (?:errors?|failures?)\b|\berrors?: 0\b", re.IGNORECASE)
_RULE = re.compile(
    r"\b(?:always|never|must(?: not)?|don'?t|do not|should(?: not)?|only|instead|prefer|avoid|make sure"
    r"|immer|niemals?|nicht|siempre|nunca)\b|(?:必须|不要|总是|应该|必ず|しないで|常に|禁止)",
    re.IGNORECASE,
)
_VALUE = re.compile(r"\b\w+\s*(?:=|is|are|:)\s*`?[\w./-]*\d[\w./-]*")
_NAME = re.compile(
    r"`([A-Za-z_][\w.]{3,60})(?:\(\))?`|\b([a-z]+[A-Z]\w{2,40}|[A-Z][a-z]+[A-Z]\w{2,40}|\w+_\w+)\b"
)
_SENTENCE = re.compile(r"(?:[^\n.!?。！？]|[.!?](?!\s|$))+[.!?。！？]?")


LAST_LINES = 20
"""Lines of an output in which a command says that it failed; what stands before is its subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a span says, each list oldest first."""

    requests: tuple[str, ...]
    """Every message of the user, verbatim."""
    earlier: tuple[str, ...]
    """Texts of checkpoints inside the span."""
    concepts: tuple[str, ...]
    """Names in play, most used first."""
    edited: tuple[str, ...]
    """Paths written or edited, last edited last."""
    read: tuple[str, ...]
    """Other paths that calls named, most used first."""
    errors: tuple[tuple[str, str], ...]
    """An error's line and what the assistant said next, if anything."""
    open_items: tuple[str, ...]
    """Items of the newest task list that are not done."""
    statements: tuple[str, ...]
    """Non-blank assistant texts."""
    rules: tuple[str, ...]
    """Sentences of the user that state a rule."""
    values: tuple[str, ...]
    """Sentences of the assistant that state a value."""


def collect(messages: Sequence[Message]) -> Facts:
    """The facts of ``messages``, in order."""
    requests = [joined_text(message.content) for message in messages if _is_user(message)]
    statements = [
        text
        for message in messages
        if message.role == "assistant" and (text := joined_text(message.content)).strip()
    ]
    edited, read = _paths(messages)
    return Facts(
        requests=tuple(text for text in requests if text.strip()),
        earlier=tuple(
            joined_text(message.content)
            for message in messages
            if is_checkpoint_source(message.source)
        ),
        concepts=_concepts([*requests, *statements]),
        edited=edited,
        read=read,
        errors=_errors(messages),
        open_items=open_items(messages),
        statements=tuple(statements),
        rules=tuple(dict.fromkeys(_sentences(requests, _RULE))),
        values=tuple(dict.fromkeys(_sentences(statements, _VALUE))),
    )


def arguments(call: ToolCallBlock) -> dict[str, Any]:
    """A call's arguments as an object; empty where they are none."""
    try:
        value = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def open_items(messages: Sequence[Message]) -> tuple[str, ...]:
    """What the newest task list of the span leaves undone.

    Two shapes are known: a call that carries the whole list (items with a text and a status), and
    calls that create one item and update its status by an id that the creating result names.
    """
    whole: list[str] = []
    single: dict[str, str] = {}
    created: dict[str, str] = {}
    for message in messages:
        for block in message.content:
            if isinstance(block, ToolCallBlock):
                values = arguments(block)
                listed = _listed_items(values)
                if listed is not None:
                    whole = listed
                elif isinstance(values.get("subject"), str):
                    created[block.id] = single[block.id] = values["subject"]
                elif "taskId" in values and values.get("status") in _DONE:
                    single.pop(f"#{values['taskId']}", None)
            elif isinstance(block, ToolResultBlock) and block.tool_call_id in created:
                subject = created.pop(block.tool_call_id)
                number = re.search(r"#(\w+)", joined_text(block.content))
                if number and single.pop(block.tool_call_id, None) is not None:
                    single[f"#{number.group(1)}"] = subject
    return tuple(dict.fromkeys([*whole, *single.values()]))


_DONE = frozenset({"completed", "done", "cancelled", "canceled", "deleted", "complete"})


def _listed_items(values: dict[str, Any]) -> list[str] | None:
    for key in ("todos", "items", "tasks", "plan", "todo_list"):
        items = values.get(key)
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            continue
        texts = [(_item_text(item), item.get("status"), item.get("completed")) for item in items]
        if items and all(text is None or status is None for text, status, _ in texts):
            continue
        return [text for text, status, done in texts if text and status not in _DONE and not done]
    return None


def _item_text(item: dict[str, Any]) -> str | None:
    for key in ("content", "step", "title", "subject", "text", "description"):
        if isinstance(item.get(key), str):
            return str(item[key])
    return None


def _is_user(message: Message) -> bool:
    return message.role == "user" and (message.source is None or message.source.kind == "user")


def _paths(messages: Sequence[Message]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    edited: dict[str, None] = {}
    used: dict[str, int] = {}
    for call in _calls(messages):
        values = arguments(call)
        named = [values[key] for key in _PATH_KEYS if isinstance(values.get(key), str)]
        touched = list(_PATCHED.findall(_patch_text(call, values)))
        if named and _EDIT_KEYS & values.keys():
            touched += named
        command = values.get("command")
        if isinstance(command, str):
            touched += _WRITTEN.findall(command)
            named += [path for path in _PATH.findall(command) if _is_file(path)]
        for path in touched:
            edited.pop(path, None)
            edited[path] = None
        for path in named:
            used[path] = used.get(path, 0) + 1
    folders = {path[:end] for path in [*used, *edited] for end in _slashes(path)}
    files = (path for path in used if path not in edited and path.rstrip("/") not in folders)
    ranked = sorted(files, key=lambda path: -used[path])
    return tuple(edited), tuple(ranked)


def _slashes(path: str) -> list[int]:
    return [place for place, character in enumerate(path) if character == "/"]


def _is_file(path: str) -> bool:
    """Whether a word of a command is a file's path: with an ending, and no pattern."""
    return "." in path.rpartition("/")[2].strip(".") and not path.endswith("...")


def _patch_text(call: ToolCallBlock, values: dict[str, Any]) -> str:
    for key in ("patch", "input", "command"):
        value = values.get(key)
        if isinstance(value, str) and "*** " in value:
            return value
        if isinstance(value, list):
            return "\n".join(str(part) for part in value)
    return call.arguments if "*** Begin Patch" in call.arguments and not values else ""


def _errors(messages: Sequence[Message]) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    waiting: list[str] = []
    quoting = {call.id for call in _calls(messages) if _quotes(arguments(call))}
    for message in messages:
        for block in message.content:
            if isinstance(block, ToolResultBlock):
                if block.tool_call_id in quoting and not block.is_error:
                    continue  # a file or a search result that talks of errors is not one
                line = error_line(joined_text(block.content), failed=block.is_error)
                if line is not None:
                    waiting.append(line)
        if message.role == "assistant" and waiting:
            said = joined_text(message.content).strip()
            if said:
                found += [(line, _first_sentence(said)) for line in waiting]
                waiting = []
    return tuple(found + [(line, "") for line in waiting])


def _quotes(values: dict[str, Any]) -> bool:
    """Whether a call shows what files hold rather than running something."""
    return "command" not in values and any(key in values for key in (*_PATH_KEYS, "pattern"))


def error_line(text: str, *, failed: bool) -> str | None:
    """The last line of a tool's output that says what its error is; of a failed call always one.

    A line that only says that there was one (``FAIL``, ``Exit code 1``) stands in where no other does;
    a line of a diff is no error.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    bare: str | None = None
    for line in reversed(lines if failed else lines[-LAST_LINES:]):
        if len(line) > 1_000 or not _ERROR.search(line) or _NO_ERROR.search(line):
            continue
        if _BARE_ERROR.fullmatch(line):
            bare = bare or line
        elif not _DIFF_LINE.match(line):
            return line
    return bare or (lines[0] if failed and lines else None)


def _concepts(texts: Iterable[str]) -> tuple[str, ...]:
    counts: dict[str, int] = {}
    for text in texts:
        for quoted, bare in _NAME.findall(text[:20_000]):
            name = quoted or bare
            counts[name] = counts.get(name, 0) + 1
    return tuple(sorted(counts, key=lambda name: -counts[name]))


def _sentences(texts: Iterable[str], pattern: re.Pattern[str]) -> Iterator[str]:
    for text in texts:
        for match in _SENTENCE.finditer(text[:20_000]):
            sentence = match.group().strip(" -*#>\t")
            if 8 <= len(sentence) <= 400 and _states(sentence) and pattern.search(sentence):
                yield sentence


def _states(sentence: str) -> bool:
    """Whether a sentence says something: no question, table row, heading or introduction."""
    halved = sentence.count("`") % 2 or sentence.count("**") % 2
    return not halved and sentence[0] not in "|`{" and sentence[-1] not in "?？:：|"


def _first_sentence(text: str) -> str:
    match = _SENTENCE.search(text)
    return match.group().strip() if match else text[:200]


def _calls(messages: Iterable[Message]) -> Iterator[ToolCallBlock]:
    for message in messages:
        for block in message.content:
            if isinstance(block, ToolCallBlock):
                yield block
