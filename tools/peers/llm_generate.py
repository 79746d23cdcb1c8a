"""Runs against vLLM's `LLM.generate`, with the same prompts in the same order and the same options.

(a) Offline: one call for all prompts. (d) SingleStream: one call per prompt.
"""

from pathlib import Path
from typing import Any

import numpy as np

from qsl.dataset import load_dataset
from runs.errors import ExecutionError
from runs.record.layout import RunDir

from .report import PeerPart, at_least, at_most
from .sizes import Sizes
from .support.llm_server import generate_in_turns
from .support.models import SHAPES, TINY, model_and_rows
from .support.peer_runs import FinishedPeer, engine_plan, execute_run, offline_run


def offline(work: Path, sizes: Sizes) -> PeerPart:
    """Measure both models: one run to learn LoadGen's order, then runs and `LLM.generate` in turns."""
    part = PeerPart("a", "Offline run against LLM.generate, same prompts, order and options")
    for name, shape in SHAPES.items():
        samples = sizes.offline_samples // (1 if shape is TINY else sizes.compute_share)
        _offline(part, work / name, name, samples, sizes.repeats)
    part.notes.append(
        "LLM.generate has the harness's options and variables. During a run it is stopped, or on an accelerator "
        "not running. A run's rate is "
        "LoadGen's samples per second; ratios compare neighbors in time."
    )
    return part


def _offline(part: PeerPart, work: Path, name: str, samples: int, repeats: int) -> None:
    options = _options(work, name, samples)
    prompts = _prompts(options, offline_run(work / "run-order", options, samples))
    plan = engine_plan(work, {**options, "scenario": "Offline"})
    runs: list[float] = []
    calls: list[float] = []
    with generate_in_turns(work / "llm", plan, prompts) as ask:
        for repeat in range(repeats):
            calls.append(len(prompts) / ask("all")[0])
            run = offline_run(work / f"run-{repeat}", options, samples)
            if len(run.requests) != len(prompts):
                raise ExecutionError(f"a run issued {len(run.requests)} samples, not {len(prompts)}", f"see {work}")
            runs.append(run.rate)
    own_figure = part.add(f"{name}: Offline run, {len(prompts)} samples", "samples/s", runs)
    peer_figure = part.add(f"{name}: LLM.generate", "samples/s", calls)
    part.add_ratio(f"{name}: run ÷ LLM.generate", own_figure, peer_figure, at_least(0.98))


def single_stream(work: Path, sizes: Sizes) -> PeerPart:
    """Measure both models, runs and `LLM.generate` in turns."""
    part = PeerPart("d", "SingleStream p90 against LLM.generate, one prompt at a time, same environment")
    for name in SHAPES:
        _single_stream(part, work / name, name, sizes)
    return part


def _single_stream(part: PeerPart, work: Path, name: str, sizes: Sizes) -> None:
    options = {**_options(work, name, sizes.single_stream_queries), "scenario": "SingleStream"}
    conf: dict[str, object] = {
        "min_duration": 1,
        "min_query_count": sizes.single_stream_queries - 1,  # LoadGen raises an exact multiple by a whole set
        "target_latency": 1,
    }
    prompts = _prompts(options, execute_run(RunDir(work / "run-order"), options, conf))
    plan = engine_plan(work, options)
    runs: list[float] = []
    calls: list[float] = []
    with generate_in_turns(work / "llm", plan, prompts) as ask:
        for repeat in range(sizes.repeats):
            calls.append(_p90_ms(ask("one")))
            latency_ns = execute_run(RunDir(work / f"run-{repeat}"), options, conf).reported.latency_ns
            assert latency_ns is not None
            runs.append(latency_ns.p90 / 1e6)
    own_figure = part.add(f"{name}: SingleStream p90, {len(prompts)} queries", "ms", runs)
    peer_figure = part.add(f"{name}: LLM.generate p90", "ms", calls)
    part.add_ratio(f"{name}: SingleStream ÷ LLM.generate", own_figure, peer_figure, at_most(1.03))


def _options(work: Path, name: str, rows: int) -> dict[str, Any]:
    return {"vllm": True, **model_and_rows(work, SHAPES[name], rows)}


def _prompts(options: dict[str, Any], run: FinishedPeer) -> list[list[int]]:
    """Return the prompts in the order in which a run issued them."""
    rows = load_dataset(options["dataset_path"]).prompts
    return [rows[index] for index in run.requests.sample_index]


def _p90_ms(latencies_s: list[float]) -> float:
    """Return p90 like LoadGen, without interpolation."""
    return float(np.sort(latencies_s)[int(len(latencies_s) * 0.9)]) * 1e3
