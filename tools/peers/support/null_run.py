"""A Server run of LoadGen with an engine that responds at once.

The side "bare" is a minimal system under test in Python, which responds inside LoadGen's call with constant bytes. The
side "ours" is the harness's path, with its event loop, its request log and its statistics.
As a program: `python -m tools.peers.support.null_run FOLDER SIDE QPS DURATION_MS`.
"""

import sys
import threading
from array import array
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Literal

from runs.benchmarks import BENCHMARKS
from runs.errors import ExecutionError
from runs.loadgen.detail_log import read_detail
from runs.numbers.numbers import Numbers, reported_numbers
from runs.record.layout import RunDir
from scenarios.launch.loadgen_settings import build_log_settings, build_settings
from sut.engine import Engine, EngineLimits, EngineReport, Request
from sut.event_loop import freeze_garbage_collection, new_event_loop
from sut.feed import Feed
from sut.loadgen_sut import TOKEN_BYTES, LoadgenSut
from sut.request_writer import RequestLogWriter

from .peer_runs import engine_plan
from .programs import measure

Side = Literal["bare", "ours"]
PROMPT_IDS = [11] * 850  # mean length of the benchmark's prompts
OUTPUT_IDS = list(range(100, 100 + BENCHMARKS["llama3_1-8b"].sampling["performance"].max_tokens))
LIBRARY_SAMPLES = 1_000
MIN_QUERIES = 100


@dataclass(frozen=True)
class NullSpec:
    """The settings of a null run."""

    folder: Path
    side: Side
    target_qps: float
    min_duration_ms: int


class NullEngine(Engine):
    """An engine that responds to every request at once."""

    async def start(self) -> EngineReport:
        return EngineReport("null")

    def submit(self, request: Request) -> None:
        request.sink.first_token(request, OUTPUT_IDS[0])
        request.sink.complete(request, OUTPUT_IDS, "length", 0)

    def check_alive(self) -> None: ...

    def activity(self) -> int:
        return 0

    def generated_tokens(self) -> None: ...

    async def stop(self) -> None: ...


def null_run(spec: NullSpec) -> Numbers:
    """Run `spec` in a separate process; return LoadGen's numbers."""
    run = RunDir(spec.folder)
    run.root.mkdir(parents=True, exist_ok=True)
    measure("support.null_run", *astuple(spec), log=run.engine_log)
    detail = read_detail(run.detail)
    if detail.error_count:
        raise ExecutionError(f"LoadGen logged {detail.error_count} errors around a null engine", f"see {run.detail}")
    return reported_numbers(detail)


def _bare(lg: Any) -> Callable[[list[Any]], None]:
    """Return a callback for LoadGen that responds within the call."""
    output = array("i", OUTPUT_IDS)
    address, count = output.buffer_info()
    response, complete, first = lg.QuerySampleResponse, lg.QuerySamplesComplete, lg.FirstTokenComplete

    def issue(samples: list[Any], _output: "array[int]" = output) -> None:
        for sample in samples:
            first([response(sample.id, address, TOKEN_BYTES, 1)])
            complete([response(sample.id, address, count * TOKEN_BYTES, count)])

    return issue


def main(folder: str, side: str, qps: str, duration_ms: str) -> None:
    """Run LoadGen with its own settings for the model, except rate, duration and count."""
    import mlperf_loadgen as lg

    run = RunDir(Path(folder))
    values = {"target_qps": qps, "min_duration": duration_ms, "min_query_count": MIN_QUERIES}
    run.user_conf.write_text("".join(f"*.Server.{name} = {value}\n" for name, value in values.items()))
    plan = engine_plan(run.root, {"scenario": "Server", "engine": "dummy"})
    settings, log_settings = build_settings(lg, plan, run.user_conf), build_log_settings(lg, plan, run.root)
    failures: list[BaseException] = []
    request_log: RequestLogWriter | None = None
    issue = _bare(lg)
    if side == "ours":
        loop = new_event_loop()
        threading.Thread(target=loop.run_forever, name="engine-loop", daemon=True).start()
        request_log = RequestLogWriter(run.requests, failures.append)
        issue = LoadgenSut(
            lg,
            loop,
            NullEngine(),
            lambda _: PROMPT_IDS,
            request_log,
            report_first_token=True,
            on_failure=failures.append,
            admission=Feed(EngineLimits()),
        ).issue_queries
    freeze_garbage_collection()
    sut_handle = lg.ConstructSUT(issue, lambda: None)
    qsl_handle = lg.ConstructQSL(LIBRARY_SAMPLES, LIBRARY_SAMPLES, lambda _: None, lambda _: None)
    lg.StartTestWithLogSettings(sut_handle, qsl_handle, settings, log_settings, str(run.no_audit_config))
    if request_log is not None:
        request_log.close()
    if failures:
        raise failures[0]


if __name__ == "__main__":
    main(*sys.argv[1:])
