"""The checks that catch each cheat, compared with docs/red-team.md.

`make test` runs the audits in virtual time. `make test-long` runs all checks with the real LoadGen, and honest systems
many times.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle, islice
from pathlib import Path

import pytest

from qsl.tokenizers import BOS_ID, EOS_ID
from runs.benchmark import Scenario
from sut.engine import Request
from tests.redteam import virtual_audits
from tests.redteam.matrix import (
    CAUGHT,
    CHECKS,
    DOCUMENT,
    KINDS,
    NO_VERDICT,
    PASSES,
    REFUSED,
    SCENARIOS,
    STOPPED,
    WORKERS,
    documented,
    examine_all,
    judge_runs,
    run_audit,
)
from tests.redteam.virtual_audits import AUDITS
from tests.support.engines.cheats import CHEAT_KINDS, HONEST_QUERIES, STORE, CheatContext, Service, make_cheat
from tests.support.engines.fakes import FakeSink

# The document states the reason.
UNSEEN = {
    "SingleStream": {"merge-equal", "other-model-in-bursts", "stored"},  # the first two never act there
    "Server": {"cache-on-disk", "cache-part", "first-forced"},
    "Offline": {"cache-late"},
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_document_lists_each_cheat_with_valid_outcomes(scenario: str) -> None:
    rows = documented(scenario)
    assert tuple(rows) == KINDS[scenario]
    assert {outcome for row in rows.values() for outcome in row.values()} <= {
        PASSES,
        CAUGHT,
        STOPPED,
        REFUSED,
        NO_VERDICT,
    }
    assert all(tuple(row) == CHECKS for row in rows.values())
    assert set(rows[""].values()) <= {PASSES, REFUSED}
    passed = {kind for kind, row in rows.items() if kind and not {CAUGHT, STOPPED} & set(row.values())}
    assert passed == UNSEEN[scenario]


@pytest.mark.parametrize("kind", CHEAT_KINDS)
def test_each_cheat_is_described_and_changes_the_service(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cheats include those that no check detects."""
    assert f"| `{kind}` | {CHEAT_KINDS[kind]} |" in " ".join(DOCUMENT.read_text().split())
    monkeypatch.setenv(STORE, str(tmp_path / "store"))
    cheat = make_cheat(
        kind, CheatContext(True, BOS_ID, EOS_ID, ord(" "), 128, references=[[7], [8]], now_s=lambda: 0.0)
    )
    honest, served = Service(list(range(10, 40)), 50, 29), []
    for seq in range(HONEST_QUERIES + 3):
        served.append(Service(list(honest.response), honest.prefill_tokens, honest.decode_tokens))
        cheat(Request(FakeSink(), [seq % 2, *range(49)], seq=seq, sample_index=seq % 2), served[-1])
    assert (served == [honest] * len(served)) is (kind == "overcount")  # a cheat that only the SUT detects


# Audits, by the replayed schedule -------------------------------------------------------------------------------------

# With `overcount` the engine is honest, and LoadGen's logs show the cheat.
REPLAYED = [(scenario, kind) for scenario in SCENARIOS for kind in KINDS[scenario] if kind != "overcount"]


@pytest.mark.parametrize(("scenario", "kind"), REPLAYED)
def test_audits_in_virtual_time_equal_the_document(
    scenario: Scenario, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = {}
    for audit in AUDITS:
        (tmp_path / audit).mkdir()
        monkeypatch.setenv(STORE, str(tmp_path / audit / "store"))
        outcomes[audit] = virtual_audits.run_audit(audit, kind, scenario, tmp_path / audit)
    row = documented(scenario)[kind]
    assert outcomes == {audit: row[audit] for audit in AUDITS}


# With the real LoadGen ------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_checks_with_the_real_loadgen_equal_the_document(scenario: str, tmp_path: Path) -> None:
    assert examine_all(scenario, tmp_path) == documented(scenario)


REPETITIONS = 20  # repetitions of each audit, distributed over its scenarios
SCENARIOS_OF = {
    "output_caching": ("SingleStream", "Offline"), "TEST06": SCENARIOS, "output_consistency": SCENARIOS
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("test", SCENARIOS_OF)
def test_honest_systems_pass_each_audit_repeatedly(test: str, tmp_path: Path) -> None:
    """output_length judges the runs of output_consistency."""
    folders = [tmp_path / str(number) for number in range(REPETITIONS)]
    scenarios = islice(cycle(SCENARIOS_OF[test]), REPETITIONS)
    with ThreadPoolExecutor(WORKERS) as pool:
        outcomes = list(pool.map(partial(run_audit, test), scenarios, folders))
    for folder in folders if test == "output_consistency" else ():
        runs = folder / test / "audit" / test
        outcomes.append(judge_runs("output_length", runs / "accuracy", runs / "performance", folder))
    assert set(outcomes) == {PASSES}
