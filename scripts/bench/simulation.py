"""Many replicas behind one router, simulated step by step: what a routing policy is worth where there are no machines.

The router is the product's own (sut/replicas/routing.py). An engine schedules as vLLM does: a token for each decoding
query, then prompts in order of arrival, cut to what is left of the step's token budget, and no more queries at a time
than it may have. Messages take no time, and every answer has the same length. vLLM's own balancer gives a query to
the copy with the fewest unfinished ones, the first among equals [vllm 0.32, DPLBAsyncMPClient]; what it adds for a
cache that is more than half full is left out.
"""

import heapq
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from runs.record.manifest import RoutingPolicy
from sut.engine import Request
from sut.replicas.routing import Routing

from .null_path import highest
from .tools.models import prompt_lengths
from .tools.step_model import StepModel

Policy = RoutingPolicy | Literal["vllm"]
POLICIES: tuple[Policy, ...] = (*get_args(RoutingPolicy), "vllm")
SEED = 20
RATES = 128  # that are tried, up to 1.2 of the Offline rate: a hundredth of it apart
NOBODY: Any = None  # hears of a simulated answer


@dataclass(frozen=True)
class Simulation:
    """What is simulated."""

    replicas: int  # engines behind the router
    model: StepModel  # of a step of each
    # step_tokens, queries: `max_num_batched_tokens` and `max_num_seqs` of each
    step_tokens: int
    queries: int
    # ttft_s, tpot_s: limits of the p99
    ttft_s: float
    tpot_s: float
    output_tokens: int = 128  # of every answer
    seconds: float = 60.0  # of arrivals


@dataclass(frozen=True)
class Served:
    """What became of the queries: seconds, one a query."""

    ttft_s: NDArray[np.float64]
    tpot_s: NDArray[np.float64]
    replica: NDArray[np.int64]

    def p99(self) -> tuple[float, float]:
        """p99 of TTFT and TPOT."""
        return float(np.percentile(self.ttft_s, 99)), float(np.percentile(self.tpot_s, 99))


class _Balancer(Routing):
    """vLLM's own."""

    def choose(self, tag: int, request: Request) -> int:
        self._next = 0
        return super().choose(tag, request)


class _Engine:
    """One replica. All its decoding queries get a token a step, so each is looked at when it begins and ends only."""

    def __init__(self, setting: Simulation) -> None:
        self._setting = setting
        self.prompts: deque[tuple[int, int]] = deque()  # query and tokens to compute, in order of arrival
        self._decoding = self._steps = 0
        self._ends: defaultdict[int, list[int]] = defaultdict(list)  # step → queries whose last token it makes

    def step(self) -> tuple[float, list[int], list[int]]:
        """The next step: its seconds (0: nothing to do), and the queries whose first, whose last token it makes."""
        setting, decoding = self._setting, self._decoding
        left = budget = setting.step_tokens - decoding
        first: list[int] = []
        while self.prompts and left > 0 and decoding + len(first) < setting.queries:
            query, tokens = self.prompts.popleft()
            if tokens > left:
                self.prompts.appendleft((query, tokens - left))
            else:
                first.append(query)
            left -= min(tokens, left)
        if left == budget and not decoding:
            return 0.0, [], []
        self._steps += 1
        self._ends[self._steps + setting.output_tokens - 1] = first
        last = self._ends.pop(self._steps, [])
        self._decoding += len(first) - len(last)
        return setting.model.seconds(decoding, budget - left), first, last


def simulate(setting: Simulation, policy: Policy, rate: float) -> Served:
    """Serve Poisson arrivals; every policy sees the same ones.

    Args:
        rate: queries/s, all replicas together.
    """
    draw = np.random.default_rng(SEED)
    count = max(1, int(rate * setting.seconds))
    arrivals = np.cumsum(draw.exponential(1.0, count)) / rate
    lengths = prompt_lengths(count, SEED)
    router = _Balancer("open", setting.replicas) if policy == "vllm" else Routing(policy, setting.replicas)
    engines = [_Engine(setting) for _ in range(setting.replicas)]
    idle = set(range(setting.replicas))
    replica = np.zeros(count, np.int64)
    first_s, answer_s = np.zeros(count), np.zeros(count)
    steps: list[tuple[float, int, list[int], list[int]]] = []  # under way: end, engine, first and last tokens

    def begin(index: int, now: float) -> None:
        seconds, first, last = engines[index].step()
        if seconds:
            heapq.heappush(steps, (now + seconds, index, first, last))
        else:
            idle.add(index)

    def until(now: float) -> None:
        """Steps that end before `now`."""
        while steps and steps[0][0] < now:
            end, index, first, last = heapq.heappop(steps)
            for query in last:
                answer_s[query] = end
                router.answered(index, query)
            for query in first:
                first_s[query] = end
                router.first_token(index, query)
            begin(index, end)

    for query, (now, tokens) in enumerate(zip(arrivals.tolist(), lengths, strict=True)):
        until(now)
        index = replica[query] = router.choose(query, Request(NOBODY, [0] * tokens))
        engines[index].prompts.append((query, tokens))
        if index in idle:
            idle.remove(index)
            begin(index, now)
    until(np.inf)
    return Served(first_s - arrivals, (answer_s - first_s) / (setting.output_tokens - 1), replica)


def offline_rate(setting: Simulation) -> float:
    """Queries/s that the replicas compute where none waits for arrivals."""
    mean = float(np.mean(prompt_lengths(1_000, SEED)))
    model, tokens = setting.model, setting.output_tokens
    alone_s = model.per_token_s * mean + model.per_query_s * (tokens - 1)
    # The fixed part is shared by all queries in the engine.
    return setting.replicas / (alone_s + model.fixed_s * tokens / setting.queries)


def highest_rate(setting: Simulation, policy: Policy) -> float:
    """The highest rate at which both p99 keep their limits, to a hundredth of the Offline rate; 0 where none does."""

    def keeps(rate: float) -> bool:
        ttft_s, tpot_s = simulate(setting, policy, rate).p99()
        return ttft_s <= setting.ttft_s and tpot_s <= setting.tpot_s

    return highest((1.2 * offline_rate(setting) * np.arange(1, RATES) / RATES).tolist(), keeps)
