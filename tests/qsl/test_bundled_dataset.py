"""The bundled dataset, its cache and its baseline."""

from pathlib import Path

import orjson
import pytest

from qsl.cache import cache_dir
from qsl.dataset import load_dataset
from qsl.datasets.cnn_dailymail import article_prompt
from qsl.embedded.articles import (
    BASELINE_FILE,
    bundled_articles,
    bundled_baseline,
    bundled_dataset,
    bundled_sha256,
)
from qsl.embedded.default_model import MODEL_SHA256
from qsl.tokenizers import ByteTokenizer
from runs.errors import SetupError
from tests.support.engines.small_tokenizer import make_tokenizer


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLPERF_LLAMA_VLLM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_64_bundled_articles_are_complete_and_different() -> None:
    articles = bundled_articles()
    assert len(articles) == 64
    assert len({article.id for article in articles}) == 64
    assert len({article.article for article in articles}) == 64
    for article in articles:
        assert 100 <= len(article.article.split()) <= 400, article.id
        assert 2 <= len(article.highlights.split("\n")) <= 4, article.id


def test_the_bundled_dataset_is_created_once_per_tokenizer(tmp_path: Path, cache: Path) -> None:
    path = bundled_dataset("bytes")
    assert path.parent == cache
    dataset = load_dataset(path, vocab_size=258)
    articles = bundled_articles()
    assert dataset.prompts == [ByteTokenizer().encode(article_prompt(article.article)) for article in articles]
    assert dataset.targets == [article.highlights for article in articles]
    made_ns = path.stat().st_mtime_ns
    assert bundled_dataset("bytes") == path
    assert path.stat().st_mtime_ns == made_ns
    model_dataset = bundled_dataset(str(make_tokenizer(tmp_path / "model")))
    assert model_dataset != path
    assert load_dataset(model_dataset).targets == dataset.targets


def test_an_unusable_cache_folder_is_a_setup_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MLPERF_LLAMA_VLLM_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(SetupError, match="cannot be created"):
        bundled_dataset("bytes")


def test_the_cache_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_dir() == tmp_path / "cache"
    monkeypatch.delenv("MLPERF_LLAMA_VLLM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "mlperf-llama-vllm"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_dir() == tmp_path / "home" / ".cache" / "mlperf-llama-vllm"
    assert cache_dir().is_dir()


def test_the_baseline_matches_the_bundled_articles_and_model() -> None:
    baseline = bundled_baseline()
    assert baseline is not None, "the articles have changed: run tools.make_baseline"
    assert baseline.gen_num == 64
    assert baseline.model_sha256 == MODEL_SHA256["model.safetensors"]
    assert 0 < baseline.rouge2 < baseline.rougeL <= baseline.rougeLsum <= baseline.rouge1 < 100
    assert baseline.gen_len > 64 * 50


def test_a_baseline_of_other_articles_is_ignored(tmp_path: Path) -> None:
    record = orjson.loads(BASELINE_FILE.read_bytes())
    assert record["articles_sha256"] == bundled_sha256()
    changed = tmp_path / "baseline.json"
    changed.write_bytes(orjson.dumps({**record, "articles_sha256": "0" * 64}))
    assert bundled_baseline(changed) is None
    assert bundled_baseline(tmp_path / "none.json") is None
