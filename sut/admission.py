"""When a waiting query is let into the engine.

An engine that is given every query at once spends whole steps on the prompts of a burst, and everybody in the batch
waits for them. Admission bounds the prompt tokens that have been handed over and have not yet shown a first token; the
rest waits here, in an order of its own, until the engine has room. Nothing is dropped, nothing is known of what
LoadGen will issue, and no query is held once the engine could take it.

Orders:
  fcfs      in order of issue.
  shortest  the shortest prompt first; among equals in order of issue.
  deadline  in order of issue, but a query that can no longer show its first token in time steps back behind all that
            still can. What "in time" is comes from the scenario's TTFT limit and from how long the engine has lately
            taken from admission to first token.
"""

import heapq
import time
from collections import deque
from collections.abc import Callable
from typing import Literal, Protocol, get_args

from sut.engine import Request

Policy = Literal["fcfs", "shortest", "deadline"]
POLICIES: tuple[Policy, ...] = get_args(Policy)

# How fast the expected time from admission to first token follows the measured ones.
SMOOTHING = 0.1


Fits = Callable[[Request], bool]


class _Queue(Protocol):
    """Queries that wait."""

    def push(self, request: Request) -> None: ...

    def take(self, fits: Fits) -> Request | None:
        """Remove and return the one whose turn it is; None if there is none or it does not fit yet."""
        ...

    def __len__(self) -> int: ...


class _InOrder:
    def __init__(self) -> None:
        self._waiting: deque[Request] = deque()

    def push(self, request: Request) -> None:
        self._waiting.append(request)

    def take(self, fits: Fits) -> Request | None:
        return self._waiting.popleft() if self._waiting and fits(self._waiting[0]) else None

    def __len__(self) -> int:
        return len(self._waiting)


class _ShortestFirst:
    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, Request]] = []

    def push(self, request: Request) -> None:
        heapq.heappush(self._waiting, (len(request.prompt_ids), request.seq, request))

    def take(self, fits: Fits) -> Request | None:
        return heapq.heappop(self._waiting)[2] if self._waiting and fits(self._waiting[0][2]) else None

    def __len__(self) -> int:
        return len(self._waiting)


class _StillInTimeFirst:
    """In order of issue; who was issued before `oldest_ns()` goes behind everybody who was not."""

    def __init__(self, oldest_ns: Callable[[], float]) -> None:
        self._in_time: deque[Request] = deque()
        self._late: deque[Request] = deque()
        self._oldest_ns = oldest_ns

    def push(self, request: Request) -> None:
        self._in_time.append(request)

    def take(self, fits: Fits) -> Request | None:
        oldest_ns = self._oldest_ns()
        while self._in_time and self._in_time[0].issue_ns < oldest_ns:
            self._late.append(self._in_time.popleft())
        queue = self._in_time or self._late
        return queue.popleft() if queue and fits(queue[0]) else None

    def __len__(self) -> int:
        return len(self._in_time) + len(self._late)


class Admission:
    """Hands queries to the engine while the bound allows it.

    Args:
        submit: the engine's way in.
        policy: order of those that wait.
        prefill_tokens: bound on prompt tokens admitted without a first token; a longer prompt is admitted alone.
        ttft_limit_ns: the scenario's limit, for `deadline`.
        clock: time in ns, on the scale of `Request.issue_ns`.
    """

    def __init__(
        self,
        submit: Callable[[Request], None],
        *,
        policy: Policy,
        prefill_tokens: int,
        ttft_limit_ns: int,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._submit = submit
        self._bound = prefill_tokens
        self._clock = clock
        self._expected_ns = 0.0  # from admission to first token
        self._admitted: dict[int, int] = {}  # seq → time of admission, of those without a first token
        self._in_prefill = 0
        self._waiting: _Queue
        if policy == "shortest":
            self._waiting = _ShortestFirst()
        elif policy == "deadline":
            self._waiting = _StillInTimeFirst(lambda: clock() + self._expected_ns - ttft_limit_ns)
        else:
            self._waiting = _InOrder()

    @property
    def waiting(self) -> int:
        """Queries that wait here."""
        return len(self._waiting)

    def offer(self, request: Request) -> None:
        """A query has been issued."""
        self._waiting.push(request)
        self._let_in()

    def prefilled(self, request: Request) -> None:
        """A query showed its first token, or was answered without; counted once."""
        started_ns = self._admitted.pop(request.seq, None)
        if started_ns is None:
            return
        self._in_prefill -= len(request.prompt_ids)
        self._expected_ns += SMOOTHING * (self._clock() - started_ns - self._expected_ns)
        self._let_in()

    def _fits(self, request: Request) -> bool:
        return not self._in_prefill or self._in_prefill + len(request.prompt_ids) <= self._bound

    def _let_in(self) -> None:
        while (request := self._waiting.take(self._fits)) is not None:
            self._in_prefill += len(request.prompt_ids)
            self._admitted[request.seq] = self._clock()
            self._submit(request)
