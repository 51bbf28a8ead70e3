"""What ``ctx_search`` takes: its arguments, with what models commonly get wrong set right.

Repairs a type where the intent is plain, and names the argument where it is not. Reads no store.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ctxarchive.errors import ToolInputError


def _as_list(value: Any) -> Any:
    """A list where a model sent one string, or a list spelt as JSON."""
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("["):
            try:
                decoded = json.loads(text)
            except ValueError:
                return [value]
            if isinstance(decoded, list):
                return _as_list(decoded)
        return [value]
    if isinstance(value, list):
        return [str(item) if type(item) in {int, float} else item for item in value]
    return value


def _as_number(value: Any) -> Any:
    """A number where a model sent it as text."""
    if isinstance(value, str):
        text = value.strip()
        try:
            return int(text)
        except ValueError:
            return int(text[:-2]) if text.endswith(".0") and text[:-2].isdecimal() else value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


# Bounds stand before the repair: behind it they would not reach the JSON schema as JSON schema.
Strings = Annotated[list[str], BeforeValidator(_as_list)]
Queries = Annotated[list[str], Field(min_length=1, max_length=8), BeforeValidator(_as_list)]
Count = Annotated[int, Field(ge=0), BeforeValidator(_as_number)]
Before = Annotated[int, Field(ge=-1), BeforeValidator(_as_number)]
Limit = Annotated[int, Field(ge=1, le=50), BeforeValidator(_as_number)]


class CtxSearchInput(BaseModel):
    """What ``ctx_search`` takes: ``queries``, or ``seq``, or ``after_seq``/``before_seq``."""

    model_config = ConfigDict(frozen=True, extra="forbid", title="ctx_search")

    queries: Queries | None = Field(
        default=None,
        description="1 to 8 searches, each answered on its own: words, identifiers, paths, error "
        'texts; "exact phrases" in double quotes; word* for a prefix.',
    )
    source: Strings | None = Field(
        default=None,
        description="One source label or several, as a checkpoint prints them: "
        "session/<id>/<layer>, or session/<id> for all layers. Default: this conversation.",
    )
    seq: Count | None = Field(default=None, description="Fetch the record with this seq, exactly.")
    offset: Count | None = Field(
        default=None, description="With seq: start at this character of the record."
    )
    length: Count | None = Field(default=None, description="With seq: return this many characters.")
    after_seq: Before | None = Field(
        default=None,
        description="Only records after this seq. Without queries: whole records in order.",
    )
    before_seq: Count | None = Field(default=None, description="Only records before this seq.")
    after: str | None = Field(
        default=None, description="Only records from this date or time (ISO 8601, UTC) on."
    )
    before: str | None = Field(
        default=None, description="Only records before this date or time (ISO 8601, UTC)."
    )
    limit: Limit | None = Field(default=None, description="Most results a query; 5 by default.")


def parse_input(input: Mapping[str, Any]) -> CtxSearchInput:
    """A call's arguments, with types repaired where the intent is plain.

    Raises:
        ToolInputError: naming the argument that is unknown, wrong, or contradicts another.
    """
    if not isinstance(input, Mapping):
        raise ToolInputError(f"arguments must be an object, not {type(input).__name__}")
    known = CtxSearchInput.model_fields
    for name in input:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"
            raise ToolInputError(f"unknown parameter {name!r}{hint}")
    given = {name: value for name, value in input.items() if not _is_absent(name, value)}
    try:
        asked = CtxSearchInput.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"][:1])
        raise ToolInputError(f"{field}: {first['msg']}") from None
    if asked.seq is not None and asked.queries is not None:
        raise ToolInputError("give either seq or queries, not both")
    if asked.seq is not None and (asked.after_seq is not None or asked.before_seq is not None):
        raise ToolInputError(
            "give either seq, or after_seq and before_seq, not both: seq fetches one record"
        )
    if asked.seq is None and (asked.offset is not None or asked.length is not None):
        raise ToolInputError("offset and length go with seq")
    return asked


def _is_absent(name: str, value: Any) -> bool:
    """Whether a model left an argument out in its own way."""
    if value is None or value in ("", []):
        return True
    # A query may well be after the word itself.
    return (
        name != "queries" and isinstance(value, str) and value.strip().lower() in {"null", "none"}
    )


def moment(text: str | None, name: str, shift: int) -> int | None:
    """A date or time as milliseconds since the epoch, moved so that an exclusive bound fits.

    Args:
        text: ISO 8601, UTC where it names no zone; ``None`` for no bound.
        name: the argument, for the error.
        shift: milliseconds to add.

    Raises:
        ToolInputError: when it is neither a date nor a time.
    """
    if text is None:
        return None
    try:
        if len(text.strip()) == 10:
            day = date.fromisoformat(text.strip())
            found = datetime(day.year, day.month, day.day, tzinfo=UTC)
        else:
            found = datetime.fromisoformat(text.strip())
            found = found if found.tzinfo else found.replace(tzinfo=UTC)
    except ValueError:
        raise ToolInputError(f"{name}: {text!r} is not an ISO 8601 date or time") from None
    return (found - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) + shift
