"""Which settings to try, what came of them, and which of them to recommend. Pure.

Nothing here replays a log: configurations go out, measures come in.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ctxarchive.archive.settings import AnchorWeights, TranscriptConfig
from ctxarchive.config.settings import parse_settings
from ctxarchive.errors import ConfigError
from ctxarchive.replay.measuring import Measured

CURVE_CHARS = (500, 1_000, 2_000, 4_000, 8_000, 16_000)
"""Bounds of the additions at which the recall-against-tokens curve is measured."""

SWEPT: tuple[Mapping[str, Any], ...] = (
    {"user_clip_at": 400, "user_clip_keep": 150},
    {"user_clip_at": 1_000, "user_clip_keep": 500},
    {"user_clip_at": 4_000, "user_clip_keep": 2_000},
    {"keep_assistant": False},
    {"assistant_min_split": 160, "assistant_keep": 60},
    {"assistant_min_split": 400, "assistant_keep": 200},
    {"assistant_min_split": 1_000, "assistant_keep": 400},
    {"tool_essence": 0},
    {"tool_essence": 30},
    {"tool_essence": 60},
    {"tool_essence": 120},
    {"transcript_tokens": 0},
    {"transcript_tokens": 600},
    {"transcript_tokens": 1_200},
    {"transcript_tokens": 2_400},
    {"transcript_tokens": 100_000},
    {"anchor_tokens": 0},
    {"anchor_tokens": 800},
    {"anchor_tokens": 1_600},
    {"anchor_tokens": 3_300},
    {"anchor_tokens": 5_000},
)
"""The clip constants and token budgets that are tried, each by itself."""

WITHIN = 0.01
"""How much less than the best recall, or than the user text now shown, is as good."""

WORTHWHILE = 0.02
"""Share of the added tokens that a change must save to be recommended over the current setting."""

PARTS = frozenset({"keep_assistant", "tool_essence", "transcript_tokens", "anchor_tokens"})
"""Fields that switch a part of the checkpoint off at 0. That is measured, to say what the part is
worth, and not recommended: recall sees names, and nothing of what tells the model where it is."""

RULE = (
    "fewest added tokens among the settings whose recall is within 0.01 of the best, of those that "
    "show as much of the user's text (within 0.01) and reach as much through pointers as the "
    "current one, and switch no part off; the current one, where it qualifies and that saves less "
    "than 2 % of the tokens"
)
"""How a setting is recommended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A configuration to try."""

    name: str
    config: TranscriptConfig
    changes: Mapping[str, Any]
    """What differs from the current one, by key of the section ``[transcript]``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a setting, over all checkpoints that could be measured."""

    setting: Setting
    measured: tuple[Measured, ...]

    @property
    def needed(self) -> int:
        """Identifiers that were needed and that no summary holds."""
        return sum(each.needed for each in self.measured)

    @property
    def in_view(self) -> int:
        """Those of them that the additions show."""
        return sum(each.in_view for each in self.measured)

    @property
    def whole(self) -> bool:
        """Whether no part of a checkpoint is switched off that the current setting shows."""
        return not any(
            key in PARTS and not value and value is not None
            for key, value in self.setting.changes.items()
        )

    @property
    def recall(self) -> float:
        """Share of what was needed that is in view; 1 where nothing was needed."""
        return _share(self.in_view, self.needed)

    @property
    def user_text(self) -> float:
        """Share of the user's text that is in view verbatim."""
        return _share(
            sum(each.reach.user_shown for each in self.measured),
            sum(each.reach.user_chars for each in self.measured),
        )

    @property
    def reachable(self) -> float:
        """Share of the elided characters that printed pointers returned."""
        return _share(
            sum(each.reach.reached for each in self.measured),
            sum(each.reach.elided for each in self.measured),
        )

    def mean(self, name: str) -> float:
        """The mean of a measure a checkpoint."""
        return statistics.fmean(getattr(each, name) for each in self.measured)

    def median(self, name: str) -> float:
        """The median of a measure a checkpoint."""
        return float(statistics.median(getattr(each, name) for each in self.measured))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0


def altered(config: TranscriptConfig, changes: Mapping[str, Any]) -> TranscriptConfig:
    """``config`` with some keys set; a key of the weights is ``anchor_weights.<name>``.

    Raises:
        ConfigError: naming the key that is unknown, or whose value may not be.
    """
    values = config.model_dump()
    for key, value in changes.items():
        section, _, name = key.rpartition(".")
        place = values if not section else values.get(section)
        if not isinstance(place, dict):
            raise ConfigError(f"transcript.{key}: {section} is no section")
        place[name] = value
    return parse_settings({"transcript": values}, where=spelt(changes)).transcript


def spelt(changes: Mapping[str, Any]) -> str:
    """Changes in one line."""
    return ", ".join(
        f"{key} = {'none' if value is None else f'{value:g}' if type(value) is float else value}"
        for key, value in changes.items()
    )


def setting(base: TranscriptConfig, changes: Mapping[str, Any], *, name: str = "") -> Setting:
    """The setting that some changes make of the current configuration.

    Raises:
        ConfigError: as :func:`altered`.
    """
    return Setting(name=name or spelt(changes), config=altered(base, changes), changes=changes)


def curve(base: TranscriptConfig, bounds: Sequence[int] = CURVE_CHARS) -> list[Setting]:
    """The current configuration under each bound of all that is added."""
    return [setting(base, {"max_addition_chars": chars}) for chars in bounds]


def sweep(base: TranscriptConfig, around: Setting) -> list[Setting]:
    """Every setting that differs from one setting in one constant, budget or weight.

    Args:
        base: the current configuration, from which changes are told.
        around: the setting that is varied.
    """
    tried = (
        *SWEPT,
        *({"max_addition_chars": chars} for chars in (*CURVE_CHARS, None)),
        *_weights(around.config.anchor_weights),
    )
    found: dict[str, Setting] = {}
    for changes in tried:
        config = altered(around.config, changes)
        key = config.model_dump_json()
        if config not in {around.config, base} and key not in found:
            found[key] = setting(base, {**around.changes, **changes})
    return list(found.values())


def _weights(weights: AnchorWeights) -> Iterator[Mapping[str, Any]]:
    for name in AnchorWeights.model_fields:
        for value in steps(weights, name):
            yield {f"anchor_weights.{name}": value}


FADES = (0.25, 0.5, 0.75, 1.0)


def steps(weights: AnchorWeights, name: str) -> list[float]:
    """The values of one weight that are tried beside its own."""
    value = float(getattr(weights, name))
    if name == "fade":
        return [other for other in FADES if other != value]
    if name == "length_offset":
        return [value / 2, value * 2]
    return [0.0, value * 2] if value else [0.5, 2.0]


def recommend(current: Result, results: Sequence[Result]) -> Result:
    """The setting to use, by :data:`RULE`.

    Args:
        current: the setting in use.
        results: all that were tried, in the order that decides between equals.
    """
    safe = [
        result
        for result in (current, *results)
        if result.whole
        and result.user_text >= current.user_text - WITHIN
        and result.reachable >= current.reachable - WITHIN / 10
    ]
    enough = max(result.recall for result in safe) - WITHIN
    good = [result for result in safe if result.recall >= enough]
    best = min(good, key=lambda result: result.mean("addition_tokens"))
    saved = current.mean("addition_tokens") - best.mean("addition_tokens")
    if current in good and saved < WORTHWHILE * current.mean("addition_tokens"):
        return current
    return best
