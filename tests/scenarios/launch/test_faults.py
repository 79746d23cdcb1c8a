"""Faults during a run or before it: the run ends soon, with the exit code and the cause, and without a verdict."""

import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from runs.attestation.attestation import broken_files, read_attestation
from runs.errors import ExitCode, SetupError
from runs.files.reserve import DiskReserve
from runs.record.layout import RunDir
from runs.record.manifest import read_manifest
from tests.conftest import RunMain, StartMain, run_here
from tests.support.processes.patience import until
from tests.support.runs.run_commands import (
    LONG_USER_CONF,
    SLOW_START,
    arguments,
    check_failed,
    environment_with_code,
    processes_of_group,
    progress,
)

# A server may never complete its warm-up.
NEVER_RESPONDS = ("--dummy-ttft-ms", 1e9)
PREFIX_CACHING = """
    from sut.dummy.dummy_engine import DummyEngine
    from sut.engine import EngineReport
    async def start(self):
        return EngineReport("dummy", configuration={"enable_prefix_caching": True})
    DummyEngine.start = start
    """
CACHED_TOKENS = """
    from sut.loadgen_sut import LoadgenSut
    complete = LoadgenSut.complete
    LoadgenSut.complete = lambda self, request, IDs, reason, cached: complete(self, request, IDs, reason, 16)
    """
BROKEN_LOAD = """
    from qsl.sample_library import SampleLibrary
    class Dataset:
        def __len__(self):
            raise ValueError("raised in load")
    construct = SampleLibrary.construct
    def construct_and_break(self, lg):
        handle = construct(self, lg)
        self.dataset = Dataset()
        return handle
    SampleLibrary.construct = construct_and_break
    """
