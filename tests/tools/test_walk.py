"""The files behind a finding of a recorded run."""

from pathlib import Path

import pytest

from tests.support.runs.recorded import RESULTS, recorded
from tools.walk import code_path_of, main

COMMAND = "scenarios/commands/verify.py"


def test_files_lead_from_the_opened_log_to_the_printed_line(tmp_path: Path) -> None:
    run = recorded() / RESULTS["Offline"] / "performance" / "run_1"
    code_path = code_path_of("perf-duration", ["verify", str(run), "--output", str(tmp_path / "out")])
    stages = dict(code_path.stages)
    assert list(stages) == ["mlperf_log_detail.txt is opened", "the finding is made", "its line is made"]
    assert all(next(iter(frames)) == COMMAND for frames in stages.values())
    opened, made, printed = stages.values()
    assert list(opened)[-1] == "runs/files/reading.py"
    assert "compliance/judge/text.py" in printed
    assert "compliance/judge/text.py" not in made


def test_a_rule_without_a_finding_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["perf-duration", "verify", str(tmp_path)]) == 1
    assert "no finding of perf-duration" in capsys.readouterr().err
