"""``/pin``, ``/unpin`` and ``/supersede`` in an agent's own session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ctxarchive.agent.commands import run_command
from ctxarchive.agent.loop import Agent
from ctxarchive.archive.engine import ArchiveCompactionEngine
from ctxarchive.archive.opening import open_archive
from ctxarchive.compaction.basic import BasicCompactionEngine
from ctxarchive.compaction.policy import CompactionPolicy
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.metering.tokenizers import CharacterEstimator
from ctxarchive.session.log import Session
from ctxarchive.testing.models import ScriptedModel
from ctxarchive.testing.sessions import derived_texts

pytestmark = pytest.mark.anyio

Watch = Callable[[Session], Session]
EAGER = CompactionPolicy(min_span_tokens=0, min_reclaim_tokens=0, retain_tokens=0)


async def test_a_person_pins_and_supersedes_what_they_said(tmp_path: Path, watched: Watch) -> None:
    """One sentence each; the next checkpoint heeds it."""
    session = watched(Session.create("s"))
    with open_archive(tmp_path / "a.db") as knowledge:
        engine = ArchiveCompactionEngine(
            knowledge, policy=EAGER, meter=TokenMeter(CharacterEstimator())
        )
        async with Agent(session, ScriptedModel(), compaction=engine) as agent:
            for text in ("Look at this. " * 120, "Always use port 8080.", "Now port 8443."):
                agent.followup(text)
            await agent.when_idle()
            chat, old, new = (event.seq for event in session.events if event.type == "user/message")
            answer = session.last("assistant/message")
            assert answer is not None
            for typed, told in (
                (f"/pin {chat}", f"Pinned seq {chat}: it stays in view, before everything else."),
                (f"  /pin {chat} ", f"Seq {chat} was pinned already."),
                (f"/supersede {old} {new}", f"Seq {old} is superseded by seq {new}: it leaves"),
                (
                    f"/supersede {new} {old}",
                    f"Nothing marked: seq {old} is not later than seq {new}",
                ),
                (
                    f"/pin {answer.seq}",
                    f"Nothing marked: seq {answer.seq} is a message of the assistant",
                ),
                ("/unpin 999", "Nothing marked: session 's' has no message with seq 999."),
                (f"/unpin {new}", f"Seq {new} was not pinned."),
                ("/pin", "Usage: /pin SEQ; SEQ is"),
                ("/pin all", "Usage: /pin SEQ; SEQ is"),
                ("/pin 1 2", "Usage: /pin SEQ; SEQ is"),
                ("/supersede 1 2 3", "Usage: /supersede SEQ [BY]; SEQ is"),
            ):
                said = await run_command(agent, typed)
                assert said is not None
                assert said.startswith(told), typed
                assert "\n" not in said
            assert await run_command(agent, "/pinned") is None
            for text in ("go on " * 3_000, "and on"):
                agent.followup(text)
            await agent.when_idle()
            assert str(await run_command(agent, "/compact")).startswith("Compacted ")
        checkpoint = derived_texts(session)[0].partition("</summary>")[2]
        assert f"## [user {chat}, 1680 chars]\n{'Look at this. ' * 120}" in checkpoint
        assert f"## [user {old}," not in checkpoint
        assert f"## [user {new}," in checkpoint


@pytest.mark.parametrize("engine", [None, BasicCompactionEngine()])
async def test_without_an_archive_nothing_can_be_marked(
    watched: Watch, engine: BasicCompactionEngine | None
) -> None:
    """It says why."""
    async with Agent(watched(Session.create("s")), ScriptedModel(), compaction=engine) as agent:
        assert await run_command(agent, "/pin 1") == "Nothing marked: no archive is mounted."
