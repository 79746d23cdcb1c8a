"""(l) What HTTP costs: the client against a server that computes nothing, and Offline legs through `vllm serve`."""

import json
import math
import shlex
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qsl.dataset import load_dataset
from qsl.embedded.articles import bundled_dataset
from qsl.tokenizers import load_tokenizer
from runs.environment import HARNESS_ROOT
from runs.errors import ExecutionError
from runs.record.manifest import read_manifest
from runs.record.observed import Contention
from sut.endpoint.client_speed import PACED_PER_S, instant_server, measure_client

from .endpoints_client import TEMPLATE, side_by_side
from .rates import server_leg
from .report import BenchPart, at_least, at_most
from .sizes import Sizes
from .tools.legs import engine_plan, offline_leg
from .tools.models import TINY, make_llama
from .tools.programs import VLLM, vllm_serve

OUTPUT_TOKENS = 128
# Of LLM.generate on a CPU, and so of an Offline leg; vllm serve would take half of each.
BATCH = {"max_num_seqs": 256, "max_num_batched_tokens": 4096}


def run(work: Path, sizes: Sizes) -> BenchPart:
    """The client alone, then three sides in turns: a leg over HTTP, one in its own process, vLLM's own client."""
    part = BenchPart("l", "a server over HTTP: the client alone, and Offline through vllm serve")
    speeds = [measure_client() for _ in range(sizes.repeats)]
    part.add("client, a core of its own", "answers/s", [one.answers_per_core_s for one in speeds], at_least(1_500))
    part.add("client, beside its server", "answers/s", [one.answers_per_s for one in speeds])
    part.add(f"added p99 TTFT at {PACED_PER_S:.0f}/s", "ms", [one.ttft_p99_ms for one in speeds], at_most(2.0))
    model = make_llama(work / "model", TINY)
    part.add("the same by LoadGen, in a leg", "ms", list(_in_a_leg(work, model, sizes)), at_most(2.0))
    _offline(part, work, model, sizes)
    part.notes.append(
        "client: streaming, 128 ids in two chunks, prompts of 870 ids, one process; the first rate is by its processor "
        "time; the TTFT holds the server's part as well. Offline: T, one server with the options and variables that "
        "the harness gives its own engine, told to make no text (ids in, ids out) and to log no requests, as that one; "
        "it waits while a leg in its own process runs. vllm bench serve asks the same server for text, the same "
        "prompts in the same order, at once, 128 tokens each."
    )
    return part


def _in_a_leg(work: Path, model: Path, sizes: Sizes) -> Iterator[float]:
    """p99 TTFT of Server legs against the instant server."""
    options = {"scenario": "Server", "model_path": str(model), "dataset_path": str(bundled_dataset(str(model)))}
    for repeat in range(sizes.repeats):
        with instant_server() as url:
            leg = server_leg(
                work / f"instant-{repeat}", {**options, "api_server": url}, PACED_PER_S, sizes.server_seconds
            )
        assert leg.reported.ttft_ns is not None
        yield leg.reported.ttft_ns.p99 / 1e6


def _offline(part: BenchPart, work: Path, model: Path, sizes: Sizes) -> None:
    data = bundled_dataset(str(model))
    common = {"scenario": "Offline", "model_path": str(model), "dataset_path": str(data)}
    here = {**common, "vllm": True, "engine_arg": [f"{name}={value}" for name, value in BATCH.items()]}
    plan = engine_plan(work, {**common, "vllm": True, "engine_arg": BATCH})
    runs: dict[str, list[float]] = {"over HTTP": [], "in the leg's process": [], "vllm bench serve": []}
    cpu_ms: defaultdict[str, list[float]] = defaultdict(list)
    template = work / "chat.jinja"
    template.write_text(TEMPLATE)
    with vllm_serve(work, model, plan, "--chat-template", str(template)) as server:
        for repeat in range(sizes.repeats):
            for side, options in (
                ("over HTTP", {**common, "engine": "endpoint", "api_server": server.url}),
                ("in the leg's process", here),
            ):
                before_s = server.cpu_s()
                leg = offline_leg(work / f"{side.replace(' ', '-')}-{repeat}", options, sizes.offline_samples)
                runs[side].append(leg.rate)
                order = leg.requests.sample_index.tolist()
                contention = read_manifest(leg.run.manifest).observed.contention
                own_s = contention.own_cpu_s if isinstance(contention, Contention) else math.nan  # all its processes'
                used_s = {f"{side}: leg, client or engine": own_s}
                if side == "over HTTP":
                    used_s |= {f"{side}: {name}": now - before_s[name] for name, now in server.cpu_s().items()}
                for name, seconds in used_s.items():
                    cpu_ms[name].append(seconds / len(order) * 1e3)
            runs["vllm bench serve"].append(
                _bench_serve(work / f"bench-serve-{repeat}", server.url, model, data, order)
            )
        side_by_side(part, work, server.url, common, sizes)
    figures = {
        side: part.add(f"T: {side}, {sizes.offline_samples} samples", "samples/s", rates)
        for side, rates in runs.items()
    }
    for name, spent in cpu_ms.items():
        part.add(f"T, CPU time a sample, {name}", "ms", spent)
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
    arguments = shlex.split(
        f"bench serve --backend openai --base-url {url} --model {model} --dataset-name custom "
        f"--dataset-path {texts} --custom-output-len {OUTPUT_TOKENS} --skip-chat-template --disable-shuffle "
        f"--num-prompts {len(order)} --request-rate inf --ignore-eos --temperature 0 "
        f"--save-result --result-dir {work} --result-filename result.json"
    )
    log = work / "bench.log"
    with log.open("wb") as stream:
        code = subprocess.run(
            [VLLM, *arguments], cwd=HARNESS_ROOT, stdout=stream, stderr=subprocess.STDOUT, check=False
        ).returncode
    result = work / "result.json"
    if code or not result.is_file():
        raise ExecutionError(f"vllm bench serve ended with code {code}", f"see {log}")
    measured: dict[str, Any] = json.loads(result.read_bytes())
    if measured["completed"] != len(order):
        raise ExecutionError(f"vllm bench serve completed {measured['completed']} of {len(order)}", f"see {log}")
    return float(measured["request_throughput"])
