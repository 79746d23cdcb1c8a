"""The frozen legs of the back-test, for all tests of the sign-off."""

from typing import Any

import pytest

from compliance.accuracy.metrics import Metric
from compliance.accuracy.scores import DecodedAnswer, begin_scoring
from tests.support.signoff_fixtures import FrozenLegs


@pytest.fixture(scope="session")
def legs(tmp_path_factory: pytest.TempPathFactory) -> FrozenLegs:
    return FrozenLegs(tmp_path_factory)


@pytest.fixture
def scorings(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The predictions of every scoring that is really done."""
    done: list[tuple[str, ...]] = []

    def counted(metric: Metric, answers: list[DecodedAnswer], *more: Any) -> Any:
        done.append(tuple(answer.text for answer in answers))
        return begin_scoring(metric, answers, *more)

    monkeypatch.setattr("compliance.evidence.scorer.begin_scoring", counted)
    return done
