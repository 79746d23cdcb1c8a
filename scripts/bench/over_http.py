"""(l) What HTTP costs: the client against a server that computes nothing, and Offline legs through `vllm serve`."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

from qsl.dataset import load_dataset
from qsl.embedded.articles import bundled_dataset
from qsl.tokenizers import load_tokenizer
from runs.environment import HARNESS_ROOT
from runs.errors import ExecutionError
from runs.record.layout import RunDir
from sut.endpoint.client_speed import PACED_PER_S, measure_client
from sut.endpoint.served import words

from .legs import engine_plan, run_leg
from .models import TINY, make_llama
from .report import Part, at_least, at_most
from .sizes import Sizes
from .vllm_serve import vllm_serve

OUTPUT_TOKENS = 128


def run(work: Path, sizes: Sizes) -> Part:
    """The client alone, then three sides in turns: a leg over HTTP, one in its own process, vLLM's own client."""
    part = Part("l", "a server over HTTP: the client alone, and Offline through vllm serve")
    speeds = [asyncio.run(measure_client()) for _ in range(sizes.repeats)]
    part.add("client, a core of its own", "answers/s", [one.answers_per_core_s for one in speeds], at_least(1_500))
    part.add("client, beside its server", "answers/s", [one.answers_per_s for one in speeds])
    part.add(f"added p99 TTFT at {PACED_PER_S:.0f}/s", "ms", [one.ttft_p99_ms for one in speeds], at_most(2.0))
    _offline(part, work, sizes)
    part.notes.append(
        "client: streaming, 128 ids in two chunks, prompts of 870 ids, one process; the first rate is by its processor "
        "time; the TTFT holds the server's part as well. Offline: T, one server with the options and variables that "
        "the harness gives its own engine, which waits while a leg in its own process runs. vllm bench serve gets the "
        "same texts in the same order, at once, 128 tokens each."
    )
    return part


def _offline(part: Part, work: Path, sizes: Sizes) -> None:
    model = make_llama(work / "model", TINY)
    data = bundled_dataset(str(model))
    common = {
        "scenario": "Offline",
        "model_path": str(model),
        "dataset_path": str(data),
        "lg_model_name": "llama3_1-8b-edge",
    }
    conf: dict[str, object] = {"min_duration": 1, "min_query_count": sizes.offline_samples, "target_qps": 1}
    plan = engine_plan(work, {**common, "vllm": True})
    runs: dict[str, list[float]] = {"over HTTP": [], "in the leg's process": [], "vllm bench serve": []}
    with vllm_serve(work, model, plan) as url:
        for repeat in range(sizes.repeats):
            for side, options in (
                ("over HTTP", {"engine": "endpoint", "api_server": url}),
                ("in the leg's process", {"vllm": True}),
            ):
                run_dir = RunDir(work / f"{side.replace(' ', '-')}-{repeat}")
                leg = run_leg(run_dir, {**common, **options}, conf)
                assert leg.result.reported is not None
                runs[side].append(leg.result.reported.samples_per_second or 0.0)
                order = leg.requests.sample_index.tolist()
            runs["vllm bench serve"].append(_bench_serve(work / f"bench-serve-{repeat}", url, model, data, order))
    figures = {
        side: part.add(f"T: {side}, {sizes.offline_samples} samples", "samples/s", rates)
        for side, rates in runs.items()
    }
    ours = figures["over HTTP"]
    part.add_ratio("T: over HTTP ÷ in the leg's process", ours, figures["in the leg's process"], at_least(0.85))
    part.add_ratio("T: over HTTP ÷ vllm bench serve", ours, figures["vllm bench serve"], at_least(1.0))


def _bench_serve(work: Path, url: str, model: Path, data: Path, order: list[int]) -> float:
    """Requests a second of `vllm bench serve` with these samples."""
    work.mkdir(parents=True)
    rows, tokenizer = load_dataset(data).prompts, load_tokenizer(str(model))
    texts = work / "texts.jsonl"
    prompts = tokenizer.batch_decode([rows[index] for index in order])
    texts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in prompts))
    command = words(
        f"vllm bench serve --backend openai --base-url {url} --model {model} --dataset-name custom "
        f"--dataset-path {texts} --custom-output-len {OUTPUT_TOKENS} --skip-chat-template --disable-shuffle "
        f"--num-prompts {len(order)} --request-rate inf --ignore-eos --temperature 0 "
        f"--save-result --result-dir {work} --result-filename result.json"
    )
    log = work / "bench.log"
    with log.open("wb") as stream:
        code = subprocess.run(
            command, cwd=HARNESS_ROOT, stdout=stream, stderr=subprocess.STDOUT, check=False
        ).returncode
    result = work / "result.json"
    if code or not result.is_file():
        raise ExecutionError(f"vllm bench serve ended with code {code}", f"see {log}")
    measured: dict[str, Any] = json.loads(result.read_bytes())
    if measured["completed"] != len(order):
        raise ExecutionError(f"vllm bench serve completed {measured['completed']} of {len(order)}", f"see {log}")
    return float(measured["request_throughput"])
