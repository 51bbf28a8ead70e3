"""Every exception of the package: one base class, closed codes.

Nothing here imports another room. A driver's error is translated once, at the edge that met it,
into one of these; the message is one line that names the file, the line or the field.
"""

from __future__ import annotations

from typing import Literal


class CtxArchiveError(Exception):
    """Base of everything the package raises on purpose."""


class ConfigError(CtxArchiveError):
    """A setting is unknown, contradictory or out of range."""


class SessionError(CtxArchiveError):
    """A session's log or surface cannot be what was asked of it.

    Attributes:
        code: ``surface`` (an operation names seqs that are not there, or not in order),
            ``pairing`` (a tool result without its call), ``corrupt`` (a stored log is damaged),
            ``locked`` (another writer holds the log), ``event`` (an event of the wrong shape),
            ``storage`` (the file system refused).
    """

    Code = Literal["surface", "pairing", "corrupt", "locked", "event", "storage"]

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code: SessionError.Code = code


class KnowledgeError(CtxArchiveError):
    """The knowledge base could not do what was asked; nothing was half done.

    Attributes:
        code: ``read-only``, ``full`` (no space left), ``foreign`` (the file is not an archive of
            ours), ``newer`` (written by a later schema), ``corrupt``, ``locked`` (waited the stated
            time for another writer), ``conflict`` (other content under a key that is taken),
            ``missing`` (no such file, session or record), ``purged``, ``scope`` (a source that
            is malformed or outside what this reader may see), ``mark`` (a record that cannot be
            marked so), ``storage`` (any other refusal of
            the file system).
    """

    Code = Literal[
        "read-only",
        "full",
        "foreign",
        "newer",
        "corrupt",
        "locked",
        "conflict",
        "missing",
        "purged",
        "scope",
        "mark",
        "storage",
    ]

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code: KnowledgeError.Code = code


class LogFormatError(CtxArchiveError):
    """A foreign log cannot be read; the message names the line and what to do.

    Attributes:
        code: ``missing``, ``not-a-file``, ``empty``, ``unknown`` (no importer knows it),
            ``damaged`` (a line before the last cannot be read), ``truncated`` (the last line is
            cut off), ``invalid`` (read, but contradicting itself), ``extra`` (needs an extra
            that is not installed), ``storage`` (the file system refused).
        line: 1-based line of the file, or ``None`` where no line is to blame.
    """

    Code = Literal[
        "missing",
        "not-a-file",
        "empty",
        "unknown",
        "damaged",
        "truncated",
        "invalid",
        "extra",
        "storage",
    ]

    def __init__(self, code: Code, message: str, *, line: int | None = None) -> None:
        super().__init__(message)
        self.code: LogFormatError.Code = code
        self.line = line


class ToolInputError(CtxArchiveError):
    """A model's call of ``ctx_search`` is not one the tool takes; the message says which is."""


class ModelError(CtxArchiveError):
    """A model did not answer.

    Attributes:
        code: ``context-overflow`` (the request is longer than the model can hold), ``unavailable``
            (the provider failed, or was not reached), ``rate-limit``, ``invalid`` (the provider
            refused the request as malformed), ``denied`` (no permission).
    """

    Code = Literal["context-overflow", "unavailable", "rate-limit", "invalid", "denied"]

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code: ModelError.Code = code


class SummaryError(CtxArchiveError):
    """A summarizer gave no usable summary.

    Attributes:
        code: ``empty``, ``truncated``, ``refused``, ``not-text`` (an image or a tool call instead
            of text), ``unavailable`` (the call failed), ``timeout``, ``missing`` (a recorded
            summary was asked for and there is none), ``retry`` (a hook changed the input; the
            engine asks again, and no caller ever sees it).
    """

    Code = Literal[
        "empty", "truncated", "refused", "not-text", "unavailable", "timeout", "missing", "retry"
    ]

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code: SummaryError.Code = code


class CompactionError(CtxArchiveError):
    """A compaction other than a manual one failed; the surface is as it was.

    Attributes:
        code: ``busy``, ``turn`` (no open turn to own the bracket), ``range`` (not a span of the
            surface, or it parts a tool call from its result), ``changed``, ``summary``,
            ``growth`` (the checkpoint is not smaller than what it shadows), ``stuck`` (still over
            the threshold after the configured retries), ``commit``, ``capacity``.
    """

    Code = Literal[
        "busy", "turn", "range", "changed", "summary", "growth", "stuck", "commit", "capacity"
    ]

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code: CompactionError.Code = code


class AgentError(CtxArchiveError):
    """The agent cannot take up work.

    Attributes:
        code: ``not-running`` (it works within ``async with`` only), ``running`` (it was entered
            twice at once), ``reopen`` (a compaction could not be closed on the log, and no turn may
            cross it: reopen the session).
    """

    Code = Literal["not-running", "running", "reopen"]

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code: AgentError.Code = code


class ManualCompactionError(CtxArchiveError):
    """An expected failure of an explicit compaction, fit to be told to the person who asked.

    Attributes:
        code: ``changed`` and ``summary`` left the surface untouched; ``commit`` says nothing
            about how far the write came; ``persistence`` means that the bracket closed in memory
            and its flush failed.
    """

    Code = Literal["busy", "cancelled", "changed", "summary", "commit", "persistence"]

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code: ManualCompactionError.Code = code


def alone(error: BaseException) -> BaseException:
    """The one error that groups of one are wrapped around; ``error`` itself where there are several.

    A task group wraps what its tasks raise, and nobody who expects that error would find it.
    """
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
