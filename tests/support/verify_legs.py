"""Real legs of the dummy engine for everything that judges, each made once, and copies to damage."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

from runs.errors import ExitCode
from runs.record.layout import RunDir
from tests.conftest import PATIENCE_S
from tests.support import warm
from tests.support.editing import reseal
from tests.support.once import kept

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
# Offline: longer than the minimum duration. Server: so long that what a busy machine adds makes no cache of it.
TTFT_MS = {"Offline": 250, "Server": 20, "Interactive": 20}
OURS = (
    *("manifest.json", "requests.jsonl", "result.json", "accuracy.json", "progress.json"),
    *("engine.log", "user.conf", "seal.json"),
)


class DummyLegs:
    """Makes legs when they are asked for."""

    def __init__(self, conf: str = USER_CONF) -> None:
        self._conf = conf

    def __call__(self, scenario: str, mode: str = "performance") -> Path:
        """The leg's directory. Read it only."""
        name = f"{scenario}-{mode}" + ("" if self._conf == USER_CONF else f"-{crc32(self._conf.encode())}")
        return kept(name, lambda home: _make(home, scenario, mode, self._conf)) / mode

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
    if scenario in TTFT_MS and (not more if scenario != "Offline" else "--dummy-ttft-ms" not in more):
        command += ["--dummy-ttft-ms", TTFT_MS[scenario]]
    make_leg(command, home / mode, home)
    # A pair of legs may be of different days, and of different commits: they say the same of it.
    run = RunDir(home / mode)
    manifest = json.loads(run.manifest.read_bytes())
    manifest["observed"]["harness"] |= {"git_commit": "0" * 40, "git_changed": False}
    run.manifest.write_text(json.dumps(manifest, indent=2))
    reseal(run)


def make_leg(arguments: Sequence[object], out: Path, folder: Path) -> None:
    """Run `main.py ARGUMENTS…` in a folder; its leg, in `out`, has to be a good one."""
    code, stdout, stderr = warm.run([*arguments, "--output-log-dir", out], folder, PATIENCE_S)
    assert code == ExitCode.OK, stdout + stderr
