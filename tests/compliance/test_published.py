"""Verifier and strict TEST06 checks on published logs of other systems. Skipped if the logs are missing."""

import json
from pathlib import Path

import pytest

from compliance.audits.logged_tokens import judge_entries
from compliance.judge.record import record
from compliance.judge.text import text
from compliance.results.find_results import find_results
from compliance.results.policy import verify_result
from compliance.results.text import RESULT
from runs.loadgen.accuracy_log import read_accuracy_log
from tests.support.published import PUBLISHED, PUBLISHED_MARKS

RESULTS = sorted({path.parents[2] for path in PUBLISHED.rglob("results/**/performance/run_1/mlperf_log_summary.txt")})
TEST06_LOGS = sorted(
    path for path in PUBLISHED.rglob("mlperf_log_accuracy.json") if "compliance" in path.relative_to(PUBLISHED).parts
)
pytestmark = PUBLISHED_MARKS

STOP_IDS = {128001, 128008, 128009}  # Llama-3.1-8B-Instruct's generation_config.json
BOS_IDS = {128000}


def name_of(path: Path) -> str:
    return str(path.relative_to(PUBLISHED))


@pytest.mark.parametrize("path", RESULTS, ids=name_of)
def test_published_results_are_read_and_judged(path: Path) -> None:
    (result,) = find_results([path])
    verdict = verify_result(result)
    json.dumps(record(verdict))
    assert [part.details.mode for part in verdict.parts] == ["performance", "accuracy"]
    assert verdict.contradictions == []
    # The only finding: more output tokens than the benchmark generates.
    one_too_many = "RedHat" in path.parts and path.name == "Server"
    assert verdict.outcome == ("FAIL" if one_too_many else "PASS"), verdict.reasons
    assert [reason.partition(" (")[0] for reason in verdict.reasons] == (
        ["performance: output tokens: 129.00 per sample on average"] if one_too_many else []
    )
    shown = text(verdict, RESULT)
    assert "seeds of v5.1" in shown
    assert [part.details.scored_again for part in verdict.parts] == [False, False]
    for score in ("rouge1", "rouge2", "rougeL", "rougeLsum", "gen_len"):
        assert f"  {score} " in shown


def failed_checks(path: Path) -> str:
    scenario = next(part for part in path.parts if part in ("Offline", "Server", "SingleStream"))
    checks = judge_entries(
        read_accuracy_log(path),
        scenario=scenario,
        stop_ids=STOP_IDS,
        bos_ids=BOS_IDS,
        expected_count=100,
        max_tokens=128,
    )
    assert checks
    return "; ".join(str(check) for check in checks if not check.passed)


@pytest.mark.parametrize("path", TEST06_LOGS, ids=name_of)
def test_published_test06_logs_pass_the_strict_checks(path: Path) -> None:
    entries = read_accuracy_log(path)
    failed = failed_checks(path)
    if not entries:
        assert "100" in failed
        assert "GNR" in str(path)
        return
    assert len(entries) == 100
    if "RedHat" in path.parts and "Server" in path.parts:
        assert "128000" in failed
        assert "129" in failed
    else:
        assert "129" not in failed
