from collections.abc import Iterator

import pytest

from tests.support.fakes import Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.loop.close()
