"""``ctxarchive search``: searches an archive."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ctxarchive.cli.app import DONE, FAILED
from ctxarchive.cli.archives import open_existing
from ctxarchive.cli.marking import mark_json
from ctxarchive.cli.output import echo_json, line
from ctxarchive.errors import KnowledgeError, ToolInputError

if TYPE_CHECKING:
    from ctxarchive.knowledge.records import Mark, SourceRef
    from ctxarchive.knowledge.store import Hit, KnowledgeBase, SearchAnswer

    Marks = dict[tuple[str, int], Mark]


@click.command("search", help="Search ARCHIVE for each QUERY.")
@click.argument("archive", type=click.Path(path_type=Path))
@click.argument("queries", metavar="QUERY...", nargs=-1, required=True)
@click.option("--session", help="Only records of this session.")
@click.option(
    "--source",
    "sources",
    multiple=True,
    help="Only this source, session/<id>/<layer> or session/<id>; may be given several times.",
)
@click.option("--after-seq", type=int, help="Only records after this seq.")
@click.option("--before-seq", type=int, help="Only records before this seq.")
@click.option("--after", metavar="DATE", help="Only records from this date or time on, in UTC.")
@click.option("--before", metavar="DATE", help="Only records before this date or time, in UTC.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000),
    default=5,
    show_default=True,
    help="Most hits a query.",
)
@click.option("--semantic", is_flag=True, help="Find by meaning too; needs the extra semantic.")
@click.option("--explain", is_flag=True, help="Say why each hit ranks where it does.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    archive: Path,
    queries: tuple[str, ...],
    session: str | None,
    sources: tuple[str, ...],
    after_seq: int | None,
    before_seq: int | None,
    after: str | None,
    before: str | None,
    limit: int,
    semantic: bool,
    explain: bool,
    as_json: bool,
) -> int:
    """Search an archive."""
    from ctxarchive.knowledge.store import Scope, SearchRequest

    after_time, before_time = _moment(after, "--after", -1), _moment(before, "--before", 0)
    with _opened(archive, semantic=semantic) as knowledge:
        scope = Scope(
            sources=_sources(knowledge, session, sources),
            after_seq=after_seq,
            before_seq=before_seq,
            after_time=after_time,
            before_time=before_time,
        )
        answers = [
            knowledge.search(SearchRequest(query=query, scope=scope, limit=limit, explain=explain))
            for query in queries
        ]
        marks = {
            (session, seq): mark
            for session in {hit.session for answer in answers for hit in answer.hits}
            for seq, mark in knowledge.marks(session).items()
        }
    if as_json:
        echo_json({"queries": [_answer_json(answer, marks) for answer in answers]})
    else:
        for answer in answers:
            _print(answer, marks)
    return DONE if any(answer.hits for answer in answers) else FAILED


def _opened(archive: Path, *, semantic: bool) -> KnowledgeBase:
    """The archive; by meaning, what it makes of the records is kept where that is possible.

    Raises:
        ConfigError: when the extra is not installed.
        KnowledgeError: when the archive cannot be opened.
    """
    if not semantic:
        return open_existing(archive)
    from ctxarchive.integrations.semantic import static_embeddings

    writable = os.access(archive, os.W_OK) and os.access(archive.absolute().parent, os.W_OK)
    return open_existing(archive, "rw" if writable else "ro", semantic=static_embeddings())


def _sources(
    knowledge: KnowledgeBase, session: str | None, labels: tuple[str, ...]
) -> tuple[SourceRef, ...] | None:
    """What to search: all of the archive, one session, or the labels.

    Raises:
        KnowledgeError: ``missing`` for a session that is not there, ``scope`` for a label of
            another session than the one asked for.
    """
    from ctxarchive.knowledge.records import SourceRef, parse_source

    if session is None and not labels:
        return None
    known = {info.session for info in knowledge.sessions()}
    if session is not None and session not in known:
        raise KnowledgeError(
            "missing",
            f"--session {session!r}: not in this archive; the command sessions lists them",
        )
    found = tuple(parse_source(label) for label in labels)
    for label, source in zip(labels, found, strict=True):
        if source.session not in known:
            raise KnowledgeError(
                "missing",
                f"--source {label!r}: no such session in this archive; the command sessions lists "
                "them",
            )
        if session is not None and source.session != session:
            raise KnowledgeError(
                "scope", f"--source {label!r}: not of --session {session!r}; leave one of them out"
            )
    return found or (SourceRef(session=session or ""),)


def _moment(text: str | None, option: str, shift: int) -> int | None:
    """A date as milliseconds since the epoch.

    Raises:
        UsageError: naming the option, for what is neither a date nor a time.
    """
    from ctxarchive.tools.arguments import moment

    try:
        return moment(text, option, shift)
    except ToolInputError:
        raise click.UsageError(
            f"{option} {text!r}: not a date or time; write 2026-03-31 or 2026-03-31T14:00Z"
        ) from None


def _answer_json(answer: SearchAnswer, marks: Marks) -> dict[str, Any]:
    return {
        "query": answer.query,
        "tier": answer.tier,
        "hits": [_hit_json(hit, marks) for hit in answer.hits],
    }


def _hit_json(hit: Hit, marks: Marks) -> dict[str, Any]:
    from ctxarchive.knowledge.records import source_label

    return {
        "session": hit.session,
        "source": source_label(hit.session, hit.layer),
        "seq": hit.seq,
        "layer": hit.layer,
        "role": hit.role,
        "name": hit.name,
        "chars": hit.chars,
        "score": round(hit.score, 6),
        "snippet": hit.snippet,
        "kind": hit.kind,
        "time": hit.time,
        "offset": hit.offset,
        **({"why": list(hit.why)} if hit.why else {}),
        "mark": mark_json(marks.get((hit.session, hit.seq))),
    }


def _print(answer: SearchAnswer, marks: Marks) -> None:
    from ctxarchive.knowledge.records import source_label

    line(f"{answer.query!r}: {len(answer.hits)} hits ({answer.tier})")
    for hit in answer.hits:
        who = f"{hit.role} {hit.name}" if hit.name else hit.role
        label = source_label(hit.session, hit.layer)
        mark = marks.get((hit.session, hit.seq))
        told = "" if mark is None else f" ({mark.told()})"
        line(f"  {label} seq {hit.seq}  {who}{told}, {hit.chars} chars")
        line(f"    {hit.snippet}")
        for reason in hit.why:
            line(f"      {reason}")
