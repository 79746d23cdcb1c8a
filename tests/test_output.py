"""What is behind the standard output does not decide what becomes of a run."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runs.record.layout import RunDir
from runs.record.manifest import read_manifest
from tests.conftest import PATIENCE_S, ROOT
from tests.support.legs import LONG_USER_CONF, arguments, progress, until
from tests.support.warm import hear_signals

MAIN = [sys.executable, str(ROOT / "main.py")]


def started(out: Path, stdout: int, environment: dict[str, str] | None = None) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*MAIN, *map(str, arguments("Offline", out))],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )


def test_a_leg_outlives_its_reader(tmp_path: Path) -> None:
    leg = started(tmp_path / "leg", subprocess.PIPE)
    assert leg.stdout is not None
    assert leg.stderr is not None
    leg.stdout.close()
    errors = leg.stderr.read()
    assert (leg.wait(PATIENCE_S), errors) == (0, "")
    assert read_manifest(RunDir(tmp_path / "leg").manifest).status == "finished"


def test_a_full_disk_behind_the_output_does_not_lose_the_leg(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        leg = started(tmp_path / "leg", full.fileno())
        assert leg.stderr is not None
        errors = leg.stderr.read()
    assert leg.wait(PATIENCE_S) == 4
    assert "the standard output cannot be written: No space left on device" in errors
    assert read_manifest(RunDir(tmp_path / "leg").manifest).status == "finished"


@pytest.mark.parametrize("ignored", [True, False])
def test_nohup_is_respected(ignored: bool, tmp_path: Path) -> None:
    out = tmp_path / "leg"
    conf = LONG_USER_CONF if not ignored else None
    words = arguments("Server", out, **({"conf": conf} if conf else {}))
    leg = subprocess.Popen(
        [*(["nohup"] if ignored else []), *MAIN, *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=hear_signals,
    )
    until(lambda: progress(out).get("phase") in ("engine", "warm-up", "running"), "the leg")
    leg.send_signal(signal.SIGHUP)
    assert leg.wait(PATIENCE_S) == (0 if ignored else 130)
