"""Mounting: one name is the whole difference, and what that means for pointers and sub-agents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ctxarchive.agent.commands import compact_command
from ctxarchive.agent.loop import Agent
from ctxarchive.archive.engine import ArchiveCompactionEngine
from ctxarchive.compaction.basic import BasicCompactionEngine
from ctxarchive.compaction.engine import StageReport
from ctxarchive.compaction.invariants import check_compactions
from ctxarchive.config.mounting import Mount, mount
from ctxarchive.config.settings import Settings, parse_settings
from ctxarchive.errors import ConfigError, KnowledgeError
from ctxarchive.session.events import ToolResult
from ctxarchive.session.log import Session
from ctxarchive.session.messages import joined_text
from ctxarchive.session.store import SessionStore
from ctxarchive.testing.models import ScriptedModel, Step, call, say
from ctxarchive.testing.sessions import derived_texts
from ctxarchive.testing.validity import request_faults

pytestmark = pytest.mark.anyio

LONG = "The build fails in src/parser.py line 418 with E0425; " * 40


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings with a small least span, and an archive of their own."""
    values = {
        "archive": str(tmp_path / "archive.db"),
        "compaction": {"min_span_tokens": 0},
        "estimator": "characters",
    }
    return parse_settings(values, where="test")


def basic(settings: Settings) -> Settings:
    return settings.model_copy(update={"backend": "basic"})


async def talk(session: Session, mounted: Mount, *script: Step, **allowed: list[str]) -> None:
    """The one agent of these tests, whatever is mounted."""
    tools = mounted.tools(session.id, allowed=allowed.get("allowed", []))
    async with Agent(session, ScriptedModel(script), tools, compaction=mounted.engine) as agent:
        agent.followup(LONG)
        agent.followup("What now?")
        await agent.when_idle()
        said = await compact_command(agent)
        assert said.startswith("Compacted "), said
    assert check_compactions(session.events) == []
    assert request_faults(session.derive_messages()) == []


def answers(session: Session) -> list[str]:
    return [
        joined_text(event.data.message.block.content)
        for event in session.events
        if isinstance(event, ToolResult)
    ]


async def test_the_backends_name_is_the_whole_difference(settings: Settings) -> None:
    with mount(settings) as archive, mount(basic(settings)) as plain:
        first, second = Session.create("a"), Session.create("b")
        await talk(first, archive)
        await talk(second, plain)
        assert isinstance(archive.engine, ArchiveCompactionEngine)
        assert type(plain.engine) is BasicCompactionEngine
        assert [tool.name for tool in archive.tools("a")] == ["ctx_search"]
        assert plain.tools("b") == ()
    assert "## Archive Index" in derived_texts(first)[0]
    assert "ctx_search" not in derived_texts(second)[0]
    assert first.request_header["tools"][0]["name"] == "ctx_search"
    assert "tools" not in second.request_header


async def test_an_archive_taken_out_leaves_pointers_that_say_so_and_put_back_they_resolve(
    settings: Settings, tmp_path: Path
) -> None:
    store = SessionStore(tmp_path / "sessions")
    with store.create("s") as opened, mount(settings) as archive:
        await talk(opened.session, archive)
    fetch = call(("c1", "ctx_search", {"seq": 1}))
    with store.open("s") as opened, mount(basic(settings)) as plain:
        assert "## Archive Index" in derived_texts(opened.session)[0]  # still on the surface
        await talk(opened.session, plain, fetch, say("it is gone"))
        assert answers(opened.session) == ["There is no tool 'ctx_search'."]
    again = call(("c2", "ctx_search", {"seq": 1}))
    with store.open("s") as opened, mount(settings) as archive:
        before = archive_seqs(archive)
        await talk(opened.session, archive, again, say("found"))
        assert LONG.strip() in answers(opened.session)[-1]
        # What the basic engine shadowed meanwhile is filed now.
        assert archive_seqs(archive) > before
        shadowed = [event.seq for event in opened.session.events if event.type == "user/message"]
        assert set(shadowed[:2]) <= archive_seqs(archive)


def archive_seqs(mounted: Mount) -> set[int]:
    assert isinstance(mounted.engine, ArchiveCompactionEngine)
    return set(mounted.engine.knowledge.archived("s"))


async def test_sub_agents_share_one_archive_and_see_their_own_records_only(
    settings: Settings,
) -> None:
    parent, child = Session.create("parent"), Session.create("child")
    ask = call(("c1", "ctx_search", {"seq": 1, "source": "session/child"}))
    search = call(("c2", "ctx_search", {"queries": ["E0425"]}))
    with mount(settings) as mounted:
        await talk(child, mounted)
        await talk(parent, mounted, ask, say("refused"))
        assert "outside what this tool may read" in answers(parent)[-1]
        await talk(parent, mounted, search, say("own"))
        assert "session/parent" in answers(parent)[-1]
        assert "session/child" not in answers(parent)[-1]
        ask = call(("c3", "ctx_search", {"seq": 1, "source": "session/child"}))
        await talk(parent, mounted, ask, say("allowed"), allowed=["child"])
        assert LONG.strip() in answers(parent)[-1]


