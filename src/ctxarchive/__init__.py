"""Compaction that forgets nothing, for LLM agents.

The public names, loaded when they are first asked for; importing the package runs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ctxarchive.archive.engine import ArchiveCompactionEngine
    from ctxarchive.archive.opening import open_archive
    from ctxarchive.archive.settings import TranscriptConfig
    from ctxarchive.compaction.basic import BasicCompactionEngine
    from ctxarchive.compaction.engine import CompactionEngine, CompactionResult, Routing
    from ctxarchive.compaction.policy import CompactionPolicy
    from ctxarchive.compaction.summarizer import Model, ModelSummarizer, Summarizer, Summary
    from ctxarchive.errors import CtxArchiveError
    from ctxarchive.importers.read import read_log
    from ctxarchive.knowledge.store import KnowledgeBase
    from ctxarchive.metering.meter import TokenMeter
    from ctxarchive.session.log import Session
    from ctxarchive.tools.ctx_search import CtxSearchTool

_HOMES = {
    "ArchiveCompactionEngine": "archive.engine",
    "BasicCompactionEngine": "compaction.basic",
    "CompactionEngine": "compaction.engine",
    "CompactionPolicy": "compaction.policy",
    "CompactionResult": "compaction.engine",
    "CtxArchiveError": "errors",
    "CtxSearchTool": "tools.ctx_search",
    "KnowledgeBase": "knowledge.store",
    "Model": "compaction.summarizer",
    "ModelSummarizer": "compaction.summarizer",
    "Routing": "compaction.engine",
    "Session": "session.log",
    "Summarizer": "compaction.summarizer",
    "Summary": "compaction.summarizer",
    "TokenMeter": "metering.meter",
    "TranscriptConfig": "archive.settings",
    "open_archive": "archive.opening",
    "read_log": "importers.read",
}

__version__ = "0.1.0"

__all__ = [
    "ArchiveCompactionEngine",
    "BasicCompactionEngine",
    "CompactionEngine",
    "CompactionPolicy",
    "CompactionResult",
    "CtxArchiveError",
    "CtxSearchTool",
    "KnowledgeBase",
    "Model",
    "ModelSummarizer",
    "Routing",
    "Session",
    "Summarizer",
    "Summary",
    "TokenMeter",
    "TranscriptConfig",
    "open_archive",
    "read_log",
]


def __getattr__(name: str) -> Any:
    """A public name, from the room that owns it."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ctxarchive' has no attribute {name!r}")
    return getattr(import_module(f"ctxarchive.{home}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
