"""Which check catches which cheat, measured anew and held against docs/red-team.md; and honest systems pass."""

from pathlib import Path

import pytest

from sut.dummy_cheats import CHEAT_KINDS
from tests.redteam.matrix import (
    CAUGHT,
    CHECKS,
    DOCUMENT,
    KINDS,
    PASSES,
    REFUSED,
    SCENARIOS,
    STOPPED,
    documented,
    examine_all,
    run_audit,
)

UNSEEN_IN_SERVER = {"first-forced"}  # the document says why


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_document_has_every_cheat_and_what_may_be_said(scenario: str) -> None:
    rows = documented(scenario)
    assert tuple(rows) == KINDS[scenario]
    assert {said for row in rows.values() for said in row.values()} <= {PASSES, CAUGHT, STOPPED, REFUSED}
    assert all(tuple(row) == CHECKS for row in rows.values())
    assert set(rows[""].values()) <= {PASSES, REFUSED}
    passed = {kind for kind, row in rows.items() if kind and not {CAUGHT, STOPPED} & set(row.values())}
    assert passed == (UNSEEN_IN_SERVER if scenario == "Server" else set())


def test_the_document_describes_every_cheat() -> None:
    text = " ".join(DOCUMENT.read_text().split())
    for kind, description in CHEAT_KINDS.items():
        assert f"| `{kind}` | {description} |" in text


@pytest.mark.slow
@pytest.mark.redteam
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_tables_are_true(scenario: str, tmp_path: Path) -> None:
    assert examine_all(scenario, tmp_path) == documented(scenario)


def test_one_cheat(tmp_path: Path) -> None:
    """A quick look at the same thing."""
    said = run_audit("TEST06", "SingleStream", tmp_path / "legs", "pad-eos")
    assert said == documented("SingleStream")["pad-eos"]["TEST06"] == CAUGHT


HONEST = [
    *[("SingleStream", test) for test in ("output_caching", "TEST06", "output_consistency", "output_length")],
    *[("Offline", test) for test in ("output_caching", "TEST06", "output_consistency", "output_length")],
    *[("Server", test) for test in ("TEST06", "output_consistency", "output_length")],
]


@pytest.mark.slow
@pytest.mark.redteam
@pytest.mark.parametrize("repetition", range(2))
@pytest.mark.parametrize(("scenario", "test"), HONEST)
def test_honest_systems_pass(scenario: str, test: str, repetition: int, tmp_path: Path) -> None:
    assert run_audit(test, scenario, tmp_path / "audit") == PASSES