SMALL_FILES = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))"
LAST_WORDS = 'print("no library", flush=True)\nimport os\nos._exit(9)'
FAILED, REFUSED = ExitCode.FAILED, ExitCode.REFUSED
# Scenario, options, code at the start of the run's process, exit code, cause. Tests of the system under test have more
# faults of the engine and of LoadGen.
FAULTS: dict[str, tuple[str, tuple[object, ...], str, ExitCode, str]] = {
    "engine refuses": ("Server", ("--dummy-fault", "start"), "", REFUSED, "asked not to start"),
    "query fails": ("Offline", ("--dummy-fault", "fail@5"), "", FAILED, "query 5 failed in the engine"),
    "engine dies": ("Server", ("--dummy-fault", "die@5"), "", FAILED, "the dummy engine died"),
    "empty answer": ("Server", ("--dummy-fault", "empty@5"), "", FAILED, "no tokens for sample"),
    "stall": ("Offline", ("--dummy-fault", "freeze@5", "--stall-timeout-s", 3), "", FAILED, "watchdog: "),
    "long warm-up": (
        "Server", (*NEVER_RESPONDS, "--engine-start-timeout-s", 5), "", REFUSED, "the warm-up was not over after 5 s",
    ),
    "silent warm-up": (
        "Server", (*NEVER_RESPONDS, "--stall-timeout-s", 0.05), "", REFUSED, "no progress on its first queries for ",
    ),
    "never ready": (
        "Server", ("--engine-start-timeout-s", 0.5), SLOW_START, REFUSED, "the engine was not ready after 0.5 s",
    ),
    "caching in vain": ("Server", (), PREFIX_CACHING, REFUSED, "prefix caching, which was not requested"),
    "caching found": ("Server", ("--accuracy",), CACHED_TOKENS, FAILED, "prompt tokens from a cache of earlier "
                                                                        "queries"),
    "callback raises": ("Offline", (), BROKEN_LOAD, FAILED, "raised in load"),
    "file cannot grow": ("Server", (), SMALL_FILES, FAILED, "File too large"),
    "exit 0": ("Offline", (), "import os\nos._exit(0)", FAILED, "ended early"),
    "abort": ("Offline", (), "import os\nos.abort()", FAILED, "killed by SIGABRT"),
    "exit 9": ("Offline", (), LAST_WORDS, FAILED, "exited with code 9 and reported no error"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_ends_the_run_with_its_exit_code_and_cause(name: str, run_main: RunMain, tmp_path: Path) -> None:
    scenario, options, in_run, code, cause = FAULTS[name]
    out = tmp_path / "run"
    environment = environment_with_code(tmp_path, in_run=in_run) if in_run else {}
    words = arguments(scenario, out, "--dummy-ttft-ms", 2, *options, conf=LONG_USER_CONF)
    check_failed(run_main(*words, environment=environment), out, code, cause)
    if "--dummy-fault" in options:
        assert RunDir(out).requests.exists() == (code == FAILED)
    if in_run == LAST_WORDS:
        assert RunDir(out).engine_log.read_text() == "no library\n"


# Full disk ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a disk that is just large enough for the start of a run."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = shutil.which("mount") and not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=70m", "tmpfs", str(folder)], capture_output=True, check=False
    ).returncode  # fmt: skip
    if not mounted:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_ends_the_run(small_disk: Path, start_main: StartMain, tmp_path: Path) -> None:
    out = small_disk / "run"
    conf = LONG_USER_CONF.replace("600000", "60000")  # the files would fit the disk
    started = start_main(*arguments("Server", out, conf=conf))
    until(lambda: progress(out).get("completed", 0) > 0, "completed queries")
    with (small_disk / "ballast").open("wb", buffering=0) as ballast:
        block = bytes(4096)
        try:
            while True:
                ballast.write(block)
        except OSError:
            pass
        finished = started.wait()
    check_failed(finished, out, ExitCode.FAILED, f"the disk of {out} is full")


# Fills the disk of the run when a process is about to use its reserve.
FILL_DISK = """
from pathlib import Path
from runs.files.reserve import DiskReserve
release = DiskReserve.release
def fill_and_release(self):
    if self._file is not None:
        with Path({ballast!r}).open("ab", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(bytes(4096))
            except OSError:
                pass
    release(self)
DiskReserve.release = fill_and_release
"""


def test_a_disk_full_at_the_end_still_holds_the_last_files(small_disk: Path, run_main: RunMain, tmp_path: Path) -> None:
    out, ballast = small_disk / "run", small_disk / "ballast"
    fill = FILL_DISK.format(ballast=str(ballast))
    finished = run_main(
        *arguments("Offline", out), environment=environment_with_code(tmp_path, in_run=fill, in_parent=fill)
    )
    assert finished.code == ExitCode.OK, finished.stderr
    assert ballast.stat().st_size > 1 << 20
    assert read_manifest(RunDir(out).manifest).status == "finished"
    assert list(broken_files(RunDir(out), read_attestation(RunDir(out)))) == []


def test_a_disk_without_space_for_the_last_files_is_refused(small_disk: Path) -> None:
    with pytest.raises(SetupError, match="cannot be reserved"):
        DiskReserve(small_disk, 1 << 30)
    assert shutil.disk_usage(small_disk).used == 0


UNWRITABLE_SEAL = """
import errno
from runs.attestation import statements
def attest(*arguments, **more):
    raise OSError(errno.ENOSPC, "No space left on device")
statements.attest = attest
"""


def test_a_complete_run_without_attestation_can_be_signed_later(run_main: RunMain, tmp_path: Path) -> None:
    out, page = tmp_path / "run", tmp_path / "page.html"
    finished = run_main(
        *arguments("Offline", out), environment=environment_with_code(tmp_path, in_parent=UNWRITABLE_SEAL)
    )
    assert finished.code == ExitCode.FAILED
    assert read_manifest(RunDir(out).manifest).status == "finished"
    sign = ("anchor", "--attest", str(out))
    assert " ".join(sign) in finished.stderr
    codes = {"status": 4, "results": 4, "verify": 3, "report": 2, "gate": 1, "signoff": 1, "store": 0, "anchor": 1}
    words = {
        "report": ("--output", page),
        "signoff": ("--scope", "harness"),
        "store": ("--db", tmp_path / "runs.db"),
        "anchor": ("--ledger", tmp_path),
    }
    for command, code in codes.items():
        path = {"signoff": ("--ref", out), "store": ("ingest", out)}.get(command, (out,))
        judged = run_here(command, *path, *words.get(command, ()))
        assert judged.code == code, (command, judged)
        assert "has no attestation" in judged.stdout + judged.stderr, command
        assert " VALID" not in judged.stdout, command
    signed = run_here(*sign)
    assert signed.code == ExitCode.OK, signed.stderr
    assert list(broken_files(RunDir(out), read_attestation(RunDir(out)))) == []
    assert [run_here(command, out).code for command in ("status", "results", "verify", "report")] == [0, 0, 0, 0]
    seal = RunDir(out).seal.read_bytes()
    assert run_here(*sign).code == ExitCode.OK
    assert RunDir(out).seal.read_bytes() == seal


# Writes a line at each start of a run's process: its ID, and a variable.
NOTE_START = """
import os, pathlib
with pathlib.Path({path!r}).open("a") as notes:
    print(os.getpid(), os.environ.get("GUESSED", "-"), file=notes)
"""
# Checks that take longer than any test.
SLOW_CHECKS = """
import time
import qsl.dataset
qsl.dataset.check_rows = lambda *arguments, **more: time.sleep(3600)
"""


def starts(notes: Path) -> list[tuple[int, str]]:
    """Return the process ID and the variable of each start."""
    lines = notes.read_text().splitlines() if notes.exists() else []
    return [(int(pid), guessed) for pid, guessed in map(str.split, lines)]


def test_a_refused_run_leaves_no_process_and_no_directory(
    run_main: RunMain, make_dataset: Callable[..., Path], tmp_path: Path
) -> None:
    out, notes = tmp_path / "run", tmp_path / "notes"
    data = make_dataset([1, 2], [3, -4])
    finished = run_main(
        *arguments("Offline", out, "--dataset-path", data),
        environment=environment_with_code(tmp_path, in_run=NOTE_START.format(path=str(notes))),
    )
    assert finished.code == ExitCode.BAD_INPUT
    assert "ID -4 at position 1" in finished.stderr
    assert not out.exists()
    assert not any(processes_of_group(pid) for pid, _ in starts(notes))


def test_a_wrongly_predicted_environment_starts_another_process(start_main: StartMain, tmp_path: Path) -> None:
    out, notes = tmp_path / "run", tmp_path / "notes"
    guess = """
    from sut.dummy.dummy_kind import DummyKind
    DummyKind.early_environment = lambda kind, asked, **more: {"GUESSED": "wrongly"}
    """
    finished = start_main(
        *arguments("Offline", out),
        environment=environment_with_code(tmp_path, in_run=NOTE_START.format(path=str(notes)), in_parent=guess),
    ).wait()
    assert finished.code == ExitCode.OK, finished.stderr
    # The first process may end before it writes its line. The last one executed the run.
    assert starts(notes)[-1] == (read_manifest(RunDir(out).manifest).pid, "-")
    assert {guessed for _, guessed in starts(notes)} <= {"wrongly", "-"}


def test_output_during_imports_is_in_the_engine_log(run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    late = """
    print("said early", flush=True)
    from sut.dummy.dummy_engine import DummyEngine
    start = DummyEngine.start
    async def start_and_say(self):
        print("said late")
        return await start(self)
    DummyEngine.start = start_and_say
    """
    finished = run_main(*arguments("Offline", out), environment=environment_with_code(tmp_path, in_run=late))
    assert finished.code == ExitCode.OK, finished.stderr
    assert RunDir(out).engine_log.read_text() == "said early\nsaid late\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupt_before_the_checks_leaves_no_directory(
    number: signal.Signals, start_main: StartMain, tmp_path: Path
) -> None:
    out, notes = tmp_path / "run", tmp_path / "notes"
    started = start_main(
        *arguments("Offline", out),
        environment=environment_with_code(tmp_path, in_run=NOTE_START.format(path=str(notes)), in_parent=SLOW_CHECKS),
    )
    ((group, _),) = until(lambda: starts(notes), "the run's process")
    assert processes_of_group(group)
    started.process.send_signal(number)
    finished = started.wait()
    if number == signal.SIGINT:
        assert finished.code == ExitCode.INTERRUPTED
        assert not psutil.pid_exists(group)
    until(lambda: not processes_of_group(group), "the end of the run's process")
    assert not out.exists()
