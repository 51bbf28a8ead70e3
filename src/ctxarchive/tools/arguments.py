"""What ``ctx_search`` takes: its arguments, with what models commonly get wrong set right.

Repairs a type where the intent is plain; what it does not take it names, with a call that would be
right. Reads no store.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ctxarchive.errors import ToolInputError

NAME: Final = "ctx_search"

SAID_CHARS: Final = 60
"""Most of what somebody else wrote that a line of ours repeats."""

_LARGEST = (1 << 63) - 1
_NUMBER = re.compile(r"([+-]?\d{1,18})(?:\.0+)?")
_ZONE = re.compile(r"\s*(?:UTC|GMT|Z)\Z", re.IGNORECASE)


def _as_list(value: Any) -> Any:
    """A list where a model sent one item, or a list spelt as JSON; numbers in it as text."""
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("["):
            try:
                decoded = json.loads(text)
            except (ValueError, RecursionError):
                return [value]
            if isinstance(decoded, list):
                return _as_list(decoded)
        return [value]
    if isinstance(value, list | tuple):
        kept = [item for item in value if item is not None]
        return [str(item) if type(item) in {int, float} else item for item in kept]
    return [str(value)] if type(value) in {int, float} else value


def _as_number(value: Any) -> Any:
    """A number where a model sent it as text, or alone in a list."""
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    if isinstance(value, bool):
        raise ValueError("Input should be a number, not true or false")  # noqa: TRY004 - pydantic's
    if isinstance(value, str):
        found = _NUMBER.fullmatch(value.strip())
        return int(found[1]) if found else value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _as_word(value: Any) -> Any:
    """A word in lower case, also where it came alone in a list."""
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    return value.strip().lower() if isinstance(value, str) else value


# Bounds stand before the repair: behind it they would not reach the JSON schema as JSON schema.
Strings = Annotated[list[str], BeforeValidator(_as_list)]
Queries = Annotated[list[str], Field(min_length=1, max_length=8), BeforeValidator(_as_list)]
Count = Annotated[int, Field(ge=0, le=_LARGEST), BeforeValidator(_as_number)]
Before = Annotated[int, Field(ge=-1, le=_LARGEST), BeforeValidator(_as_number)]
Limit = Annotated[int, Field(ge=1, le=50), BeforeValidator(_as_number)]
Order = Annotated[Literal["best", "newest", "oldest"], BeforeValidator(_as_word)]


class CtxSearchInput(BaseModel):
    """What ``ctx_search`` takes: ``queries``, or ``seq``, or ``after_seq``/``before_seq``."""

    model_config = ConfigDict(frozen=True, extra="forbid", title="ctx_search")

    queries: Queries | None = Field(
        default=None,
        description="1 to 8 searches, each answered on its own: identifiers, paths, error texts, "
        'words, a question; "exact phrase" in double quotes; word* for a prefix.',
    )
    source: Strings | None = Field(
        default=None,
        description="Where to look, as printed: session/<id>/<layer> or session/<id>; or one layer "
        "of this conversation: constraint (what the user said), finding (tool results, "
        "conclusions), narrative. Default: all of this conversation.",
    )
    seq: Count | None = Field(
        default=None, description="Instead of queries: fetch the record with this seq, exactly."
    )
    offset: Count | None = Field(default=None, description="With seq: start at this character.")
    length: Count | None = Field(default=None, description="With seq: return this many characters.")
    after_seq: Before | None = Field(
        default=None,
        description="Only records after this seq. Without queries: list whole records in order.",
    )
    before_seq: Count | None = Field(default=None, description="Only records before this seq.")
    after: str | None = Field(
        default=None,
        description="Only records from this date or time on: 2026-03-31 or 2026-03-31T14:00, UTC "
        "unless it names a zone.",
    )
    before: str | None = Field(
        default=None, description="Only records before it (a date: before that day begins)."
    )
    order: Order | None = Field(
        default=None, description="Of results: best (default), newest or oldest first."
    )
    limit: Limit | None = Field(default=None, description="Most results a query; default 5.")


def input_schema() -> dict[str, Any]:
    """The JSON schema of the arguments, with nothing in it that tells a model no more.

    What may be left out is not listed as nullable: ``null`` is taken all the same.
    """
    schema = CtxSearchInput.model_json_schema()
    properties: dict[str, Any] = {}
    for name, field in schema["properties"].items():
        kind = next(kind for kind in field.get("anyOf", [field]) if kind.get("type") != "null")
        told = {key: value for key, value in kind.items() if value != _LARGEST and key != "title"}
        properties[name] = {**told, "description": field["description"]}
    return {"type": "object", "properties": properties, "additionalProperties": False}


_SEARCH = f'{NAME}(queries: ["retry budget"])'
_FETCH = f"{NAME}(seq: 12, offset: 0, length: 4000)"
_RANGE = f"{NAME}(after_seq: 99, before_seq: 118)"
_DATES = f'{NAME}(queries: ["retry budget"], after: "2026-03-31", before: "2026-04-01T14:00Z")'
_RIGHT: Final = {
    "queries": _SEARCH,
    "source": f'{NAME}(queries: ["retry budget"], source: "constraint")',
    "seq": _FETCH,
    "offset": _FETCH,
    "length": _FETCH,
    "after_seq": _RANGE,
    "before_seq": _RANGE,
    "after": _DATES,
    "before": _DATES,
    "order": f'{NAME}(queries: ["retry budget"], order: "newest")',
    "limit": f'{NAME}(queries: ["retry budget"], limit: 10)',
}
"""A call that takes each argument as it should be."""

_OTHER_NAMES: Final = {
    "q": "queries",
    "text": "queries",
    "search": "queries",
    "pattern": "queries",
    "keywords": "queries",
    "id": "seq",
    "record": "seq",
    "session": "source",
    "layer": "source",
    "scope": "source",
    "start": "offset",
    "size": "length",
    "since": "after",
    "from": "after",
    "start_date": "after",
    "until": "before",
    "to": "before",
    "end_date": "before",
    "sort": "order",
    "sort_by": "order",
    "top_k": "limit",
    "count": "limit",
    "max_results": "limit",
}
"""What models call an argument that has another name here."""


def clip(text: str) -> str:
    """``text`` on one line, no longer than a line of ours may repeat."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return flat if len(flat) <= SAID_CHARS else f"{flat[: SAID_CHARS - 1]}…"


