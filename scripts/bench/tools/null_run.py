"""One LoadGen run around an engine that answers at once: `python -m scripts.bench.tools.null_run SPEC.json`.

Two sides. "bare": the least a system under test in Python can do, answering inside LoadGen's call with the same
bytes for every sample. "ours": the harness's own path, with its event loop, its records and its statistics.
"""

import asyncio
import sys
import threading
import time
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import orjson

from runs.benchmarks import BENCHMARKS
from runs.errors import ExecutionError
from runs.loadgen.detail_log import read_detail
from runs.numbers.numbers import Numbers, reported_numbers
from runs.record.layout import RunDir
from runs.record.manifest import LegPlan
from scenarios.leg.loadgen_settings import build_log_settings, build_settings
from sut.engine import Engine, EngineReport, Request
from sut.event_loop import freeze_garbage_collection, new_event_loop
from sut.feed import Feed
from sut.loadgen_sut import TOKEN_BYTES, LoadgenSut
from sut.recorder import Recorder

from .programs import measure, tell

Side = Literal["bare", "ours"]

LOADGEN_KEY = "llama3_1-8b"
PROMPT_IDS = [11] * 850  # as long as the benchmark's prompts in the mean; nobody reads them
SAMPLING = BENCHMARKS[LOADGEN_KEY].sampling["performance"]
OUTPUT_IDS = list(range(100, 100 + SAMPLING.max_tokens))


@dataclass(frozen=True)
class NullSpec:
    """What to run."""

    outdir: str
    scenario: Literal["Server", "Offline"] = "Offline"
    side: Side = "ours"
    target_qps: float = 1.0
    min_duration_ms: int = 1
    min_query_count: int = 100
    library_samples: int = 1_000


class NullEngine(Engine):
    """Answers every request as soon as it is handed over."""

    def __init__(self, *, first_token: bool) -> None:
        self._first_token = first_token

    async def start(self) -> EngineReport:
        return EngineReport("null")

    def submit(self, request: Request) -> None:
        if self._first_token:
            request.sink.first_token(request, OUTPUT_IDS[0])
        request.sink.complete(request, OUTPUT_IDS, "length", 0)

    def check_alive(self) -> None:
        """It never dies."""

    def activity(self) -> int:
        return 0

    def generated_tokens(self) -> None:
        """Nobody asks."""

    async def stop(self) -> None:
        return None


def null_run(spec: NullSpec) -> tuple[Numbers, float]:
    """Run `spec` in a process of its own.

    Returns:
        LoadGen's numbers, and the processor time in seconds of all threads of the process.
    """
    run = RunDir(Path(spec.outdir))
    run.create()
    spec_path = run.root / "spec.json"
    spec_path.write_bytes(orjson.dumps(asdict(spec)))
    cpu_s = float(measure("tools.null_run", spec_path, log=run.engine_log))
    detail = read_detail(run.detail)
    if detail.error_count:
        raise ExecutionError(f"LoadGen logged {detail.error_count} errors around a null engine", f"see {run.detail}")
    return reported_numbers(detail), cpu_s


def _bare(lg: Any, *, first_token: bool) -> Callable[[list[Any]], None]:
    """LoadGen's callback that answers within the call."""
    output = array("i", OUTPUT_IDS)
    address, count = output.buffer_info()
    response, complete, first = lg.QuerySampleResponse, lg.QuerySamplesComplete, lg.FirstTokenComplete

    def issue(samples: list[Any], _output: "array[int]" = output) -> None:
        for sample in samples:
            if first_token:
                first([response(sample.id, address, TOKEN_BYTES, 1)])
            complete([response(sample.id, address, count * TOKEN_BYTES, count)])

    return issue


def _plan(spec: NullSpec) -> LegPlan:
    """A leg whose engine answers at once, with as many ids as the benchmark allows."""
    return LegPlan(
        scenario=spec.scenario,
        loadgen_scenario=spec.scenario,
        mode="performance",
        loadgen_key=LOADGEN_KEY,
        dataset_path="",
        dataset_sha256="0" * 64,
        sample_count=spec.library_samples,
        longest_prompt_tokens=len(PROMPT_IDS),
        audit=False,
        enable_log_trace=False,
        engine="null",
        model_path="",
        engine_options={},
        environment={},
        sampling=asdict(SAMPLING),
        warmup_prompts=0,
        engine_start_timeout_s=60,
        stall_timeout_s=20,
    )


def main() -> None:
    """Run the spec; the settings are LoadGen's own for the model, but for rate, duration and counts."""
    import mlperf_loadgen as lg

    spec = NullSpec(**orjson.loads(Path(sys.argv[1]).read_bytes()))
    run, plan = RunDir(Path(spec.outdir)), _plan(spec)
    values = {
        "target_qps": spec.target_qps,
        "min_duration": spec.min_duration_ms,
        "min_query_count": spec.min_query_count,
    }
    run.user_conf.write_text("".join(f"*.{spec.scenario}.{name} = {value}\n" for name, value in values.items()))
    settings, log_settings = build_settings(lg, plan, run.user_conf), build_log_settings(lg, plan, run.root)
    wants_first_token = spec.scenario != "Offline"
    failures: list[BaseException] = []
    recorder: Recorder | None = None
    if spec.side == "ours":
        loop = new_event_loop()
        threading.Thread(target=loop.run_forever, name="engine-loop", daemon=True).start()
        recorder = Recorder(run.requests, failures.append)
        engine = NullEngine(first_token=wants_first_token)
        limits = asyncio.run_coroutine_threadsafe(engine.start(), loop).result().limits
        sut = LoadgenSut(
            lg,
            loop,
            engine,
            lambda _: PROMPT_IDS,
            recorder,
            report_first_token=wants_first_token,
            on_failure=failures.append,
            admission=Feed(limits),
        )
        issue: Callable[[list[Any]], None] = sut.issue_queries
    else:
        issue = _bare(lg, first_token=wants_first_token)
    freeze_garbage_collection()
    count = spec.library_samples
    sut_handle = lg.ConstructSUT(issue, lambda: None)
    qsl_handle = lg.ConstructQSL(count, count, lambda _: None, lambda _: None)
    before_s = time.process_time()
    lg.StartTestWithLogSettings(sut_handle, qsl_handle, settings, log_settings, str(run.no_audit_config))
    if recorder is not None:
        recorder.close()
    if failures:
        raise failures[0]
    tell(time.process_time() - before_s)


if __name__ == "__main__":
    main()
