"""Settings as a TOML file: what differs from the defaults, and nothing else.

What is written reads back as the same settings, or nothing is written.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ctxarchive.config.settings import Settings, parse_settings
from ctxarchive.errors import ConfigError


def settings_toml(settings: Settings, *, comments: Sequence[str] = ()) -> str:
    """The text of a file that gives ``settings``.

    Args:
        settings: what to write.
        comments: lines at its top.

    Raises:
        ConfigError: where a value cannot be said in TOML, such as none where a default is not.
    """
    values = settings.model_dump(mode="json", exclude_defaults=True)
    lines = [*(f"# {' '.join(comment.split())}" for comment in comments), *_table(values, ())]
    text = "\n".join(lines).strip("\n") + "\n"
    if parse_settings(tomllib.loads(text), where="written settings") != settings:
        raise ConfigError("these settings cannot be said in TOML: a value of none has no spelling")
    return text


def refuse_existing(path: Path, *, force: bool) -> None:
    """Check that a file may be written.

    Raises:
        ConfigError: when it is there and ``force`` is not given, or cannot be a file.
    """
    if path.is_dir():
        raise ConfigError(f"{path}: a folder; name a file")
    if path.exists() and not force:
        raise ConfigError(f"{path}: exists; name another file, or add --force")
    if not path.parent.is_dir():
        raise ConfigError(f"{path}: there is no folder {path.parent}; make it first")


def _table(values: Mapping[str, Any], place: tuple[str, ...]) -> Iterator[str]:
    """A table's own keys, then the tables inside it."""
    tables = {key: value for key, value in values.items() if isinstance(value, dict)}
    lists = {key: value for key, value in values.items() if _is_tables(value)}
    plain = {key: value for key, value in values.items() if key not in {*tables, *lists}}
    told = [f"{key} = {_value(value)}" for key, value in plain.items() if value is not None]
    if place and (told or not (tables or lists)):
        yield from ("", f"[{'.'.join(place)}]")
    yield from told
    for key, value in tables.items():
        yield from _table(value, (*place, key))
    for key, items in lists.items():
        for item in items:
            yield from ("", f"[[{'.'.join((*place, key))}]]")
            yield from (f"{name} = {_value(value)}" for name, value in item.items())


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _value(value: Any) -> str:
    """A value as TOML spells it: as JSON does, but for what JSON escapes otherwise."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
