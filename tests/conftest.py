"""Fixtures and hooks of all tests: small datasets, and `main.py` in a process of its own."""

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

# A run takes a second to draw its page. The tests of the page enable it.
os.environ.setdefault("MLPERF_LLAMA_VLLM_REPORT", "0")

ROOT = Path(__file__).resolve().parents[1]

# The duration of an example depends on the host.
_CHECKS = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]
settings.register_profile("any-machine", deadline=None, suppress_health_check=_CHECKS)
settings.load_profile("any-machine")


# Files that take longest, with their seconds on an idle core. Each test of another file counts OF_A_TEST.
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


@pytest.hookimpl(trylast=True)  # after deselection
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run long files first, so that no process remains alone with one."""
    cost = Counter(item.path for item in items)
    seconds = {
        path: OF_A_FILE.get(path.relative_to(ROOT / "tests").as_posix(), OF_A_TEST * cost[path]) for path in cost
    }
    items.sort(key=lambda item: -seconds[item.path])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine on an event loop of its own."""
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
    """Fail the tests of a file that changed a file which other tests read."""
    yield
    _expect_no_changes(once.find_changes())


@pytest.fixture(autouse=True)
def shared_directories(shared_files: None) -> Iterator[None]:
    """Fail a test that wrote a file into a directory which other tests read."""
    yield
    _expect_no_changes(once.find_changes(by_directory=True))


def _expect_no_changes(changes: list[str]) -> None:
    if changes:
        pytest.fail(
            f"shared files changed during this test; copy them before you change them: {changes}", pytrace=False
        )


@pytest.fixture(scope="module", autouse=True)
def environment() -> Iterator[None]:
    """Restore the environment after the tests of a file, because tests and imported libraries change it."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@dataclass(frozen=True)
class Finished:
    """The exit code and the output of a process."""

    code: int
    stdout: str
    stderr: str


def run_here(*arguments: object) -> Finished:
    """Run `main.py ARGUMENTS…` in this process, for commands without runs or with runs in virtual time."""
    import main

    stdout, stderr = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors="backslashreplace") for _ in range(2))
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        code = main.main([str(argument) for argument in arguments])
    outputs = []
    for stream in (stdout, stderr):
        stream.flush()
        outputs.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
    return Finished(code, *outputs)


class StartedMain:
    """A started `main.py`.

    Args:
        anew: Start a Python, as a user does. Otherwise the process has already imported its modules.
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
        """Wait for the end. Fail the test if the process makes no progress."""
        stdout, stderr = patience.finish(self.process)
        return Finished(self.process.wait(), stdout, stderr)


@pytest.fixture
def start_main(tmp_path: Path) -> Iterator[Callable[..., StartedMain]]:
    """Return a function that starts `main.py ARGUMENTS…` in an empty working directory.

    The processes end with the test.
    """
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
    """Return a function that runs `main.py ARGUMENTS…` to its end."""

    def run(*arguments: object, environment: dict[str, str] | None = None) -> Finished:
        return start_main(*arguments, environment=environment).wait()

    return run


@pytest.fixture
def make_dataset(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a dataset in the MLCommons format with one prompt per row."""

    def make(*prompts: list[int], name: str = "data.json") -> Path:
        rows = [
            {"input": f"article {number}", "tok_input": ids, "output": f"summary {number}"}
            for number, ids in enumerate(prompts)
        ]
        path = tmp_path / name
        path.write_text(json.dumps(rows))
        return path

    return make
