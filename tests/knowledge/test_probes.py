from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ctxarchive.knowledge.records import Record
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase
from ctxarchive.knowledge.store import SearchRequest

Make = Callable[..., Record]
Open = Callable[..., SqliteKnowledgeBase]

_spec = importlib.util.spec_from_file_location("probes", Path(__file__).with_name("probes.py"))
assert _spec is not None
assert _spec.loader is not None
probes = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(probes)

NAMES = list(probes.TEXTS)


@pytest.fixture(scope="module")
def filled(
    tmp_path_factory: pytest.TempPathFactory, make: Make, open_archive: Open
) -> Iterator[SqliteKnowledgeBase]:
    with open_archive(tmp_path_factory.mktemp("archive") / "a.db") as archive:
        archive.put([make("s", seq, text) for seq, text in enumerate(probes.TEXTS.values())])
        archive.index_pending()
        yield archive


def test_there_are_as_many_probes_as_were_asked_for() -> None:
    """The 43 that other engines were asked, and at least 60 more."""
    assert sum(map(len, probes.FOUND.values())) >= 103


@pytest.mark.parametrize(
    ("query", "name"),
    [
        pytest.param(query, name, id=f"{kind}: {query}")
        for kind, asked in probes.FOUND.items()
        for query, name in asked
    ],
)
def test_what_is_there_is_the_first_hit(filled: SqliteKnowledgeBase, query: str, name: str) -> None:
    answer = filled.search(SearchRequest(query=query))
    assert [NAMES[hit.seq] for hit in answer.hits[:1]] == [name], answer.tried


@pytest.mark.parametrize("query", probes.NOT_FOUND)
def test_what_is_nowhere_is_not_found(filled: SqliteKnowledgeBase, query: str) -> None:
    assert filled.search(SearchRequest(query=query)).tier == "none"
