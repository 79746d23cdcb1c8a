"""Runs of the dummy engine for all judges: recorded runs, runs that are created once, and copies to damage."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from compliance.judge.record import record
from compliance.judge.text import text
from compliance.results.details import ResultVerdict
from compliance.results.find_results import find_results
from compliance.results.policy import verify_result
from compliance.results.text import RESULT
from runs.errors import ExitCode
from runs.record.layout import RunDir
from tests.support.files.editing import reseal
from tests.support.once import make_and_keep
from tests.support.processes import warm
from tests.support.runs.make_recorded_runs import DUMMY, USER_CONF
from tests.support.runs.recorded import RESULTS, recorded

OURS = (
    *("manifest.json", "requests.jsonl", "result.json", "accuracy.json", "progress.json"),
    *("engine.log", "user.conf", "seal.json"),
)


class DummyRuns:
    """Runs by their scenario, followed by options if they are not recorded."""

    def __init__(self, conf: str = USER_CONF) -> None:
        self._conf = conf

    def __call__(self, scenario: str, mode: str = "performance") -> Path:
        """Return the directory of the run. Only read it."""
        if self._conf == USER_CONF and scenario in RESULTS:
            return recorded() / RESULTS[scenario] / ("performance/run_1" if mode == "performance" else mode)
        name = f"{scenario}-{mode}-{crc32(self._conf.encode())}"
        make = lambda home: _make(home, scenario, mode, self._conf)  # noqa: E731
        return make_and_keep(name, make, programs=warm.RUN_CODE) / mode

    def copy(self, target: Path, scenario: str, mode: str = "performance", *, bare: bool = False) -> RunDir:
        """Copy a run to change it; `bare` keeps only LoadGen's logs and accuracy.txt."""
        shutil.copytree(self(scenario, mode), target)
        if bare:
            for name in OURS:
                (target / name).unlink(missing_ok=True)
        return RunDir(target)


def verify_one_result(*folders: Path, **options: Any) -> ResultVerdict:
    """Return the verdict of `verify` on one result. Its text and record can always be written."""
    (result,) = find_results(list(folders))
    verdict = verify_result(result, **options)
    json.dumps(record(verdict))
    line = text(verdict, RESULT).splitlines()[3]
    assert line.startswith(("TEST PASS", "no target applies")) == (verdict.exit_code() == ExitCode.OK)
    return verdict


def _make(home: Path, scenario: str, mode: str, settings: str) -> None:
    conf = home / "user.conf"
    conf.write_text(settings)
    scenario, *more = scenario.split()  # the words after the scenario are options
    command = ["--scenario", scenario, *more, "--engine", "dummy", "--user-conf", conf]
    command += ["--accuracy"] if mode == "accuracy" else []
    if not more or (scenario == "Offline" and "--dummy-ttft-ms" not in more):
        command += DUMMY.get(scenario, "").split()
    make_run(command, home / mode, home)
    # The runs of a pair may be of different days and commits. The record hides both.
    run = RunDir(home / mode)
    manifest = json.loads(run.manifest.read_bytes())
    manifest["observed"]["harness"] |= {"git_commit": "0" * 40, "git_changed": False}
    run.manifest.write_text(json.dumps(manifest, indent=2))
    reseal(run)


def make_run(arguments: Sequence[object], out: Path, folder: Path) -> None:
    """Run `main.py ARGUMENTS…` in a folder. Its run in `out` must succeed."""
    code, stdout, stderr = warm.run([*arguments, "--output-log-dir", out], folder)
    assert code == ExitCode.OK, stdout + stderr