def refusal(problem: str, field: str = "queries") -> ToolInputError:
    """The error that says what is wrong, with a call that is right."""
    stop = " A" if problem.endswith("?") else "; a"
    return ToolInputError(f"{problem}{stop} right call: {_RIGHT[field]}")


def parse_input(input: Mapping[str, Any]) -> CtxSearchInput:
    """A call's arguments, with types repaired where the intent is plain.

    Raises:
        ToolInputError: naming the argument that is unknown, wrong, or contradicts another.
    """
    given = _known(_as_object(input))
    try:
        asked = CtxSearchInput.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = str(first["loc"][0]) if first["loc"] else "queries"
        raise refusal(f"{field}: {_flat(first['msg'])}", field) from None
    _agree(asked)
    return asked


def _as_object(given: Any) -> Mapping[str, Any]:
    """The arguments, also where they came as the text of a JSON object."""
    if isinstance(given, str) and given.lstrip().startswith("{"):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            raise refusal("arguments must be an object; this text is no JSON") from None
    if not isinstance(given, Mapping):
        raise refusal(f"arguments must be an object, not {type(given).__name__}")
    return given


def _known(input: Mapping[str, Any]) -> dict[str, Any]:
    """What was given of it, under names that there are."""
    known = CtxSearchInput.model_fields
    for name in map(str, input):
        if name not in known:
            near = _nearest(name)
            if near:
                raise refusal(f"unknown parameter {clip(name)!r}; did you mean {near!r}?", near)
            raise refusal(f"unknown parameter {clip(name)!r}; known are {', '.join(known)}")
    given = {name: value for name, value in input.items() if not _is_absent(name, value)}
    if "seq" not in given and given.get("offset") in (0, "0"):
        del given["offset"]  # filled in as a default: it asks for nothing
    return given


def _nearest(name: str) -> str | None:
    """The argument that a wrong name most likely stands for."""
    spelt = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name[:SAID_CHARS]).lower().replace("-", "_")
    if spelt in _OTHER_NAMES:
        return _OTHER_NAMES[spelt]
    near = difflib.get_close_matches(spelt, CtxSearchInput.model_fields, 1)
    return near[0] if near else None


def _agree(asked: CtxSearchInput) -> None:
    """Refuse arguments that contradict each other."""
    fetches = asked.seq is not None
    if fetches and asked.queries is not None:
        raise refusal("give either seq or queries, not both", "seq")
    if fetches and (asked.after_seq is not None or asked.before_seq is not None):
        raise refusal(
            "give either seq, or after_seq and before_seq, not both: seq fetches one record", "seq"
        )
    if fetches and (asked.after is not None or asked.before is not None):
        raise refusal("give either seq, or after and before, not both", "seq")
    if not fetches and (asked.offset is not None or asked.length is not None):
        raise refusal("offset and length go with seq", "offset")
    if asked.queries is None and asked.order == "newest":
        raise refusal("order: newest goes with queries; records are listed oldest first", "order")


def _is_absent(name: str, value: Any) -> bool:
    """Whether a model left an argument out in its own way."""
    if value is None or value in ("", []):
        return True
    # A query may well be after the word itself.
    return (
        name != "queries"
        and isinstance(value, str)
        and value.strip().lower() in {"", "null", "none", "undefined"}
    )


def _flat(message: str) -> str:
    return " ".join(message.removeprefix("Value error, ").split())


def moment(text: str | None, name: str, shift: int) -> int | None:
    """A date or time as milliseconds since the epoch, moved so that an exclusive bound fits.

    Args:
        text: ISO 8601, or as a result prints it; UTC where it names no zone; ``None`` for no bound.
        name: the argument, for the error.
        shift: milliseconds to add.

    Raises:
        ToolInputError: when it is neither a date nor a time.
    """
    if text is None:
        return None
    spelt = text.strip()
    try:
        if len(spelt) == 10:
            day = date.fromisoformat(spelt)
            found = datetime(day.year, day.month, day.day, tzinfo=UTC)
        else:
            found = datetime.fromisoformat(_ZONE.sub("+00:00", spelt))
            found = found if found.tzinfo else found.replace(tzinfo=UTC)
    except ValueError:
        raise refusal(f"{name}: {clip(text)!r} is not an ISO 8601 date or time", name) from None
    return (found - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) + shift
