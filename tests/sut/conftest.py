from collections.abc import Iterator

import pytest

from tests.support.stage import Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.loop.close()
