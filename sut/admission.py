"""Admission control: the time at which a waiting query is sent to the engine.

An engine that is given every query at once spends whole steps on the prompts of a burst, and the whole batch waits for
them. Admission bounds the prompt tokens of admitted queries without a first token. The other queries wait here, in the
order of the policy, until the engine has capacity. Admission drops no query, does not use LoadGen's future queries, and
never holds a query that the engine could take.

Orders:
  fcfs      in order of issue.
  shortest  the shortest prompt first; among equals in order of issue.
  deadline  in order of issue, but a query that can no longer meet the scenario's TTFT limit steps back behind all that
            can. The estimate uses the engine's recent times from admission to first token. priority  as deadline, but
            queries wait in the engine too: one that steps back is handed over with a lower priority, and the engine's
            scheduler (vLLM's `scheduling_policy=priority`) lets the others overtake it. The time to a first token is
            estimated from the prompt tokens ahead, so a hopeless query is recognized on arrival.
"""

import heapq
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sut.engine import Request

AdmissionPolicy = Literal["fcfs", "shortest", "deadline", "priority"]

# Weight of a new measurement in the expected time per prompt token.
SMOOTHING = 0.1
STEPPED_BACK = 1  # priority of a query that stepped back; others have 0, and vLLM computes the lowest first


@dataclass(eq=False, kw_only=True)
class Admission:
    """Admission control (sut/feed.py) that admits queries in the order of the policy while the bound allows it."""

    policy: AdmissionPolicy  # order of the waiting queries
    prefill_tokens: int  # maximum admitted prompt tokens without a first token; a longer prompt is admitted alone
    queries: int | None = None  # maximum number of admitted, incomplete queries; None = no maximum
    ttft_limit_ns: int  # TTFT limit of the scenario, for `deadline` and `priority`
    clock: Callable[[], int] = time.time_ns  # time in ns, on the scale of `Request.issue_ns`

    def __post_init__(self) -> None:
        self._waiting: list[tuple[int, int, Request]] = []  # a heap by prompt tokens (`shortest`) and order of issue
        self._late: deque[Request] = deque()  # waiting queries that stepped back
        self._steps_back = self.policy in ("deadline", "priority")
        self._overtaken = self.policy == "priority"  # queries that stepped back wait in the engine
        self._in_engine: set[int] = set()  # `seq` of the admitted queries
        self._ns_a_token = 0.0  # expected time from admission to first token, for each prompt token then admitted
        # seq → time of admission, and prompt tokens in the engine at that time, including its own
        self._admitted: dict[int, tuple[int, int]] = {}
        self._in_prefill = 0

    @property
    def waiting(self) -> int:
        """Number of queries that are not admitted yet."""
        return len(self._waiting) + len(self._late)

    def wants(self) -> bool:
        return True  # the policy chooses among all waiting queries

    def offer(self, request: Request) -> None:
        tokens = len(request.prompt_ids) if self.policy == "shortest" else 0
        heapq.heappush(self._waiting, (tokens, request.seq, request))

    def take(self) -> Request | None:
        request = self._next()
        if request is not None:
            if not self._keeps_nobody_waiting(request):
                self._in_prefill += len(request.prompt_ids)
                self._admitted[request.seq] = (self.clock(), self._in_prefill)
            self._in_engine.add(request.seq)
        return request

    def _next(self) -> Request | None:
        """Remove and return the query whose turn it is; None if no query waits, or if it does not fit yet."""
        waiting, late = self._waiting, self._late
        while self._steps_back and waiting and self._hopeless(waiting[0][-1]):
            late.append(heapq.heappop(waiting)[-1])
            late[-1].priority = STEPPED_BACK
        if waiting and self._fits(waiting[0][-1]):
            return heapq.heappop(waiting)[-1]
        # With `priority`, a late query is sent to the engine at once and waits there.
        if late and (self._overtaken or not waiting) and self._fits(late[0]):
            return late.popleft()
        return None

    def prefilled(self, request: Request) -> None:
        """Record a query's first token, or its response if it has no first token; counted once."""
        admitted = self._admitted.pop(request.seq, None)
        if admitted is None:
            return
        started_ns, tokens = admitted
        self._in_prefill -= len(request.prompt_ids)
        self._ns_a_token += SMOOTHING * ((self.clock() - started_ns) / tokens - self._ns_a_token)

    def completed(self, request: Request) -> None:
        """Record a query's response."""
        self.prefilled(request)  # a response in one chunk has no separate first token
        self._in_engine.discard(request.seq)

    def _hopeless(self, request: Request) -> bool:
        """Return whether a query will miss its limit even if it is admitted now."""
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
