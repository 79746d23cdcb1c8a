"""The frozen cases of the sign-off: every verdict and every true reason, and labels that nobody changed."""

import hashlib
from collections import Counter

import pytest

from compliance.finding import fail, warn
from compliance.signoff.signoff_verdict import SignOff
from tests.signoff.backtest import CASES, CaseOutcome, Score, read_cases, run_cases
from tests.signoff.forge.faults import FAULTS
from tests.signoff.make_runs import LEGS as MADE

# Cases and labels are never changed. Cases may be added: then this is the digest over the old ones and the new ones.
FROZEN = "8e38d3aa3e65b4c1e2cc9260a29a1ce6da0bda8416700d72299dd612afdf0bf3"


def test_the_cases_are_frozen() -> None:
    assert hashlib.sha256(CASES.read_bytes()).hexdigest() == FROZEN


def test_there_are_enough_cases_of_each_kind_and_every_fault_is_used() -> None:
    cases = read_cases()
    honest = [case for case in cases if case.name.startswith("honest")]
    assert len(honest) >= 20
    assert len(cases) - len(honest) >= 40
    assert all(case.verdict != "FAIL" for case in honest)
    assert Counter(case.scope for case in cases).keys() == {"baseline", "profile", "harness", "patch", "bundle"}
    assert {fault for case in cases for faults in case.faults.values() for fault, *_ in faults} == FAULTS.keys()
    used = {source for case in cases for _, source in case.legs()}
    assert used <= MADE.keys() | {"vllm-off", "vllm-off-acc"}


@pytest.mark.slow
def test_every_case_gets_its_verdict_and_its_true_reason() -> None:
    score = Score(list(run_cases()))
    assert [f"{one.case.name}: {one.verdict.headline}" for one in score.wrong] == []
    told = [one.case.name for one in score.outcomes if one.case.anchor and one.by_rules]
    assert told == [], "these need no anchor"
    assert (score.false_fail, score.precision, score.recall(anchored=True)) == (0, 1.0, 1.0)
    # Without an anchor: those whose files were edited, with care, after the run.
    assert (score.false_pass, round(score.recall(anchored=False), 3)) == (36, 0.756)


@pytest.mark.quick
@pytest.mark.parametrize("only", ["honest-patch", "regenerate", "swap-requests", "flag-"])
def test_some_of_the_cases(only: str) -> None:
    outcomes = list(run_cases([case for case in read_cases() if only in case.name]))
    assert outcomes
    assert [one.case.name for one in outcomes if not one.right] == []


def test_the_score_counts_what_it_says() -> None:
    case = read_cases()[0]

    def outcome(label: str, *said: str, anchored: bool = True) -> CaseOutcome:
        found = [{"FAIL": fail, "FLAG": warn}[word]("P-4/impossible_times", "text") for word in said]
        labelled = case.model_copy(update={"verdict": label, "reason": None, "anchor": not anchored})
        return CaseOutcome(labelled, SignOff("harness", 0.5, "open", findings=found), anchored)

    outcomes = [outcome("PASS"), outcome("PASS", "FAIL"), outcome("FAIL"), outcome("FAIL", "FAIL"), outcome("FLAG")]
    score = Score([*outcomes, outcome("FAIL", anchored=False)])
    assert (score.false_pass, score.false_fail, score.precision) == (3, 1, 0.5)
    assert (score.recall(anchored=False), score.recall(anchored=True)) == (1 / 3, 2 / 3)
    assert len(score.wrong) == 3
