"""Which model a log speaks to, and the two events that say so when it changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ctxarchive.importers.log import Entry
from ctxarchive.importers.records import Record


class Routing:
    """The request's fixed part, as far as a log has told it."""

    def __init__(self) -> None:
        self.provider: str | None = None
        self.model: str | None = None
        self.window: int | None = None
        self._header: dict[str, Any] = {}

    def change(
        self,
        record: Record,
        *,
        time: int | None,
        provider: str | None,
        model: str | None,
        window: int | None,
        extra: Mapping[str, Any] | None = None,
    ) -> list[Entry]:
        """Request header and context, where they say something new.

        Args:
            record: where it is said.
            time: when, in milliseconds.
            provider: who serves the model.
            model: its name.
            window: its capacity in tokens.
            extra: other parts of the header: ``system``, ``tools``.
        """
        entries: list[Entry] = []
        known = {"provider": provider, "model": model}
        config = {name: value for name, value in known.items() if value is not None}
        header = {**self._header, **(extra or {})}
        if config:
            header["config"] = config
        if header != self._header:
            self._header = header
            data: dict[str, Any] = {"header": header}
            entries.append(Entry(type="request/header", data=data, time=time, origin=record.origin))
        changed = (self.provider, self.model, self.window) != (provider, model, window)
        if changed and model is not None and window is not None:
            context = {"provider": provider or "", "model": model, "contextWindow": window}
            entries.append(
                Entry(type="request/context", data=context, time=time, origin=record.origin)
            )
        self.provider, self.model, self.window = provider, model, window
        return entries
