"""Fixtures of the tests of scenarios."""

from pathlib import Path

import pytest

from tests.support.engines.model_folder import make_model


@pytest.fixture
def small_model(tmp_path: Path) -> Path:
    """A model folder as far as planning looks into it: 300 IDs, 200 positions."""
    return make_model(tmp_path / "model")
