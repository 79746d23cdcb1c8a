"""(j) Routing policies against vLLM's own balancer: two replicas, and many in a simulation.

Two replicas of C are computed on this machine's cores; each leg also writes down its steps, to which the simulation's
engine is fitted. Two more replicas have steps that take an H100's time and no core's work, so that what others do on
the machine is hardly seen.
"""

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from runs.benchmark import Scenario
from runs.benchmarks import default_benchmark
from runs.environment import usable_cores
from runs.record.layout import RunDir
from runs.record.manifest import read_manifest

from .null_path import highest
from .rates import server_leg
from .report import BenchPart, at_least
from .simulation import POLICIES, Policy, Simulation, highest_rate, offline_rate
from .sizes import Sizes
from .tools.legs import Finished, offline_leg
from .tools.models import SHAPES, TINY, VOCAB_SIZE, make_llama, write_rows
from .tools.step_model import (
    PACED_EXECUTOR,
    STEP_MODEL,
    STEPS_FOLDER,
    TIMED_EXECUTOR,
    Fit,
    StepModel,
    fit,
    read_steps,
)

SCENARIOS: tuple[Scenario, ...] = ("Server", "Interactive")
BALANCER: Policy = "vllm"  # vLLM's own, of data_parallel_size
# About what an H100 needs for Llama-3.1-8B: weights read once a step, prompts at half of its arithmetic. Not measured.
H100_LIKE = StepModel(fixed_s=6e-3, per_query_s=20e-6, per_token_s=35e-6)
LARGE_QUERIES = 1_024  # max_num_seqs
LARGE_STEP_TOKENS = (2_048, 8_192)


@dataclass(frozen=True)
class Pair:
    """Two engines, and what is asked of them."""

    name: str
    options: dict[str, Any]  # of their legs
    engine: list[str]  # engine arguments
    samples: int  # in one Offline query
    shares: Mapping[Scenario, tuple[float, ...]]  # of its rate, that are tried
    seconds: float  # of each leg
    steady: float | None = None  # samples/s: base of the shares where that query is mostly a beginning and an end

    def side(self, policy: Policy) -> dict[str, Any]:
        """Options of a leg under a policy."""
        if policy == BALANCER:
            return {**self.options, "engine_arg": ["data_parallel_size=2", *self.engine]}
        return {**self.options, "replicas": 2, "routing": policy, "engine_arg": self.engine}


