"""The main job, shown: a session outgrows its window, is compacted, and nothing is out of reach.

Replays the example session that ships with the project into a fresh archive, then does what a model
would do with the checkpoint: runs two of its pointers and one search.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

import anyio
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ctxarchive.archive.format import ParsedEntry, Pointer, parse_additions
from ctxarchive.archive.rendering import render
from ctxarchive.compaction.checkpoint import parse_frame
from ctxarchive.importers.read import read_log
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase
from ctxarchive.replay.run import Replay, ReplayedCompaction, Replayer, ReplaySettings, pointer_json
from ctxarchive.tools.ctx_search import CtxSearchTool

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "scripts" / "example" / "session.jsonl"
FOLDER = ROOT / ".demo"
WINDOW = 40_000
SEARCH = "SessionError 不要改动"
BAR = 32
"""Widest bar, in columns."""
EXCERPT = (34, 16)
"""Lines of the checkpoint shown from its beginning and its end."""

out = Console(highlight=False)


def main() -> int:
    """Show it all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--full", action="store_true", help="print the whole checkpoint")
    full = parser.parse_args().full
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    started = time.perf_counter()
    with SqliteKnowledgeBase.open(FOLDER / "archive.db", render=render) as knowledge:
        replayer = Replayer(read_log(EXAMPLE), ReplaySettings(window=WINDOW), knowledge)
        replay = anyio.run(replayer.run)
        knowledge.index_pending()
        took = time.perf_counter() - started
        show_life(replay, took)
        last = replay.compactions[-1]
        show_checkpoint(last, full=full)
        tool = CtxSearchTool(knowledge, session=replay.session.id)
        ok = follow_pointers(replay, last, tool)
        show_search(tool)
    out.rule("[bold]that was all of it")
    out.print(
        f"The archive is in {FOLDER.name}/archive.db. Try:\n"
        f"  .venv/bin/ctxarchive search {FOLDER.name}/archive.db 'U+2028' splitlines\n"
        f"  .venv/bin/ctxarchive compact YOUR_LOG --archive {FOLDER.name}/yours.db",
        markup=False,
    )
    return 0 if ok else 1


def show_life(replay: Replay, took: float) -> None:
    """The session's numbers, and where the characters of each span went."""
    out.rule("[bold]an agent's session outgrows its window")
    out.print(
        f"{len(replay.log.items)} recorded events, {replay.tokens_before:,} tokens in all; "
        f"the window holds {WINDOW:,}. Whenever it filled up, the older part was filed in an "
        "archive, word for word, and a checkpoint took its place: a summary (here by a "
        "deterministic summarizer, without a model) and a pointer to everything it leaves out. "
        f"Replayed in {took:.1f} s."
    )
    table = Table(title="What each compaction did", title_justify="left", box=None, pad_edge=False)
    for title in (
        "",
        "left the context",
        "checkpoint",
        "records filed",
        "pointers",
        "filing",
        "in all",
    ):
        table.add_column(title, justify="right")
    for place, made in enumerate(replay.compactions):
        filed = sum(made.archived[layer] for layer in ("constraint", "finding", "narrative"))
        table.add_row(
            f"#{place + 1}",
            f"{made.shadowed_tokens:,} tokens",
            f"{made.checkpoint_tokens:,} tokens",
            str(filed),
            str(len(made.pointers)),
            f"{made.seconds['file'] * 1_000:.0f} ms",
            f"{made.seconds['total'] * 1_000:.0f} ms",
        )
    out.print(table)
    bars = Table(title="\nThe context", title_justify="left", box=None, pad_edge=False)
    bars.add_column("", no_wrap=True)
    bars.add_column("", no_wrap=True)
    bars.add_column("", justify="right")
    for name, tokens, colour in (
        ("without compaction", replay.tokens_before, "red"),
        ("window", WINDOW, "white"),
        ("now", replay.tokens_after, "green"),
    ):
        width = max(1, round(BAR * tokens / replay.tokens_before))
        bars.add_row(name, Text("█" * width, style=colour), f"{tokens:,} tokens")
    out.print(bars)
    where = Table(
        title="\nWhere the last span went", title_justify="left", box=None, pad_edge=False
    )
    for _ in range(3):
        where.add_column("", no_wrap=True)
    parts = where_it_went(replay.compactions[-1])
    total = sum(parts.values()) or 1
    for name, chars in parts.items():
        width = round(BAR * chars / total)
        where.add_row(name, Text("█" * width, style="cyan"), f"{chars:,} chars")
    out.print(where)


