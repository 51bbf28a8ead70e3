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
    monkeypatch.setenv("CTXARCHIVE_TRACEBACK", "1")
    assert resolve_settings() == Settings()


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("COMPACTION__RETAIN_RATION", "0.1", "did you mean retain_ratio"),
        ("COMPACTION__MAX_TOKENS", "many", "valid integer"),
        ("BACKEND", "both", "'both' is not registered: use 'archive' or 'basic'"),
        (
            "COMPACTION__MODEL_POLICIES",
            "[not json",
            "CTXARCHIVE_COMPACTION__MODEL_POLICIES: not JS",
        ),
        (
            "COMPACTION__MODEL_POLICIES",
            '[{"provider": "p", "x": 1}]',
            "environment CTXARCHIVE_COMPACTION__MODEL_POLICIES: compaction.model_policies.0.",
        ),
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


def test_a_contradiction_between_layers_is_refused_and_each_value_is_traced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("ctxarchive.toml").write_text("[compaction]\nretain_ratio = 0.5\n")
    monkeypatch.setenv("CTXARCHIVE_COMPACTION__THRESHOLD_RATIO", "0.4")
    with pytest.raises(ConfigError) as caught:
        resolve_settings()
    assert str(caught.value) == (
        "settings: compaction: retain_ratio 0.5 is not below threshold_ratio 0.4 (retain_ratio: "
        "ctxarchive.toml, threshold_ratio: environment CTXARCHIVE_COMPACTION__THRESHOLD_RATIO)"
    )
    with pytest.raises(ConfigError, match=r"ctxarchive\.toml, threshold_ratio: arguments\)$"):
        resolve_settings({"compaction": {"threshold_ratio": 0.3}})


def test_a_file_that_contradicts_itself_may_be_put_right_by_a_higher_layer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("ctxarchive.toml").write_text("[compaction]\nretain_ratio = 0.9\n")
    with pytest.raises(ConfigError, match=r"^ctxarchive\.toml: compaction: retain_ratio 0\.9 is"):
        resolve_settings()
    assert resolve_settings({"compaction": {"retain_ratio": 0.1}}).compaction.retain_ratio == 0.1
    monkeypatch.setenv("CTXARCHIVE_COMPACTION__RETAIN_TOKENS", "500")
    assert resolve_settings().compaction.retain_tokens == 500


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("CTXARCHIVE_BACKENDS", "did you mean CTXARCHIVE_BACKEND?"),
        (
            "CTXARCHIVE_COMPACTION_THRESHOLD_RATIO",
            "did you mean CTXARCHIVE_COMPACTION__THRESHOLD_RATIO?",
        ),
        ("CTXARCHIVE_BACKEND__NAME", "did you mean CTXARCHIVE_BACKEND?"),
        ("ctxarchive_estimators", "did you mean CTXARCHIVE_ESTIMATOR?"),
        ("CTXARCHIVE_QQQ", "known are CTXARCHIVE_BACKEND, CTXARCHIVE_ESTIMATOR"),
    ],
)
def test_a_variable_of_ours_that_sets_nothing_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, told: str
) -> None:
    """It names the variable, and the nearest one that would set something."""
    monkeypatch.setenv(name, "0.5")
    with pytest.raises(ConfigError, match=f"^environment {name}: no such setting; ") as caught:
        resolve_settings({"backend": "basic"})
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_not_a_regular_file_is_refused_unopened(tmp_path: Path) -> None:
    """A pipe that nobody writes to would hang; a folder in the place of the file is not skipped."""
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(ConfigError, match=r"pipe\.toml: not a regular file; name a TOML file"):
        resolve_settings(file=tmp_path / "pipe.toml")
    Path("ctxarchive.toml").mkdir()
    with pytest.raises(ConfigError, match=r"^ctxarchive\.toml: a folder; name a TOML file"):
        resolve_settings()
