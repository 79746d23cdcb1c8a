"""Benches of an engine of known capacity without LoadGen: order, failures, ends and files; and one with real runs."""

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import psutil
import pytest

from runs.bench.bench_record import (
    BenchRecord,
    BenchRun,
    Latency,
    Limits,
    OpenQueries,
    RateVerdict,
    read_bench_record,
)
from runs.errors import ExecutionError, ExitCode, Interrupted, SetupError
from runs.record.layout import BENCH_FILE
from runs.record.manifest import read_manifest
from runs.record.progress import Progress
from scenarios.bench.announcement import UNOFFICIAL
from scenarios.launch.run_config import RunConfig
from scenarios.launch.run_page import SWITCH
from tests.conftest import Finished, StartMain, run_here
from tests.support.processes.patience import until

CAPACITY_QPS = 40.0


class FakeRuns:
    """`execute_run` and `measure_run` of a bench: each query takes 10 ms and a share of an engine with a capacity."""

    def __init__(self) -> None:
        self.ran: list[str] = []  # names of the run directories
        self.errors: dict[str, BaseException] = {}  # name → error that ends the run, once
        self.failed_requests = 0
        self.offline_s = 60.0  # duration of the first Offline run
        self.capacity_qps = CAPACITY_QPS
        self.warm_up_qps = CAPACITY_QPS
        self.unchecked = False  # runs with too few queries for the limits
        self.refusals: dict[str, int] = {}  # name → number of the start that is refused
        self.sent: dict[str, int] = {}  # name → queries
        self.beats: list[int] = []  # heartbeats of each warm-up

    def execute(self, config: RunConfig, console: object, *, watch: Any, keeper: object) -> Any:
        assert config.output_log_dir is not None
        assert config.dataset_path is not None
        assert config.dataset_path.exists()
        config.output_log_dir.mkdir(parents=True)
        name = config.output_log_dir.name
        self.ran.append(name)
        self.sent[name] = len(orjson.loads(config.dataset_path.read_bytes()))
        if name in self.errors:
            raise self.errors.pop(name)
        if self.ran.count(name) == self.refusals.get(name):
            raise SetupError("server accepts no connection", "start the server")
        rate = self.warm_up_qps
        if name.startswith("00-warm-up"):
            self.beats.append(0)
        for second in range(200):
            done = int(rate * second)
            beat = Progress(
                "running", time.time_ns(), 1, config.scenario, "performance", issued=10**6, completed=done,
                elapsed_s=float(second), output_tokens=32 * done,
            )  # fmt: skip
            if name.startswith("00-warm-up"):
                self.beats[-1] += 1
                watch(beat)
        return SimpleNamespace(result=SimpleNamespace(reported=None))

    def measure(self, run_dir: Path, *, limits: Limits | None, percentile: str | None, **options: Any) -> BenchRun:
        options.pop("output_tokens")
        number, kind, qps = options["number"], options["kind"], options["asked_qps"]
        folder = options.pop("folder")
        offline = kind == "offline"
        verdict: RateVerdict = "maximum" if offline else "measured" if limits is None else "within"
        if qps is not None and qps > 0.95 * self.capacity_qps:
            verdict = "saturated"
        if self.unchecked and limits is not None:
            verdict = "unchecked"
        latency = Latency(mean=50, p50=50, p90=60, p95=70, p99=80 + number, max=100, bound=None if offline else 95)
        done_s, self.offline_s = (self.offline_s, 60.0) if offline else (60.0, self.offline_s)
        return BenchRun(
            **options, verdict=verdict, queries=8 if self.unchecked else 1000,
            errors=self.failed_requests, duration_s=done_s, offered_qps=qps, output_tokens_per_s=5000.0,
            done_qps=self.capacity_qps if offline else min(qps or 30.0, self.capacity_qps),
            ttft=None if offline else latency, tpot=None if offline else latency,
            open=None if offline else OpenQueries(mean=12, max=20, growth=0), within_limits=None if offline else 0.995,
            run_dir=os.path.relpath(run_dir, folder), reasons=["open queries grew"] if verdict == "saturated" else [],
        )  # fmt: skip


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> FakeRuns:
    runs = FakeRuns()
    monkeypatch.setattr("scenarios.bench.run_bench.execute_run", runs.execute)
    monkeypatch.setattr("scenarios.bench.run_bench.measure_run", runs.measure)
    return runs


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pages be written, unlike in most tests."""
    monkeypatch.delenv(SWITCH)


def bench(folder: Path, *more: object) -> Finished:
    return run_here("bench", "--engine", "dummy", "--output-dir", folder / "bench", *more)


def record(folder: Path) -> BenchRecord:
    return read_bench_record(folder / "bench" / BENCH_FILE)


LADDER = ["00-warm-up", "01-offline", "02-server-10", "03-server-20", "04-server-30", "05-server-36"]


def test_the_default_bench_measures_the_ladder_and_finds_the_best_rate(tmp_path: Path, runs: FakeRuns) -> None:
    finished = bench(tmp_path)
    assert finished.code == ExitCode.OK, finished.stderr
    assert runs.ran == [*LADDER, "06-server-38.8", "07-server-37.4", "08-server-37.4"]
    stored = record(tmp_path)
    assert (stored.status, stored.percentile) == ("complete", "p99")
    assert stored.best is not None
    assert (stored.best.low, stored.best.high, stored.best.again) == (37.4, 38.8, 8)
    assert {*stored.conditions.equal} >= {"scenario", "limits", "token_counting", "sampling.max_tokens"}
    assert stored.conditions.system["engine"] == "dummy"
    lines = finished.stdout.splitlines()
    assert sum(UNOFFICIAL in line for line in lines) == 1
    table = lines[next(i for i, line in enumerate(lines) if line.startswith("run ")) :]
    assert all(len(line) <= 100 for line in table)
    assert "best rate within limits: between 37.4 and 38.8 q/s requested (5,000 tok/s at 37.4)" in table
    assert "again: p99 TTFT 88 ms (+1 %), p99 TPOT 88 ms (+1 %), 37.4 q/s done (+0.0 %)" in table
    assert [line.split()[-1] for line in table if line.startswith(("Offline", "Server", "again 9"))] == [
        "maximum", "within", "within", "within", "within", "SATURATED", "within", "within",
    ]  # fmt: skip
    assert (tmp_path / "bench/points.csv").read_text().count("\n") == 9
    assert not [*(tmp_path / "bench/data").iterdir()]
    # The same command finds that all runs are complete.
    ran = [*runs.ran]
    again = bench(tmp_path)
    assert (again.code, runs.ran, record(tmp_path)) == (ExitCode.OK, ran, stored)
    assert "best rate within limits: between 37.4" in again.stdout


def test_an_interrupted_bench_continues_with_the_same_command(tmp_path: Path, runs: FakeRuns) -> None:
    runs.errors = {"03-server-20": Interrupted("interrupted by SIGINT")}
    finished = bench(tmp_path)
    assert finished.code == ExitCode.INTERRUPTED
    assert "to continue, start the same command again" in finished.stdout
    assert "best rate within limits: at least 10 q/s requested" in finished.stdout
    assert (record(tmp_path).status, len(record(tmp_path).runs)) == ("interrupted", 2)
    used = record(tmp_path).rows_used
    runs.ran.clear()
    assert bench(tmp_path).code == ExitCode.OK
    assert runs.ran[:3] == ["00-warm-up", "03-server-20", "04-server-30"]  # the new engine is warmed up
    assert record(tmp_path).rows_used > used
    assert (tmp_path / "bench/discarded/1/03-server-20").is_dir()


def test_a_failed_run_is_reported_and_repeated(tmp_path: Path, runs: FakeRuns) -> None:
    runs.errors = {"03-server-20": ExecutionError("the engine was killed by SIGKILL")}
    finished = bench(tmp_path)
    assert finished.code == ExitCode.FAILED
    assert f"{'Server 50%':<13} failed: the engine was killed by SIGKILL" in finished.stdout
    assert (record(tmp_path).status, record(tmp_path).runs[2].verdict) == ("complete", "failed")
    assert runs.ran[3:6] == ["03-server-20", "00-warm-up", "04-server-30"]
    runs.ran.clear()
    assert bench(tmp_path).code == ExitCode.OK
    assert runs.ran == ["00-warm-up", "09-server-20"]


def test_a_failed_offline_run_is_repeated_at_once(tmp_path: Path, runs: FakeRuns) -> None:
    runs.errors = {"01-offline": ExecutionError("the engine was killed by SIGKILL")}
    assert bench(tmp_path).code == ExitCode.FAILED
    assert runs.ran[:5] == ["00-warm-up", "01-offline", "00-warm-up", "02-offline", "03-server-10"]


def test_a_bench_ends_after_three_failed_runs(tmp_path: Path, runs: FakeRuns) -> None:
    runs.errors = {name: ExecutionError("no engine") for name in LADDER[2:]}
    finished = bench(tmp_path)
    assert finished.code == ExitCode.FAILED
    assert "3 runs failed; the last one: no engine" in finished.stderr
    assert (record(tmp_path).status, record(tmp_path).error) == ("failed", "3 runs failed; the last one: no engine")


def test_failed_requests_fail_the_bench(tmp_path: Path, runs: FakeRuns) -> None:
    runs.failed_requests = 10
    assert bench(tmp_path, "--rates", "10").code == ExitCode.OK
    runs.failed_requests = 11
    assert bench(tmp_path / "b", "--rates", "10").code == ExitCode.FAILED


def test_no_rate_within_the_limits_is_a_negative_result(tmp_path: Path, runs: FakeRuns) -> None:
    runs.capacity_qps = 1.0
    finished = bench(tmp_path, "--rates", "10,20")
    assert finished.code == ExitCode.NEGATIVE
    assert "no rate within limits: 10 q/s" in finished.stdout
    assert runs.ran == ["00-warm-up-10", "01-server-10", "02-server-20"]


def test_a_changed_command_is_refused(tmp_path: Path, runs: FakeRuns) -> None:
    assert bench(tmp_path, "--rates", "10").code == ExitCode.OK
    changed = bench(tmp_path, "--rates", "10", "--dummy-slots", 4)
    assert changed.code == ExitCode.BAD_INPUT
    assert "engine_options.slots: 0 then, 4 now" in changed.stderr
    assert bench(tmp_path, "--rates", "10", "--dummy-slots", 4, "--restart-changed").code == ExitCode.OK
    assert (tmp_path / "bench/discarded/1" / BENCH_FILE).exists()
    foreign_dir = tmp_path / "other/bench"
    foreign_dir.mkdir(parents=True)
    (foreign_dir / "a.txt").touch()
    assert bench(tmp_path / "other").code == ExitCode.REFUSED


@pytest.mark.usefixtures("pages")
def test_unchecked_limits_give_no_best_rate(tmp_path: Path, runs: FakeRuns) -> None:
    runs.unchecked = True
    finished = bench(tmp_path, "--rates", "0.8", "--duration", "10s")
    assert finished.code == ExitCode.REFUSED
    assert runs.ran == ["00-warm-up-0.8", "01-server-0.8"]  # without a best rate, no rate is repeated
    assert "no best rate: " in finished.stdout
    page = (tmp_path / "bench/report.html").read_text()
    assert "No best rate: " in page
    assert bench(tmp_path / "curve", "--rates", "0.8", "--duration", "10s", "--limits", "none").code == ExitCode.OK


@pytest.mark.parametrize(
    ("options", "ran", "warm_up"),
    [
        (("--rates", "4"), ["00-warm-up-4", "01-server-4", "02-server-4"], 240),
        (("--rates", "50%"), ["00-warm-up", "01-offline", "02-server-20", "03-server-20"], 8),
        (("--rates", "inf"), ["00-warm-up", "01-offline"], 8),
        (("--concurrency", "9"), ["00-warm-up-9", "01-concurrency-9"], 18),
    ],
)
def test_only_the_requested_loads_are_measured(
    tmp_path: Path, runs: FakeRuns, options: tuple[str, ...], ran: list[str], warm_up: int
) -> None:
    assert bench(tmp_path, *options).code == ExitCode.OK
    assert runs.ran == ran
    assert runs.sent[ran[0]] == warm_up


@pytest.mark.parametrize("options", [("--rates", "inf"), ("--rates", "5"), ("--concurrency", "4")])
def test_a_slow_warm_up_ends_at_the_duration_of_a_run(tmp_path: Path, runs: FakeRuns, options: tuple[str, ...]) -> None:
    runs.warm_up_qps = 0.13
    assert bench(tmp_path, *options, "--duration", "10s").code == ExitCode.OK
    assert runs.beats[0] == 11


@pytest.mark.usefixtures("pages")
def test_a_failed_warm_up_leaves_a_page(tmp_path: Path, runs: FakeRuns) -> None:
    runs.errors = {"00-warm-up": ExecutionError("lost the server")}
    finished = bench(tmp_path)
    assert finished.code == ExitCode.FAILED
    assert (record(tmp_path).status, record(tmp_path).error) == ("failed", "lost the server")
    assert "This bench is failed: lost the server." in (tmp_path / "bench/report.html").read_text()
    assert "report.html" in finished.stdout


@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize("options", [("--rates", "10,20"), ("--concurrency", "1,8")])
def test_a_server_that_ends_during_a_bench_fails_it_with_the_cause(
    tmp_path: Path, runs: FakeRuns, options: tuple[str, ...]
) -> None:
    """The next start is refused, because the server has ended."""
    closed = options[0] == "--concurrency"
    first, warm_up = ("01-concurrency-1", "00-warm-up-8") if closed else ("01-server-10", "00-warm-up-10")
    runs.errors = {first: ExecutionError("lost the server")}
    runs.refusals = {warm_up: 1 if closed else 2}
    finished = bench(tmp_path, *options)
    assert finished.code == ExitCode.FAILED
    assert "failed: lost the server" in finished.stderr
    assert "the next warm-up failed: server accepts no connection" in finished.stderr
    assert (record(tmp_path).status, [run.verdict for run in record(tmp_path).runs]) == ("failed", ["failed"])
    assert (tmp_path / "bench/report.html").is_file()


@pytest.mark.usefixtures("pages")
def test_a_refusal_before_the_first_run_ends_the_bench_as_refused(tmp_path: Path, runs: FakeRuns) -> None:
    runs.refusals = {"00-warm-up": 1}
    assert bench(tmp_path).code == ExitCode.REFUSED
    assert (tmp_path / "bench/report.html").is_file()


def test_a_short_offline_run_is_repeated(tmp_path: Path, runs: FakeRuns) -> None:
    runs.offline_s = 10.0
    assert bench(tmp_path, "--rates", "inf").code == ExitCode.OK
    assert runs.ran == ["00-warm-up", "01-offline", "01-offline"]
    assert len(record(tmp_path).runs) == 1


def test_each_concurrency_has_its_warm_up(tmp_path: Path, runs: FakeRuns) -> None:
    finished = bench(tmp_path, "--concurrency", "1,8")
    assert finished.code == ExitCode.OK, finished.stderr
    assert runs.ran == ["00-warm-up-1", "01-concurrency-1", "00-warm-up-8", "02-concurrency-8"]
    assert "warm-up: 40 queries/s with 8 open" in finished.stdout
    assert "\n8 open " in finished.stdout
    assert ": closed loop (latencies start when the harness sends a query), " in finished.stdout


def test_a_dry_run_starts_no_run_and_writes_no_file(tmp_path: Path, runs: FakeRuns) -> None:
    finished = bench(tmp_path, "--dry-run")
    assert finished.code == ExitCode.OK
    assert "at most 8 runs, 10 min to 14 min" in finished.stdout
    assert not runs.ran
    assert not (tmp_path / "bench").exists()


def test_a_killed_bench_of_real_runs_continues_after_its_engine_ended(tmp_path: Path, start_main: StartMain) -> None:
    folder = tmp_path / "bench"
    command = (
        "bench", "--engine", "dummy", "--dummy-slots", 4, "--dummy-ttft-ms", 20, "--input-len", 32, "--output-len", 8,
        "--duration", 3, "--rates", "20,40", "--repeats", 2, "--limits", "none", "--output-dir", folder,
    )  # fmt: skip
    killed = start_main(*command)

    def has_runs(number: int) -> bool:
        return (folder / BENCH_FILE).exists() and len(read_bench_record(folder / BENCH_FILE).runs) >= number

    until(lambda: has_runs(1), "the first run", process=killed.process)
    (log,) = folder.glob("engine.log")
    holders = [process for process in psutil.process_iter() if log in _files(process)]
    assert holders
    killed.process.send_signal(signal.SIGKILL)
    killed.wait()
    until(lambda: not any(_is_alive(holder) for holder in holders), "the end of the engine")

    resumed = start_main(*command)
    # This file appears when the engine is ready. An engine that ends between two runs is replaced without a failure.
    until(lambda: [*folder.glob("runs/03-*/requests.jsonl*")], "the third run", process=resumed.process)
    for process in psutil.process_iter():
        if log in _files(process) and process.pid != resumed.process.pid:
            process.kill()
    finished = resumed.wait()
    stored = read_bench_record(folder / BENCH_FILE)
    assert finished.code == ExitCode.FAILED, finished.stdout
    # A busy host delays the client, so a run may be unclear.
    assert [run.verdict == "failed" for run in stored.runs] == [False, False, True, False]
    assert "the engine was started 2 times" in stored.warnings
    starts = {run.number: _engine_start(folder / run.run_dir) for run in stored.runs if run.verdict != "failed"}
    assert len({*starts.values()}) == 3
    assert {path.name for path in folder.iterdir()} - {"discarded"} == {
        *("bench.json", "conf", "data", "ended.json", "engine.log", "lock", "points.csv", "runs"),
    }


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _files(process: psutil.Process) -> list[Path]:
    try:
        return [Path(open_file.path) for open_file in process.open_files()]
    except psutil.Error:
        return []


def _engine_start(run_dir: Path) -> int:
    replicas = read_manifest(run_dir / "manifest.json").plan.replicas
    assert replicas is not None
    assert replicas.kept is not None
    return replicas.kept.start_time_ns
