"""What the page says of one leg: scores with their margins, replicas, vLLM's statistics."""

from pathlib import Path

import pytest

from compliance.accuracy.accuracy_verdict import judge, scores_record
from compliance.accuracy.metrics import ROUGE
from compliance.report.leg_section import leg_section, score_rows
from compliance.report.report_page import Page, render
from runs.benchmark import Target
from runs.record.layout import RunDir
from tests.support.recorded import recorded
from tests.support.submission_legs import edit
from tests.support.verify_legs import DummyLegs


def test_margins_are_those_over_the_least_that_is_required() -> None:
    scores = {"rouge1": 39.0, "rouge2": 15.0, "rougeL": 24.0, "rougeLsum": 36.0, "gen_len": 100, "gen_num": 4}
    targets = {"rouge1": Target(38.0, 0.99, None), "rouge2": Target(16.0, 0.99, None)}
    found, below = score_rows(scores_record(judge(ROUGE, scores, targets, "a test")))
    rows = {row["name"]: row for row in found}
    assert rows["rouge1"]["margin"] == pytest.approx(100 * (39 / (38 * 0.99) - 1))
    assert rows["rouge2"]["margin"] == pytest.approx(100 * (15 / (16 * 0.99) - 1))
    assert rows["rouge2"]["margin"] < 0
    assert rows["rougeL"]["margin"] is None
    assert rows["gen_len"]["value"] == 100
    assert below == ["rouge2 15 is not within its target, 15.84 at the least"]


def test_the_share_of_each_replica_is_told() -> None:
    rows = dict(leg_section(recorded() / "replicas", "leg1", "replicas").counts)
    shares, _, busiest = rows["output tokens of replicas"].partition("; ")
    first, second = (int(share.replace(",", "")) for share in shares.split(", "))
    number = int(second > first)
    assert busiest == f"replica {number} has {max(first, second) / (first + second) * 2:.3f} of the mean"


def test_the_time_of_queries_is_shown_where_vllm_kept_it(tmp_path: Path) -> None:
    run = DummyLegs().copy(tmp_path / "leg", "Offline")
    engines = [{"client": None, "query_times": {"queries": 10, "queued_s": 1.0, "prefill_s": 1.0, "decode_s": 2.0}}]
    for observed, shown in ([], False), (engines, True):
        edit(RunDir(tmp_path / "leg").manifest, observed={"engines": observed})
        page = render(Page("Report", "now", [leg_section(run.root, "leg1", "leg")]))
        assert ("50.0%, 200 ms a query" in page) == shown
