"""An engine for multiple runs: started and warmed up once, restarted after its end, and never left behind."""

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

from runs.errors import ExecutionError, Interrupted, SetupError
from runs.record.fingerprint import AUDITED, fingerprint
from runs.record.layout import RunDir
from runs.record.manifest import Manifest, read_manifest
from runs.record.progress import Progress
from runs.record.requests_log import read_request_table
from scenarios.launch.parent import KEPT_REASON, execute_run
from scenarios.launch.run_config import make_config
from sut.replicas.kept_engine import MAX_RESTARTS, EngineKeeper
from tests.conftest import ROOT
from tests.support.processes.patience import until
from tests.support.runs.dummy_runs import DummyRuns, verify_one_result
from tests.support.runs.run_commands import LONG_USER_CONF, USER_CONF, digests, is_running

Run = Callable[..., RunDir]


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[EngineKeeper]:
    with EngineKeeper(tmp_path / "engine.log") as kept:
        yield kept


@pytest.fixture
def run(keeper: EngineKeeper, tmp_path: Path) -> Run:
    """Return a function that starts runs on the kept engine."""

    def start(name: str, scenario: str, *, conf: str = USER_CONF, watch: Any = lambda _: None, **more: Any) -> RunDir:
        user_conf = tmp_path / f"{name}.conf"
        user_conf.write_text(conf)
        values = {"scenario": scenario, "engine": "dummy", "user_conf": user_conf, "output_log_dir": tmp_path / name}
        execute_run(make_config({**values, **more}), Console(file=io.StringIO()), watch=watch, keeper=keeper)
        return RunDir(tmp_path / name)

    return start


def manifest(run_dir: RunDir) -> Manifest:
    return read_manifest(run_dir.manifest)


def number_on_engine(run_manifest: Manifest) -> int:
    assert run_manifest.plan.replicas is not None
    assert run_manifest.plan.replicas.kept is not None
    return run_manifest.plan.replicas.kept.run


def test_one_engine_serves_all_scenarios(run: Run, tmp_path: Path) -> None:
    slow = {"dummy_ttft_ms": 250.0}
    made = [run(f"{number}-{name}", name, **slow) for number, name in enumerate(("Offline", "SingleStream", "Offline"))]
    manifests = [manifest(value) for value in made]
    assert len({manifest.replicas[0].pid for manifest in manifests}) == 1
    assert list(map(number_on_engine, manifests)) == [1, 2, 3]
    assert [manifest.engine.warm_up.prompts for manifest in manifests if manifest.engine.warm_up] == [4, 0, 0]
    assert all(KEPT_REASON in manifest.unofficial_reasons and not manifest.official for manifest in manifests)
    assert digests(made[0].root) == digests(made[2].root)
    for finished_run in made:
        assert verify_one_result(finished_run.root).outcome == "PASS"


def test_a_run_counts_only_its_own_tokens(run: Run) -> None:
    counts: list[int] = []
    slow = {"dummy_ttft_ms": 500.0, "dummy_slots": 8}  # multiple heartbeats see a part of the responses
    run("first", "Offline", **slow)
    second = run("second", "Offline", watch=lambda progress: counts.append(progress.output_tokens), **slow)
    assert 0 < max(counts) <= read_request_table(second.requests).output_tokens.sum()


def test_a_kept_engine_has_the_facts_of_a_new_one(run: Run) -> None:
    alone, kept = RunDir(DummyRuns()("Offline")), run("kept", "Offline")
    facts = [AUDITED.of(fingerprint(manifest(value))) for value in (alone, kept)]
    assert [(fact["replicas"], fact["engine"]) for fact in facts] == [(None, "dummy")] * 2


def test_requests_of_a_stopped_run_do_not_reach_the_next_run(run: Run) -> None:
    class StoppedError(Interrupted):
        pass

    def stop(progress: Progress) -> None:
        if progress.phase == "running" and progress.issued:
            raise StoppedError("enough")

    slow = {"dummy_ttft_ms": 2_000.0, "dummy_slots": 1}  # two minutes for all samples
    with pytest.raises(StoppedError):
        run("stopped", "Offline", watch=stop, **slow)
    conf = LONG_USER_CONF + "*.Offline.min_query_count = 1\n*.Offline.sample_concatenate_permutation = 0\n"
    second = run("next", "Offline", conf=conf + "*.Offline.target_qps = 0.001\n", **slow)
    assert number_on_engine(manifest(second)) == 2
    table = read_request_table(second.requests)
    assert (table.complete_ns - table.issue_ns).max() < 60e9  # after no request of the first run


def test_a_dead_engine_is_restarted_a_limited_number_of_times(run: Run, keeper: EngineKeeper) -> None:
    def kill(progress: Progress) -> None:
        if progress.phase == "running":
            for process in keeper._processes:
                os.kill(process.pid, signal.SIGKILL)

    for number in range(MAX_RESTARTS + 1):
        with pytest.raises(ExecutionError, match="kept engine"):
            run(f"killed-{number}", "Server", conf=LONG_USER_CONF, watch=kill)
    assert keeper.starts == MAX_RESTARTS + 1
    with pytest.raises(ExecutionError, match=f"the engine ended {MAX_RESTARTS + 1} times"):
        run("refused", "Offline")


def test_changed_options_start_another_engine(run: Run, keeper: EngineKeeper) -> None:
    first = manifest(run("first", "Offline"))
    second = manifest(run("second", "Offline", dummy_ttft_ms=3.0))
    assert first.replicas[0].pid != second.replicas[0].pid
    assert second.engine.configuration["ttft_ms"] == 3.0
    assert keeper.starts == 1  # starts of this engine


def test_an_engine_that_does_not_start_is_refused(run: Run) -> None:
    with pytest.raises(SetupError, match="was asked not to start"):
        run("failed", "Offline", dummy_fault=["start"])


_OWNER = """
import sys, time
from pathlib import Path
from runs.record.manifest import read_manifest
from sut.replicas.kept_engine import EngineKeeper
with EngineKeeper(Path(sys.argv[2])) as keeper:
    keeper.take(read_manifest(Path(sys.argv[1])).plan)
    print(*(process.pid for process in keeper._processes), flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_engine_ends_with_its_owner(number: signal.Signals, tmp_path: Path) -> None:
    output = tmp_path / "output"
    command = [sys.executable, "-c", _OWNER, DummyRuns()("Offline") / "manifest.json", tmp_path / "engine.log"]
    with output.open("wb") as file:
        owner = psutil.Popen(command, stdout=file, cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)})
    until(lambda: output.read_text().strip(), "the engine's process")
    engine = psutil.Process(int(output.read_text()))
    owner.send_signal(number)
    owner.wait()
    until(lambda: not is_running(engine), "the end of the engine")
    until(lambda: not list(tmp_path.glob("engine-*")), "the end of its folder")
