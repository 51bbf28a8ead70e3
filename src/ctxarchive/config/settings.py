"""What ``ctxarchive.toml`` may say. Unknown keys and contradictions are refused at load."""

from __future__ import annotations

import tomllib
from difflib import get_close_matches
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from ctxarchive.archive.settings import TranscriptConfig
from ctxarchive.compaction.policy import CompactionPolicy
from ctxarchive.compaction.pruner import PruneSettings
from ctxarchive.errors import ConfigError
from ctxarchive.knowledge.retention import RetentionPolicy

BACKENDS = "ctxarchive.backends"
"""The entry point group in which packages register backends."""


def backend_names() -> list[str]:
    """The names of backends that can be mounted, sorted."""
    return sorted({"archive", "basic", *(entry.name for entry in entry_points(group=BACKENDS))})


class Settings(BaseModel):
    """All settings, each with its default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    backend: str = "archive"
    """`archive`: what disappears is kept and pointed to; `basic`: it is only summarized; or any name registered as a `ctxarchive.backends` entry point."""
    estimator: Literal["tiktoken", "characters"] = "tiktoken"
    """How tokens are counted."""
    archive: Path | None = None
    """The archive's file, for a host that mounts it; commands take theirs from `--archive`."""
    semantic: bool = False
    """Whether `ctx_search` also finds by meaning; needs the extra `semantic`."""
    compaction: CompactionPolicy = CompactionPolicy()
    """When to compact and how far."""
    transcript: TranscriptConfig = TranscriptConfig()
    """How much a checkpoint shows."""
    redact: bool | Literal["well-known"] = False
    """Whether keys and tokens of well-known formats are masked before anything is filed."""
    redact_patterns: tuple[str, ...] = ()
    """Own patterns (RE2) of what is masked before anything is filed; needs the extra `redact`."""
    retention: RetentionPolicy = RetentionPolicy()
    """What `purge --retention` takes out of an archive."""
    prune: PruneSettings | None = None
    """How oversized tool results are shortened before anything is summarized; not at all where left out."""

    @field_validator("backend")
    @classmethod
    def _registered(cls, name: str) -> str:
        if name not in backend_names():
            *names, last = (repr(known) for known in backend_names())
            raise ValueError(f"{name!r} is not registered: use {', '.join(names)} or {last}")
        return name


def load_settings(path: Path | None = None) -> Settings:
    """The settings of a file, or the defaults where there is none.

    Raises:
        ConfigError: naming the file and the first key that is wrong.
    """
    if path is None:
        return Settings()
    return parse_settings(read_values(path), where=str(path))


def read_values(path: Path) -> dict[str, Any]:
    """What a file says, not judged yet.

    Raises:
        ConfigError: naming the file, when it cannot be read or is not TOML.
    """
    try:
        if path.exists() and not path.is_file():
            # Not opened: a pipe that nobody writes to would never answer.
            kind = "a folder" if path.is_dir() else "not a regular file"
            raise ConfigError(f"{path}: {kind}; name a TOML file")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}; name a TOML file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None


def parse_settings(values: dict[str, Any], *, where: str) -> Settings:
    """Settings from nested values.

    Args:
        values: sections and keys as in the file.
        where: how an error names their place.

    Raises:
        ConfigError: naming the first key that is wrong.
    """
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise ConfigError(describe(error, where=where)) from None


def describe(error: ValidationError, *, where: str) -> str:
    """The first thing that is wrong with some values, in one line.

    Args:
        error: what is wrong.
        where: the place of the values.
    """
    first = error.errors(include_url=False, include_input=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    reason = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        reason = f"unknown key; {_known_beside(first['loc'])}"
    return f"{where}: {key}: {reason}" if key else f"{where}: {reason}"


def section_at(place: tuple[int | str, ...]) -> Any:
    """What the settings hold at a place: a section's model, or the type of a value."""
    section: Any = Settings
    for part in place:
        if isinstance(part, str):
            section = section.model_fields[part].annotation
            if type(None) in get_args(section):
                (section, *_) = get_args(section)
        else:
            (section, *_) = get_args(section)
    return section


def is_known(place: tuple[int | str, ...]) -> bool:
    """Whether the settings have such a place at all."""
    try:
        section_at(place)
    except (KeyError, ValueError, AttributeError):
        return False
    return True


def is_section(place: tuple[int | str, ...]) -> bool:
    """Whether there are keys below a place."""
    section = section_at(place) if is_known(place) else None
    return isinstance(section, type) and issubclass(section, BaseModel)


def _known_beside(place: tuple[int | str, ...]) -> str:
    """What may stand in the section of a key that may not."""
    section = section_at(place[:-1])
    near = get_close_matches(str(place[-1]), section.model_fields, 1)
    if near:
        return f"did you mean {near[0]}?"
    return f"known are {', '.join(section.model_fields)}"
