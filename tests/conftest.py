"""Shared by all tests: datasets of a few rows, and `main.py` run as a user runs it, in a process of its own."""

import asyncio
import atexit
import contextlib
import inspect
import io
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import once
from tests.support.processes import patience, warm

os.environ.setdefault("MLPERF_LLAMA_VLLM_REPORT", "0")  # a run's page takes a second to draw; its tests ask for it

ROOT = Path(__file__).resolve().parents[1]

# How long an example takes says something about the machine only.
_CHECKS = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]
settings.register_profile("any-machine", deadline=None, suppress_health_check=_CHECKS)
settings.load_profile("any-machine")


# Files that take longest, and for how many seconds of an idle core, roughly; of the others each test takes OF_A_TEST.
OF_A_TEST = 0.1
OF_A_FILE = {
    "vllm/test_first_run.py": 60, "scenarios/launch/test_endpoint_run.py": 40, "scenarios/tune/test_tune.py": 35,
    "scenarios/launch/test_replica_runs.py": 30, "scenarios/campaign/test_campaign.py": 30, "test_setup.py": 25,
    "scenarios/launch/test_faults.py": 25, "frozen/test_frozen.py": 25, "test_unusual_environments.py": 20,
    "test_bad_inputs.py": 20, "sut/replicas/test_kept_engine.py": 20, "sut/http/test_faults.py": 20,
    "scenarios/launch/test_interruptions.py": 20, "scenarios/test_llama2_70b.py": 15,
    "compliance/trees/test_submission_check.py": 20, "scenarios/commands/test_signoff_command.py": 15,
    "vllm/test_cluster.py": 220, "vllm/test_endpoint.py": 110, "vllm/test_vllm_runs.py": 100,
    "vllm/test_faults.py": 75, "vllm/test_cluster_gpus.py": 60, "vllm/test_engine.py": 60,
}  # fmt: skip


@pytest.hookimpl(trylast=True)  # after what is deselected is gone
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, so that side by side no process is left alone with one."""
    cost = Counter(item.path for item in items)
    seconds = {
        path: OF_A_FILE.get(path.relative_to(ROOT / "tests").as_posix(), OF_A_TEST * cost[path]) for path in cost
    }
    items.sort(key=lambda item: -seconds[item.path])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs on an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):  # before any process uses them
        once.remove_unusable()


def pytest_unconfigure() -> None:
    """Hide the report of Triton's library on its own objects at the end of the process, which no test can avoid."""
    if "triton" in sys.modules:
        atexit.register(lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 2))


@pytest.fixture(scope="module", autouse=True)
def shared_files() -> Iterator[None]:
    """The tests of a file fail if they changed a file that other tests read."""
    yield
    _expect_no_changes(once.find_changes())


@pytest.fixture(autouse=True)
def shared_directories(shared_files: None) -> Iterator[None]:
    """A test fails if it wrote a file into a directory that other tests read."""
    yield
    _expect_no_changes(once.find_changes(by_directory=True))


def _expect_no_changes(changes: list[str]) -> None:
    if changes:
        pytest.fail(
            f"shared files changed during this test; copy them before you change them: {changes}", pytrace=False
        )


@pytest.fixture(scope="module", autouse=True)
def environment() -> Iterator[None]:
    """What a file's tests, or a library that they import, make of the environment ends with them."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@dataclass(frozen=True)
class Finished:
    """How a process ended and what it said."""

    code: int
    stdout: str
    stderr: str


def run_here(*arguments: object) -> Finished:
    """`main.py ARGUMENTS…` within this process, for commands that start no run, or none but in virtual time."""
    import main

    stdout, stderr = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors="backslashreplace") for _ in range(2))
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        code = main.main([str(one) for one in arguments])
    outputs = []
    for stream in (stdout, stderr):
        stream.flush()
        outputs.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
    return Finished(code, *outputs)


class StartedMain:
    """A `main.py` under way.

    Args:
        anew: in a Python that is started for it, as a user's is; else in a process that has its modules already.
    """

    def __init__(
        self, arguments: tuple[object, ...], folder: Path, environment: dict[str, str], *, anew: bool = False
    ) -> None:
        self.process: subprocess.Popen[str] | warm.Process
        if not anew and warm.is_enough_for(environment):
            self.process = warm.Process(arguments, folder, environment)
            return
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "main.py"), *map(str, arguments)],
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=warm.hear_signals,
        )

    def wait(self) -> Finished:
        """Wait for the end; a process that makes no progress fails the test."""
        stdout, stderr = patience.finish(self.process)
        return Finished(self.process.wait(), stdout, stderr)


@pytest.fixture
def start_main(tmp_path: Path) -> Iterator[Callable[..., StartedMain]]:
    """Starts `main.py ARGUMENTS…` in an empty working directory; what has not ended after the test is ended."""
    started: list[StartedMain] = []
    folder = tmp_path / "working-directory"
    folder.mkdir()

    def start(*arguments: object, environment: dict[str, str] | None = None, anew: bool = False) -> StartedMain:
        started.append(StartedMain(arguments, folder, environment or {}, anew=anew))
        return started[-1]

    yield start
    for command in started:
        if command.process.poll() is None:
            command.process.kill()
            command.process.wait()


StartMain = Callable[..., StartedMain]
RunMain = Callable[..., Finished]


@pytest.fixture
def run_main(start_main: StartMain) -> RunMain:
    """Runs `main.py ARGUMENTS…` to its end."""

    def run(*arguments: object, environment: dict[str, str] | None = None) -> Finished:
        return start_main(*arguments, environment=environment).wait()

    return run


@pytest.fixture
def make_dataset(tmp_path: Path) -> Callable[..., Path]:
    """Writes a dataset in the MLCommons format: a prompt of the given IDs per row."""

    def make(*prompts: list[int], name: str = "data.json") -> Path:
        rows = [
            {"input": f"article {number}", "tok_input": ids, "output": f"summary {number}"}
            for number, ids in enumerate(prompts)
        ]
        path = tmp_path / name
        path.write_text(json.dumps(rows))
        return path

    return make
