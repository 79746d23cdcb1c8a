"""(a) An Offline leg against `LLM.generate` with the same prompts in the same order and the same options."""

from pathlib import Path

from qsl.dataset import load_dataset
from runs.errors import ExecutionError
from runs.record.layout import RunDir

from .legs import engine_plan, run_leg
from .llm_server import llm_server
from .models import SHAPES, TINY, VOCAB_SIZE, make_llama
from .report import Part, at_least
from .rows import write_rows
from .sizes import Sizes


def run(work: Path, sizes: Sizes) -> Part:
    """Both models; per model one leg to learn LoadGen's order, then both sides in turns."""
    part = Part("a", "Offline leg against LLM.generate, same prompts, order and options")
    for shape in SHAPES.values():
        samples = sizes.offline_samples // (1 if shape is TINY else sizes.compute_share)
        _model(part, work / shape.name, shape.name, samples, sizes.repeats)
    part.notes.append(
        "same environment: the options and variables that the harness gives a CPU engine (no worker process, core "
        "binding, freed memory kept, KV cache size); plain: the KV cache size, and vLLM's own choice of the rest. The "
        "LLM stays alive and is stopped while a leg runs. A leg's rate is LoadGen's samples per second; ratios compare "
        "neighbours in time."
    )
    return part


def _model(part: Part, work: Path, name: str, samples: int, repeats: int) -> None:
    model = make_llama(work / "model", SHAPES[name])
    data = write_rows(work / "rows.json", samples, VOCAB_SIZE)
    options = {
        "scenario": "Offline",
        "vllm": True,
        "model_path": str(model),
        "dataset_path": str(data),
        "lg_model_name": "llama3_1-8b-edge",
    }
    conf: dict[str, object] = {"min_duration": 1, "min_query_count": samples, "target_qps": 1}
    plan = engine_plan(work, options)
    rows = load_dataset(data).prompts
    first = run_leg(RunDir(work / "leg-order"), options, conf)
    prompts = [rows[index] for index in first.requests.sample_index]
    plain_options = {key: value for key, value in plan.engine_options.items() if key != "distributed_executor_backend"}
    kv_cache = {key: value for key, value in plan.environment.items() if key == "VLLM_CPU_KVCACHE_SPACE"}
    legs: list[float] = []
    calls: dict[str, list[float]] = {"same environment": [], "plain": []}
    with (
        llm_server(work / "same", model, plan.engine_options, plan.environment, prompts) as same,
        llm_server(work / "plain", model, plain_options, kv_cache, prompts) as plain,
    ):
        for repeat in range(repeats):
            for side, server in (("same environment", same), ("plain", plain)):
                call = server.ask("all")
                calls[side].append(len(prompts) / call.seconds)
            leg = run_leg(RunDir(work / f"leg-{repeat}"), options, conf)
            if len(leg.requests) != len(prompts):
                raise ExecutionError(f"a leg issued {len(leg.requests)} samples, not {len(prompts)}", f"see {work}")
            assert leg.result.reported is not None
            legs.append(leg.result.reported.samples_per_second or 0.0)
    ours = part.add(f"{name}: Offline leg, {len(prompts)} samples", "samples/s", legs)
    for side, runs in calls.items():
        theirs = part.add(f"{name}: LLM.generate, {side}", "samples/s", runs)
        part.add_ratio(f"{name}: leg ÷ LLM.generate, {side}", ours, theirs, at_least(0.98))
