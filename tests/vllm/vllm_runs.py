"""Runs with the real vLLM as a user starts them. Runs that multiple files read are started once per session."""

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from qsl.dataset import Dataset
from runs.benchmark import Scenario
from runs.errors import ExitCode
from runs.harness import HARNESS_ROOT
from runs.record.layout import RunDir
from runs.record.requests_log import RequestTable, read_request_table
from tests.support.engines.engine_turn import engine_turn
from tests.support.engines.greedy import TIE, GreedyResponse
from tests.support.official import SAMPLING
from tests.support.once import make_once
from tests.support.processes.patience import finish


@dataclass(frozen=True)
class FinishedVllmRun:
    """A run of a user that ended, with any outcome."""

    dir: RunDir
    exit_code: int
    stdout: str
    stderr: str

    def __str__(self) -> str:
        log = self.dir.engine_log
        tail = log.read_text(errors="replace")[-3000:] if log.exists() else ""
        return f"exit code {self.exit_code}\n{self.stdout}\n{self.stderr}\n--- engine.log\n{tail}"

    @cached_property
    def manifest(self) -> dict[str, Any]:
        content: dict[str, Any] = orjson.loads(self.dir.manifest.read_bytes())
        return content

    @cached_property
    def result(self) -> dict[str, Any]:
        content: dict[str, Any] = orjson.loads(self.dir.result.read_bytes())
        return content

    @cached_property
    def requests(self) -> RequestTable:
        return read_request_table(self.dir.requests)


def run_words(model: Path, run_dir: Path, conf: str, arguments: list[str]) -> list[str]:
    """Return the words after `main.py` for a run, with a user.conf beside the run directory."""
    conf_path = run_dir.with_suffix(".conf")
    conf_path.write_text(conf)
    places = ["--model-path", str(model), "--user-conf", str(conf_path), "--output-log-dir", str(run_dir)]
    return [*arguments, "--vllm", *places]


def run_command(model: Path, run_dir: Path, conf: str, arguments: list[str]) -> list[str]:
    return [sys.executable, str(HARNESS_ROOT / "main.py"), *run_words(model, run_dir, conf, arguments)]


def execute_run(command: list[str], run_dir: Path) -> FinishedVllmRun:
    """Run to the end."""
    pipe = subprocess.PIPE
    with (
        engine_turn,
        subprocess.Popen(
            command, cwd=run_dir.parent, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
        ) as process,
    ):
        try:
            stdout, stderr = finish(process, "the end of the run")
        finally:
            process.terminate()  # the run ends its processes
    return FinishedVllmRun(RunDir(run_dir), process.returncode, stdout, stderr)


def check_responses(run: FinishedVllmRun, dataset: Dataset, responses: list[GreedyResponse], samples: int) -> None:
    """Check that each sample was issued equally often, and that each response is that of greedy decoding.

    The comparison uses hashes, because performance runs keep no IDs. Responses with a tie are left to the accuracy
    runs.
    """
    requests = run.requests
    issued, indices = len(requests), requests.sample_index.tolist()
    assert issued == run.result["counts"]["samples"] == run.result["counts"]["samples_expected"]
    assert set(indices) == set(range(samples))
    assert issued % samples == 0, "each sample equally often"
    assert requests.seq.tolist() == list(range(issued))
    assert requests.prompt_tokens.tolist() == [len(dataset.prompts[index]) for index in indices]
    assert requests.output_tokens.max() == SAMPLING.max_tokens
    assert 2 <= requests.output_tokens.min() < SAMPLING.max_tokens, "no response ended at a stop ID"
    at_limit = (requests.output_tokens == SAMPLING.max_tokens).tolist()
    assert all(reason == "stop" or full for reason, full in zip(requests.finish_reason, at_limit, strict=True))
    clear = {index for index, response in enumerate(responses) if min(response.margins) >= TIE}
    compared = 0
    for index, digest in zip(indices, requests.output_sha256, strict=True):
        if index in clear:
            compared += 1
            assert digest == sha256(np.array(responses[index].ids, "<i4").tobytes()).hexdigest(), f"sample {index}"
    assert compared >= issued / 2


