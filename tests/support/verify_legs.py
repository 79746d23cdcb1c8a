"""Real legs of the dummy engine for the tests of `main.py verify`, each made once a session, and copies to damage."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from zlib import crc32

import pytest

from runs.errors import ExitCode
from runs.record.layout import RunDir
from tests.conftest import PATIENCE_S, Finished
from tests.support import warm
from tests.support.once import once

# Enough queries for a VALID: Server 640 (early stopping needs 459), SingleStream 128, Offline all 64 at once.
USER_CONF = """
*.Offline.min_duration = 200
*.Offline.min_query_count = 64
*.Offline.target_qps = 50
*.Server.target_qps = 400
*.Server.min_duration = 1500
*.SingleStream.target_latency = 8
*.SingleStream.min_duration = 400
"""
TRIES = 8  # of a leg: on a busy machine one may be late, and INVALID
OURS = (
    *("manifest.json", "requests.jsonl", "result.json", "accuracy.json", "progress.json"),
    *("engine.log", "user.conf", "seal.json"),
)


class DummyLegs:
    """Makes legs when they are asked for."""

    def __init__(self, factory: pytest.TempPathFactory, conf: str = USER_CONF) -> None:
        self._factory, self._conf = factory, conf

    def __call__(self, scenario: str, mode: str = "performance") -> Path:
        """The leg's directory. Read it only."""
        name = f"{scenario}-{mode}" + ("" if self._conf == USER_CONF else f"-{crc32(self._conf.encode())}")
        return once(self._factory, name, lambda home: _make(home, scenario, mode, self._conf)) / mode

    def copy(self, target: Path, scenario: str, mode: str = "performance", *, bare: bool = False) -> RunDir:
        """A copy to change; `bare` leaves LoadGen's logs alone, and accuracy.txt."""
        shutil.copytree(self(scenario, mode), target)
        if bare:
            for name in OURS:
                (target / name).unlink(missing_ok=True)
        return RunDir(target)


def _make(home: Path, scenario: str, mode: str, settings: str) -> None:
    conf = home / "user.conf"
    conf.write_text(settings)
    scenario, *more = scenario.split()  # further options behind it
    command = ["--scenario", scenario, *more, "--engine", "dummy", "--user-conf", conf]
    command += ["--accuracy"] if mode == "accuracy" else []
    command += ["--dummy-ttft-ms", "250"] if scenario == "Offline" and "--dummy-ttft-ms" not in more else []
    make_leg(command, home / mode, home)


def make_leg(arguments: Sequence[object], out: Path, folder: Path) -> None:
    """Run `main.py ARGUMENTS…` in a folder until its leg, in `out`, is a good one."""
    words = [*arguments, "--output-log-dir", out]
    finished = in_time(lambda: Finished(*warm.run(words, folder, PATIENCE_S)), out)
    assert finished.code == ExitCode.OK, finished.stdout + finished.stderr


def in_time(run: Callable[[], Finished], out: Path) -> Finished:
    """Run a leg that is VALID unless it was late: again, as long as it is not."""
    for _ in range(TRIES):
        shutil.rmtree(out, ignore_errors=True)
        finished = run()
        if finished.code != ExitCode.NEGATIVE:
            break
    return finished
