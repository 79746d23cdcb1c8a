"""The frozen cases of the sign-off: each verdict and its true reason, and unchanged labels."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator

import pytest

from compliance.signoff.signoff_verdict import headline
from tests.signoff.backtest import CASES, BacktestCase, read_cases, run_cases, score
from tests.signoff.forge.faults import FAULTS
from tests.signoff.make_runs import RUNS as MADE

# The digest of the cases. After adding cases, it is the digest of all cases. Change a label only with the documented
# rule that it follows from, for example PASS to FLAG if other processes used the cores on both sides.
FROZEN = "21fb1c4ada2e9ca1ef9c6f535fdf9294ff7a48cab8c74aafbbdd0f320c006262"


def test_the_file_of_cases_is_unchanged() -> None:
    assert hashlib.sha256(CASES.read_bytes()).hexdigest() == FROZEN


def test_each_kind_of_case_and_each_fault_is_covered() -> None:
    cases = read_cases()
    honest = [case for case in cases if case.name.startswith("honest")]
    assert len(honest) >= 20
    assert len(cases) - len(honest) >= 40
    assert all(case.verdict != "FAIL" for case in honest)
    assert Counter(case.scope for case in cases).keys() == {"baseline", "profile", "harness", "patch", "bundle"}
    assert {fault for case in cases for faults in case.faults.values() for fault, *_ in faults} == FAULTS.keys()
    used = {source for case in cases for _, source in case.runs()}
    assert used <= MADE.keys() | {"vllm-off", "vllm-off-acc"}


def select_each_kind(cases: Iterable[BacktestCase]) -> Iterator[BacktestCase]:
    """Yield each case with a new fault of a file, or with a new pair of verdict and reason in its scope."""
    covered: set[tuple[str | None, ...]] = set()
    for case in cases:
        faults = [(fault, *map(str, arguments[:1])) for faults in case.faults.values() for fault, *arguments in faults]
        kinds: set[tuple[str | None, ...]] = {fault[:1] if "." not in fault[-1] else fault for fault in faults}
        kinds |= set() if case.anchor else {(case.scope, case.verdict, case.reason)}
        if not kinds <= covered:
            covered |= kinds
            yield case


def test_a_selection_of_cases_has_the_expected_verdicts_and_reasons() -> None:
    outcomes = list(run_cases(select_each_kind(read_cases())))
    assert [f"{outcome.case.name}: {headline(outcome.verdict)}" for outcome in outcomes if not outcome.right] == []


@pytest.mark.long
def test_all_cases_have_the_expected_verdicts_and_reasons() -> None:
    outcomes = list(run_cases())
    assert [f"{outcome.case.name}: {headline(outcome.verdict)}" for outcome in outcomes if not outcome.right] == []
    reported = [outcome.case.name for outcome in outcomes if outcome.case.anchor and outcome.by_rules]
    assert reported == [], "these need no anchor"
    rates = {name: round(value, 3) for name, value in score(outcomes).items()}
    # Cases with anchor: their files were edited carefully after the run.
    assert rates == {
        "false PASS": 19, "false FAIL": 0, "precision": 1.0, "recall": 0.808, "recall with an anchor": 1.0
    }  # fmt: skip
