"""Where settings come from: arguments over environment over file over defaults.

Lays them over each other first and judges the result, so that no place has to make sense by itself;
an error names the place that each wrong value came from. Opens nothing but the file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from ctxarchive.config.settings import (
    Settings,
    describe,
    is_known,
    is_section,
    read_values,
    section_at,
)
from ctxarchive.errors import ConfigError

FILE = "ctxarchive.toml"
"""The file that is read where none is named, if it is there."""

PREFIX = "CTXARCHIVE_"
"""What every environment variable begins with; sections and keys are joined by two underscores,
e.g. ``CTXARCHIVE_COMPACTION__THRESHOLD_RATIO``."""

NO_SETTINGS = frozenset({"CTXARCHIVE_CHROMIUM", "CTXARCHIVE_LOGS", "CTXARCHIVE_TRACEBACK"})
"""Variables of ours that are not settings: the browser and the folder of real logs for our tests, and
whether the command line shows where an unexpected error was raised."""

_JOINT = "__"
_DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """The values of one place."""

    name: str
    values: Mapping[str, Any]

    def holds(self, place: tuple[int | str, ...]) -> bool:
        """Whether the value at ``place`` is of this layer; a list is of one layer as a whole."""
        at: Any = self.values
        for part in place:
            if not isinstance(at, Mapping):
                return True
            if part not in at:
                return False
            at = at[part]
        return True

    def told(self, place: tuple[int | str, ...]) -> str:
        """This layer's name; of the environment, with the variable that holds ``place``."""
        if self.name != "environment":
            return self.name
        wanted = tuple(str(part).lower() for part in place)
        variables = [
            name
            for name in _variables()
            if wanted[: len(_parts(name))] == _parts(name)[: len(wanted)]
        ]
        return f"environment {max(variables, key=len)}" if variables else self.name


class _Environment(Settings, BaseSettings):
    """The shape in which the environment is read."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter=_JOINT, extra="forbid", frozen=True
    )


def resolve_settings(
    arguments: Mapping[str, Any] | None = None,
    *,
    file: Path | None = None,
    where: str = "arguments",
) -> Settings:
    """The settings that hold.

    Args:
        arguments: values given in code or on a command line, nested as in the file.
        file: the file; :func:`file_here` by default.
        where: what an error calls the arguments.

    Raises:
        ConfigError: naming the place and the first key that is wrong.
    """
    path = file_here() if file is None else file
    layers = [
        _Layer(name=where, values=_plain(arguments or {})),
        _Layer(name="environment", values=_environment()),
    ]
    if path is not None:
        layers.append(_Layer(name=str(path), values=read_values(path)))
    merged: dict[str, Any] = {}
    for layer in reversed(layers):
        merged = _laid_over(merged, layer.values)
    try:
        return Settings.model_validate(merged)
    except ValidationError as error:
        raise _named(error, layers) from None


def file_here() -> Path | None:
    """``ctxarchive.toml`` in the working folder, where there is one."""
    path = Path(FILE)
    return path if path.exists() else None


def _environment() -> dict[str, Any]:
    """What the environment says, nested as in the file.

    Raises:
        ConfigError: for a variable of ours that is no setting, or whose value cannot be read.
    """
    known = {name.removeprefix(PREFIX): name for name in _settable()}
    for name in _variables():
        place = _parts(name)
        if name.upper() in NO_SETTINGS or _reached(place):
            continue
        near = get_close_matches(name[len(PREFIX) :].upper(), known, 1)
        advice = f"did you mean {known[near[0]]}?" if near else f"known are {', '.join(_top())}"
        raise ConfigError(f"environment {name}: no such setting; {advice}")
    try:
        return EnvSettingsSource(_Environment)()
    except SettingsError as error:
        broken = next(filter(_broken, _variables()), None)
        raise ConfigError(
            f"environment: {error}"
            if broken is None
            else f"environment {broken}: not JSON: {os.environ[broken]!r}"
        ) from None


def _reached(place: tuple[str, ...]) -> bool:
    """Whether a variable sets something: a key that is there, or any key of a section."""
    return is_known(place) or (len(place) > 1 and is_section(place[:-1]))


def _broken(name: str) -> bool:
    """Whether a variable holds a section or a list, and not as JSON."""
    if not is_known(_parts(name)):
        return False
    if not is_section(_parts(name)) and get_origin(section_at(_parts(name))) is not tuple:
        return False
    try:
        json.loads(os.environ[name])
    except (ValueError, RecursionError):
        return True
    return False


def _variables() -> list[str]:
    return sorted(name for name in os.environ if name.upper().startswith(PREFIX))


def _parts(name: str) -> tuple[str, ...]:
    """The keys that a variable's name spells."""
    return tuple(name[len(PREFIX) :].lower().split(_JOINT))


def _top() -> list[str]:
    return [f"{PREFIX}{name.upper()}" for name in Settings.model_fields]


def _settable(above: tuple[str, ...] = ()) -> Iterator[str]:
    """The names of all variables that are settings, of one section or of all."""
    for name in section_at(above).model_fields:
        yield f"{PREFIX}{_JOINT.join((*above, name)).upper()}"
        place = (*above, name)
        if is_section(place):
            yield from _settable(place)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values without models in them, so that each key can win by itself."""
    return {
        name: value.model_dump(exclude_unset=True)
        if isinstance(value, BaseModel)
        else _plain(value)
        if isinstance(value, Mapping)
        else value
        for name, value in values.items()
    }


def _laid_over(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Both, key by key; where both hold a value, the upper one's."""
    merged = dict(lower)
    for name, value in upper.items():
        below = merged.get(name)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            merged[name] = _laid_over(below, value)
        else:
            merged[name] = value
    return merged


def _named(error: ValidationError, layers: list[_Layer]) -> ConfigError:
    """What is wrong, with the place of each value that has a part in it."""
    first = error.errors(include_url=False, include_input=False)[0]
    origins = {
        key: next((layer.told(key) for layer in layers if layer.holds(key)), _DEFAULT)
        for key in _concerned(first["loc"], first["msg"])
    }
    places = set(origins.values()) - {_DEFAULT}
    if len(places) == 1:
        return ConfigError(describe(error, where=places.pop()))
    told = ", ".join(
        f"{key[-1]}: {origin}" for key, origin in origins.items() if origin != _DEFAULT
    )
    return ConfigError(f"{describe(error, where='settings')} ({told})")


def _concerned(place: tuple[int | str, ...], message: str) -> list[tuple[int | str, ...]]:
    """The keys that an error is about: its own, or those of a section that its message names."""
    if not is_section(place):
        return [place]
    section = section_at(place)
    words = re.findall(r"\w+", message)
    named = [name for name in dict.fromkeys(words) if name in section.model_fields]
    return [(*place, name) for name in named] or [place]
