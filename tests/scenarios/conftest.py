"""Fixtures of the tests of scenarios."""

import json
from pathlib import Path

import pytest


@pytest.fixture
def small_model(tmp_path: Path) -> Path:
    """A model folder as far as planning looks into it: 300 ids, 200 positions."""
    folder = tmp_path / "model"
    folder.mkdir()
    config = {"vocab_size": 300, "max_position_embeddings": 200, "architectures": ["LlamaForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(config))
    return folder
