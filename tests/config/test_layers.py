"""Where a setting comes from: arguments over environment over file over defaults."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ctxarchive.compaction.policy import CompactionPolicy
from ctxarchive.config.layers import resolve_settings
from ctxarchive.config.settings import Settings
from ctxarchive.errors import ConfigError


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working folder, and no variable of ours."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("CTXARCHIVE_")]:
        monkeypatch.delenv(name)


def test_without_anything_the_defaults_hold() -> None:
    assert resolve_settings() == Settings()


def test_arguments_win_over_environment_over_file_over_defaults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("ctxarchive.toml").write_text(
        "[compaction]\nthreshold_ratio = 0.5\nretain_ratio = 0.1\nmax_tokens = 111\n"
    )
    monkeypatch.setenv("CTXARCHIVE_COMPACTION__THRESHOLD_RATIO", "0.6")
    monkeypatch.setenv("CTXARCHIVE_COMPACTION__RETAIN_RATIO", "0.2")
    found = resolve_settings({"compaction": {"threshold_ratio": 0.7}}).compaction
    assert found.threshold_ratio == 0.7
    assert found.retain_ratio == 0.2
    assert found.max_tokens == 111
    assert found.compaction_retries == CompactionPolicy().compaction_retries


def test_a_named_file_is_read_instead_of_the_one_in_the_working_folder(tmp_path: Path) -> None:
    Path("ctxarchive.toml").write_text('backend = "basic"\n')
    named = tmp_path / "other.toml"
    named.write_text('estimator = "characters"\n')
    assert resolve_settings().backend == "basic"
    found = resolve_settings(file=named)
    assert (found.backend, found.estimator) == ("archive", "characters")


def test_an_argument_may_be_a_model_of_which_only_what_was_set_wins() -> None:
    Path("ctxarchive.toml").write_text("[compaction]\nmax_tokens = 111\n")
    found = resolve_settings({"compaction": CompactionPolicy(threshold_ratio=0.7)}).compaction
    assert (found.threshold_ratio, found.max_tokens) == (0.7, 111)


def test_top_level_keys_and_whole_sections_come_from_the_environment_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CTXARCHIVE_BACKEND", "basic")
    monkeypatch.setenv("CTXARCHIVE_ARCHIVE", "kept.db")
    monkeypatch.setenv(
        "CTXARCHIVE_COMPACTION__MODEL_POLICIES",
        '[{"provider": "p", "model": "m", "threshold_ratio": 0.4}]',
    )
    found = resolve_settings()
    assert found.backend == "basic"
    assert found.archive == Path("kept.db")
    assert found.compaction.model_policies[0].threshold_ratio == 0.4


def test_variables_that_are_no_setting_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CTXARCHIVE_LOGS", "somewhere")
    assert resolve_settings() == Settings()


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("COMPACTION__RETAIN_RATION", "0.1", "did you mean retain_ratio"),
        ("COMPACTION__MAX_TOKENS", "many", "valid integer"),
        ("BACKEND", "both", "'both' is not registered: use 'archive' or 'basic'"),
        ("COMPACTION__MODEL_POLICIES", "[not json", "environment"),
    ],
)
def test_an_error_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, told: str
) -> None:
    monkeypatch.setenv(f"CTXARCHIVE_{name}", value)
    with pytest.raises(ConfigError, match="environment") as caught:
        resolve_settings()
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_error_names_the_file_or_the_arguments() -> None:
    Path("ctxarchive.toml").write_text("[prune]\nhead = 3\n")
    with pytest.raises(
        ConfigError, match=r"^ctxarchive\.toml: prune\.head: unknown key; known are"
    ):
        resolve_settings()
    Path("ctxarchive.toml").unlink()
    with pytest.raises(ConfigError, match=r"^arguments: compaction\.max_tokens: "):
        resolve_settings({"compaction": {"max_tokens": -1}})


def test_a_contradiction_between_layers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("ctxarchive.toml").write_text("[compaction]\nretain_ratio = 0.5\n")
    monkeypatch.setenv("CTXARCHIVE_COMPACTION__THRESHOLD_RATIO", "0.4")
    with pytest.raises(ConfigError, match=r"retain_ratio 0\.5 is not below threshold_ratio 0\.4"):
        resolve_settings()
