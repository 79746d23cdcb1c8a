"""Stages 1 and 1b: Offline at full size, compared with `LLM.generate` on the same prompts in the same order.

The two run in sequence, because each engine takes 92% of the GPU's memory.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

from qsl.dataset import load_dataset
from runs.files.writing import write_json
from runs.record.requests_log import read_request_table
from tools.gpu.harness import MeasuredRun, RunLoad, offline_load, run
from tools.gpu.inputs import Inputs, large_model
from tools.gpu.stage import GpuStage, Precision, Skipped
from tools.peers.support.llm_server import WARM_UP_ANEW, llm_server
from tools.peers.support.peer_runs import engine_plan

TARGET = 0.98
PUBLISHED = "published in v5.1, FP8, tokens/s: 1 H100 Offline 5,777, Server 5,104; 1 H200 Offline 7,797, Server 7,377"
_RATES = "rates.json"  # samples/s by precision, for the later stages


def measure(stage: GpuStage) -> None:
    """Measure a run and `LLM.generate` in each precision; the most important precision is last and longest."""
    small = stage.options.small
    plans: list[tuple[Precision, int, bool]] = [("bf16", 1536, True), ("fp8", 3072, True), ("fp8kv", 3072, False)]
    for precision, samples, compared in plans[:1] if small else plans:
        inputs = stage.step(f"inputs {precision}", 20, partial(large_model, stage, precision))
        if inputs is None:
            return
        rate = pair(stage, precision, offline_load(inputs, 64 if small else samples), compared)
        if rate:
            _remember(stage, precision, rate)
    stage.say(f"   {PUBLISHED}")


def repeat(stage: GpuStage) -> None:
    """Measure three more pairs, to show the variation."""
    inputs = large_model(stage, stage.options.precision)
    for number in range(1, 4):
        load = offline_load(inputs, 64 if stage.options.small else 2048)
        pair(stage, f"{stage.options.precision}-{number}", load, compared=True)


def pair(stage: GpuStage, name: str, load: RunLoad, compared: bool) -> float | None:
    """Measure a run, and `LLM.generate` with its prompts; return the run's rate."""
    finished = stage.step(f"run {name}", 20 if stage.options.dummy else 150, lambda: run(stage, f"run-{name}", load))
    if finished is None:
        return None
    if compared:
        stage.step(f"generate {name}", 110, lambda: _compare(stage, name, finished, load.options))
    return finished.rate


def _compare(stage: GpuStage, name: str, finished: MeasuredRun, inputs: Inputs) -> None:
    rate = generate_rate(stage, f"generate-{name}", finished, inputs)
    tokens = rate * (finished.result.output_tokens_mean or 0.0)
    stage.say(f"   generate-{name}: LLM.generate {rate:.2f} samples/s, {tokens:,.0f} tokens/s")
    stage.say(f"== {name}: run ÷ LLM.generate = {finished.rate / rate:.3f} (target: at least {TARGET})")
    stage.keep(f"generate-{name}", rate)
    stage.keep(f"ratio {name}", finished.rate / rate)


def generate_rate(stage: GpuStage, name: str, finished: MeasuredRun, inputs: Inputs) -> float:
    """Return the samples/s of one call of `LLM.generate`."""
    if stage.options.dummy:
        raise Skipped("a rehearsal with the dummy engine has no vLLM")
    plan = engine_plan(stage.folder, inputs)
    rows = load_dataset(inputs["dataset_path"], count=inputs["total_sample_count"]).prompts
    prompts = [rows[index] for index in read_request_table(finished.run.requests).sample_index]
    model, options, environment = Path(plan.model_path), plan.engine_options, plan.environment
    limit_s, warm_up = max(1.0, stage.left_s), min(len(prompts), WARM_UP_ANEW)
    folder = stage.folder / name
    with llm_server(folder, model, options, environment, prompts, warm_up=warm_up, limit_s=limit_s) as server:
        return len(prompts) / server.ask("all")[0]


def _rates(stage: GpuStage) -> dict[str, Any]:
    path = stage.work / _RATES
    rates: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return rates


def _remember(stage: GpuStage, precision: str, rate: float) -> None:
    write_json(stage.work / _RATES, {**_rates(stage), precision: rate})


def offline_rate(stage: GpuStage) -> float:
    """Return the Offline rate of this machine, for stages that use shares of it.

    Raises:
        Skipped: If stage 1 did not run on this machine, and no rate is given.
    """
    precision = "bf16" if stage.options.small else stage.options.precision
    rate = stage.options.rate or _rates(stage).get(precision)
    if not rate:
        raise Skipped(f"the Offline rate of {precision} on this machine is unknown: --rate SAMPLES_PER_S")
    return float(rate)
