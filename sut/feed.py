"""The queries that are handed to the engine: enough that it never waits, and no more.

An engine computes so many queries at a time and so many tokens a step. Queries beyond that only wait inside it, where
each costs a task, a record and a message: three hundred thousand of them kept a run's event loop busy for 90 s before
it saw the first response. So a bounded number waits ahead in the engine, ready to take the place of finished
ones, and the others stay a handle and an index.

Queries are handed over as issued.
"""

from collections import deque
from typing import Protocol

from sut.engine import EngineLimits, Request

# Ahead of what the engine computes, in steps full of prompts. An engine takes at most one such step of prompts at a
# time, so the loop has all these steps to hear of a response and to hand the next query over.
AHEAD_STEPS = 16
MIN_AHEAD = 32  # queries, however long they are and however few the engine computes at a time


class AdmissionControl(Protocol):
    """Decides when which query is handed to the engine. Everything on the event loop."""

    @property
    def waiting(self) -> int:
        """Queries that were offered and not taken yet."""

    def wants(self) -> bool:
        """Return whether the next query that LoadGen issued is to be offered now."""

    def offer(self, request: Request) -> None:
        """The next query, in order of issue."""

    def take(self) -> Request | None:
        """Return the query to hand over now; None if there is none or the engine is full."""

    def prefilled(self, request: Request) -> None:
        """Note the first token of a query that was handed over."""

    def completed(self, request: Request) -> None:
        """Note the response of a query that was handed over, with or without a first token before."""


class Feed:
    """A feed in order of issue, up to what the engine computes at a time and a bounded number ahead of it.

    The engine is taken to compute what it was given first. Ahead wait at most as many queries as it computes at a
    time, and prompts for `AHEAD_STEPS` steps; but always `MIN_AHEAD` queries.

    Args:
        limits: the engine's own. One without a limit on queries is given everything.
    """

    def __init__(self, limits: EngineLimits) -> None:
        self._most_computed = limits.queries
        self._most_ahead = max(limits.queries or 0, MIN_AHEAD)
        self._most_ahead_tokens = AHEAD_STEPS * limits.step_tokens if limits.step_tokens else None
        self._computed = 0  # queries
        self._ahead: deque[int] = deque()  # prompt tokens of each query that waits in the engine
        self._ahead_tokens = 0
        self._next: Request | None = None

    @property
    def waiting(self) -> int:
        return 0 if self._next is None else 1

    def wants(self) -> bool:
        if self._most_computed is None or self._computed < self._most_computed or len(self._ahead) < MIN_AHEAD:
            return True
        few_tokens = self._most_ahead_tokens is None or self._ahead_tokens < self._most_ahead_tokens
        return few_tokens and len(self._ahead) < self._most_ahead

    def offer(self, request: Request) -> None:
        self._next = request
        if self._most_computed is None:
            return
        if self._computed < self._most_computed:
            self._computed += 1
        else:
            tokens = len(request.prompt_ids)
            self._ahead.append(tokens)
            self._ahead_tokens += tokens

    def take(self) -> Request | None:
        request, self._next = self._next, None
        return request

    def prefilled(self, request: Request) -> None:
        """Not used here: in Offline no first token is seen."""

    def completed(self, request: Request) -> None:
        if self._most_computed is None:
            return
        if self._ahead:  # the first of those that wait takes its place
            self._ahead_tokens -= self._ahead.popleft()
        else:
            self._computed -= 1
