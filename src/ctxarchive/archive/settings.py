"""The constants of the archive engine, each settable. Values only."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator


class AnchorWeights(BaseModel):
    """How much each use of a token says about its being needed again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    called: float = 3.0
    """That a tool call ever held it."""
    calls: float = 1.0
    """Times the logarithm of one more than the calls that held it."""
    call_recency: float = 4.0
    """Times where in the span a call held it last, 0 to 1."""
    recency: float = 1.0
    """Times where in the span anything held it last, 0 to 1."""
    edits: float = 0.5
    """Times the logarithm of one more than the calls that changed something with it."""
    mentions: float = 0.0
    """Times the logarithm of one more than the events that held it."""
    familiar: float = 0.5
    """That no call held it, but each of its words stood in something that a call held."""
    asked: float = 0.5
    """Times the logarithm of one more than the user's messages that held it."""
    first_asked: float = 0.5
    """That the user's first message of the span held it."""
    last_asked: float = 1.0
    """That the user's last message of the span held it."""
    open_items: float = 1.0
    """That an item which is still to be done holds it."""
    failures: float = 0.5
    """Times the logarithm of one more than the failed results that held it."""
    commands: float = Field(default=0.5, ge=0)
    """Factor for what a shell command runs, which a model often knows without being told."""
    fade: float = Field(default=0.5, ge=0, le=1)
    """Factor for each compaction since it was used last."""
    length_offset: float = Field(default=25.0, gt=0)
    """Code points added to a token's length before its worth is divided by it."""


class TranscriptConfig(BaseModel):
    """How much of each message a checkpoint shows. Lengths are in Unicode code points."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    user_clip_at: int = Field(default=1_000, ge=0)
    """User messages up to this length are shown whole."""
    user_clip_keep: int = Field(default=500, ge=0)
    """Head and tail kept of a longer one, each."""
    assistant_min_split: int = Field(default=400, ge=0)
    """Assistant prose up to this length is shown whole."""
    assistant_keep: int = Field(default=200, ge=0)
    """Head and tail kept of longer prose, each."""
    keep_assistant: bool = True
    """Whether assistant prose is shown at all."""
    tool_essence: int = Field(default=60, ge=0)
    """Most code points of what a tool call did, on its line."""
    max_transcript_chars: int = Field(default=400_000, ge=0)
    """Bound of the transcript."""
    transcript_tokens: int | None = Field(default=750, ge=0)
    """Most tokens of assistant prose and tool lines; ``None`` for no bound of their own."""
    max_index_chars: int = Field(default=1_200, ge=0)
    """Bound of the archive index without its anchors."""
    anchor_tokens: int = Field(default=3_700, ge=0)
    """Most tokens of the anchors; 0 for none."""
    anchor_weights: AnchorWeights = AnchorWeights()
    """How anchors are ranked."""
    max_addition_chars: int | None = Field(default=None, ge=0)
    """Bound of all that is added to the summary; ``None`` for none beyond the others."""
    max_checkpoint_ratio: float = Field(default=0.5, gt=0, lt=1)
    """Largest share of the shadowed tokens that the checkpoint may take."""

    @model_validator(mode="after")
    def _consistent(self) -> TranscriptConfig:
        if 2 * self.user_clip_keep > self.user_clip_at:
            raise ValueError("user_clip_keep: head and tail together exceed user_clip_at")
        if 2 * self.assistant_keep > self.assistant_min_split:
            raise ValueError("assistant_keep: head and tail together exceed assistant_min_split")
        return self
