"""Violent ends of a run with the real vLLM: the right exit code, no verdict, and no remaining process."""

import signal
from pathlib import Path

import psutil
import pytest

from runs.errors import ExitCode
from runs.record.layout import RunDir
from runs.record.requests_log import read_request_table
from tests.conftest import RunMain, StartedMain, StartMain
from tests.support.engines.engine_turn import engine_turn
from tests.support.processes.patience import until
from tests.support.runs.run_commands import check_failed, is_running, processes_of_group, progress, run_pid
from tests.vllm.vllm_runs import run_words

pytestmark = pytest.mark.vllm

# Minutes of work, so that each disturbance happens during the run
LONG = "*.Offline.min_duration = 600000\n*.Offline.min_query_count = 1\n*.Offline.target_qps = 10\n"
LONG_SAMPLES = 6656  # 1.1 × 600 s × 10 samples/s, in complete datasets of 64


@pytest.fixture
def running(tiny_model: Path, start_main: StartMain, tmp_path: Path) -> tuple[StartedMain, Path]:
    """Start an Offline run with some completed queries, which the manifest counts."""
    out = tmp_path / "run"
    with engine_turn:
        started = start_main(*run_words(tiny_model, out, LONG, ["--scenario", "Offline"]), anew=True)
        until(lambda: progress(out).get("samples_per_second"), "responses", process=started.process)
    assert progress(out)["expected"] == LONG_SAMPLES
    return started, out


def test_a_killed_engine_core_ends_the_run(running: tuple[StartedMain, Path]) -> None:
    started, out = running
    family = [psutil.Process(pid) for pid in processes_of_group(run_pid(out))]
    assert not any(is_running(value, "Worker") for value in family)  # the core computes
    (core,) = [value for value in family if is_running(value, "EngineCore")]
    core.kill()
    finished = started.wait()
    check_failed(finished, out, ExitCode.FAILED, "vLLM engine died")
    assert "engine.log" in finished.stderr
    assert (
        0 < len(read_request_table(RunDir(out).requests)) < LONG_SAMPLES
    )  # completed requests so far, complete lines only


def test_a_cache_larger_than_memory_is_refused_with_the_reason_of_vllm(
    tiny_model: Path, run_main: RunMain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "999999")
    with engine_turn:
        finished = run_main(*run_words(tiny_model, tmp_path / "run", LONG, ["--scenario", "Offline"]))
    check_failed(finished, tmp_path / "run", ExitCode.REFUSED, "engine.log")
    # Error of the core's process; the process of the run knows that it failed
    assert "engine.log: ValueError: " in finished.stderr
    assert "999999" in finished.stderr
    assert "fix: read engine.log in the run directory" in finished.stderr


def test_an_interrupt_ends_the_run(running: tuple[StartedMain, Path]) -> None:
    started, out = running
    started.process.send_signal(signal.SIGINT)
    check_failed(started.wait(), out, ExitCode.INTERRUPTED, "interrupted by SIGINT")
