"""Violent ends of a leg with the real vLLM: the right exit code, no claim, and no process left behind."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runs.errors import ExitCode
from tests.support.vllm_legs import FinishedLeg, RunningLeg, leg_command, run_leg

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

END_TIMEOUT_S = GONE_TIMEOUT_S = 300.0  # 30 where nothing else runs
# Minutes of work, so that whatever happens, happens in its midst.
LONG = "*.Offline.min_duration = 600000\n*.Offline.min_query_count = 1\n*.Offline.target_qps = 10\n"
LONG_SAMPLES = 6656  # 1.1 × 600 s × 10 samples/s, in whole data sets of 64


@contextmanager
def long_leg(model: Path, folder: Path) -> Iterator[RunningLeg]:
    """An Offline leg in the midst of its queries."""
    run_dir = folder / "run"
    leg = RunningLeg(leg_command(model, run_dir, LONG, ["--scenario", "Offline"]), run_dir)
    try:
        leg.wait_until_answering()
        assert leg.progress is not None
        assert leg.progress.expected == LONG_SAMPLES
        yield leg
    finally:
        leg.end()


def assert_failed(leg: FinishedLeg, exit_code: ExitCode, status: str) -> None:
    """The leg says that it failed, everywhere, and claims nothing."""
    assert leg.exit_code == exit_code, leg
    assert leg.claims() == []
    assert "Traceback" not in leg.stdout + leg.stderr
    assert leg.manifest["status"] == status
    assert leg.manifest["exit_code"] == leg.manifest["error"]["exit_code"] == exit_code
    assert leg.manifest["end_time_ns"] > leg.manifest["start_time_ns"]
    assert leg.result["verdict"] == "ERROR"
    assert leg.result["error"] == leg.manifest["error"]
    assert leg.manifest["error"]["message"] in leg.stderr
    # What was answered until then stays on record, whole lines only.
    assert 0 < len(leg.requests) < LONG_SAMPLES


def test_a_killed_engine_core_ends_the_leg(tiny_model: Path, tmp_path: Path) -> None:
    with long_leg(tiny_model, tmp_path) as running:
        assert "Worker" not in " ".join(process.name() for process in running.processes)  # the core computes
        running.engine_core.send_signal(signal.SIGKILL)
        leg = running.finished(END_TIMEOUT_S)
        assert running.survivors(GONE_TIMEOUT_S) == []
    assert_failed(leg, ExitCode.FAILED, "failed")
    assert "vLLM engine died" in leg.stderr
    assert "engine.log" in leg.stderr


def test_a_cache_that_the_memory_does_not_hold_is_told_with_vllms_own_reason(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "999999")
    run_dir = tmp_path / "run"
    leg = run_leg(leg_command(tiny_model, run_dir, LONG, ["--scenario", "Offline"]), run_dir)
    assert leg.exit_code == ExitCode.REFUSED, leg
    assert "engine.log: ValueError: " in leg.stderr  # of the core's process; the leg's own knows that it failed
    assert "999999" in leg.stderr
    assert "fix: see engine.log" in leg.stderr
    assert "Traceback" not in leg.stdout + leg.stderr
    assert (leg.manifest["status"], leg.claims()) == ("failed", [])


def test_an_interrupt_ends_the_leg(tiny_model: Path, tmp_path: Path) -> None:
    with long_leg(tiny_model, tmp_path) as running:
        running.parent.send_signal(signal.SIGINT)
        leg = running.finished(END_TIMEOUT_S)
        assert running.survivors(GONE_TIMEOUT_S) == []
    assert_failed(leg, ExitCode.INTERRUPTED, "interrupted")
    assert "SIGINT" in leg.stderr
