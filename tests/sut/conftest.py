from collections.abc import Iterator

import pytest

from tests.support.engines.fakes import Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.loop.close()
