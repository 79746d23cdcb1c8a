"""Stage B: one rate, measured with `bench` at `vllm serve`, with `vllm bench serve`, and in the engine's process."""

import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from runs.bench.bench_record import BenchRun, read_bench_record
from runs.errors import ExitCode
from runs.processes.interrupts import ended
from runs.record.layout import BENCH_FILE
from tools.gpu.commands import EndedCommand, process_group, run_command, words_of
from tools.gpu.inputs import OUTPUT_TOKENS, engine_options, large_model, model_and_dataset, text_prompts
from tools.gpu.servers import MODEL, servers
from tools.gpu.stage import GpuStage, OutOfTimeError, Stage
from tools.gpu.stages.settings import best_setting, offline_rate
from tools.peers.support.load_clients import CLIENTS, ClientLoad, Speed

SHARE = 0.8  # share of the Offline rate
RUN_S = 20.0
REHEARSED_RATE = 20.0  # queries/s
# A bench that measured its rate has an exit code for the limits, which one rate cannot meet or exceed alone.
_CODES = (ExitCode.OK, ExitCode.NEGATIVE, ExitCode.REFUSED)
_BENCH_SERVE = ("bench", "serve")  # words of the command line before the options
_VLLM = next(client for client in CLIENTS if client.name == "vllm bench serve")


def measure(stage: GpuStage) -> None:
    """Measure a server in each way, then the engine without a server."""
    served = {"serve-ids": (45, bench_ids), "serve-vllm": (45, bench_vllm), "serve-text": (45, bench_text)}
    if not all(map(stage.is_done, served)):
        stage.step("server", 90, lambda: _with_server(stage, served))
    stage.step("engine", 85, lambda: bench_engine(stage))


def _with_server(stage: GpuStage, served: Mapping[str, tuple[float, Callable[[GpuStage, str], None]]]) -> None:
    with servers(stage, [best_setting(stage)]) as (url,):
        for name, (estimate_s, job) in served.items():
            stage.step(name, estimate_s, partial(job, stage, url))


def rate_of(stage: GpuStage) -> float:
    """Return the rate of all measurements in queries/s."""
    return REHEARSED_RATE if stage.options.dummy else float(f"{SHARE * offline_rate(stage):.3g}")


def bench_ids(stage: GpuStage, url: str) -> None:
    """Measure the server with token IDs; the scripted server of a rehearsal only takes text."""
    if stage.options.dummy:
        _bench(stage, "serve-ids", [url, "--backend", "openai"], {})
    else:
        _bench(stage, "serve-ids", [url], model_and_dataset(stage))


def bench_text(stage: GpuStage, url: str) -> None:
    """Measure the server with text."""
    _bench(stage, "serve-text", [url, "--backend", "openai"], {} if stage.options.dummy else model_and_dataset(stage))


def bench_engine(stage: GpuStage) -> None:
    """Measure the engine in the process of a run."""
    inputs = engine_options(stage, best_setting(stage))
    if stage.options.dummy:
        del inputs["dataset_path"]  # its IDs are not those of the dummy engine's tokenizer
    _bench(stage, "serve-engine", [], inputs)


def _bench(stage: GpuStage, name: str, words: list[str], options: dict[str, Any]) -> None:
    """Measure the rate once; `bench` would repeat it."""
    place = stage.new_folder(name)
    fixed = {"rates": rate_of(stage), "duration": f"{stage.options.run_s(RUN_S):g}s", "limits": "none"}
    options = {**options, **fixed, "label": name, "output_log_dir": place}

    def has_enough() -> bool:
        return bool(_runs(place))

    run_command(stage, place.name, ["bench", *words, *words_of(options)], has_enough).check(*_CODES)
    for run in _runs(place)[:1]:
        _record_run(stage, name, run)


def _runs(place: Path) -> list[BenchRun]:
    path = place / BENCH_FILE
    return read_bench_record(path).runs if path.exists() else []


def _record_run(stage: GpuStage, name: str, run: BenchRun) -> None:
    more = f"{run.verdict}" + "".join(f"; {reason}" for reason in run.reasons[:1])
    detail = run.model_dump(mode="json")
    if run.output_tokens_per_s is not None:
        stage.record(f"{name}-tokens", run.output_tokens_per_s, f"at {run.asked_qps:g} queries/s, {more}", run=detail)
    if run.ttft is not None:
        stage.record(f"{name}-ttft", run.ttft.p50, f"mean {run.ttft.mean:.3g} ms")
    if run.tpot is not None:
        stage.record(f"{name}-tpot", run.tpot.p50, f"mean {run.tpot.mean:.3g} ms")
    if run.client is not None and run.client.issue_to_engine is not None:
        stage.record(f"{name}-late", run.client.issue_to_engine)


def bench_vllm(stage: GpuStage, url: str) -> None:
    """Measure the server with vLLM's own client, at the same rate."""
    rate = rate_of(stage)
    requests = round(rate * stage.options.run_s(RUN_S))
    load = ClientLoad(
        url,
        "truth" if stage.options.dummy else MODEL,
        rate,
        requests,
        OUTPUT_TOKENS,
        text_prompts(stage, requests),
        _tokenizer(stage),
    )
    folder = stage.new_folder("serve-vllm")
    log = folder.with_suffix(".log")
    options = _VLLM.arguments(load, folder)[len(_BENCH_SERVE) :]
    with process_group([sys.executable, "-m", "tools.gpu.vllm_client", *options], log) as process:
        if not ended(process, max(1.0, stage.left_s)):
            raise OutOfTimeError("vllm bench serve")
    EndedCommand(process.returncode, 0.0, log).check(0)
    speed: Speed = _VLLM.read(folder)
    detail = {name: json.loads((folder / "result.json").read_text())[name] for name in ("completed", "request_rate")}
    stage.record("serve-vllm-tokens", speed.tokens_per_s, f"at {rate:g} queries/s, {speed.requests} requests", **detail)
    stage.record("serve-vllm-ttft", speed.ttft_p50_ms)
    stage.record("serve-vllm-tpot", speed.tpot_p50_ms)


def _tokenizer(stage: GpuStage) -> Path:
    if not stage.options.dummy:
        return Path(large_model(stage)["model_path"])
    from tools.peers.support.models import TINY, make_llama

    return make_llama(stage.work / "tokenizer", TINY)


STAGE = Stage("B", "servers: `bench` beside `vllm bench serve` at one rate", share_s=200, least_s=100, measure=measure)
