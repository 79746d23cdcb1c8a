"""Scores on the page, with their margins."""

from pathlib import Path

import pytest

from compliance.accuracy.accuracy_verdict import judge, write_reports
from compliance.accuracy.metrics import ROUGE
from compliance.report.leg_section import score_rows
from runs.benchmark import Target
from runs.record.layout import RunDir


def test_margins_are_those_over_the_least_that_is_required(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    scores = {"rouge1": 39.0, "rouge2": 15.0, "rougeL": 24.0, "rougeLsum": 36.0, "gen_len": 100, "gen_num": 4}
    targets = {"rouge1": Target(38.0, 0.99, None), "rouge2": Target(16.0, 0.99, None)}
    write_reports(run, judge(ROUGE, scores, targets, "a test"))
    found, below = score_rows(run)
    rows = {row["name"]: row for row in found}
    assert rows["rouge1"]["margin"] == pytest.approx(100 * (39 / (38 * 0.99) - 1))
    assert rows["rouge2"]["margin"] == pytest.approx(100 * (15 / (16 * 0.99) - 1))
    assert rows["rouge2"]["margin"] < 0
    assert rows["rougeL"]["margin"] is None
    assert rows["gen_len"]["value"] == 100
    assert below == ["rouge2 15 is not within its target, 15.84 at the least"]
