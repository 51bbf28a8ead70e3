"""``ctxarchive search``: searches an archive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ctxarchive.cli.archives import open_for_reading
from ctxarchive.cli.output import console, echo_json
from ctxarchive.errors import KnowledgeError
from ctxarchive.knowledge.records import SourceRef, parse_source, source_label
from ctxarchive.knowledge.store import Hit, KnowledgeBase, Scope, SearchAnswer, SearchRequest


@click.command("search", help="Search ARCHIVE for each QUERY.")
@click.argument("archive", type=click.Path(path_type=Path))
@click.argument("queries", metavar="QUERY...", nargs=-1, required=True)
@click.option("--session", help="Only records of this session.")
@click.option(
    "--source", "sources", multiple=True, help="Only this source label; may be given several times."
)
@click.option("--after-seq", type=int, help="Only records after this seq.")
@click.option("--before-seq", type=int, help="Only records before this seq.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000),
    default=5,
    show_default=True,
    help="Most hits a query.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    archive: Path,
    queries: tuple[str, ...],
    session: str | None,
    sources: tuple[str, ...],
    after_seq: int | None,
    before_seq: int | None,
    limit: int,
    as_json: bool,
) -> int:
    """Search an archive."""
    with open_for_reading(archive) as knowledge:
        scope = Scope(
            sources=_sources(knowledge, session, sources),
            after_seq=after_seq,
            before_seq=before_seq,
        )
        answers = [
            knowledge.search(SearchRequest(query=query, scope=scope, limit=limit))
            for query in queries
        ]
    if as_json:
        echo_json({"queries": [_answer_json(answer) for answer in answers]})
    else:
        for answer in answers:
            _print(answer)
    return 0 if any(answer.hits for answer in answers) else 1


def _sources(
    knowledge: KnowledgeBase, session: str | None, labels: tuple[str, ...]
) -> tuple[SourceRef, ...] | None:
    if session is not None and all(info.session != session for info in knowledge.sessions()):
        raise KnowledgeError("missing", f"--session {session!r}: not in this archive")
    found = tuple(parse_source(label) for label in labels)
    if session is None:
        return found or None
    if not found:
        return (SourceRef(session=session),)
    return tuple(source for source in found if source.session == session)


def _answer_json(answer: SearchAnswer) -> dict[str, Any]:
    return {
        "query": answer.query,
        "tier": answer.tier,
        "hits": [_hit_json(hit) for hit in answer.hits],
    }


def _hit_json(hit: Hit) -> dict[str, Any]:
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
    }


def _print(answer: SearchAnswer) -> None:
    out = console()
    out.print(f"{answer.query!r}: {len(answer.hits)} hits ({answer.tier})", markup=False)
    for hit in answer.hits:
        who = f"{hit.role} {hit.name}" if hit.name else hit.role
        label = source_label(hit.session, hit.layer)
        out.print(f"  {label} seq {hit.seq}  {who}, {hit.chars} chars", markup=False)
        out.print(f"    {hit.snippet}", markup=False)
