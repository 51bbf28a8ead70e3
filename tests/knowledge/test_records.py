from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxarchive.errors import KnowledgeError
from ctxarchive.knowledge.records import LAYERS, Layer, SourceRef, parse_source, source_label

ANY_TEXT = st.text(st.characters(codec=None, categories=None))


@given(session=ANY_TEXT, layer=st.sampled_from([None, *LAYERS]))
def test_a_label_names_exactly_the_session_and_layer_it_was_made_of(
    session: str, layer: Layer | None
) -> None:
    label = source_label(session, layer)
    assert parse_source(label) == SourceRef(session=session, layer=layer)
    label.encode("utf-8")
    assert not set(label) & set(" \t\r\n\0\"'`()[]{},")


def test_an_ordinary_id_is_printed_as_it_is() -> None:
    assert source_label("7f3a-01_b.c", "finding") == "session/7f3a-01_b.c/finding"
    assert source_label("日本", "constraint") == "session/日本/constraint"


def test_what_would_break_a_call_is_percent_encoded() -> None:
    assert source_label('a/b "c"', "finding") == "session/a%2Fb%20%22c%22/finding"
    assert source_label("50%") == "session/50%25"


@pytest.mark.parametrize("written", ["my id", 'say "hi"', "50%", "a%zz", "100% (done)", "%ff"])
def test_an_id_that_nobody_encoded_is_taken_as_it_stands(written: str) -> None:
    assert parse_source(f"session/{written}/finding").session == written
    assert parse_source(f"session/{written}").session == written


@pytest.mark.parametrize(
    "label", ["", "finding", "session", "sessions/a", "session/a/b/finding", "session/a/other"]
)
def test_a_malformed_label_is_refused_by_name(label: str) -> None:
    with pytest.raises(KnowledgeError) as refusal:
        parse_source(label)
    assert refusal.value.code == "scope"
    assert repr(label) in str(refusal.value)
