"""A log that is compacted while it grows: what was filed stays true."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio

from ctxarchive import open_archive
from ctxarchive.importers.read import read_log
from ctxarchive.replay.check import check_log
from ctxarchive.replay.run import Replayer, ReplaySettings

PROSE = "The budget is spent per host and refilled after 250 ms. " * 60


def line(kind: str, content: Any, number: int, **more: Any) -> str:
    """One record of a Claude Code log."""
    message: dict[str, Any] = {"role": kind, "content": content, **more}
    return json.dumps(
        {
            "type": kind,
            "uuid": f"u{number}",
            "sessionId": "growing",
            "timestamp": f"2026-03-01T10:00:{number:02d}.000Z",
            "message": message,
        }
    )


def call(number: int) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": "make"}}]


def result(number: int, text: str) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": f"t{number}", "content": text}]


EARLIER = (
    line("user", f"Fix the retry budget. {PROSE}", 1),
    line("assistant", call(1), 2, id="m1", model="claude-opus-4-6"),
    line("user", result(1, f"ok {PROSE}"), 3),
    line("assistant", [{"type": "text", "text": f"Found it. {PROSE}"}], 4, id="m2"),
    line("user", f"And the timeout. {PROSE}", 5),
    line("assistant", call(2), 6, id="m3"),
    line("user", "While that runs: keep the default.", 7),
)
LATER = (
    line("user", result(2, "all 12 tests pass"), 8),
    line("assistant", [{"type": "text", "text": "Done."}], 9, id="m4"),
)


def compact(log: Path, archive: Path) -> list[str]:
    """Compact at the end; what it warns of."""
    with open_archive(archive) as knowledge:
        replayer = Replayer(read_log(log), ReplaySettings(at="end"), knowledge)
        replay = anyio.run(replayer.run)
        assert len(replay.compactions) == 1
        assert replay.compactions[0].pointers
        assert check_log(knowledge, log).findings == ()
        return list(replay.warnings)


def test_a_call_that_is_answered_later_was_not_filed_as_unanswered(tmp_path: Path) -> None:
    """Nothing of a unit that is still open is filed: its events are not yet what they will be."""
    log, archive = tmp_path / "log.jsonl", tmp_path / "a.db"
    log.write_text("\n".join(EARLIER) + "\n", "utf-8")
    compact(log, archive)
    log.write_text("\n".join([*EARLIER, *LATER]) + "\n", "utf-8")
    assert not any("other content" in warning for warning in compact(log, archive))


def test_a_real_log_cut_behind_an_open_call_grows_without_conflict(
    logs_dir: Path, tmp_path: Path
) -> None:
    """The same on a log of a real harness, cut where a queued message follows an open call."""
    import gzip

    source = logs_dir / "claude-code" / "compacted-847ff7d2.jsonl.gz"
    lines = gzip.decompress(source.read_bytes()).decode("utf-8").splitlines(keepends=True)
    log, archive = tmp_path / "log.jsonl", tmp_path / "a.db"
    for upto in (71, len(lines)):
        log.write_text("".join(lines[:upto]), "utf-8", newline="")
        assert not any("other content" in warning for warning in compact(log, archive))
