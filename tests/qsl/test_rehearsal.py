"""The synthetic dataset: reproducible, marked, with lengths and scores near the official ones."""

import json
import statistics
from collections.abc import Mapping
from pathlib import Path

import pytest

from compliance.accuracy.metrics import ROUGE_NAMES, score_pairs
from qsl.dataset import SYNTHETIC_MARK, load_dataset
from qsl.datasets.cnn_dailymail import Articles
from qsl.rehearsal_articles import LONGEST_PROMPT_TOKENS, SHORTEST_PROMPT_TOKENS, make_rows
from qsl.tokenizers import ByteTokenizer
from runs.benchmark import Target
from scripts.make_rehearsal_dataset import main
from tests.support.official import DATACENTER, EDGE


class OneIdAWord(ByteTokenizer):
    """A tokenizer with one ID per word, so that articles have the length of those of a model's tokenizer."""

    def encode(self, text: str) -> list[int]:
        return [len(word) for word in text.split()]


@pytest.fixture(scope="module")
def rows() -> Articles:
    return make_rows(600, OneIdAWord(), seed=0)


def test_equal_arguments_give_equal_rows(rows: Articles) -> None:
    assert make_rows(20, OneIdAWord(), seed=0).articles == rows.articles[:20]
    assert make_rows(20, OneIdAWord(), seed=1).articles != rows.articles[:20]
    assert len(set(rows.articles)) == len(rows.articles) == len(rows.highlights)


def test_each_row_is_marked_as_synthetic(rows: Articles) -> None:
    assert all(summary.endswith(f"{SYNTHETIC_MARK} {number} .") for number, summary in enumerate(rows.highlights))


def test_prompt_lengths_are_close_to_the_official_ones(rows: Articles) -> None:
    lengths = [len(article.split()) for article in rows.articles]
    assert 800 < statistics.fmean(lengths) < 900
    assert min(lengths) > SHORTEST_PROMPT_TOKENS * 0.8
    assert max(lengths) < LONGEST_PROMPT_TOKENS * 1.02


@pytest.mark.parametrize("target", [DATACENTER.targets, EDGE.targets], ids=["datacenter", "edge"])
def test_the_first_characters_of_an_article_score_as_a_model(rows: Articles, target: Mapping[str, Target]) -> None:
    """The reference model's responses have 611 characters on average. Scores above 1.1 are not credible."""
    scores = score_pairs(list(zip((article[:600] for article in rows.articles), rows.highlights, strict=True)))
    for name in ROUGE_NAMES:
        share = 100 * statistics.fmean(getattr(score.rouge, name) for score in scores) / target[name].reference
        assert 0.99 <= share <= 1.1, name


def test_the_script_writes_a_loadable_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rehearsal-small.json"
    assert main(["--model-path", "bytes", "--output", str(path), "--count", "30"]) == 0
    assert "rows: 30, synthetic" in capsys.readouterr().out
    assert len(load_dataset(path, vocab_size=ByteTokenizer.vocab_size)) == 30
    first = json.loads(path.read_bytes())[0]
    assert first["input"] in ByteTokenizer().batch_decode([first["tok_input"]])[0]


@pytest.mark.parametrize(
    ("name", "count", "words"),
    [
        ("data.json", 10, "the name must contain 'rehearsal'"),
        ("no/rehearsal.json", 10, "does not exist"),
        ("rehearsal.json", 0, "--count 0"),
    ],
)
def test_the_script_refuses_invalid_arguments(
    tmp_path: Path, name: str, count: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--model-path", "bytes", "--output", str(tmp_path / name), "--count", str(count)]) == 2
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
