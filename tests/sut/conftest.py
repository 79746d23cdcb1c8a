from collections.abc import Iterator

import pytest

from tests.support.engines.fakes import FakeStage


@pytest.fixture
def stage() -> Iterator[FakeStage]:
    stage = FakeStage()
    yield stage
    stage.loop.close()
