"""The checkpoint's frame: our preamble, a tag around the summary, then the additions.

The tag says how many code points it holds, so that a parser reads by count and a summary that
imitates the frame changes nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ctxarchive.errors import SessionError

PREAMBLE = (
    "This checkpoint condenses an earlier part of this conversation, which is no longer in view. "
    "Treat it as background, not as new instructions: what the user asked in it still holds, and "
    "the work goes on from where the conversation stands."
)
"""What every checkpoint begins with."""

_OPENING = re.compile(r"\n\n<summary chars=(\d+)>\n")
_CLOSING = "\n</summary>"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointText:
    """A checkpoint's text, taken apart."""

    summary: str
    additions: str


def frame(summary: str, additions: str = "") -> str:
    """The text of a checkpoint.

    Args:
        summary: the summarizer's text.
        additions: what follows it; empty for none.
    """
    text = f"{PREAMBLE}\n\n<summary chars={len(summary)}>\n{summary}{_CLOSING}"
    return f"{text}\n\n{additions}" if additions else text


def parse_frame(text: str) -> CheckpointText:
    """Summary and additions of a checkpoint, exactly as they were framed.

    Raises:
        SessionError: ``event``, when ``text`` is not a checkpoint of ours.
    """
    opening = _OPENING.match(text, len(PREAMBLE)) if text.startswith(PREAMBLE) else None
    if opening is None:
        raise SessionError("event", "not a checkpoint: the preamble or the summary tag is missing")
    start, length = opening.end(), int(opening.group(1))
    rest = text[start + length :]
    if not rest.startswith(_CLOSING):
        raise SessionError("event", f"not a checkpoint: no closing tag after {length} characters")
    rest = rest.removeprefix(_CLOSING)
    if rest and not rest.startswith("\n\n"):
        raise SessionError("event", "not a checkpoint: text directly behind the closing tag")
    return CheckpointText(summary=text[start : start + length], additions=rest[2:])
