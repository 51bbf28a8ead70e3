"""When to compact and how much to keep: settings, and the numbers they resolve to.

Contradictions are refused at the first moment they can be known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ctxarchive.errors import ConfigError


class PolicyOverride(BaseModel):
    """Settings for one exact provider and model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    provider: str
    """The target's provider, exactly."""
    model: str
    """The target's model, exactly."""
    threshold_ratio: float | None = Field(default=None, gt=0, le=1)
    """Replaces the policy's own for this target."""
    retain_ratio: float | None = Field(default=None, ge=0, lt=1)
    """Replaces the policy's own for this target, and its ``retain_tokens``."""
    retain_tokens: int | None = Field(default=None, ge=0)
    """Replaces the policy's own for this target."""
    max_tokens: int | None = Field(default=None, gt=0)
    """Replaces the policy's own for this target."""


class CompactionPolicy(BaseModel):
    """When and how far history shrinks."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    threshold_ratio: float = Field(default=0.8, gt=0, le=1)
    """Compact when the request reaches this share of the context window."""
    retain_ratio: float = Field(default=0.16, ge=0, lt=1)
    """Share of the window kept verbatim at the end."""
    retain_tokens: int | None = Field(default=None, ge=0)
    """Tokens kept verbatim at the end; replaces ``retain_ratio``."""
    summarization_provider: str | None = None
    """With ``summarization_model``: who writes summaries, where not the conversation's model."""
    summarization_model: str | None = None
    """With ``summarization_provider``: the model that writes summaries."""
    max_tokens: int = Field(default=8_192, gt=0)
    """Most tokens of a summary."""
    compaction_retries: int = Field(default=1, ge=0)
    """Further attempts when the request is still over the threshold afterwards."""
    max_overflow_retries: int = Field(default=1, ge=0)
    """Times a request is tried again after the provider called it too long."""
    auto: bool = True
    """Whether pressure and overflow compact at all."""
    model_policies: tuple[PolicyOverride, ...] = ()
    """What differs for single models; see below."""
    on_summary_failure: Literal["fallback", "error"] = "fallback"
    """What follows a failed summary: the deterministic summarizer, or the error."""
    summary_timeout_s: float = Field(default=120.0, gt=0)
    """Seconds a summarizer may take."""
    min_span_tokens: int = Field(default=1_000, ge=0)
    """A span below this is not worth a compaction."""
    min_reclaim_tokens: int = Field(default=500, ge=0)
    """Least tokens an automatic compaction must be able to free."""

    @model_validator(mode="after")
    def _consistent(self) -> CompactionPolicy:
        if self.retain_tokens is None and self.retain_ratio >= self.threshold_ratio:
            raise ValueError(
                f"retain_ratio {self.retain_ratio} is not below threshold_ratio "
                f"{self.threshold_ratio}"
            )
        if (self.summarization_provider is None) != (self.summarization_model is None):
            raise ValueError("summarization_provider and summarization_model go together")
        targets = [(override.provider, override.model) for override in self.model_policies]
        for place, override in enumerate(self.model_policies):
            name = f"{override.provider}/{override.model}"
            if targets.index(targets[place]) != place:
                raise ValueError(f"model_policies: {name} is there twice")
            threshold = override.threshold_ratio or self.threshold_ratio
            by_tokens = override.retain_tokens is not None or (
                override.retain_ratio is None and self.retain_tokens is not None
            )
            ratio = self.retain_ratio if override.retain_ratio is None else override.retain_ratio
            if not by_tokens and ratio >= threshold:
                raise ValueError(
                    f"model_policies: {name}: retain_ratio {ratio} is not below threshold_ratio "
                    f"{threshold}"
                )
        return self

    def resolve(self, provider: str, model: str, window: int) -> Budget:
        """The numbers for one target.

        Args:
            provider: the target's provider.
            model: the target's model.
            window: its capacity in tokens.

        Raises:
            ConfigError: when the retained tail reaches the threshold.
        """
        threshold_ratio, retain_ratio = self.threshold_ratio, self.retain_ratio
        retain_tokens, max_tokens = self.retain_tokens, self.max_tokens
        section = "compaction"
        for override in self.model_policies:
            if (override.provider, override.model) == (provider, model):
                threshold_ratio = override.threshold_ratio or threshold_ratio
                if override.retain_ratio is not None:
                    retain_ratio, retain_tokens = override.retain_ratio, None
                if override.retain_tokens is not None:
                    retain_tokens = override.retain_tokens
                if override.retain_ratio is not None or override.retain_tokens is not None:
                    section = "compaction.model_policies"
                max_tokens = override.max_tokens or max_tokens
        threshold = int(window * threshold_ratio)
        retain = int(window * retain_ratio) if retain_tokens is None else retain_tokens
        if retain >= threshold:
            key = "retain_ratio" if retain_tokens is None else "retain_tokens"
            raise ConfigError(
                f"{section}.{key}: retained tail of {retain} tokens is not below the threshold of "
                f"{threshold} tokens (threshold_ratio {threshold_ratio:g} of the window of "
                f"{window} tokens of {target_name(provider, model)}); lower {key}"
            )
        return Budget(window=window, threshold=threshold, retain=retain, max_tokens=max_tokens)


def target_name(provider: str, model: str) -> str:
    """What to call a target in a message; either part may be blank, where routing names none."""
    return "/".join(part for part in (provider, model) if part) or "the default model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A policy's numbers for one target, in tokens."""

    window: int
    threshold: int
    retain: int
    max_tokens: int
