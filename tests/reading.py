"""Reads a printed checkpoint and follows its calls, by the documented format alone.

Uses none of the package's own readers: what it finds is what a model could find. A test loads it by
its path, since tests are no package.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ctxarchive.session.log import Session
from ctxarchive.tools.ctx_search import CtxSearchTool

# --- reading a checkpoint, by its documented format ------------------------------------------

CALL = r'ctx_search\(source: (?P<source>"[^"]*"|\[[^\]]*\]), (?P<rest>[a-z_]+: -?\d+(?:, [a-z_]+: \d+)*)\)'


def call_line(name: str, arguments: str) -> str:
    """The line above a tool's output, by a rule of our own: one line, and nothing of it lost."""
    odd = re.search(r"[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]", arguments)
    if odd:
        arguments = json.dumps(arguments, ensure_ascii=False)
        for character in "\x7f\x85\u2028\u2029":
            arguments = arguments.replace(character, f"\\u{ord(character):04x}")
    return " ".join(part for part in (" ".join(name.split()), arguments) if part)


@dataclass(frozen=True)
class Shown:
    """One thing that a checkpoint shows: a call, or a message's texts around what calls return."""

    kind: str
    seq: int
    size: int
    """Code points of the whole; of a run, its records; of a quote, where it begins."""
    call: dict[str, Any] | None = None
    parts: tuple[str | dict[str, Any], ...] = ()
    named: tuple[int, ...] = ()


def arguments(match: re.Match[str]) -> dict[str, Any]:
    """A printed call as a model would send it."""
    numbers = dict(part.split(": ") for part in match["rest"].split(", "))
    call: dict[str, Any] = {name: int(value) for name, value in numbers.items()}
    return {"source": json.loads(match["source"]), **call}


def read_checkpoint(text: str) -> Iterator[Shown]:
    """Everything that a checkpoint shows behind its summary, in order."""
    opening = re.search(r"\n\n<summary chars=(\d+)>\n", text)
    assert opening is not None
    place = opening.end() + int(opening[1])
    assert text[place:].startswith("\n</summary>")
    place += len("\n</summary>")
    while place < len(text):
        if text[place] == "\n":
            place += 1
            continue
        line = text[place:].partition("\n")[0]
        if line in {"## Standing User Messages", "## Conversation Transcript"}:
            place += len(line)
        elif line == "## Archive Index":
            return
        elif heading := re.fullmatch(r"## \[(user|assistant) (\d+), (\d+) chars\]", line):
            start = place + len(line) + 1
            shown, place = read_message(text, start, heading[1], int(heading[2]), int(heading[3]))
            yield shown
        elif quote := re.fullmatch(r"## \[user (\d+), chars (\d+)\.\.(\d+)\]", line):
            seq, start, end = (int(quote[group]) for group in (1, 2, 3))
            place += len(line) + 1
            yield Shown("quote", seq, start, parts=(text[place : place + end - start],))
            place += end - start
        elif tool := re.fullmatch(
            rf"## \[tool \S+ seq (\d+), (\d+) chars(?:: .*?)? → {CALL}\]", line
        ):
            yield Shown("tool", int(tool[1]), int(tool[2]), call=arguments(tool))
            place += len(line)
        else:
            run = re.fullmatch(
                r"\[\.\.\. (\d+) older (?:entries|user messages) elided \(seq (\d+)\.\.\d+\); "
                rf"retrieve with {CALL} \.\.\.\]",
                line,
            ) or re.fullmatch(
                rf"## \[(\d+) entries, seq (\d+)\.\.\d+: (?P<items>.+) → {CALL}\]", line
            )
            assert run is not None, line
            named = tuple(
                int(item[1])
                for part in run.groupdict().get("items", "").split(" · ")
                if (item := re.match(r"(?:\S+ )??(\d+)(?: |$)", part))
            )
            yield Shown("run", int(run[2]), int(run[1]), call=arguments(run), named=named)
            place += len(line)


def read_message(text: str, start: int, role: str, seq: int, size: int) -> tuple[Shown, int]:
    """A message, and where it ends: the notice that stands where its own offset says is real."""
    notice = re.compile(
        rf"\n\[\.\.\. (\d+) of {size} chars elided from seq {seq}; retrieve with {CALL} \.\.\.\]\n"
    )
    parts: list[str | dict[str, Any]] = []
    known = 0
    place = start
    while match := notice.search(text, place, place + size - known + 5_000):
        call = arguments(match)
        offset = known + match.start() - start
        if (call.get("seq"), call.get("offset"), call.get("length")) == (
            seq,
            offset,
            int(match[1]),
        ) and offset + int(match[1]) <= size:
            parts += [text[start : match.start()], call]
            known = offset + int(match[1])
            start = place = match.end()
        else:
            place = match.start() + 1
    end = start + size - known
    return Shown(role, seq, size, parts=(*parts, text[start:end])), end


