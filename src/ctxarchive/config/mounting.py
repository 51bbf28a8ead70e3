"""Mounting a compaction backend by its name: the name is the whole difference for a host.

Opens what the backend needs and closes it again; knows no agent beyond the tools it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from types import TracebackType
from typing import Any, Final, Protocol, Self

from ctxarchive.archive.engine import ArchiveCompactionEngine
from ctxarchive.archive.opening import open_archive
from ctxarchive.archive.redaction import Redactor
from ctxarchive.compaction.basic import BasicCompactionEngine
from ctxarchive.compaction.engine import CompactionEngine, Observer
from ctxarchive.compaction.pruner import ToolResultPruner
from ctxarchive.compaction.recovery import SummaryErrorHook
from ctxarchive.compaction.summarizer import Model, ModelSummarizer, Summarizer
from ctxarchive.compaction.target import CapacitySource
from ctxarchive.config.settings import BACKENDS, Settings, backend_names
from ctxarchive.errors import ConfigError
from ctxarchive.knowledge.semantic import SemanticModel
from ctxarchive.knowledge.store import KnowledgeBase
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.metering.tokenizers import estimator
from ctxarchive.tools.ctx_search import CtxSearchTool
from ctxarchive.tools.toolbox import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a backend is made of."""

    settings: Settings
    model: Model | None = None
    """Writes summaries; the deterministic summarizer does where there is none."""
    observer: Observer | None = None
    """Told of each stage of each compaction."""
    summary_error_hooks: Sequence[SummaryErrorHook] = ()
    capacity: CapacitySource | None = None
    summarizer: Summarizer | None = None
    """Writes summaries instead of the model."""
    meter: TokenMeter | None = None
    """Prices everything; one with the settings' estimator where there is none."""

    def engine_options(self) -> dict[str, Any]:
        """The arguments that every engine of ours takes."""
        policy = self.settings.compaction
        summarizer = self.summarizer
        if summarizer is None and self.model is not None:
            route = None
            if policy.summarization_provider and policy.summarization_model:
                route = (policy.summarization_provider, policy.summarization_model)
            summarizer = ModelSummarizer(self.model, route=route)
        prune = self.settings.prune
        return {
            "summarizer": summarizer,
            "policy": policy,
            "meter": self.meter or TokenMeter(estimator(self.settings.estimator)),
            "observer": self.observer,
            "pruner": None if prune is None else ToolResultPruner(prune),
            "summary_error_hooks": self.summary_error_hooks,
            "capacity": self.capacity,
        }


class ToolSource(Protocol):
    """Makes the tools that a backend's checkpoints speak of."""

    def __call__(self, session_id: str, allowed: Sequence[str]) -> tuple[Tool, ...]:
        """The tools of one session, which may also read the sessions ``allowed``."""


def _no_tools(session_id: str, allowed: Sequence[str]) -> tuple[Tool, ...]:
    del session_id, allowed
    return ()


@dataclass(kw_only=True)
class Mount:
    """A mounted backend, good for any number of sessions; closes what it opened."""

    engine: CompactionEngine
    _tools: ToolSource = _no_tools
    _opened: ExitStack = field(default_factory=ExitStack)

    def tools(self, session_id: str, *, allowed: Sequence[str] = ()) -> tuple[Tool, ...]:
        """The tools for the agent of one session.

        Args:
            session_id: the session, which with its ancestry is all the tools can see.
            allowed: further sessions they may be asked for, e.g. those of sub-agents.
        """
        return self._tools(session_id, allowed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._opened.close()


Backend = Callable[[Request], Mount]
"""What an entry point of the group names."""


def basic(request: Request) -> Mount:
    """Summarizes and keeps nothing."""
    return Mount(engine=BasicCompactionEngine(**request.engine_options()))


def archive(request: Request) -> Mount:
    """Files what disappears in ``settings.archive``, and gives each session its search tool.

    Raises:
        ConfigError: when no archive is named or its folder cannot be made, or ``semantic`` or
            ``redact`` is set without its extra.
        KnowledgeError: when it cannot be opened.
    """
    path = request.settings.archive
    if path is None:
        raise ConfigError('archive: name a file, or mount backend = "basic"')
    redactor = redactor_of(request.settings)  # before anything is opened or made
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"archive: {path.parent}: {error.strerror or error}") from error
    opened = ExitStack()
    semantic = _semantic() if request.settings.semantic else None
    knowledge: KnowledgeBase = opened.enter_context(open_archive(path, semantic=semantic))
    engine = ArchiveCompactionEngine(
        knowledge,
        transcript=request.settings.transcript,
        redactor=redactor,
        **request.engine_options(),
    )

    def tools(session_id: str, allowed: Sequence[str]) -> tuple[Tool, ...]:
        return (CtxSearchTool(knowledge, session=session_id, allowed=allowed or None),)

    return Mount(engine=engine, _tools=tools, _opened=opened)


def redactor_of(settings: Settings) -> Redactor | None:
    """What masks keys and tokens before they are filed; ``None`` where the settings ask for nothing.

    Raises:
        ConfigError: for a pattern that cannot be read.
    """
    if not settings.redact and not settings.redact_patterns:
        return None
    return Redactor(well_known=bool(settings.redact), own=settings.redact_patterns)


_SEMANTIC: Final = EntryPoint(
    name="semantic",
    value="ctxarchive.integrations.semantic:static_embeddings",
    group="ctxarchive.semantic",
)
"""Loaded by its name, as backends are: what an extra brings lies above this room."""


def _semantic() -> SemanticModel:
    load: Callable[[], SemanticModel] = _SEMANTIC.load()
    return load()


OURS: Final[Mapping[str, Backend]] = {"archive": archive, "basic": basic}
"""The backends of this package, by name."""


def mount(
    settings: Settings,
    *,
    model: Model | None = None,
    observer: Observer | None = None,
    summary_error_hooks: Sequence[SummaryErrorHook] = (),
    capacity: CapacitySource | None = None,
) -> Mount:
    """Mount the backend that the settings name.

    Args:
        settings: which, and how.
        model: writes summaries.
        observer: told of each stage of each compaction.
        summary_error_hooks: asked after a failed summary.
        capacity: asked for a model's capacity where neither agent nor log says it.

    Raises:
        ConfigError: when there is no such backend, or it cannot be loaded.
        KnowledgeError: when its archive cannot be opened.
    """
    request = Request(
        settings=settings,
        model=model,
        observer=observer,
        summary_error_hooks=summary_error_hooks,
        capacity=capacity,
    )
    return backend_named(settings.backend)(request)


def backend_named(name: str) -> Backend:
    """What mounts a backend.

    Raises:
        ConfigError: when nobody registered it, or it cannot be loaded.
    """
    if name in OURS:
        return OURS[name]
    for entry in entry_points(group=BACKENDS):
        if entry.name == name:
            try:
                loaded: Backend = entry.load()
            except Exception as error:  # another's module may raise anything
                told = " ".join(str(error).split()) or type(error).__name__
                raise ConfigError(f"backend: {name!r} cannot be loaded: {told}") from error
            if not callable(loaded):
                raise ConfigError(
                    f"backend: {name!r} cannot be loaded: {entry.value} is no function"
                )
            return loaded
    raise ConfigError(f"backend: {name!r} is none of {', '.join(backend_names())}")
