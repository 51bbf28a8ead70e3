"""Where settings come from: arguments over environment over file over defaults.

Resolves values and says which place an error stems from; opens nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from ctxarchive.config.settings import Settings, describe, load_settings
from ctxarchive.errors import ConfigError

FILE = "ctxarchive.toml"
"""The file that is read where none is named, if it is there."""

PREFIX = "CTXARCHIVE_"
"""What every environment variable begins with; sections and keys are joined by two underscores,
e.g. ``CTXARCHIVE_COMPACTION__THRESHOLD_RATIO``."""


def resolve_settings(
    arguments: Mapping[str, Any] | None = None, *, file: Path | None = None
) -> Settings:
    """The settings that hold.

    Args:
        arguments: values given in code or on a command line, nested as in the file.
        file: the file; ``ctxarchive.toml`` in the working folder, where there is one, by default.

    Raises:
        ConfigError: naming the place and the first key that is wrong.
    """
    path = file
    if path is None and Path(FILE).is_file():
        path = Path(FILE)
    load_settings(path)  # by itself first: an error then names the file

    class Layered(Settings, BaseSettings):
        model_config = SettingsConfigDict(
            env_prefix=PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True
        )

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            del settings_cls, dotenv_settings, file_secret_settings
            layers = (init_settings, env_settings)
            return layers if path is None else (*layers, TomlConfigSettingsSource(cls, path))

    given = _plain(arguments or {})
    try:
        layered = Layered(**given)
    except ValidationError as error:
        raise _named(error, given) from None
    except SettingsError as error:
        raise ConfigError(f"environment: {error}") from None
    return Settings.model_validate(layered.model_dump(exclude_unset=True))


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


def _named(error: ValidationError, given: Mapping[str, Any]) -> ConfigError:
    parts = error.errors(include_url=False, include_input=False)[0]["loc"]
    at: Any = given
    for part in parts:
        at = at.get(part) if isinstance(at, Mapping) else None
    where = "arguments"
    if at is None:
        where = f"environment {PREFIX}{'__'.join(map(str, parts)).upper()}"
    return ConfigError(describe(error, where=where))