# --- following its calls ---------------------------------------------------------------------


def fetch(tool: CtxSearchTool, call: dict[str, Any]) -> str:
    """What a call and its continuations return, put together."""
    parts: list[str] = []
    while True:
        answer = tool.run(call)
        assert len(answer) <= 8_000
        heading, _, rest = answer.partition("\n")
        part = re.search(r" \[(\d+)\.\.(\d+) of \d+\]$", heading)
        size = re.search(r", (\d+) chars(?:, with .*)?(?: \[\d+\.\.\d+ of \d+\])?$", heading)
        assert size is not None
        body = rest[: int(part[2]) - int(part[1]) if part else int(size[1])]
        parts.append(body)
        more = re.fullmatch(rf"\n\[\d+\.\.\d+ of \d+\] continue with {CALL}", rest[len(body) :])
        if more is None:
            assert rest == body
            return "".join(parts)
        call = arguments(more)


def fetch_run(tool: CtxSearchTool, call: dict[str, Any]) -> dict[int, str]:
    """The records that a listing and its continuations return, by seq."""
    found: dict[int, str] = {}
    while True:
        answer = tool.run(call)
        assert len(answer) <= 8_000
        place, follow = 0, None
        while place < len(answer):
            more = re.compile(rf"\[more records follow\] continue with {CALL}").match(answer, place)
            if more is not None:
                follow = arguments(more)
                break
            heading = re.compile(
                r"\[session/\S+ seq (\d+)\] [^\n]*?, (\d+) chars(?:, with [^\n]*?)?(?: \[0\.\.(\d+) of \d+\])?\n"
            ).match(answer, place)
            assert heading is not None, answer[place : place + 100]
            size = int(heading[3] or heading[2])
            body = answer[heading.end() : heading.end() + size]
            place = heading.end() + size
            rest = re.compile(rf"\n\[\d+\.\.\d+ of \d+\] continue with {CALL}").match(answer, place)
            if heading[3]:
                assert rest is not None
                body += fetch(tool, arguments(rest))
                place = rest.end()
            found[int(heading[1])] = body
            assert answer[place : place + 2] in {"", "\n\n"}
            place += 2
        if follow is None:
            return found
        call = follow


# --- the truth, from the log's JSON ----------------------------------------------------------


def texts_of(session: Session) -> dict[int, str]:
    """The text of every event of a log, by design: blocks joined, results under their call."""
    lines = [json.loads(json.dumps(event.wire())) for event in session.events]
    calls: dict[str, str] = {}
    found: dict[int, str] = {}
    for line in lines:
        data = line["data"]
        if line["type"] == "user/message":
            blocks = data["content"]
        elif line["type"] == "assistant/message":
            blocks = data["message"]["content"]
            calls |= {
                block["id"]: call_line(block["name"], block["arguments"])
                for block in blocks
                if block["type"] == "tool-call"
            }
        elif line["type"] == "tool/result":
            (block,) = data["message"]["content"]
            body = "\n".join(part["text"] for part in block["content"])
            found[line["seq"]] = f"{calls[block['toolCallId']]}\n{body}"
            continue
        else:
            continue
        found[line["seq"]] = "\n".join(b["text"] for b in blocks if b["type"] == "text")
    return found


def check_checkpoint(text: str, tool: CtxSearchTool, truth: dict[int, str]) -> list[Shown]:
    """Every call in a checkpoint returns what was left out; what is shown is what was said."""
    shown = list(read_checkpoint(text))
    for each in shown:
        if each.kind == "run":
            assert each.call is not None
            records = fetch_run(tool, each.call)
            assert len(records) == each.size
            assert {seq: truth[seq] for seq in records} == records
            assert records.keys() >= set(each.named)
        elif each.kind == "quote":
            (part,) = each.parts
            assert part == truth[each.seq][each.size : each.size + len(part)]
        else:
            parts = each.parts if each.call is None else (each.call,)
            whole = "".join(p if isinstance(p, str) else fetch(tool, p) for p in parts)
            assert whole == truth[each.seq]
            assert len(truth[each.seq]) == each.size
    return shown


def joined_text(blocks: list[dict[str, Any]]) -> str:
    """The text blocks among some, joined by a newline."""
    return "\n".join(block["text"] for block in blocks if block["type"] == "text")
