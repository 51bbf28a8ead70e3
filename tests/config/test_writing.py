"""Settings as a file: what is written reads back the same, and nothing is overwritten unasked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from pydantic import ValidationError

from ctxarchive.config.settings import Settings, load_settings
from ctxarchive.config.writing import refuse_existing, settings_toml
from ctxarchive.errors import ConfigError

NAMES = st.text(min_size=1, max_size=12).filter(lambda text: text.isprintable() and text.strip())


@given(
    values=st.fixed_dictionaries(
        {},
        optional={
            "estimator": st.sampled_from(["tiktoken", "characters"]),
            "prune": st.fixed_dictionaries({}, optional={"max_chars": st.just(9_000)}),
            "compaction": st.fixed_dictionaries(
                {},
                optional={
                    "retain_tokens": st.integers(0, 9_999),
                    "auto": st.booleans(),
                    "summary_timeout_s": st.floats(0.001, 900.0),
                    "model_policies": st.lists(
                        st.fixed_dictionaries(
                            {"provider": NAMES, "model": NAMES},
                            optional={"threshold_ratio": st.floats(0.5, 0.95)},
                        ),
                        max_size=3,
                    ),
                },
            ),
            "transcript": st.fixed_dictionaries(
                {},
                optional={
                    "keep_assistant": st.booleans(),
                    "max_addition_chars": st.integers(0, 99_999),
                    "anchor_weights": st.fixed_dictionaries(
                        {}, optional={"calls": st.floats(-9, 9), "fade": st.floats(0, 1)}
                    ),
                },
            ),
        },
    )
)
def test_settings_read_back_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any]
) -> None:
    """Every kind of value, nested sections and lists of tables."""
    try:
        settings = Settings.model_validate(values)
    except ValidationError:  # a contradiction is refused at load, so it is never written
        reject()
    path = tmp_path_factory.getbasetemp() / "written.toml"
    path.write_text(settings_toml(settings, comments=["a\nb"]), "utf-8")
    assert load_settings(path) == settings


def test_a_value_of_none_that_is_no_default_is_refused() -> None:
    """TOML has no word for it, and leaving it out would give the default."""
    settings = Settings.model_validate({"transcript": {"transcript_tokens": None}})
    with pytest.raises(ConfigError, match="none has no spelling"):
        settings_toml(settings)


def test_a_file_is_not_replaced_unasked(tmp_path: Path) -> None:
    """Nor is a folder taken for a file, or made."""
    there = tmp_path / "there.toml"
    there.write_text("", "utf-8")
    refuse_existing(there, force=True)
    refuse_existing(tmp_path / "new.toml", force=False)
    for path, told in (
        (there, "exists"),
        (tmp_path, "a folder"),
        (tmp_path / "a" / "b.toml", "no folder"),
    ):
        with pytest.raises(ConfigError, match=told):
            refuse_existing(path, force=False)
