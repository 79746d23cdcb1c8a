"""The frozen runs of the back-test, for all tests of the sign-off."""

import pytest

from tests.support.runs.signoff_fixtures import FrozenRuns


@pytest.fixture(scope="session")
def runs(frozen: FrozenRuns) -> FrozenRuns:
    return frozen