def run(work: Path, sizes: Sizes) -> BenchPart:
    """Measure, fit, simulate."""
    name = sizes.routing_model
    part = BenchPart("j", f"routing policies: highest VALID rate, two replicas of {name} measured, many simulated")
    common = {"vllm": True, "dataset_path": str(write_rows(work / "rows.json", sizes.routing_rows, VOCAB_SIZE))}
    steps = work / "steps"
    steps.mkdir(parents=True)
    threads = str(max(1, len(usable_cores()) // 2))
    with mock.patch.dict(os.environ, {STEPS_FOLDER: str(steps.resolve()), "OMP_NUM_THREADS": threads}):
        options = {**common, "model_path": str(make_llama(work / name, SHAPES[name]))}
        samples = sizes.offline_samples // sizes.compute_share
        engine = [f"distributed_executor_backend={TIMED_EXECUTOR}"]
        computed = Pair(name, options, engine, samples, sizes.routing_shares, sizes.server_seconds)
        _measure(part, work / "computed", computed)
    with mock.patch.dict(os.environ, {STEP_MODEL: " ".join(map(str, dataclasses.astuple(H100_LIKE)))}):
        _measure(part, work / "paced", paced(work, common, sizes))
    found = fit(read_steps(steps))
    _tell_fit(part, name, found)
    limits = read_manifest(RunDir(work / "computed" / "offline").manifest).engine["configuration"]
    engines = [
        (name, found.model, limits["max_num_seqs"], limits["max_num_batched_tokens"]),
        *(("H100-like", H100_LIKE, LARGE_QUERIES, tokens) for tokens in LARGE_STEP_TOKENS),
    ]
    for count in sizes.simulated_replicas:
        for engine_name, step, queries, tokens in engines:
            for scenario in SCENARIOS:
                setting = Simulation(
                    count, step, tokens, queries, *_limits_s(scenario), seconds=sizes.simulated_seconds
                )
                _simulate(part, f"{count} × {engine_name}, {tokens:,} tokens a step, {scenario}", setting)
    part.notes.append(
        f"Two replicas on {len(usable_cores())} cores; rates tried are {_told(sizes.routing_shares)} of the Offline "
        f"rate (H100-like: {_told(sizes.paced_shares)} of the simulated one), by halving, VALID by LoadGen's own "
        "verdict, one search each; 0: none of them was. vLLM's own balancer: that of data_parallel_size=2. A simulated "
        "rate keeps both limits at p99, with arrivals and lengths that are the same for every policy; H100-like: step "
        "costs that were assumed and not measured, and in the measured legs vLLM's own scheduler and front end around "
        "steps that only wait."
    )
    return part


def paced(work: Path, common: dict[str, Any], sizes: Sizes) -> Pair:
    """Engines whose steps take an H100's time."""
    engine = [
        f"distributed_executor_backend={PACED_EXECUTOR}",
        f"max_num_seqs={LARGE_QUERIES}",
        f"max_num_batched_tokens={LARGE_STEP_TOKENS[0]}",
    ]
    options = {**common, "model_path": str(make_llama(work / "paced-model", TINY))}
    limits = _limits_s("Server")
    steady = offline_rate(Simulation(2, H100_LIKE, LARGE_STEP_TOKENS[0], LARGE_QUERIES, *limits))
    seconds = sizes.server_seconds
    return Pair("H100-like", options, engine, sizes.offline_samples, sizes.paced_shares, seconds, steady)


def _measure(part: BenchPart, work: Path, pair: Pair) -> None:
    """An Offline leg for the range, then a search for each scenario and policy."""
    rate = offline_leg(work / "offline", pair.side("open"), pair.samples).rate
    part.add(f"{pair.name}, 2 replicas: Offline", "samples/s", [rate])
    for scenario, shares in pair.shares.items():
        _search(part, work / scenario, pair, scenario, [share * (pair.steady or rate) for share in shares])


def _search(part: BenchPart, work: Path, pair: Pair, scenario: Scenario, rates: list[float]) -> None:
    """The highest VALID rate of each policy, and its latencies at the rate that all of them tried first."""
    name, peaks = f"{pair.name}, {scenario}", {}
    for policy in POLICIES:
        legs: dict[float, Finished] = {}

        def valid(rate: float, policy: Policy = policy, legs: dict[float, Finished] = legs) -> bool:
            options = {**pair.side(policy), "scenario": scenario}
            legs[rate] = server_leg(work / f"{policy}-{rate:.2f}", options, rate, pair.seconds)
            return legs[rate].result.verdict == "VALID"

        peaks[policy] = highest(rates, valid)
        first = next(iter(legs))
        reported = legs[first].reported
        for what, numbers in (("TTFT", reported.ttft_ns), ("TPOT", reported.tpot_ns)):
            if numbers is not None:
                part.add(f"{name}, {policy}: p99 {what} at {first:.3g}/s", "ms", [numbers.p99 / 1e6])
    _compare(part, name, peaks)


def _simulate(part: BenchPart, name: str, setting: Simulation) -> None:
    rates = {policy: highest_rate(setting, policy) for policy in POLICIES}
    part.add(f"{name}: {BALANCER} ÷ Offline", "", [rates[BALANCER] / offline_rate(setting)])
    _compare(part, name, rates, measured=False)


def _compare(part: BenchPart, name: str, rates: dict[Policy, float], *, measured: bool = True) -> None:
    """Each policy's rate against that of vLLM's balancer."""
    base = rates[BALANCER]
    for policy, rate in rates.items():
        if measured or policy == BALANCER:
            part.add(f"{name}, {policy}: highest rate", "queries/s", [rate])
        if policy != BALANCER and base:
            part.add(f"{name}, {policy} ÷ {BALANCER}", "", [rate / base])
    if measured and base:
        part.add(f"{name}, best policy ÷ {BALANCER}", "", [max(rates.values()) / base], at_least(1.0))


def _tell_fit(part: BenchPart, name: str, found: Fit) -> None:
    model = found.model
    part.add(f"step of {name}: fixed", "ms", [model.fixed_s * 1e3])
    part.add(f"step of {name}: each decoding query", "ms", [model.per_query_s * 1e3])
    part.add(f"step of {name}: each prompt token", "ms", [model.per_token_s * 1e3])
    part.add(f"fit: steps of {name}", "", [found.steps])
    part.add("fit: share of the variance (R²)", "", [found.explained])
    part.add("fit: median error of a step", "", [found.median_error])
    part.add("fit: p90 of the error of a step", "", [found.p90_error])
    part.add("fit: error of all steps together", "", [found.total_error])


def _limits_s(scenario: Scenario) -> tuple[float, float]:
    limits = default_benchmark(scenario).limits
    assert limits is not None
    return limits.ttft_ms / 1e3, limits.tpot_ms / 1e3


def _told(shares: Mapping[Scenario, tuple[float, ...]]) -> str:
    return "; ".join(f"{scenario} {', '.join(map(str, some))}" for scenario, some in shares.items())
