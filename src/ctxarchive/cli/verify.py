"""``ctxarchive verify``: checks an archive, and a log against it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ctxarchive.cli.app import DONE, FAILED
from ctxarchive.cli.archives import open_existing
from ctxarchive.cli.output import echo_json, line
from ctxarchive.errors import ConfigError, KnowledgeError

if TYPE_CHECKING:
    from ctxarchive.knowledge.store import Finding


@click.command("verify", help="Check ARCHIVE, and with --log that it holds what a log shadowed.")
@click.argument("archive", type=click.Path(path_type=Path))
@click.option(
    "--log",
    type=click.Path(path_type=Path),
    help="A session as compact --out wrote it, or the log it was made from.",
)
@click.option(
    "--session-id", metavar="ID", help="The id that LOG was compacted under, if not its own."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(archive: Path, log: Path | None, session_id: str | None, as_json: bool) -> int:
    """Check an archive."""
    if session_id is not None and log is None:
        raise ConfigError("--session-id: only with --log")
    from ctxarchive.replay.check import check_log

    with open_existing(archive) as knowledge:
        findings = list(knowledge.verify())
        compared, redacted, purged, records = 0, 0, 0, None
        try:
            if log is not None:
                report = check_log(knowledge, log, session_id=session_id)
                findings += report.findings
                compared, redacted, purged = report.compared, report.redacted, report.purged
            records = knowledge.stats().records
        except KnowledgeError as error:
            if error.code != "corrupt":
                raise
            from ctxarchive.knowledge.store import Finding

            # What is damaged may be what would have been counted; what was found is told.
            damage = Finding(code="records-damaged", message=str(error))
            findings += [damage] if damage not in findings else []
    if as_json:
        echo_json(
            {
                "archive": str(archive),
                "ok": not findings,
                "records": records,
                "compared": compared,
                "findings": [_finding_json(finding) for finding in findings],
                "redacted": redacted,
                "purged": purged,
            }
        )
    else:
        for finding in findings:
            session = "" if finding.session is None else f" {finding.session!r}"
            seq = "" if finding.seq is None else f" seq {finding.seq}"
            line(f"{finding.code}{session}{seq}: {finding.message}")
        said = "" if log is None else f", {compared} compared with the log"
        apart = [f"{redacted} redacted"] * (redacted > 0) + [f"{purged} purged"] * (purged > 0)
        said += f" ({', '.join(apart)})" if apart else ""
        counted = "some" if records is None else records
        line(f"{counted} records{said}: {len(findings) or 'no'} findings")
    return FAILED if findings else DONE


def _finding_json(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "message": finding.message,
        "session": finding.session,
        "seq": finding.seq,
    }
