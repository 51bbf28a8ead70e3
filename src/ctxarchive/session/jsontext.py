"""JSON as the log, the archive and the command line spell it."""

from __future__ import annotations

import json
from typing import Any


def dump_json(value: Any) -> str:
    r"""``value`` as one line of JSON, readable as UTF-8: lone surrogates stay ``\u`` escapes."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text
