"""(d) SingleStream's p90 latency against the engine's own: the same prompts one at a time through `LLM.generate`."""

from pathlib import Path

import numpy as np

from qsl.dataset import load_dataset
from runs.record.layout import RunDir

from .legs import engine_plan, run_leg
from .llm_server import llm_server
from .models import SHAPES, VOCAB_SIZE, make_llama
from .report import Part, at_most
from .rows import write_rows
from .sizes import Sizes


def run(work: Path, sizes: Sizes) -> Part:
    """Both models, both sides in turns."""
    part = Part("d", "SingleStream p90 against LLM.generate, one prompt at a time, same environment")
    for name, shape in SHAPES.items():
        model = make_llama(work / name / "model", shape)
        _model(part, work / name, name, model, sizes)
    return part


def _model(part: Part, work: Path, name: str, model: Path, sizes: Sizes) -> None:
    data = write_rows(work / "rows.json", sizes.single_stream_queries, VOCAB_SIZE)
    options = {"scenario": "SingleStream", "vllm": True, "model_path": str(model), "dataset_path": str(data)}
    conf: dict[str, object] = {
        "min_duration": 1,
        "min_query_count": sizes.single_stream_queries - 1,  # LoadGen adds a whole set to an exact multiple
        "target_latency": 1,
    }
    plan = engine_plan(work, options)
    rows = load_dataset(data).prompts
    first = run_leg(RunDir(work / "leg-order"), options, conf)
    prompts = [rows[index] for index in first.requests.sample_index]
    legs: list[float] = []
    calls: list[float] = []
    with llm_server(work / "llm", model, plan.engine_options, plan.environment, prompts) as server:
        for repeat in range(sizes.repeats):
            calls.append(_p90_ms(server.ask("one").latencies_s))
            leg = run_leg(RunDir(work / f"leg-{repeat}"), options, conf)
            assert leg.result.reported is not None
            assert leg.result.reported.latency_ns is not None
            legs.append(leg.result.reported.latency_ns.p90 / 1e6)
    ours = part.add(f"{name}: SingleStream p90, {len(prompts)} queries", "ms", legs)
    theirs = part.add(f"{name}: LLM.generate p90", "ms", calls)
    part.add_ratio(f"{name}: SingleStream ÷ LLM.generate", ours, theirs, at_most(1.03))


def _p90_ms(latencies_s: list[float]) -> float:
    """LoadGen's percentile: no interpolation."""
    return float(np.sort(latencies_s)[int(len(latencies_s) * 0.9)]) * 1e3
