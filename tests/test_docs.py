"""The documentation cannot drift: what it says of names, options, texts and codes is compared."""

from __future__ import annotations

import ast
import inspect
import json
import re
import runpy
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import click
import pytest
from pydantic import BaseModel

from ctxarchive import errors
from ctxarchive.archive import format as spelling
from ctxarchive.archive.index import ANCHORS_TITLE, HOW_TO_ASK, MEANING, short_index
from ctxarchive.archive.settings import AnchorWeights, TranscriptConfig
from ctxarchive.cli.app import COMMANDS, app
from ctxarchive.compaction.checkpoint import PREAMBLE
from ctxarchive.compaction.extractive import SECTIONS
from ctxarchive.compaction.policy import CompactionPolicy, PolicyOverride
from ctxarchive.compaction.summarizer import INSTRUCTION
from ctxarchive.config.settings import Settings
from ctxarchive.knowledge.retention import RetentionPolicy
from ctxarchive.tools.ctx_search import DESCRIPTION, CtxSearchTool

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *ROOT.glob("*.md")])


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def section(text: str, heading: str) -> str:
    """What stands under a heading, up to the next one of its level."""
    level = heading.partition(" ")[0]
    _, found, rest = f"\n{text}".partition(f"\n{heading}\n")
    assert found, f"no heading {heading!r}"
    return re.split(rf"(?m)^{level} ", rest)[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_has_help_and_a_place_in_the_docs(name: str) -> None:
    """A row an option in the command's own section, with its help as it is."""
    command = app.get_command(click.Context(app), name)
    assert command is not None
    assert command.help
    told = section(page("cli.md"), f"## ctxarchive {name}")
    usage = told.strip().partition(":")[0]
    assert usage.startswith(f"`ctxarchive {name} ")
    options = {}
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
            options[parameter.opts[0]] = parameter.help
        else:
            assert (parameter.metavar or (parameter.name or "").upper()).rstrip(".") in usage
    assert dict(re.findall(r"(?m)^\| `(--[\w-]+)[^`]*` \| (.*) \|$", told)) == options


def test_every_command_is_listed_with_its_help() -> None:
    """In the table at the top of the page, in the group's order."""
    rows = [f"| `{name}` | {told} |" for name, told in COMMANDS.items()]
    assert "\n".join(rows) in page("cli.md")


def field_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The string below each field. Read here: pydantic would read them at every import."""
    (body,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, below in pairwise(body.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            told = below.value if isinstance(below, ast.Expr) else None
            if isinstance(told, ast.Constant) and isinstance(told.value, str):
                found[field.target.id] = told.value
    return found


def rows(model: type[BaseModel]) -> list[str]:
    """The rows of the settings' table."""
    found = []
    docstrings = field_docstrings(model)
    for name, field in model.model_fields.items():
        assert name in docstrings, f"{model.__name__}.{name} has no docstring"
        meaning = " ".join(docstrings[name].split()).replace("``", "`")
        if isinstance(field.default, BaseModel):
            default = "a section"
        elif field.is_required():
            default = "required"
        else:
            default = f"`{spelt(field.default)}`"
        found.append(f"| `{name}` | {default} | {meaning} |")
    return found


def spelt(value: Any) -> str:
    """A default as TOML spells it; ``none`` for what is left out."""
    if value is None:
        return "none"
    return json.dumps(list(value) if isinstance(value, tuple) else value)


@pytest.mark.parametrize(
    ("heading", "model"),
    [
        ("## Top level", Settings),
        ("## `[compaction]`", CompactionPolicy),
        ("## `[[compaction.model_policies]]`", PolicyOverride),
        ("## `[transcript]`", TranscriptConfig),
        ("## `[retention]`", RetentionPolicy),
        ("## `[transcript.anchor_weights]`", AnchorWeights),
    ],
)
def test_every_setting_is_documented_with_its_default(heading: str, model: type[BaseModel]) -> None:
    """A row a field, and no row for a field that is not there."""
    told = section(page("configuration.md"), heading)
    listed = [line for line in told.splitlines() if line.startswith("| `")]
    assert listed == rows(model)


def model_visible() -> dict[str, str]:
    """Every text of ours that a model reads, by what it is."""
    part = spelling.Pointer(
        sources=("session/job-42/narrative",), seq=447, offset=200, length=1_581
    )
    whole = spelling.Pointer(sources=("session/job-42/finding",), seq=448)
    sources = ("session/job-42/finding", "session/job-42/narrative")
    run = spelling.Pointer(sources=sources, after_seq=99, before_seq=118)
    asked = spelling.Pointer(sources=("session/job-42/constraint",), after_seq=2, before_seq=41)
    tool = CtxSearchTool.__new__(CtxSearchTool)
    tool.name = "ctx_search"
    return {
        "preamble": PREAMBLE,
        "standing heading": spelling.STANDING_HEADING,
        "transcript heading": spelling.TRANSCRIPT_HEADING,
        "index heading": spelling.INDEX_HEADING,
        "user heading": spelling.entry_heading("user", 12, 86),
        "assistant heading": spelling.entry_heading("assistant", 447, 1_981),
        "clip notice": spelling.clip_notice(part, 1_581, 1_981),
        "run notice": spelling.run_notice(run, 18, 100, 117),
        "messages notice": spelling.run_notice(asked, 9, 3, 40, what="user messages"),
        "tool line": spelling.tool_line("bash", 448, 29_808, "git log --oneline -20", whole),
        "folded line": spelling.fold_line(
            [
                spelling.tool_item("read", 450, "src/retry/policy.py"),
                spelling.tool_item("", 452, "src/retry/budget.py"),
                spelling.tool_item("bash", 456, "pytest -q (failed: E AssertionError: 3 != 4)"),
                spelling.tool_item("edit", 458, "src/retry/policy.py"),
                spelling.tool_item("bash", 460, "pytest -q"),
            ],
            6,
            450,
            460,
            spelling.Pointer(sources=("session/job-42",), after_seq=449, before_seq=461),
        ),
        "quote heading": spelling.quote_heading(12, 40, 86),
        "how to ask": HOW_TO_ASK.format(tool="ctx_search"),
        "short index": short_index("job-42"),
        "anchors title": ANCHORS_TITLE,
        "tool description": DESCRIPTION,
        "tool schema": json.dumps(tool.definition["input_schema"], indent=2),
        "summary instruction": INSTRUCTION,
        **{f"meaning of {layer}": told for layer, told in MEANING.items()},
        **{f"section {name}": f"## {name}" for name in SECTIONS},
    }


@pytest.mark.parametrize("what", model_visible())
def test_every_text_a_model_reads_is_shown_verbatim(what: str) -> None:
    """Inside a code block of the page on checkpoints."""
    blocks = re.findall(r"(?ms)^```\w*\n(.*?)^```$", page("checkpoint.md"))
    assert any(model_visible()[what] in block for block in blocks), model_visible()[what]


def error_classes() -> list[type[errors.CtxArchiveError]]:
    """Every exception of the package."""
    found = [value for value in vars(errors).values() if isinstance(value, type)]
    return [value for value in found if issubclass(value, errors.CtxArchiveError)]


@pytest.mark.parametrize("error", error_classes())
def test_every_error_and_code_is_documented(error: type[errors.CtxArchiveError]) -> None:
    """A section a class, a row a code, and no row for a code that is not there."""
    told = section(page("errors.md"), f"## {error.__name__}")
    listed = re.findall(r"(?m)^\| `([^`]+)` \|", told)
    assert listed == list(get_args(getattr(error, "Code", None)))


@pytest.mark.parametrize(
    "path",
    [ROOT / "README.md", DOCS / "python.md", DOCS / "archive.md", DOCS / "ctx_search.md"],
    ids=lambda path: path.name,
)
def test_python_in_the_docs_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks of a page, one after the other, in an empty folder."""
    blocks = re.findall(r"(?ms)^```python\n(.*?)^```$", path.read_text("utf-8"))
    assert blocks
    script = tmp_path / "blocks.py"
    script.write_text("\n".join(blocks), "utf-8")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")


def test_the_commands_of_the_walk_through_run(tmp_path: Path) -> None:
    """The page's first console block, word for word, on the example session."""
    block = re.search(r"(?ms)^```console\n(.*?)^```$", page("cli.md"))
    assert block is not None
    (tmp_path / "session.jsonl").write_bytes(
        (ROOT / "scripts" / "example" / "session.jsonl").read_bytes()
    )
    commands = [line[2:] for line in block[1].splitlines() if line.startswith("$ ")]
    assert len(commands) >= 6
    for line in commands:
        assert line.startswith("ctxarchive ")
        shell = line.replace("ctxarchive ", f"'{sys.executable}' -m ctxarchive ", 1)
        done = subprocess.run(
            ["sh", "-c", shell], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (line, done.stderr)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_link_leads_somewhere(path: Path) -> None:
    """To a file of the project; one into a page, to a heading of it."""
    text = re.sub(r"(?ms)^```.*?^```$", "", path.read_text("utf-8"))
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        found = path if not name else path.parent / name
        assert found.exists(), target
        if anchor:
            headings = re.findall(r"(?m)^#+ (.*)$", found.read_text("utf-8"))
            assert anchor in {
                re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings
            }, target


def test_every_page_is_in_the_index() -> None:
    """Nothing has to be found by listing the folder."""
    index = page("index.md")
    for path in DOCS.glob("*.md"):
        assert path.name == "index.md" or f"({path.name})" in index, path.name
