"""The feed sends queries to the engine: enough that the engine never waits, and no more.

An engine computes a bounded number of queries at a time and of tokens per step. Further queries wait inside it, where
each costs a task, a record and a message: 300,000 of them kept a run's event loop busy for 90 s before the first
response. The feed therefore keeps a bounded number of queries waiting in the engine, ready to replace finished ones.
The other queries stay a handle and an index.

Queries are handed over as issued. In a closed loop (`ClosedLoop`), a fixed number of queries is open in the engine.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from sut.engine import EngineLimits, Request

# Prompts that wait in the engine, as a number of steps full of prompts. During these steps, the loop must receive a
# response and hand over the next query.
AHEAD_STEPS = 16
MIN_AHEAD = 32  # minimum number of queries that wait in the engine


class AdmissionControl(Protocol):
    """The order and time in which queries are sent to the engine. All methods run on the event loop."""

    @property
    def waiting(self) -> int:
        """Number of queries that were offered and not taken yet."""

    def wants(self) -> bool:
        """Return whether the next query of LoadGen should be offered now."""

    def offer(self, request: Request) -> None:
        """Receive the next query, in order of issue."""

    def take(self) -> Request | None:
        """Return the next query for the engine; None if no query waits, or if the engine is full."""

    def prefilled(self, request: Request) -> None:
        """Record that a query's first token arrived."""

    def completed(self, request: Request) -> None:
        """Record that a query's response arrived, with or without a first token before."""


class Feed:
    """A feed in order of issue: the queries that the engine computes at a time, and a bounded number that wait in it.

    The feed assumes that the engine computes queries in the order of arrival. At most as many queries wait as the
    engine computes at a time, with prompts for `AHEAD_STEPS` steps; `MIN_AHEAD` queries are always allowed.

    Args:
        limits: limits of the engine. Without a limit on queries, all queries are handed over.
    """

    def __init__(self, limits: EngineLimits) -> None:
        self._most_computed = limits.queries
        self._most_ahead = max(limits.queries or 0, MIN_AHEAD)
        self._most_ahead_tokens = AHEAD_STEPS * limits.step_tokens if limits.step_tokens else None
        self._computed = 0  # number of queries that the engine is assumed to compute
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
        """Do nothing: Offline has no first tokens."""

    def completed(self, request: Request) -> None:
        if self._most_computed is None:
            return
        if self._ahead:  # the first waiting query is computed next
            self._ahead_tokens -= self._ahead.popleft()
        else:
            self._computed -= 1


@dataclass(eq=False)
class ClosedLoop:
    """A feed that keeps at most `limit` queries open in all replicas together, and logs when each query is sent.

    LoadGen issues all queries of an Offline run at once, so its latencies contain the wait for the earlier queries.
    """

    limit: int
    clock: Callable[[], int] = time.time_ns
    waiting: int = field(default=0, init=False)
    _open: int = field(default=0, init=False)
    _next: Request | None = field(default=None, init=False)

    def wants(self) -> bool:
        return self._open < self.limit

    def offer(self, request: Request) -> None:
        self._next = request

    def take(self) -> Request | None:
        request, self._next = self._next, None
        if request is not None:
            self._open += 1
            request.submit_ns = self.clock()
        return request

    def prefilled(self, request: Request) -> None:
        """Do nothing: a query stays open until its response."""

    def completed(self, request: Request) -> None:
        self._open -= 1
