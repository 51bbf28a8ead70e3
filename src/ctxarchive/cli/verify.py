"""``ctxarchive verify``: checks an archive, and a log against it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ctxarchive.cli.archives import open_for_reading
from ctxarchive.cli.output import console, echo_json
from ctxarchive.knowledge.store import Finding
from ctxarchive.replay.check import check_log


@click.command("verify", help="Check ARCHIVE, and with --log that it holds what a log shadowed.")
@click.argument("archive", type=click.Path(path_type=Path))
@click.option(
    "--log",
    type=click.Path(path_type=Path),
    help="A session as compact --out wrote it, or the log it was made from.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(archive: Path, log: Path | None, as_json: bool) -> int:
    """Check an archive."""
    with open_for_reading(archive) as knowledge:
        findings = list(knowledge.verify())
        compared = 0
        if log is not None:
            report = check_log(knowledge, log)
            findings += report.findings
            compared = report.compared
        records = knowledge.stats().records
    if as_json:
        echo_json(
            {
                "archive": str(archive),
                "ok": not findings,
                "records": records,
                "compared": compared,
                "findings": [_finding_json(finding) for finding in findings],
            }
        )
    else:
        out = console()
        for finding in findings:
            where = "" if finding.session is None else f" {finding.session!r} seq {finding.seq}"
            out.print(f"{finding.code}{where}: {finding.message}", markup=False)
        said = f", {compared} compared with the log" if log is not None else ""
        out.print(f"{records} records{said}: {len(findings) or 'no'} findings")
    return 1 if findings else 0


def _finding_json(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "message": finding.message,
        "session": finding.session,
        "seq": finding.seq,
    }