async def test_every_setting_reaches_the_engine(settings: Settings) -> None:
    reports: list[StageReport] = []
    values = settings.model_dump(exclude_unset=True) | {
        "backend": "basic",
        "prune": {"max_chars": 500, "head_chars": 100, "tail_chars": 50},
        "compaction": {
            "min_span_tokens": 0,
            "summarization_provider": "cheap",
            "summarization_model": "tiny",
        },
    }
    model, session = ScriptedModel(), Session.create("s")
    with mount(
        parse_settings(values, where="test"), model=model, observer=reports.append
    ) as mounted:
        await talk(session, mounted)
    assert model.requests[0].header["config"] == {"provider": "cheap", "model": "tiny"}
    assert [report.stage for report in reports] == ["before", "summarized", "committed"]
    assert isinstance(mounted.engine, BasicCompactionEngine)
    assert mounted.engine._pruner is not None
    assert mounted.engine._pruner.settings.max_chars == 500


@pytest.fixture
def other_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package that registers two backends, one of which cannot be loaded."""
    site = tmp_path / "site"
    info = site / "other-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[ctxarchive.backends]\nother = other_backend:make\nbroken = other_backend:nothing\n"
        "value = other_backend:VALUE\nraises = raising_backend:make\n"
    )
    (site / "raising_backend.py").write_text("raise RuntimeError('no licence:\\nbuy one')\n")
    (site / "other_backend.py").write_text(
        "from ctxarchive.compaction.basic import BasicCompactionEngine\n"
        "from ctxarchive.config.mounting import Mount\n\nVALUE = 3\n\n\n"
        "class Other(BasicCompactionEngine):\n    pass\n\n\n"
        "def make(request):\n    return Mount(engine=Other(**request.engine_options()))\n"
    )
    monkeypatch.syspath_prepend(str(site))


@pytest.mark.usefixtures("other_package")
async def test_a_backend_of_another_package_is_mounted_by_its_entry_points_name(
    settings: Settings,
) -> None:
    chosen = parse_settings(
        settings.model_dump(exclude_unset=True) | {"backend": "other"}, where="test"
    )
    with mount(chosen) as mounted:
        assert type(mounted.engine).__name__ == "Other"
        await talk(Session.create("s"), mounted)


@pytest.mark.usefixtures("other_package")
def test_a_backend_that_cannot_be_loaded_is_an_error_that_names_it(settings: Settings) -> None:
    with pytest.raises(ConfigError, match="backend: 'broken' cannot be loaded"):
        mount(settings.model_copy(update={"backend": "broken"}))


@pytest.mark.usefixtures("other_package")
@pytest.mark.parametrize(
    ("name", "told"),
    [("raises", "no licence: buy one"), ("value", "other_backend:VALUE is no function")],
)
def test_whatever_another_packages_module_does_the_error_names_the_backend(
    settings: Settings, name: str, told: str
) -> None:
    with pytest.raises(ConfigError, match=f"^backend: '{name}' cannot be loaded: {told}$"):
        mount(settings.model_copy(update={"backend": name}))


def test_an_archive_whose_folder_cannot_be_made_is_an_error_that_names_it(
    settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    beneath = tmp_path / "file" / "a.db"
    with pytest.raises(ConfigError, match=r"^archive: .*file: "):
        mount(settings.model_copy(update={"archive": beneath}))


def test_a_mount_that_is_refused_leaves_no_archive_behind(
    settings: Settings, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="redact_patterns"):
        mount(settings.model_copy(update={"redact_patterns": ("(",)}))
    assert list(tmp_path.iterdir()) == []


def test_a_backend_that_is_not_registered_is_refused_at_load() -> None:
    with pytest.raises(ConfigError, match="'both' is not registered: use 'archive' or 'basic'"):
        parse_settings({"backend": "both"}, where="test")


def test_an_archive_without_a_file_and_one_that_is_foreign_are_refused(
    settings: Settings, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="archive: name a file"):
        mount(Settings())
    foreign = tmp_path / "foreign.db"
    foreign.write_bytes(b"SQLite format 3\0" + b"\0" * 4_080)
    with pytest.raises(KnowledgeError):
        mount(settings.model_copy(update={"archive": foreign}))


def test_the_example_of_the_docs_runs_with_both_backends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "mounting.md"
    text = page.read_text(encoding="utf-8")
    (config,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    for backend in ("archive", "basic"):
        Path("ctxarchive.toml").write_text(config.replace('"archive"', f'"{backend}"', 1))
        exec(compile(code, str(page), "exec"), {"__name__": "__main__"})  # noqa: S102 - our docs
        assert capsys.readouterr().out.startswith("Compacted ")