@dataclass(frozen=True)
class VllmRunSpec:
    """A run: its scenario and mode, its user.conf, and its other options."""

    scenario: Scenario
    accuracy: bool
    conf: str
    samples: int = 64
    arguments: tuple[str, ...] = ()


OFFLINE = "*.Offline.min_duration = 1000\n*.Offline.min_query_count = 1\n*.Offline.target_qps = 100\n"
# Early stopping accepts at least 459 queries. INTERACTIVE has fewer, so it must be INVALID.
SERVER = "*.Server.min_duration = 1000\n*.Server.target_qps = 40\n*.Server.min_query_count = 459\n"
INTERACTIVE = "*.Server.min_duration = 1000\n*.Server.target_qps = 20\n"
SINGLE_STREAM = "*.SingleStream.min_duration = 100\n*.SingleStream.target_latency = 1000\n"
SINGLE_STREAM += "*.SingleStream.min_query_count = 1\n"
STATISTICS = ("--engine-arg", "disable_log_stats=false")
CACHING = ("--engine-arg", "enable_prefix_caching=true", *STATISTICS)


def read_shipped_conf(name: str) -> tuple[str, str]:
    """Return a configuration that comes with the harness."""
    return "--config", str(HARNESS_ROOT / "configs" / f"run-{name}.yaml")


RUNS = {
    "offline": VllmRunSpec("Offline", False, OFFLINE, arguments=read_shipped_conf("baseline")),
    "offline-accuracy": VllmRunSpec("Offline", True, OFFLINE),
    "server": VllmRunSpec("Server", False, SERVER),
    "server-accuracy": VllmRunSpec("Server", True, SERVER),
    "single-stream": VllmRunSpec("SingleStream", False, SINGLE_STREAM, arguments=STATISTICS),
    "single-stream-accuracy": VllmRunSpec("SingleStream", True, SINGLE_STREAM, 16, ("--total-sample-count", "16")),
    "interactive-with-caching": VllmRunSpec("Interactive", False, INTERACTIVE, arguments=CACHING),
    "interactive-accuracy": VllmRunSpec("Interactive", True, SERVER),
}
PERFORMANCE = [name for name, spec in RUNS.items() if not spec.accuracy]
ACCURACY = [name for name, spec in RUNS.items() if spec.accuracy]
WITHOUT_CACHING = [name for name, spec in RUNS.items() if spec.arguments != CACHING]
# Scenario and mode are combined in the dummy's runs. Other tests cover vLLM's part of the omitted pairs: LoadGen's
# Server
# in accuracy mode in tests/vllm/test_llama2_70b.py, limits and the engine of SingleStream in the performance runs.
LONG = ("server-accuracy", "interactive-accuracy", "single-stream-accuracy")
STREAMS = "streams.json"  # beside a run


def for_each_run(names: Iterable[str]) -> pytest.MarkDecorator:
    marked = [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in names]
    return pytest.mark.parametrize("name", marked)


class VllmRuns:
    """Runs that start at the first access. Only read them."""

    def __init__(self, model: Path, factory: pytest.TempPathFactory) -> None:
        self._model, self._factory = model, factory

    def __getitem__(self, name: str) -> FinishedVllmRun:
        folder = make_once(self._factory, f"vllm-{name}", lambda folder: self._run(name, folder))
        streams = json.loads((folder / STREAMS).read_text())
        run = FinishedVllmRun(RunDir(folder / name), **streams)
        assert run.exit_code in (ExitCode.OK, ExitCode.NEGATIVE), f"{name}: {run}"
        return run

    def _run(self, name: str, folder: Path) -> None:
        spec, run_dir = RUNS[name], folder / name
        mode = ["--accuracy"] if spec.accuracy else []
        arguments = ["--scenario", spec.scenario, *mode, *spec.arguments]
        run = execute_run(run_command(self._model, run_dir, spec.conf, arguments), run_dir)
        streams = {"exit_code": run.exit_code, "stdout": run.stdout, "stderr": run.stderr}
        (folder / STREAMS).write_text(json.dumps(streams))
