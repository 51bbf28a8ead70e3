"""``ctxarchive purge``: deletes records for good."""

from __future__ import annotations

import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ctxarchive.cli.app import DONE, FAILED
from ctxarchive.cli.archives import open_existing
from ctxarchive.cli.optimize import STILL_READ
from ctxarchive.cli.output import echo_json, line, note
from ctxarchive.errors import ConfigError, KnowledgeError

if TYPE_CHECKING:
    from ctxarchive.knowledge.retention import Retained
    from ctxarchive.knowledge.sqlite.store import SqliteKnowledgeBase
    from ctxarchive.knowledge.store import PurgeResult, Selection

_AGE = re.compile(r"(\d{1,6})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}


@click.command(
    "purge",
    help="Delete records of ARCHIVE for good: those that fulfil all that is given. Nothing brings them "
    "back.",
)
@click.argument("archive", type=click.Path(path_type=Path))
@click.option(
    "--session",
    "sessions",
    multiple=True,
    metavar="ID",
    help="Of this; may be given several times.",
)
@click.option(
    "--seq", "seqs", metavar="A..B", help="Of the session, from seq A to B: 7, 7..9, 7.. or ..9."
)
@click.option("--older-than", metavar="AGE", help="Older than this: 90d, 12h or 6w.")
@click.option("--text", help="That hold this text. A shell may remember it: --text-file does not.")
@click.option(
    "--text-file",
    type=click.Path(path_type=Path, allow_dash=True),
    help="That hold what this file says, without its last line break; - is stdin.",
)
@click.option("--retention", is_flag=True, help="Whole sessions, by the rules of the settings.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="With --retention: a settings file. Default: ctxarchive.toml in the working folder, if it is "
    "there.",
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="With --retention: one setting, over the config's; may be given several times.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    archive: Path,
    sessions: tuple[str, ...],
    seqs: str | None,
    older_than: str | None,
    text: str | None,
    text_file: Path | None,
    retention: bool,
    config: Path | None,
    assignments: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Purge."""
    chosen = (sessions, seqs, older_than, text, text_file)
    if retention and any(chosen):
        raise ConfigError("--retention: chooses by itself; leave out what else chooses")
    if not retention and (config is not None or assignments):
        raise ConfigError("--config and --set: only with --retention")
    if not retention and not any((sessions, older_than, text, text_file)):
        raise ConfigError(
            "nothing is chosen: give --session, --older-than, --text, --text-file or --retention"
        )
    if text is not None and text_file is not None:
        raise ConfigError("--text and --text-file: give one of them")
    if str(text_file) == "-" and not (yes or dry_run):
        raise ConfigError("--text-file -: reads stdin, where nobody can be asked; add --yes")
    job = _Job(archive=archive, dry_run=dry_run, yes=yes, as_json=as_json)
    if retention:
        return job.retain(config, list(assignments))
    return job.purge(sessions, seqs, older_than, text if text_file is None else _content(text_file))


class _Job:
    """One run of the command."""

    def __init__(self, *, archive: Path, dry_run: bool, yes: bool, as_json: bool) -> None:
        self.archive = archive
        self.dry_run = dry_run
        self.yes = yes
        self.as_json = as_json

    def purge(
        self, sessions: tuple[str, ...], seqs: str | None, age: str | None, text: str | None
    ) -> int:
        """Purge what is chosen."""
        from ctxarchive.knowledge.store import Selection

        first, last = (None, None) if seqs is None else _range(seqs)
        if seqs is not None and len(sessions) != 1:
            raise ConfigError("--seq: takes one --session")
        with open_existing(self.archive, self._mode) as knowledge:
            selection = Selection(
                sessions=_known(knowledge, sessions) or None,
                first_seq=first,
                last_seq=last,
                before_time=None if age is None else _before(age),
                text=text,
            )
            expected = knowledge.purge(selection, dry_run=True)
            found = expected.records or expected.titles
            what = f"{_count(expected.records)} of {len(expected.sessions)} sessions"
            if not self.dry_run and found and not self._may(what):
                return FAILED
            # Also where nothing is found: a purge that was broken off is finished.
            result = expected if self.dry_run else knowledge.purge(selection)
        self._tell(result, selection)
        return DONE if (result.records or result.titles) and result.scrubbed else FAILED

    def retain(self, config: Path | None, assignments: list[str]) -> int:
        """Purge by the rules of the settings."""
        from ctxarchive.cli.compact import settings_given
        from ctxarchive.config.layers import resolve_settings
        from ctxarchive.knowledge.retention import retain

        settings = resolve_settings(
            settings_given(assignments), file=config, where="command line"
        ).retention
        if settings.max_age_days is None and settings.max_bytes is None:
            raise ConfigError(
                "--retention: the settings keep everything; set retention.max_age_days or "
                "retention.max_bytes"
            )
        now = time.time_ns() // 1_000_000
        with open_existing(self.archive, self._mode) as knowledge:
            result = retain(knowledge, settings, now=now, dry_run=True)
            if not self.dry_run and result.removals:
                if not self._may(f"{len(result.removals)} sessions"):
                    return FAILED
                result = retain(knowledge, settings, now=now)
        self._tell_retained(result)
        return DONE if result.scrubbed else FAILED

    @property
    def _mode(self) -> Any:
        return "ro" if self.dry_run else "rw"

    def _may(self, what: str) -> bool:
        """Whether to go on: on a terminal it is asked."""
        if self.yes or not sys.stdin.isatty():
            return True
        if click.confirm(f"Delete {what} of {self.archive} for good?", err=True):
            return True
        note("nothing was deleted")
        return False

    def _tell(self, result: PurgeResult, selection: Selection) -> None:
        if self.as_json:
            echo_json(
                {
                    "archive": str(self.archive),
                    "dry_run": self.dry_run,
                    "reason": selection.reason,
                    "records": result.records,
                    "sessions": [
                        {
                            "session": each.session,
                            "records": each.records,
                            "first_seq": each.first_seq,
                            "last_seq": each.last_seq,
                            "chars": each.chars,
                        }
                        for each in result.sessions
                    ],
                    "titles": list(result.titles),
                    "ids": list(result.ids),
                    "scrubbed": result.scrubbed,
                }
            )
        else:
            for each in result.sessions:
                line(
                    f"{each.session!r}: {_count(each.records)} of seq {each.first_seq}.."
                    f"{each.last_seq}"
                )
            for session in result.titles:
                line(f"{session!r}: title and particulars")
            line(f"{_count(result.records)} {'would go' if self.dry_run else 'purged'}")
        for session in result.ids:
            note(f"{self.archive}: the id of session {session!r} holds the text, and stays")
        if not result.scrubbed:
            note(f"{self.archive}: {STILL_READ}")

    def _tell_retained(self, result: Retained) -> None:
        if self.as_json:
            echo_json(
                {
                    "archive": str(self.archive),
                    "dry_run": self.dry_run,
                    "reason": "retention",
                    "records": sum(each.records for each in result.removals),
                    "sessions": [
                        {
                            "session": each.session,
                            "rule": each.rule,
                            "records": each.records,
                            "last_activity": each.last_activity,
                            "estimated_bytes": each.estimated_bytes,
                        }
                        for each in result.removals
                    ],
                    "bytes_before": result.bytes_before,
                    "bytes_after": result.bytes_after,
                    "scrubbed": result.scrubbed,
                }
            )
        else:
            for each in result.removals:
                active = _day(each.last_activity)
                line(f"{each.session!r}: by {each.rule}, {_count(each.records)}{active}")
            said = "would go" if self.dry_run else "purged"
            line(
                f"{len(result.removals)} sessions {said}; {result.bytes_before:,} bytes before, "
                f"{result.bytes_after:,} after"
            )
        if not result.scrubbed:
            note(f"{self.archive}: {STILL_READ}")


def _day(moment: int) -> str:
    try:
        return f", last active {datetime.fromtimestamp(moment / 1_000, UTC).date()}"
    except (ValueError, OverflowError, OSError):
        return ""  # a log may claim any time


def _count(records: int) -> str:
    return f"{records:,} record{'' if records == 1 else 's'}"


def _known(knowledge: SqliteKnowledgeBase, sessions: tuple[str, ...]) -> tuple[str, ...]:
    """The sessions that were named, each by its id or by a source label."""
    from ctxarchive.knowledge.records import parse_source

    known = {info.session for info in knowledge.sessions()}
    found = []
    for session in sessions:
        named = session
        if named not in known and named.startswith("session/"):
            named = parse_source(named).session
        if named not in known:
            raise KnowledgeError(
                "missing",
                f"--session {session!r}: not in this archive; the command sessions lists them",
            )
        found.append(named)
    return tuple(found)


def _range(seqs: str) -> tuple[int | None, int | None]:
    """First and last seq of ``A..B``.

    Raises:
        ConfigError: for anything else.
    """
    found = re.fullmatch(r"(\d*)(\.\.)?(\d*)", seqs)
    if found is None or not (found[1] or found[3]) or (found[3] and not found[2]):
        raise ConfigError(f"--seq {seqs!r}: write it as 7, 7..9, 7.. or ..9")
    first = int(found[1]) if found[1] else None
    last = int(found[3]) if found[3] else None if found[2] else first
    if first is not None and last is not None and last < first:
        raise ConfigError(f"--seq {seqs!r}: ends before it begins")
    return first, last


def _before(age: str) -> int:
    """The moment before which a record is too old, milliseconds since the epoch."""
    found = _AGE.fullmatch(age)
    if found is None:
        raise ConfigError(f"--older-than {age!r}: write it as 90d, 12h or 6w")
    hours = int(found[1]) * _HOURS[found[2]]
    return time.time_ns() // 1_000_000 - hours * 3_600_000


def _content(file: Path) -> str:
    """What a file says, or stdin, without its last line break."""
    try:
        content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise ConfigError(f"--text-file {file}: {error.strerror or error}") from error
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"--text-file {file}: not UTF-8 at byte {error.start}") from None
    text = text.removesuffix("\n").removesuffix("\r")
    if not text.strip():
        raise ConfigError(f"--text-file {file}: says nothing")
    return text
