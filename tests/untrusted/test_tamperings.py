"""Each tampering of a result, sealed anew, is found by verify or refused by the sign-off of a bundle."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from compliance.evidence.accuracy import ScoreSources
from compliance.evidence.scorer import Scorer
from compliance.signoff.judge import sign_off
from tests.honest.pair import Pair
from tests.support.verify_legs import DummyLegs
from tests.untrusted.tamperings import TAMPERINGS, Tampering


@pytest.fixture(scope="module")
def legs(tmp_path_factory: pytest.TempPathFactory) -> DummyLegs:
    return DummyLegs(tmp_path_factory)


@pytest.fixture(scope="module")
def sources() -> Iterator[ScoreSources]:
    with Scorer() as scorer:
        yield ScoreSources(scorer=scorer)


def copy(legs: DummyLegs, scenario: str, folder: Path) -> Pair:
    pair = Pair(folder)
    for mode, run in zip(("performance", "accuracy"), pair.legs, strict=True):
        shutil.copytree(legs(scenario, mode), run.root)
    return pair


@pytest.mark.parametrize("scenario", sorted({one.scenario for one in TAMPERINGS}))
def test_untouched_it_is_signed_off(legs: DummyLegs, sources: ScoreSources, tmp_path: Path, scenario: str) -> None:
    verdict = sign_off("bundle", [copy(legs, scenario, tmp_path / "result").root], sources=sources)
    assert verdict.decision in ("PASS", "FLAG"), verdict.headline


def test_there_are_enough() -> None:
    assert len(TAMPERINGS) >= 40


@pytest.mark.parametrize("tampering", TAMPERINGS, ids=lambda one: one.name)
def test_it_is_found(legs: DummyLegs, sources: ScoreSources, tmp_path: Path, tampering: Tampering) -> None:
    pair = copy(legs, tampering.scenario, tmp_path / "result")
    tampering.apply(pair)
    verdict = sign_off("bundle", [pair.root], sources=sources)
    assert verdict.decision == "FAIL", verdict.as_text()
    assert verdict.blocks
