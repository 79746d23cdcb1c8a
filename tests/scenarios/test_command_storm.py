"""Signals at random times to complete commands: exit code 130 within the grace time, and no process or file remains."""

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.support.processes.command_storm import COMMANDS


@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.long)])
def test_each_command_ends_after_signals_at_random_times(rounds: int) -> None:
    cases = rounds * len(COMMANDS)
    command = [sys.executable, "-m", "tests.support.processes.command_storm", str(cases)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    storm = json.loads(done.stdout)
    assert storm["faults"] == []
    assert storm["cases"] == cases == sum(storm["outcomes"].values())
