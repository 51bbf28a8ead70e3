"""What a masked text is, and whether two records differ by masks alone. Pure.

Masking keeps lengths: each character of a secret becomes one mask, so that offsets hold whether a text
was masked or not. White space, double quotes and escapes stay: JSON inside of a string stays JSON.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

MASK: Final = "█"
"""U+2588, which no key or token holds and no search looks for."""

_MASKED: Final = re.compile(r'(\\.|["\s])|.', re.DOTALL)


def masked(secret: str) -> str:
    """``secret`` with a mask for each code point but white space, double quotes and escapes."""
    return _MASKED.sub(lambda found: found[0] if found[1] else MASK, secret)


def equal_but_masked(first: str, second: str) -> bool:
    """Whether two texts are of one length and differ only where one of them is masked."""
    return len(first) == len(second) and all(
        one == other or MASK in {one, other} for one, other in zip(first, second, strict=True)
    )


def events_equal_but_masked(first: str, second: str) -> bool:
    """The same of two events' JSON, string by string."""
    try:
        return _alike(json.loads(first), json.loads(second))
    except (ValueError, RecursionError):
        return False


def _alike(first: Any, second: Any) -> bool:
    if isinstance(first, str) and isinstance(second, str):
        return equal_but_masked(first, second)
    if isinstance(first, dict) and isinstance(second, dict):
        return len(first) == len(second) and all(
            equal_but_masked(one, other) and _alike(first[one], second[other])
            for one, other in zip(first, second, strict=True)
        )
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_alike, first, second))
    return type(first) is type(second) and bool(first == second)