def where_it_went(made: ReplayedCompaction) -> dict[str, int]:
    """Characters of the span that are in view, and that a pointer stands for, by kind."""
    entries, _ = parse_additions(parse_frame(made.checkpoint).additions)
    parts = {"messages, in view": 0, "messages, by pointer": 0}
    tools = 0
    for entry in entries:
        if entry.section == "standing":
            continue
        if entry.role == "tool":
            tools += entry.chars
        elif entry.role != "run":
            shown = len(entry.head) + len(entry.tail)
            parts["messages, in view"] += shown
            parts["messages, by pointer"] += entry.chars - shown
    return {**parts, "tool output, by pointer": tools}


def show_checkpoint(made: ReplayedCompaction, *, full: bool) -> None:
    """The checkpoint as the model sees it."""
    page = FOLDER / "checkpoint.md"
    page.write_text(made.checkpoint, encoding="utf-8")
    lines = made.checkpoint.splitlines()
    head, tail = EXCERPT
    if not full and len(lines) > head + tail:
        gap = f"⋯ {len(lines) - head - tail} more lines: {FOLDER.name}/{page.name}, or --full ⋯"
        lines = [*lines[:head], gap, *lines[-tail:]]
    out.print()
    out.print(
        Panel(
            Text("\n".join(lines)),
            title="the last checkpoint, as the model sees it",
            title_align="left",
        )
    )


def follow_pointers(replay: Replay, made: ReplayedCompaction, tool: CtxSearchTool) -> bool:
    """Run two pointers of the checkpoint, and hold what they return against the log."""
    entries, _ = parse_additions(parse_frame(made.checkpoint).additions)
    pointers = [
        pointer
        for entry in sorted(entries, key=lambda entry: entry.role != "assistant")
        for pointer in leads(entry)
    ]
    out.rule("[bold]what a model would do: follow two pointers")
    good = len(pointers) > 1
    for pointer in (*pointers[:1], *pointers[-1:]):
        good &= follow(replay, pointer, tool)
    return good


def leads(entry: ParsedEntry) -> tuple[Pointer, ...]:
    """The calls that an entry leads to, each for one record; a folded run names several."""
    if entry.role == "run" and entry.pointer is not None:
        sources = entry.pointer.sources
        return tuple(Pointer(sources=sources, seq=seq) for seq in entry.named)
    return tuple(pointer for pointer in entry.pointers if pointer.seq is not None)


def follow(replay: Replay, pointer: Pointer, tool: CtxSearchTool) -> bool:
    """One pointer: the call, the answer's beginning, and whether it is what was left out."""
    call = {name: value for name, value in pointer_json(pointer).items() if value is not None}
    answer = tool.run(call)
    out.print(f"[bold green]→[/bold green] {pointer.call()}", soft_wrap=True)
    shown = answer.splitlines()
    for line in shown[:7]:
        out.print(f"  {line[:150]}", markup=False, soft_wrap=True)
    if len(shown) > 7:
        out.print(f"  ⋯ {len(shown) - 7} more lines of this answer", style="dim")
    body = answer.partition("\n")[2]
    event = replay.session.event_at(pointer.seq or 0)
    head = body.partition("\n")[0] if event.type == "tool/result" else ""
    wanted = render(event.json_text, head)[pointer.offset : pointer.offset + 500]
    same = bool(wanted) and body.startswith(wanted[: len(body)])
    verdict = "[green]the log's own words" if same else "[red]not what the log holds"
    out.print(f"  {verdict}[/]\n")
    return same


def show_search(tool: CtxSearchTool) -> None:
    """One search, in two scripts at once."""
    out.rule("[bold]and searches")
    out.print(f"[bold green]→[/bold green] ctx_search(queries: {SEARCH.split()}, limit: 2)")
    out.print(tool.run({"queries": SEARCH.split(), "limit": 2}), markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
