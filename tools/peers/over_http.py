"""(l) The cost of HTTP: the client against a server that computes nothing, and Offline runs through `vllm serve`."""

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

from qsl.dataset import load_dataset
from qsl.embedded.articles import bundled_dataset
from qsl.tokenizers import load_tokenizer
from runs.errors import ExecutionError

from .endpoints_client import TEMPLATE, side_by_side
from .rates import server_run
from .report import PeerPart, at_least, at_most
from .sizes import Sizes
from .support.client_speed import instant_server, measure_client
from .support.models import TINY, make_llama
from .support.peer_runs import engine_plan, offline_run
from .support.programs import VLLM, vllm_serve

OUTPUT_TOKENS = 128
SERVER_RATE = 200.0  # queries/s of the runs against the instant server
# Batch limits of LLM.generate on a CPU, which an Offline run has too; vllm serve would use half of each.
BATCH = {"max_num_seqs": 256, "max_num_batched_tokens": 4096}


def run(work: Path, sizes: Sizes) -> PeerPart:
    """Measure the client alone; then in turns a run over HTTP, a run with its own engine, and vLLM's client."""
    part = PeerPart("l", "a server over HTTP: the client alone, and Offline through vllm serve")
    speeds = [measure_client() for _ in range(sizes.repeats)]
    part.add(
        "client, on a separate core", "responses/s", [speed.responses_per_core_s for speed in speeds], at_least(1_500)
    )
    part.add("client, on the core of its server", "responses/s", [speed.responses_per_s for speed in speeds])
    model = make_llama(work / "model", TINY)
    data = bundled_dataset(str(model))
    common: dict[str, Any] = {"scenario": "Offline", "model_path": str(model), "dataset_path": str(data)}
    in_a_run: list[float] = []
    for repeat in range(sizes.repeats):
        with instant_server() as url:
            options = {**common, "scenario": "Server", "api_server": url}
            run = server_run(work / f"instant-{repeat}", options, SERVER_RATE, sizes.server_seconds)
        assert run.reported.ttft_ns is not None
        in_a_run.append(run.reported.ttft_ns.p99 / 1e6)
    part.add(f"added p99 TTFT at {SERVER_RATE:.0f}/s", "ms", in_a_run, at_most(2.0))

    here = {**common, "vllm": True, "engine_arg": [f"{name}={value}" for name, value in BATCH.items()]}
    plan = engine_plan(work, {**common, "vllm": True, "engine_arg": BATCH})
    runs: dict[str, list[float]] = {"over HTTP": [], "in the run's process": [], "vllm bench serve": []}
    template = work / "chat.jinja"
    template.write_text(TEMPLATE)
    with vllm_serve(work, model, plan, "--chat-template", str(template)) as url:
        over_http = {**common, "engine": "endpoint", "api_server": url}
        for repeat in range(sizes.repeats):
            for side, options in (("over HTTP", over_http), ("in the run's process", here)):
                run = offline_run(work / f"{side.replace(' ', '-')}-{repeat}", options, sizes.offline_samples)
                runs[side].append(run.rate)
            order = run.requests.sample_index.tolist()
            runs["vllm bench serve"].append(_bench_serve(work / f"bench-serve-{repeat}", url, model, data, order))
        side_by_side(part, work, url, common, sizes)
    own_figure, in_process, peer_figure = (
        part.add(f"T: {side}, {sizes.offline_samples} samples", "samples/s", rates) for side, rates in runs.items()
    )
    part.add_ratio("T: over HTTP ÷ in the run's process", own_figure, in_process, at_least(0.85))
    part.add_ratio("T: over HTTP ÷ vllm bench serve", own_figure, peer_figure, at_least(1.0))
    part.notes.append(
        "client: streaming, 128 ids in two chunks, prompts of 870 IDs, one process; the first rate is by its processor "
        "time; the TTFT includes the server's part. Offline: one server with the options that the harness gives its "
        "own engine, without text and request logs. vllm bench serve requests text from the same server, with the "
        "same prompts in the same order, at once, 128 tokens each."
    )
    return part


def _bench_serve(work: Path, url: str, model: Path, data: Path, order: list[int]) -> float:
    """Return the requests/s of `vllm bench serve` with these samples."""
    work.mkdir(parents=True)
    rows, tokenizer = load_dataset(data).prompts, load_tokenizer(str(model))
    texts = work / "texts.jsonl"
    prompts = tokenizer.batch_decode([rows[index] for index in order])
    texts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in prompts))
    arguments = shlex.split(
        f"bench serve --backend openai --base-url {url} --model {model} --dataset-name custom "
        f"--dataset-path {texts} --custom-output-len {OUTPUT_TOKENS} --skip-chat-template --disable-shuffle "
        f"--num-prompts {len(order)} --request-rate inf --ignore-eos --temperature 0 "
        f"--save-result --result-dir {work} --result-filename result.json"
    )
    log, result = work / "bench.log", work / "result.json"
    with log.open("wb") as stream:
        code = subprocess.run([VLLM, *arguments], stdout=stream, stderr=subprocess.STDOUT, check=False).returncode
    measured: dict[str, Any] = json.loads(result.read_bytes()) if result.is_file() else {}
    if code or measured.get("completed") != len(order):
        completed = f"{measured.get('completed', 0)} of {len(order)}"
        raise ExecutionError(f"vllm bench serve ended with code {code} and completed {completed}", f"see {log}")
    return float(measured["request_throughput"])
