"""Benches of servers with planted faults, in real runs: verdict, exit code and page."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runs.bench.bench_record import BenchRecord, BenchRun, read_bench_record
from runs.errors import ExitCode
from runs.record.layout import BENCH_FILE
from scenarios.launch.run_page import SWITCH
from tests.conftest import Finished, RunMain, run_here
from tests.support.files.editing import set_at
from tests.support.servers.http_server import serving
from tests.support.servers.scripted_server import scripted_server

pytestmark = pytest.mark.long  # each bench has two or three runs, on a server in this process

PROBES = 2  # requests before each run
WARM_UP = 16  # requests of a warm-up with 8 queries/s


@dataclass
class MeasuredBench:
    finished: Finished
    record: BenchRecord
    page: str

    @property
    def run(self) -> BenchRun:
        return self.record.runs[0]


Bench = Callable[..., MeasuredBench]


@pytest.fixture
def bench(run_main: RunMain, tmp_path: Path) -> Bench:
    """Return a bench of a scripted server with runs of 2 s."""

    def measure(script: dict[str, Any], *options: object) -> MeasuredBench:
        folder = tmp_path / "bench"
        with serving(scripted_server(**script)) as server:
            finished = run_main(
                "bench", server.url, "--input-len", 16, "--output-len", 8, "--duration", 2, "--output-dir", folder,
                *options, environment={SWITCH: "1"},
            )  # fmt: skip
        page = (folder / "report.html").read_text()
        return MeasuredBench(finished, read_bench_record(folder / BENCH_FILE), page)

    return measure


def test_a_bench_of_another_server_contradicts_its_runs(bench: Bench, tmp_path: Path) -> None:
    bench({}, "--rates", "8,16")
    verified = run_here("verify", tmp_path / "bench")
    assert verified.code == ExitCode.OK, verified.stdout
    set_at(tmp_path / "bench" / BENCH_FILE, "target", "http://127.0.0.1:1/v1")
    forged = run_here("verify", tmp_path / "bench")
    assert forged.code == ExitCode.FAILED
    assert "target is http://127.0.0.1:1/v1 in bench.json" in forged.stdout


def test_a_server_that_dies_in_the_warm_up_fails_the_bench(bench: Bench) -> None:
    seen = bench({"fault": "dies", "after": PROBES + 5}, "--rates", 8)
    assert seen.finished.code == ExitCode.FAILED
    assert (seen.record.status, seen.record.runs) == ("failed", [])
    assert "This bench is failed: " in seen.page


def test_a_server_that_dies_in_a_run_is_named_as_the_cause(bench: Bench) -> None:
    seen = bench({"fault": "dies", "after": PROBES + WARM_UP + PROBES + 5}, "--rates", "8,16")
    assert seen.finished.code == ExitCode.FAILED
    assert (seen.record.status, [run.verdict for run in seen.record.runs]) == ("failed", ["failed"])
    assert seen.record.error is not None
    assert seen.record.error.startswith(f"Server 8 failed: {seen.run.reasons[0]}")
    assert seen.run.reasons[0] in seen.page


def test_a_server_that_stops_responding_fails_its_run(bench: Bench) -> None:
    script = {"fault": "never responds", "after": PROBES + WARM_UP + PROBES + 5}
    seen = bench(script, "--rates", 8, "--stall-timeout-s", 5)
    assert (seen.finished.code, seen.run.verdict) == (ExitCode.FAILED, "failed")


def test_a_server_that_never_responds_is_refused(bench: Bench) -> None:
    seen = bench({"fault": "never responds"}, "--rates", 8, "--engine-start-timeout-s", 15)
    assert seen.finished.code == ExitCode.REFUSED
    assert (seen.record.status, seen.record.runs) == ("failed", [])


def test_a_server_of_fixed_capacity_is_saturated(bench: Bench) -> None:
    """The server completes at most 20 queries/s."""
    seen = bench({"ttft_s": lambda _: 0.065, "slots": 2}, "--rates", 60, "--limits", "ttft=10000")
    assert (seen.finished.code, seen.run.verdict) == (ExitCode.NEGATIVE, "saturated")
    assert seen.record.best is not None
    assert (seen.record.best.low, seen.record.best.high) == (None, 60)


def test_a_short_overload_is_saturated_or_unclear(bench: Bench) -> None:
    """Each query takes 1.1 s alone, and 8 queries arrive in about 2 s."""
    seen = bench({"ttft_s": lambda _: 1.0, "slots": 1}, "--rates", 4, "--limits", "none")
    assert seen.run.queries == 8
    assert seen.run.verdict in ("saturated", "unclear")


def test_a_tail_above_the_limit_is_outside(bench: Bench) -> None:
    """Each fourth response is late."""
    script = {"ttft_s": lambda number: 0.8 if number % 4 == 0 else 0.05}
    seen = bench(script, "--rates", 16, "--limits", "ttft=400", "--duration", 5)
    assert (seen.finished.code, seen.run.verdict) == (ExitCode.NEGATIVE, "outside")
    assert seen.run.within_limits == pytest.approx(0.75, abs=0.1)


def test_a_server_that_slows_down_is_saturated_or_unclear(bench: Bench) -> None:
    seen = bench({"ttft_s": lambda number: 0.02 * number}, "--rates", 32, "--limits", "none")
    assert seen.run.verdict in ("saturated", "unclear")


def test_a_server_that_fails_one_request_in_fifty_fails_the_bench(bench: Bench) -> None:
    seen = bench({"fault": "sends 500"}, "--rates", 32, "--limits", "none")
    assert seen.finished.code == ExitCode.FAILED
    assert "status 500" in (seen.record.error or "")
    assert "status 500" in seen.page


def test_a_server_that_does_not_stream_has_no_tpot(bench: Bench) -> None:
    few = bench({"fault": "sends all at the end"}, "--rates", 4, "--limits", "none")
    assert (few.run.queries, few.run.tpot) == (8, None)
    assert any(reason.startswith("TPOT: ") for reason in few.run.reasons)


def test_many_responses_without_a_stream_fail_the_bench(bench: Bench) -> None:
    many = bench({"fault": "sends all at the end"}, "--rates", 32, "--limits", "tpot=50")
    assert many.finished.code == ExitCode.FAILED
    assert many.record.error is not None
    assert "TPOT is 0" in many.record.error


def test_a_server_without_faults_meets_the_limits(bench: Bench) -> None:
    """A busy host may delay the client."""
    seen = bench({"ttft_s": lambda _: 0.3}, "--rates", 8, "--queries", 64, "--limits", "ttft=5000,tpot=1000,e2el=9000")
    assert seen.run.verdict in ("within", "unclear")
    assert (seen.run.within_limits, seen.run.errors) == (1.0, 0)
