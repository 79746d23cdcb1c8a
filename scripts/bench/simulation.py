"""Many replicas behind one router, simulated step by step: what a routing policy is worth where there are no machines.

The router is the product's own (sut/replicas/routing.py). An engine schedules as vLLM does: a token for each decoding
query, then prompts in order of arrival, cut to what is left of the step's token budget, and no more queries at a time
than it may have. Messages take no time, and every answer has the same length. vLLM's own balancer gives a query to
the copy with the fewest unfinished ones, the first among equals [vllm 0.32, DPLBAsyncMPClient]; what it adds for a
cache that is more than half full is left out.
"""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from runs.record.manifest import RoutingPolicy
from sut.engine import Request
from sut.replicas.routing import Routing

from .rows import prompt_lengths
from .step_model import StepModel

Policy = RoutingPolicy | Literal["vllm"]
POLICIES: tuple[Policy, ...] = (*get_args(RoutingPolicy), "vllm")
SEED = 20
HALVINGS = 7


@dataclass(frozen=True)
class Simulation:
    """What is simulated.

    Attributes:
        replicas: engines behind the router.
        model: of a step of each.
        step_tokens, queries: `max_num_batched_tokens` and `max_num_seqs` of each.
        ttft_s, tpot_s: limits of the p99.
        output_tokens: of every answer.
        seconds: of arrivals.
    """

    replicas: int
    model: StepModel
    step_tokens: int
    queries: int
    ttft_s: float
    tpot_s: float
    output_tokens: int = 128
    seconds: float = 60.0


@dataclass(frozen=True)
class Served:
    """What became of the queries: seconds, one a query."""

    ttft_s: NDArray[np.float64]
    tpot_s: NDArray[np.float64]
    replica: NDArray[np.int64]

    def p99(self) -> tuple[float, float]:
        """p99 of TTFT and TPOT."""
        return float(np.percentile(self.ttft_s, 99)), float(np.percentile(self.tpot_s, 99))


@dataclass
class _Prompt:
    """As much of a request as the router looks at."""

    prompt_ids: range


class _FewestUnfinished:
    """vLLM's balancer, with the router's face."""

    def __init__(self, replicas: int) -> None:
        self._unfinished = [0] * replicas

    def choose(self, tag: int, request: Request) -> int:
        chosen = self._unfinished.index(min(self._unfinished))
        self._unfinished[chosen] += 1
        return chosen

    def first_token(self, replica: int, tag: int) -> None:
        """It does not look at them."""

    def answered(self, replica: int, tag: int) -> None:
        self._unfinished[replica] -= 1


class _Engine:
    """One replica. All its decoding queries get a token a step, so each is looked at when it begins and ends only."""

    def __init__(self, setting: Simulation) -> None:
        self._setting = setting
        self.waiting: deque[int] = deque()
        self.left: dict[int, int] = {}  # prompt tokens to compute, of those in the engine
        self.decoding = 0
        self.step = 0
        self.ends: dict[int, list[int]] = {}  # step → queries whose last token it makes
        self.busy = False
        self._begun: deque[int] = deque()  # prompts in the engine, in order

    def begin(self, lengths: NDArray[np.int64]) -> tuple[float, list[int]] | None:
        """Begin a step: its seconds, and the queries whose first token it makes. None with nothing to do."""
        setting = self._setting
        budget = setting.step_tokens - self.decoding
        tokens = 0
        first: list[int] = []
        while budget > 0:
            if not self._begun:
                if not self.waiting or self.decoding + len(first) >= setting.queries:
                    break
                query = self.waiting.popleft()
                self._begun.append(query)
                self.left[query] = int(lengths[query])
            query = self._begun[0]
            part = min(budget, self.left[query])
            self.left[query] -= part
            budget -= part
            tokens += part
            if self.left[query]:
                break
            self._begun.popleft()
            del self.left[query]
            first.append(query)
        if not tokens and not self.decoding:
            return None
        return setting.model.seconds(self.decoding, tokens), first

    def end(self, first: list[int]) -> list[int]:
        """End a step; the queries that are answered."""
        self.step += 1
        answered = self.ends.pop(self.step, [])
        self.decoding += len(first) - len(answered)
        if first:
            self.ends.setdefault(self.step + self._setting.output_tokens - 1, []).extend(first)
        return answered


def simulate(setting: Simulation, policy: Policy, rate: float) -> Served:
    """Serve Poisson arrivals; every policy sees the same ones.

    Args:
        setting: what is simulated.
        policy: of the router.
        rate: queries/s, all replicas together.
    """
    draw = np.random.default_rng(SEED)
    count = max(1, int(rate * setting.seconds))
    arrivals = np.cumsum(draw.exponential(1.0, count)) / rate
    lengths = np.array(prompt_lengths(count, SEED), np.int64)
    router = _FewestUnfinished(setting.replicas) if policy == "vllm" else Routing(policy, setting.replicas)
    engines = [_Engine(setting) for _ in range(setting.replicas)]
    replica = np.zeros(count, np.int64)
    first_s, answer_s = np.zeros(count), np.zeros(count)
    events: list[tuple[float, int, list[int]]] = []  # the end of a step: time, engine, first tokens

    def begin(index: int, now: float) -> None:
        begun = engines[index].begin(lengths)
        engines[index].busy = begun is not None
        if begun is not None:
            heapq.heappush(events, (now + begun[0], index, begun[1]))

    next_query = 0
    while next_query < count or events:
        if next_query < count and (not events or arrivals[next_query] <= events[0][0]):
            now = float(arrivals[next_query])
            request = cast(Request, _Prompt(range(int(lengths[next_query]))))
            index = router.choose(next_query, request)
            replica[next_query] = index
            engines[index].waiting.append(next_query)
            next_query += 1
            if not engines[index].busy:
                begin(index, now)
            continue
        now, index, first = heapq.heappop(events)
        for query in engines[index].end(first):
            answer_s[query] = now
            router.answered(index, query)
        for query in first:
            first_s[query] = now
            router.first_token(index, query)
        begin(index, now)
    return Served(first_s - arrivals, (answer_s - first_s) / (setting.output_tokens - 1), replica)


def offline_rate(setting: Simulation) -> float:
    """Queries/s that the replicas compute where none waits for arrivals."""
    mean = float(np.mean(prompt_lengths(1_000, SEED)))
    model, tokens = setting.model, setting.output_tokens
    alone_s = model.per_token_s * mean + model.per_query_s * (tokens - 1)
    # The fixed part is shared by all queries in the engine.
    return setting.replicas / (alone_s + model.fixed_s * tokens / setting.queries)


def highest_rate(setting: Simulation, policy: Policy, serve: Callable[..., Served] = simulate) -> float:
    """The highest rate at which both p99 keep their limits, to a hundredth of the Offline rate; 0 where none does."""

    def keeps(rate: float) -> bool:
        ttft_s, tpot_s = serve(setting, policy, rate).p99()
        return ttft_s <= setting.ttft_s and tpot_s <= setting.tpot_s

    low, high = 0.0, 1.2 * offline_rate(setting)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low
