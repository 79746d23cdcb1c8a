"""The stages for a GPU host, rehearsed with the dummy engine."""

import json
import os
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from runs.errors import ExecutionError
from tests.conftest import ROOT
from tools.gpu.gpu_load import GpuLoad, LoadSample
from tools.gpu.probe import run_check
from tools.gpu.stage import MAX_LINES, GpuStage, Options, Skipped
from tools.gpu.stages.event_loop import hottest


@pytest.fixture
def stage(tmp_path: Path) -> GpuStage:
    (tmp_path / "out").mkdir()
    return GpuStage("0", Options(seconds=60), tmp_path / "work", tmp_path / "out")


def test_a_failed_or_late_step_does_not_end_the_others(stage: GpuStage, tmp_path: Path) -> None:
    def fails() -> int:
        raise ExecutionError("the engine died")

    def skips() -> int:
        raise Skipped("no vLLM")

    results = [stage.step("one", 1, fails), stage.step("two", 1, skips), stage.step("three", 100, lambda: 3)]
    assert [*results, stage.step("four", 1, lambda: 4)] == [None, None, None, 4]
    lines = (tmp_path / "out" / "stage0.txt").read_text().splitlines()
    assert lines[0] == "!! one: ExecutionError: the engine died"
    assert lines[1] == "-- two: skipped: no vLLM"
    assert lines[2].startswith("-- three: skipped: ")
    assert set(json.loads((tmp_path / "out" / "stage0.json").read_text())) >= {"seconds of one", "seconds of four"}


def test_few_lines_are_printed_and_all_are_written(
    stage: GpuStage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(MAX_LINES + 5):
        stage.say(f"line {number}")
    assert len(capsys.readouterr().out.splitlines()) == MAX_LINES
    assert len((tmp_path / "out" / "stage0.txt").read_text().splitlines()) == MAX_LINES + 5


def test_a_large_archive_omits_the_request_logs(
    stage: GpuStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("requests.jsonl", "manifest.json", "llm.json"):
        (stage.folder / name).write_bytes(os.urandom(1000))

    def packed() -> set[str]:
        stage.pack()
        with tarfile.open(tmp_path / "out" / "stage0.tar.gz") as archive:
            return {Path(name).name for name in archive.getnames()}

    assert packed() == {"requests.jsonl", "manifest.json"}
    monkeypatch.setattr("tools.gpu.stage.MAX_ARCHIVE_BYTES", 1500)
    assert packed() == {"manifest.json"}


def test_the_gpu_load_is_the_mean_of_busy_seconds() -> None:
    load, now = GpuLoad(), time.monotonic()
    assert load.since(now) == "unknown"
    load.samples = [LoadSample(now + at, use, 100 * at, 1000, 50 * at, 40) for at, use in ((1, 90), (2, 0), (3, 80))]
    assert load.since(now) == "busy 2 s, 200 W, 1000 MHz, 150 MiB, 40 °C"
    assert load.since(now + 2.5) == "busy 1 s, 300 W, 1000 MHz, 150 MiB, 40 °C"
    load.samples = load.samples[1:2]
    assert load.since(now) == "idle"


def test_a_failed_check_is_reported_with_its_line() -> None:
    assert run_check(lambda: "fine") == "fine"
    assert run_check(lambda: str(1 / 0)).startswith("FAILED: ZeroDivisionError: division by zero (test_gpu_stages.py:")


def test_waiting_functions_are_not_reported_as_hot(tmp_path: Path) -> None:
    (tmp_path / "folded").write_text(
        "main;loop;select (selectors.py:1) 90\nmain;work (a.py:2) 6\nmain;loop;work (a.py:2) 2\n"
    )
    assert hottest(tmp_path / "folded") == ["100.0 %  work (a.py:2)"]


@pytest.mark.long  # about twenty runs of the dummy engine
def test_each_stage_runs_with_the_dummy_engine(tmp_path: Path) -> None:
    """A GPU host runs vLLM with the same commands, and has no time to find a renamed option."""
    text = {}
    for name in ("0", "1", "1b", "2", "3", "4"):
        done = subprocess.run(
            ["sh", "tools/gpu/measure.sh", name, "--work", str(tmp_path / "work")],
            cwd=ROOT,
            env={**os.environ, "REHEARSE": "dummy", "OUT": str(tmp_path / "out")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        text[name] = done.stdout
        assert "!!" not in done.stdout, done.stdout
        assert "Traceback" not in done.stdout + done.stderr
    for name in ("offline", "accuracy", "server", "interactive", "single"):
        assert f"   {name}: VALID" in text["0"] or f"   {name}: DONE" in text["0"] or f"   {name}: INVALID" in text["0"]
    assert "   test06: PASS" in text["0"]
    assert "   verify: exit code" in text["0"]
    assert "no vLLM" in text["1"]
    assert text["2"].count("highest VALID share") == 2
    assert "caching-off: as expected" in text["3"]
    assert "issued later than scheduled" in text["4"]
    numbers = json.loads((tmp_path / "out" / "stage1.json").read_text())
    assert numbers["run-bf16"]["result"]["verdict"] == "VALID"
