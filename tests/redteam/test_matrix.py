"""Which check catches which cheat, measured anew and held against docs/red-team.md; and honest systems pass."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.redteam.matrix import (
    CAUGHT,
    CHECKS,
    DOCUMENT,
    KINDS,
    PASSES,
    REFUSED,
    SCENARIOS,
    STOPPED,
    WORKERS,
    documented,
    examine_all,
    judge_legs,
    run_audit,
)
from tests.support.cheats import CHEAT_KINDS

# The document says why.
UNSEEN = {
    "SingleStream": {"merge-equal", "other-model-in-bursts", "stored"},  # the first two never act there
    "Server": {"cache-on-disk", "first-forced"},
    "Offline": {"cache-late"},
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_document_has_every_cheat_and_what_may_be_said(scenario: str) -> None:
    rows = documented(scenario)
    assert tuple(rows) == KINDS[scenario]
    assert {said for row in rows.values() for said in row.values()} <= {PASSES, CAUGHT, STOPPED, REFUSED}
    assert all(tuple(row) == CHECKS for row in rows.values())
    assert set(rows[""].values()) <= {PASSES, REFUSED}
    passed = {kind for kind, row in rows.items() if kind and not {CAUGHT, STOPPED} & set(row.values())}
    assert passed == UNSEEN[scenario]


def test_the_document_describes_every_cheat() -> None:
    text = " ".join(DOCUMENT.read_text().split())
    for kind, description in CHEAT_KINDS.items():
        assert f"| `{kind}` | {description} |" in text


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_tables_are_true(scenario: str, tmp_path: Path) -> None:
    assert examine_all(scenario, tmp_path) == documented(scenario)


@pytest.mark.quick
def test_one_cheat(tmp_path: Path) -> None:
    said = run_audit("TEST06", "SingleStream", tmp_path / "legs", "pad-eos")
    assert said == documented("SingleStream")["pad-eos"]["TEST06"] == CAUGHT


# Every audit is asked so often; the repetitions are spread over the scenarios that it can run in.
repeated = pytest.mark.parametrize("repetitions", [5, pytest.param(20, marks=pytest.mark.long)])
SCENARIOS_OF = {"output_caching": ("SingleStream", "Offline"), "TEST06": SCENARIOS}


@pytest.mark.slow
@repeated
@pytest.mark.parametrize("test", SCENARIOS_OF)
def test_honest_systems_pass_each_audit(test: str, repetitions: int, tmp_path: Path) -> None:
    scenarios = [SCENARIOS_OF[test][number % len(SCENARIOS_OF[test])] for number in range(repetitions)]
    with ThreadPoolExecutor(WORKERS) as pool:
        said = pool.map(lambda work: run_audit(test, work[1], tmp_path / str(work[0])), enumerate(scenarios))
        assert list(said) == [PASSES] * repetitions


@pytest.mark.slow
@repeated
def test_honest_systems_answer_alike_in_both_modes(repetitions: int, tmp_path: Path) -> None:
    """output_consistency with legs of its own, whose lengths output_length judges too."""

    folders = [tmp_path / str(number) for number in range(repetitions)]
    scenarios = [SCENARIOS[number % len(SCENARIOS)] for number in range(repetitions)]
    with ThreadPoolExecutor(WORKERS) as pool:
        said = list(pool.map(partial(run_audit, "output_consistency"), scenarios, folders))
    for folder in folders:
        legs = folder / "output_consistency" / "audit" / "output_consistency"
        said.append(judge_legs("output_length", legs / "accuracy", legs / "performance", folder))
    assert said == [PASSES] * 2 * repetitions
