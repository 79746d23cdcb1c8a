"""Each tampering of a result, sealed anew, is found by verify or refused by the sign-off of a bundle."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from compliance.evidence.accuracy import ScoreSources
from compliance.evidence.scorer import Scorer
from compliance.signoff.judge import sign_off
from tests.honest.pair import Pair
from tests.support.signoff_fixtures import FrozenLegs
from tests.support.verify_legs import DummyLegs
from tests.untrusted.tampering import TAMPERINGS, Tampering
from tests.untrusted.tamperings import VLLM


class Legs:
    """Fresh legs of the dummy engine, and frozen ones of vLLM."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._dummy, self._frozen = DummyLegs(), FrozenLegs(factory)

    def __call__(self, scenario: str, mode: str) -> Path:
        if scenario == VLLM:
            return self._frozen("vllm-off" if mode == "performance" else "vllm-off-acc")
        return self._dummy(scenario, mode)


@pytest.fixture(scope="module")
def legs(tmp_path_factory: pytest.TempPathFactory) -> Legs:
    return Legs(tmp_path_factory)


@pytest.fixture(scope="module")
def sources() -> Iterator[ScoreSources]:
    with Scorer() as scorer:
        yield ScoreSources(scorer=scorer)


def copy(legs: Legs, scenario: str, folder: Path) -> Pair:
    pair = Pair(folder)
    for mode, run in zip(("performance", "accuracy"), pair.legs, strict=True):
        shutil.copytree(legs(scenario, mode), run.root)
    return pair


@pytest.mark.parametrize("scenario", sorted({one.scenario for one in TAMPERINGS}))
def test_untouched_it_is_signed_off(legs: Legs, sources: ScoreSources, tmp_path: Path, scenario: str) -> None:
    verdict = sign_off("bundle", [copy(legs, scenario, tmp_path / "result").root], sources=sources)
    assert verdict.outcome in ("PASS", "FLAG"), verdict.headline


@pytest.mark.parametrize("tampering", TAMPERINGS, ids=lambda one: one.name)
def test_it_is_found(legs: Legs, sources: ScoreSources, tmp_path: Path, tampering: Tampering) -> None:
    pair = copy(legs, tampering.scenario, tmp_path / "result")
    tampering.apply(pair)
    verdict = sign_off("bundle", [pair.root], sources=sources)
    assert verdict.outcome == "FAIL", verdict.as_text()
    assert verdict.blocks
    wrong = [one for one in verdict.findings if one.severity == "error"]
    assert any(tampering.by in f"{one.where} {one.sentence}" for one in wrong), verdict.as_text()
