"""What goes wrong in a leg: it ends soon, with the right exit code, a message that names the cause, and no claim."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runs.errors import ExitCode
from runs.record.layout import RunDir
from runs.record.manifest import read_manifest
from tests.conftest import Finished, StartedMain
from tests.support.legs import (
    LONG_USER_CONF,
    SLOW_START,
    arguments,
    check_claims_nothing,
    check_failed,
    patched,
    progress,
    until,
)

RunMain = Callable[..., Finished]
StartMain = Callable[..., StartedMain]


# Faults of the engine, of which others are tested at the system under test -------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "fault", "code", "cause"),
    [
        ("Server", "start", ExitCode.REFUSED, "asked not to start"),
        ("Offline", "fail@5", ExitCode.FAILED, "query 5 failed in the engine"),
        ("Server", "die@5", ExitCode.FAILED, "the dummy engine died"),
        ("Server", "empty@5", ExitCode.FAILED, "no tokens for sample"),
        ("Offline", "freeze@5", ExitCode.FAILED, "watchdog: "),
    ],
)
def test_engine_fault(scenario: str, fault: str, code: ExitCode, cause: str, run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    stall = ("--stall-timeout-s", 3) if fault.startswith("freeze") else ()
    finished = run_main(*arguments(scenario, out, "--dummy-fault", fault, *stall, "--dummy-ttft-ms", 2))
    manifest = check_failed(finished, out, code, cause)
    assert manifest.asked["dummy_fault"] == [fault]
    assert RunDir(out).requests.exists() == (fault != "start")


@pytest.mark.slow
def test_engine_that_is_never_ready(run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    finished = run_main(
        *arguments("Server", out, "--engine-start-timeout-s", 0.5), environment=patched(tmp_path, in_leg=SLOW_START)
    )
    check_failed(finished, out, ExitCode.REFUSED, "the engine was not ready after 0.5 s")


NEVER_ANSWERS = ("--dummy-ttft-ms", 1e9)


@pytest.mark.parametrize(
    ("option", "cause"),
    [
        (("--engine-start-timeout-s", 5), "the warm-up was not over after 5 s"),
        (("--stall-timeout-s", 0.05), "given its first queries, and nothing moved for "),
    ],
)
def test_a_warm_up_that_never_ends(option: tuple[object, ...], cause: str, run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    check_failed(run_main(*arguments("Server", out, *NEVER_ANSWERS, *option)), out, ExitCode.REFUSED, cause)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "cause", "patch"),
    [
        (ExitCode.REFUSED, "prefix caching, which was not requested", """
            from sut.dummy.engine import DummyEngine
            from sut.engine import EngineReport
            async def start(self):
                return EngineReport("dummy", configuration={"enable_prefix_caching": True})
            DummyEngine.start = start
            """),
        (ExitCode.FAILED, "prompt tokens from a cache across queries", """
            from sut.loadgen_sut import LoadgenSut
            complete = LoadgenSut.complete
            LoadgenSut.complete = lambda self, request, ids, reason, cached: complete(self, request, ids, reason, 16)
            """),
    ],
    ids=["asked-in-vain", "found-out"],
)  # fmt: skip
def test_caching_that_was_not_asked_for(
    code: ExitCode, cause: str, patch: str, run_main: RunMain, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    finished = run_main(*arguments("Server", out, "--accuracy"), environment=patched(tmp_path, in_leg=patch))
    check_failed(finished, out, code, cause)


# Exceptions in LoadGen's callbacks ----------------------------------------------------------------------------------


BROKEN_LOAD = """
    from qsl.dataset import SampleLibrary
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


def test_exception_inside_a_callback(run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    finished = run_main(*arguments("Offline", out), environment=patched(tmp_path, in_leg=BROKEN_LOAD))
    check_failed(finished, out, ExitCode.FAILED, "raised in load")


# Full disk ----------------------------------------------------------------------------------------------------------


def test_a_file_cannot_grow(run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    environment = patched(
        tmp_path, in_leg="import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))"
    )
    finished = run_main(*arguments("Server", out, conf=LONG_USER_CONF), environment=environment)
    check_failed(finished, out, ExitCode.FAILED, "File too large")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, just large enough for a leg to start."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = shutil.which("mount") and not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=70m", "tmpfs", str(folder)], capture_output=True, check=False
    ).returncode  # fmt: skip
    if not mounted:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.slow
def test_full_disk(small_disk: Path, start_main: StartMain, tmp_path: Path) -> None:
    out = small_disk / "run"
    conf = LONG_USER_CONF.replace("600000", "60000")  # the disk would hold its files
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
    assert finished.code == ExitCode.FAILED
    assert "Traceback" not in finished.stderr
    assert f"error: the disk of {out} is full" in finished.stderr
    assert not RunDir(out).result.exists()
    assert read_manifest(RunDir(out).manifest).status == "running"  # no room for another word
    check_claims_nothing(finished, out)
