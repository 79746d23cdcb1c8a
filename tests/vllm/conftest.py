"""Fixtures of the tests with the real vLLM: a tiny model, its greedy responses by transformers, runs, nodes of Ray.

Each fixture starts at least one engine, which takes half a minute, so tests share them. All tests but
test_first_run.py are in `make test-engines`.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qsl.cache import CACHE_VARIABLE
from qsl.dataset import Dataset, load_dataset
from qsl.embedded.articles import bundled_dataset
from tests.support.engines.greedy import GreedyResponse, make_model_and_responses, read_responses
from tests.support.engines.ray_nodes import SharedNodes, TwoNodes
from tests.support.files.nltk_data import nltk_sentences
from tests.support.once import make_once, session_folder
from tests.vllm.vllm_runs import VllmRuns


@pytest.fixture(scope="module", autouse=True)
def own_environment(tmp_path_factory: pytest.TempPathFactory, environment: None) -> None:
    """Set a separate cache, a small key-value cache and one thread, for this process and all runs.

    In such a small model, a second thread would only wait, and use CPU time.
    """
    os.environ[CACHE_VARIABLE] = str(session_folder(tmp_path_factory) / "cache")
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = os.environ["OMP_NUM_THREADS"] = "1"


@pytest.fixture(scope="module")
def tiny_model_folder(tmp_path_factory: pytest.TempPathFactory, own_environment: None) -> Path:
    return make_once(tmp_path_factory, "tiny-llama", make_model_and_responses)


@pytest.fixture(scope="module")
def tiny_model(tiny_model_folder: Path) -> Path:
    return tiny_model_folder / "model"


@pytest.fixture(scope="module")
def dataset(tiny_model: Path) -> Dataset:
    """Return the bundled articles, tokenized for the tiny model."""
    return load_dataset(bundled_dataset(str(tiny_model)))


@pytest.fixture(scope="module")
def responses(tiny_model_folder: Path) -> list[GreedyResponse]:
    """Return the tiny model's greedy response to each row of `dataset`."""
    return read_responses(tiny_model_folder)


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], list[str]]]:
    """Return the sentence splitter of NLTK."""
    with nltk_sentences(tmp_path_factory.mktemp("nltk_data")) as split:
        yield split


@pytest.fixture(scope="module")
def nodes() -> Iterator[SharedNodes]:
    shared = SharedNodes()
    yield shared
    shared.shutdown()


@pytest.fixture
def cluster(nodes: SharedNodes) -> TwoNodes:
    """Return two nodes of Ray."""
    return nodes.running()


@pytest.fixture(scope="module")
def runs(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> VllmRuns:
    return VllmRuns(tiny_model, tmp_path_factory)
