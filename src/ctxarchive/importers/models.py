"""How much a model can hold, by its name. Facts only; what a log says itself comes first."""

from __future__ import annotations

import re

_WINDOWS: tuple[tuple[str, int], ...] = (
    (r"claude-.*\[1m\]$", 1_000_000),
    (r"claude-(2(\.0)?|instant.*)$", 100_000),
    (r"claude-", 200_000),
    (r"gpt-4\.1", 1_047_576),
    (r"gpt-4o|gpt-4-turbo|chatgpt-4o", 128_000),
    (r"gpt-3\.5-turbo", 16_385),
    (r"(^|/)(o1|o3|o4-mini)(-|$)", 200_000),
)


def known_context_window(model: str | None) -> int | None:
    """The context window of ``model`` in tokens, or ``None`` where it is not known for sure.

    Args:
        model: the name as a log spells it; a routing prefix before it does no harm.
    """
    if model is None:
        return None
    return next((size for pattern, size in _WINDOWS if re.search(pattern, model)), None)
