"""The bundled dataset: 64 articles written for this project, to try the harness with. Never official.

`data/baseline.json` has the scores that plain greedy decoding of the embedded model reaches on them
(tools.make_baseline), with which an accuracy run of the default model and dataset is compared.
"""

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

import orjson

from qsl.cache import CACHE_VARIABLE, cache_dir
from qsl.cnn_dailymail.rows import TEMPLATE, encode_rows, write_rows
from qsl.tokenizers import load_tokenizer, tokenizer_fingerprint
from runs.errors import SetupError
from runs.record.observed import Weights

_DATA = Path(__file__).resolve().parent / "data"
_ARTICLE_FILES = ("articles-a.jsonl", "articles-b.jsonl")  # in this order
BASELINE_FILE = _DATA / "baseline.json"
EMBEDDED_PARAMETERS = 134_515_008


@dataclass(frozen=True)
class Article:
    """One bundled article; `highlights` is its reference summary, a sentence a line."""

    id: str
    article: str
    highlights: str


@dataclass(frozen=True)
class Baseline:
    """Scores of the embedded model over the bundled articles."""

    # rouge1, rouge2, rougeL, rougeLsum: means × 100, four decimals
    rouge1: float
    rouge2: float
    rougeL: float
    rougeLsum: float
    gen_len: int  # characters of the sentence-joined predictions
    gen_num: int  # number of articles
    # model, model_sha256: name, and hash of its model.safetensors
    model: str
    model_sha256: str
    articles_sha256: str  # hash of the articles, as `bundled_sha256` gives it
    command: str  # command that made the baseline
    versions: dict[str, str]  # versions of the libraries that made the baseline

    @property
    def scores(self) -> dict[str, float]:
        """The scores by their names in accuracy.txt."""
        names = ("rouge1", "rouge2", "rougeL", "rougeLsum", "gen_len", "gen_num")
        return {name: getattr(self, name) for name in names}

    def is_of(self, model_sha256: str | None, weights: Weights | None) -> bool:
        """Return whether these are the scores of a model: the embedded one, or by its headers that one quantized.

        Args:
            model_sha256: of its model.safetensors.
        """
        quantized = weights is not None and weights.quantized and weights.parameters == EMBEDDED_PARAMETERS
        return quantized or model_sha256 == self.model_sha256


@cache
def _articles_bytes() -> bytes:
    try:
        return b"".join((_DATA / name).read_bytes() for name in _ARTICLE_FILES)
    except OSError as error:
        raise SetupError(f"the bundled articles cannot be read: {error}", "restore the file from git") from error


def bundled_sha256() -> str:
    """Hex SHA-256 of the bundled articles' files, one after the other."""
    return sha256(_articles_bytes()).hexdigest()


def bundled_articles() -> list[Article]:
    """The bundled articles, always in the same order."""
    return [Article(**orjson.loads(line)) for line in _articles_bytes().splitlines() if line.strip()]


def bundled_dataset(model_path: str) -> Path:
    """The bundled articles in the MLCommons format, tokenized for a model; made once and kept in the cache.

    Args:
        model_path: a model folder, a model ID, or "bytes" for the byte tokenizer.

    Raises:
        InputError: the model has no usable tokenizer.
        SetupError: the cache cannot be written.
    """
    identity = "\n".join((bundled_sha256(), TEMPLATE, tokenizer_fingerprint(model_path)))
    path = cache_dir() / f"bundled-{sha256(identity.encode()).hexdigest()[:16]}.json"
    if not path.exists():
        articles = bundled_articles()
        texts = [article.article for article in articles], [article.highlights for article in articles]
        try:
            write_rows(path, encode_rows(*texts, load_tokenizer(model_path)))
        except OSError as error:
            raise SetupError(
                f"{path} cannot be written: {error.strerror}", f"set {CACHE_VARIABLE} to a folder you may write to"
            ) from error
    return path


def bundled_baseline(path: Path = BASELINE_FILE) -> Baseline | None:
    """The recorded scores, or None when there are none or the articles have changed since."""
    if not path.exists():
        return None
    baseline = Baseline(**orjson.loads(path.read_bytes()))
    return baseline if baseline.articles_sha256 == bundled_sha256() else None
