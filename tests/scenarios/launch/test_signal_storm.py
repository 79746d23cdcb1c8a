"""Signals at random times: the command ends within the grace time, without process, folder or open record.

`python -m tests.support.processes.signal_storm 20000` sends more.
"""

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.support.processes.signal_storm import GRACE_S


@pytest.mark.parametrize("cases", [100, pytest.param(5_000, marks=pytest.mark.long)])
def test_a_supervisor_ends_after_signals_at_random_times(cases: int) -> None:
    command = [sys.executable, "-m", "tests.support.processes.signal_storm", str(cases)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    storm = json.loads(done.stdout)
    assert storm["faults"] == []
    assert storm["cases"] == cases == sum(storm["outcomes"].values())
    assert storm["longest_s"] < GRACE_S
