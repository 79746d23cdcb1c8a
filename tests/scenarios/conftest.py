"""Fixtures of the tests of scenarios."""

from pathlib import Path

import pytest

from tests.support.engines.model_folder import make_model


@pytest.fixture
def small_model(tmp_path: Path) -> Path:
    """Return a model folder for planning: 300 IDs, 200 positions."""
    return make_model(tmp_path / "model")
