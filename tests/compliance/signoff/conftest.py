"""The frozen legs of the back-test, for all tests of the sign-off."""

import pytest

from tests.support.signoff_fixtures import FrozenLegs


@pytest.fixture(scope="session")
def legs(frozen: FrozenLegs) -> FrozenLegs:
    return frozen
