"""Fixture: the frozen runs of the back-test."""

import pytest

from tests.support.runs.signoff_fixtures import FrozenRuns


@pytest.fixture(scope="session")
def runs(frozen: FrozenRuns) -> FrozenRuns:
    return frozen
