"""The extra ``semantic``: the weights of an installed package, and what is found with them."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxarchive.archive.opening import open_archive
from ctxarchive.archive.rendering import render
from ctxarchive.config.mounting import mount
from ctxarchive.config.settings import Settings
from ctxarchive.errors import ConfigError
from ctxarchive.integrations import semantic
from ctxarchive.knowledge.records import Record

TEXTS = (
    "the deployment failed because the disk was full",
    "user prefers tabs over spaces in python files",
    "the cat sat on a warm windowsill",
)


@pytest.fixture(scope="module")
def model() -> semantic.StaticEmbeddings:
    """The model, where the extra is installed."""
    for name in ("numpy", "tokenizers"):
        pytest.importorskip(name)
    if find_spec("wordllama") is None:
        pytest.skip("the extra semantic is not installed")
    return semantic.static_embeddings()


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive of three messages."""
    path = tmp_path / "archive.db"
    with open_archive(path) as knowledge:
        knowledge.put([_record(seq, text) for seq, text in enumerate(TEXTS)])
    return path


def _record(seq: int, text: str) -> Record:
    event = json.dumps(
        {
            "type": "user/message",
            "seq": seq,
            "data": {"content": [{"type": "text", "text": text}]},
        }
    )
    return Record(
        session="s", seq=seq, layer="finding", role="user", event=event, text=render(event, "")
    )


def test_the_nearest_text_is_the_one_that_means_the_same(model: semantic.StaticEmbeddings) -> None:
    """No word in common but the smallest."""
    (query,) = model.embed(["broken release, hard drive capacity exhausted"])
    cosines = [near.cosine for near in model.nearness(query, model.embed(TEXTS))]
    assert cosines[0] == max(cosines)
    assert cosines[0] > 0.2 > cosines[2]


def test_of_several_vectors_the_nearest_is_told(model: semantic.StaticEmbeddings) -> None:
    """Its cosine and its place; of the same text, one."""
    first, second, third = model.embed(TEXTS)
    near = model.nearness(second, [first + second + third, third])
    assert near[0].passage == 1
    assert near[0].cosine == pytest.approx(1.0, abs=1e-5)
    assert near[1].passage == 0
    assert model.nearness(second, []) == []


@settings(max_examples=50)
@given(st.lists(st.text(st.characters(exclude_categories=()), max_size=50), max_size=4))
def test_any_text_has_a_vector(model: semantic.StaticEmbeddings, texts: list[str]) -> None:
    """Empty ones and lone surrogates too, each of 256 bytes, none of them NaN."""
    vectors = model.embed(texts)
    assert [len(vector) for vector in vectors] == [256] * len(texts)
    for query in vectors:
        assert all(-1.001 <= near.cosine <= 1.001 for near in model.nearness(query, vectors))


def test_neither_network_nor_logging_is_touched(model: semantic.StaticEmbeddings) -> None:
    """The package that ships the weights is never imported."""
    del model
    assert "wordllama" not in sys.modules
    assert "requests" not in sys.modules


def test_the_search_command_finds_by_meaning(
    model: semantic.StaticEmbeddings, archive: Path
) -> None:
    """With the option only; the tier says so."""
    del model
    query = "broken release, hard drive capacity exhausted"

    def found(*options: str) -> dict[str, object]:
        done = subprocess.run(
            [sys.executable, "-m", "ctxarchive", "search", str(archive), query, "--json", *options],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == ""
        answer: dict[str, object] = json.loads(done.stdout)["queries"][0]
        return answer

    assert found()["tier"] == "none"
    answer = found("--semantic")
    assert answer["tier"] == "semantic"
    assert isinstance(answer["hits"], list)
    assert answer["hits"][0]["seq"] == 0


def test_a_mounted_tool_finds_by_meaning_where_the_settings_say_so(
    model: semantic.StaticEmbeddings, archive: Path
) -> None:
    """``semantic = true`` is the whole difference."""
    del model
    for wanted in (False, True):
        with mount(Settings(archive=archive, semantic=wanted)) as mounted:
            (tool,) = mounted.tools("s")
            answer = str(tool.run({"queries": ["broken release, hard drive capacity exhausted"]}))
        assert ("matched by words and meaning" in answer) is wanted


def test_without_the_extra_the_setting_is_refused(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line that says what to install."""
    semantic.static_embeddings.cache_clear()
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ConfigError, match=r"semantic: .*pip install 'ctxarchive\[semantic\]'"):
        mount(Settings(archive=archive, semantic=True))
    semantic.static_embeddings.cache_clear()
