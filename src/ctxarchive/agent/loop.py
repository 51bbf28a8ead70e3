"""The agent: when its turns run, when maintenance may, and when it is idle.

How a turn goes is the turns' business. Of compaction it knows the seam, and that no turn may cross
one that is open.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Literal, Self, TypeVar

import anyio

from ctxarchive.agent.hooks import AgentHooks
from ctxarchive.agent.inbox import Inbox, Prompt
from ctxarchive.agent.turns import Stoppable, Turns, held, mend
from ctxarchive.compaction.automatic import automatic
from ctxarchive.compaction.engine import CompactionEngine, Routing
from ctxarchive.compaction.summarizer import Model
from ctxarchive.errors import AgentError, ManualCompactionError, alone
from ctxarchive.session.events import UserMessageData
from ctxarchive.session.log import Session
from ctxarchive.tools.toolbox import Tool

T = TypeVar("T")


class Agent:
    """An agent; lives within ``async with``, and waits there until it is idle.

    What its session has open when it comes alive is closed as interrupted, as the store does.

    Args:
        session: its log.
        model: answers its requests.
        tools: what the model may call.
        compaction: what relieves it of old history; ``None`` for nothing.
        options: where requests go.
        system: the system prompt.
        hooks: asked in order, before compaction is.
        max_tokens: most tokens of one answer.
        max_steps: most steps of one turn; ``None`` for no limit.
        inbox: what waits already, as for an agent whose session had to be reopened.
    """

    def __init__(
        self,
        session: Session,
        model: Model,
        tools: Sequence[Tool] = (),
        *,
        compaction: CompactionEngine | None = None,
        options: Routing | None = None,
        system: str = "",
        hooks: Sequence[AgentHooks] = (),
        max_tokens: int = 8_192,
        max_steps: int | None = None,
        inbox: Inbox | None = None,
    ) -> None:
        self.session = session
        self.compaction = compaction
        self.options = options or Routing()
        self.inbox = inbox or Inbox()
        self.failure: Exception | None = None
        """Why the newest turn failed; ``None`` where it did not."""
        self._turns = Turns(
            agent=self,
            model=model,
            tools=tools,
            hooks=tuple(hooks),
            compaction=automatic(compaction),
            system=system,
            max_tokens=max_tokens,
            max_steps=max_steps,
        )
        self._turn: Stoppable | None = None
        self._maintenance: Stoppable | None = None
        self._changed: anyio.Event | None = None
        """Replaced at every change of what the agent does; ``None`` while it does not live."""
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        if self._changed is not None:
            raise AgentError("running", "the agent is within `async with` already")
        await self._stack.enter_async_context(self._living())
        return self

    async def __aexit__(self, *raised: object) -> bool | None:
        return await self._stack.__aexit__(*raised)  # type: ignore[arg-type]

    @property
    def status(self) -> Literal["idle", "running"]:
        """Whether a turn is running; maintenance is no turn."""
        return "idle" if self._turn is None else "running"

    def locked(self) -> AgentError | None:
        """Why no turn can start again: a compaction that nobody here can close any more."""
        return None if self._turn or self._maintenance else held(self.session)

    def followup(self, prompt: Prompt) -> UserMessageData:
        """Queue a prompt; it starts a turn when those before it are done.

        Raises:
            AgentError: ``reopen``, when none ever will; the prompt is not queued.
            SessionError: ``event``, for one that says nothing.
        """
        locked = self.locked()
        if locked is not None:
            raise locked
        message = self.inbox.followup(prompt)
        self._notify()
        return message

    def inject(self, context: Prompt) -> UserMessageData:
        """Queue context for the next step; it starts no turn."""
        return self.inbox.inject(context)

    def cancel(self, cause: BaseException | str = "cancelled") -> bool:
        """Cancel the running turn or maintenance.

        Args:
            cause: why; on the log for a turn, the error's own cause for maintenance.

        Returns:
            Whether there was anything to cancel.
        """
        running = self._turn or self._maintenance
        if running is None:
            return False
        running.cause = cause
        running.scope.cancel()
        return True

    async def when_idle(self) -> None:
        """Wait until no prompt waits, no turn runs and no maintenance is under way.

        Raises:
            AgentError: ``not-running``, when something waits outside ``async with``; ``reopen``,
                when a compaction that could not be closed leaves a turn open or a prompt waiting.
                What waits stays in :attr:`inbox`.
        """
        await self._settle()
        locked = self.locked()
        if locked is not None and (self.inbox.next_turn or self.session.open_turn is not None):
            raise locked

    async def run_maintenance(self, task: Callable[[], Awaitable[T]]) -> T:
        """Run ``task`` while idle; prompts are queued meanwhile, and start afterwards.

        Raises:
            ManualCompactionError: ``busy``, before anything ran, when a turn runs or waits, or
                other maintenance is under way; ``cancelled``, after :meth:`cancel`.
        """
        if self.inbox.next_turn or self._turn or self._maintenance:
            raise ManualCompactionError("busy", "the agent has work under way")
        running = self._maintenance = Stoppable(scope=anyio.CancelScope())
        with running.scope:
            try:
                return await task()
            finally:
                self._maintenance = None
                self._notify()
        cause = running.cause
        raise ManualCompactionError("cancelled", f"the agent cancelled it: {cause}") from (
            cause if isinstance(cause, BaseException) else None
        )

    @asynccontextmanager
    async def _living(self) -> AsyncIterator[None]:
        mend(self.session)
        self._changed = anyio.Event()
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._drive)
                yield
                await self._settle()
                group.cancel_scope.cancel()
        except BaseExceptionGroup as group_error:
            error = alone(group_error)
            raise error from error.__cause__
        finally:
            self._changed = None
        await self.when_idle()  # outside the group, which would wrap what it raises

    async def _settle(self) -> None:
        """Wait for all that can still come to its end."""
        while self._turn or self._maintenance or self._ready():
            await self._wait()

    def _ready(self) -> bool:
        return bool(self.inbox.next_turn) and self._maintenance is None and self.locked() is None

    def _notify(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = anyio.Event()

    async def _wait(self) -> None:
        if self._changed is None:
            raise AgentError("not-running", "the agent works within `async with` only")
        await self._changed.wait()

    async def _drive(self) -> None:
        while True:
            while self._ready():
                # Taken and running at once: in between, the agent would look idle.
                prompt = self.inbox.next_turn.popleft()
                self._turn = Stoppable(scope=anyio.CancelScope())
                self.failure = None
                try:
                    self.failure = await self._turns.run(prompt, self._turn)
                finally:
                    self._turn = None
                    self._notify()
            await self._wait()
