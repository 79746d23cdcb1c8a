"""Clients that put a load on a server: the harness, `vllm bench serve`, aiperf and guidellm, with one process each."""

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from runs.numbers.result import read_result
from runs.record.layout import RunDir

from .peer_runs import run_arguments
from .programs import VLLM


@dataclass(frozen=True)
class ClientLoad:
    """A load: requests at random times (Poisson), each with the same number of output tokens."""

    url: str
    model: str  # name of the model at the server
    rate: float  # requests/s
    requests: int
    output_tokens: int
    prompts: Path  # JSON lines with `prompt`, and the same text as `text`
    tokenizer: Path  # folder of a model


@dataclass(frozen=True)
class Speed:
    """The numbers of a run: as a client reports them, or from the server's log."""

    requests: int
    ttft_p50_ms: float
    ttft_p99_ms: float
    tpot_p50_ms: float
    tokens_per_s: float


@dataclass(frozen=True)
class LoadClient:
    """A program that puts a load on a server and reports the speed."""

    name: str
    program: str  # its name on PATH
    arguments: Callable[[ClientLoad, Path], list[str]]  # arguments of a run with its files in a folder
    read: Callable[[Path], Speed]  # reads the result in that folder
    variable: str | None = None  # environment variable with the path of the program
    environment: dict[str, str] = field(default_factory=dict)
    exit_codes: tuple[int, ...] = (0,)  # codes of a run with a result

    def find(self) -> str | None:
        """Return the path of the program; None if it is not installed."""
        return os.environ.get(self.variable or "") or shutil.which(self.program)


def _harness(load: ClientLoad, folder: Path) -> list[str]:
    options: dict[str, Any] = {"scenario": "Server", "api_server": load.url, "model_path": "bytes"}
    conf: dict[str, object] = {"min_duration": 1, "min_query_count": load.requests, "target_qps": load.rate}
    return ["main.py", *run_arguments(RunDir(folder / "run"), options, conf)]


def _read_harness(folder: Path) -> Speed:
    run = RunDir(folder / "run")
    result = read_result(run.result)
    reported = result.reported
    assert reported is not None
    assert reported.ttft_ns is not None
    assert reported.tpot_ns is not None
    with run.requests.open("rb") as log:
        requests = sum(1 for _ in log)
    return Speed(
        requests,
        reported.ttft_ns.p50 / 1e6,
        reported.ttft_ns.p99 / 1e6,
        reported.tpot_ns.p50 / 1e6,
        reported.tokens_per_second or 0.0,
    )


def _vllm(load: ClientLoad, folder: Path) -> list[str]:
    return [
        *("bench", "serve", "--backend", "openai", "--base-url", load.url, "--model", load.model),
        *("--tokenizer", str(load.tokenizer), "--dataset-name", "custom", "--dataset-path", str(load.prompts)),
        *("--custom-output-len", str(load.output_tokens), "--skip-chat-template", "--disable-shuffle", "--ignore-eos"),
        *("--num-prompts", str(load.requests), "--request-rate", str(load.rate), "--temperature", "0"),
        *("--save-result", "--result-dir", str(folder), "--result-filename", "result.json"),
    ]


def _read_vllm(folder: Path) -> Speed:
    result = orjson.loads((folder / "result.json").read_bytes())
    return Speed(
        result["completed"],
        result["median_ttft_ms"],
        result["p99_ttft_ms"],
        result["median_tpot_ms"],
        result["output_throughput"],
    )


def _aiperf(load: ClientLoad, folder: Path) -> list[str]:
    return [
        *("profile", "--model", load.model, "--url", load.url, "--endpoint-type", "completions", "--streaming"),
        *("--tokenizer", str(load.tokenizer), "--use-server-token-count", "--use-legacy-max-tokens"),
        *("--input-file", str(load.prompts), "--custom-dataset-type", "single_turn"),
        *("--osl", str(load.output_tokens), "--extra-inputs", "ignore_eos:true"),
        *("--request-rate", str(load.rate), "--arrival-pattern", "poisson", "--request-count", str(load.requests)),
        *("--workers-max", "1", "--record-processors", "1", "--no-gpu-telemetry", "--no-server-metrics"),
        *("--ui", "none", "--output-artifact-dir", str(folder)),
    ]


def _read_aiperf(folder: Path) -> Speed:
    result = orjson.loads((folder / "profile_export_aiperf.json").read_bytes())
    ttft = result["time_to_first_token"]
    return Speed(
        int(result["request_count"]["avg"]),
        ttft["p50"],
        ttft["p99"],
        result["inter_token_latency"]["p50"],  # mean time between the tokens of a request
        result["output_token_throughput"]["avg"],
    )


def _guidellm(load: ClientLoad, folder: Path) -> list[str]:
    target = f"target={load.url},model={load.model}"
    return [
        *(
            "run",
            "--backend",
            f"kind=openai_http,{target},request_format=/v1/completions,max_tokens={load.output_tokens}",
        ),
        *("--profile", f"kind=poisson,rate={load.rate}", "--constraint", f"kind=max_requests,count={load.requests}"),
        *("--tokenizer", f"kind=hf_auto,model={load.tokenizer}", "--data", f"kind=json_file,path={load.prompts}"),
        *("--output", f"kind=json,path={folder / 'result.json'}", "--disable-progress"),
    ]


def _read_guidellm(folder: Path) -> Speed:
    (benchmark,) = orjson.loads((folder / "result.json").read_bytes())["benchmarks"]
    metrics = benchmark["metrics"]
    ttft = metrics["time_to_first_token_ms"]["successful"]["percentiles"]
    return Speed(
        metrics["request_totals"]["successful"],
        ttft["p50"],
        ttft["p99"],
        metrics["inter_token_latency_ms"]["successful"]["percentiles"]["p50"],  # its `TPOT` includes the first token
        metrics["output_tokens_per_second"]["successful"]["mean"],
    )


HARNESS = LoadClient("this harness", sys.executable, _harness, _read_harness, exit_codes=(0, 1))  # 1: INVALID
CLIENTS = (
    HARNESS,
    LoadClient("vllm bench serve", VLLM, _vllm, _read_vllm),
    LoadClient("aiperf", "aiperf", _aiperf, _read_aiperf, variable="AIPERF"),
    LoadClient(
        "guidellm",
        "guidellm",
        _guidellm,
        _read_guidellm,
        variable="GUIDELLM",
        environment={"GUIDELLM__MAX_WORKER_PROCESSES": "1"},
    ),
)
