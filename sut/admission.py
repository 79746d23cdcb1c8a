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
  priority  as deadline, but queries wait in the engine too: one that steps back is handed over with a lower priority,
            and the engine's own scheduler (vLLM's `scheduling_policy=priority`) lets those in time overtake it. What
            the engine needs to a first token is judged by the prompt tokens that are ahead, so that a query without a
            chance is known on arrival, however many wait in the engine.
"""

import heapq
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

from sut.engine import Request

Policy = Literal["fcfs", "shortest", "deadline", "priority"]
POLICIES: tuple[Policy, ...] = get_args(Policy)

# How fast the expected time for a prompt token follows the measured ones.
SMOOTHING = 0.1
STEPPED_BACK = 1  # priority of a query that lets others overtake it; theirs is 0, and vLLM takes the lowest first


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


@dataclass(eq=False)
class _StillInTimeFirst:
    """In order of issue; a query without a chance steps back behind everybody who still has one."""

    hopeless: Callable[[Request], bool]  # whether a query can no longer show its first token in time
    overtaken: bool  # the engine lets others overtake a query that stepped back, so that it need not wait here
    _in_time: deque[Request] = field(default_factory=deque, init=False)
    _late: deque[Request] = field(default_factory=deque, init=False)

    def push(self, request: Request) -> None:
        self._in_time.append(request)

    def take(self, fits: Fits) -> Request | None:
        while self._in_time and self.hopeless(self._in_time[0]):
            self._in_time[0].priority = STEPPED_BACK
            self._late.append(self._in_time.popleft())
        if self._in_time and fits(self._in_time[0]):
            return self._in_time.popleft()
        if self._late and (self.overtaken or not self._in_time) and fits(self._late[0]):
            return self._late.popleft()
        return None

    def __len__(self) -> int:
        return len(self._in_time) + len(self._late)


@dataclass(eq=False, kw_only=True)
class Admission:
    """Admission control (sut/feed.py) that lets queries through while the bound allows it, in an order of its own."""

    policy: Policy  # order of those that wait
    prefill_tokens: int  # bound on prompt tokens admitted without a first token; a longer prompt is admitted alone
    queries: int | None = None  # bound on queries admitted and not complete; None = no bound
    ttft_limit_ns: int  # the scenario's, for `deadline` and `priority`
    clock: Callable[[], int] = time.time_ns  # time in ns, on the scale of `Request.issue_ns`

    def __post_init__(self) -> None:
        self._in_engine: set[int] = set()  # seq
        self._overtaken = self.policy == "priority"  # in the engine, who stepped back
        self._ns_a_token = 0.0  # expected time from admission to first token, for each prompt token then admitted
        self._admitted: dict[int, tuple[int, int]] = {}  # seq → when, and prompt tokens in the engine with its own
        self._in_prefill = 0
        self._waiting: _Queue
        if self.policy == "shortest":
            self._waiting = _ShortestFirst()
        elif self.policy in ("deadline", "priority"):
            self._waiting = _StillInTimeFirst(self._hopeless, overtaken=self._overtaken)
        else:
            self._waiting = _InOrder()

    @property
    def waiting(self) -> int:
        """Queries that wait here."""
        return len(self._waiting)

    def wants(self) -> bool:
        return True  # who is next is chosen among all that wait

    def offer(self, request: Request) -> None:
        self._waiting.push(request)

    def take(self) -> Request | None:
        request = self._waiting.take(self._fits)
        if request is not None:
            if not self._keeps_nobody_waiting(request):
                self._in_prefill += len(request.prompt_ids)
                self._admitted[request.seq] = (self.clock(), self._in_prefill)
            self._in_engine.add(request.seq)
        return request

    def prefilled(self, request: Request) -> None:
        """A query showed its first token, or was answered without; counted once."""
        admitted = self._admitted.pop(request.seq, None)
        if admitted is None:
            return
        started_ns, tokens = admitted
        self._in_prefill -= len(request.prompt_ids)
        self._ns_a_token += SMOOTHING * ((self.clock() - started_ns) / tokens - self._ns_a_token)

    def completed(self, request: Request) -> None:
        """A query was answered."""
        self.prefilled(request)  # an output of one piece showed no first token
        self._in_engine.discard(request.seq)

    def _hopeless(self, request: Request) -> bool:
        """Could not show its first token in time even if it were admitted now."""
        expected_ns = self._ns_a_token * (self._in_prefill + len(request.prompt_ids))
        return self.clock() + expected_ns > request.issue_ns + self.ttft_limit_ns

    def _fits(self, request: Request) -> bool:
        if self.queries is not None and len(self._in_engine) >= self.queries:
            return False
        if self._keeps_nobody_waiting(request):
            return True
        return not self._in_prefill or self._in_prefill + len(request.prompt_ids) <= self.prefill_tokens

    def _keeps_nobody_waiting(self, request: Request) -> bool:
        return self._overtaken and request.priority == STEPPED_BACK
