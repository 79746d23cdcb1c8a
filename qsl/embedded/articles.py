"""The bundled dataset: 64 articles written for this project, for trial runs. It is never official.

`data/baseline.json` has the embedded model's scores on them with greedy decoding (tools.make_baseline). Accuracy runs
of the default model and dataset are compared with these scores.
"""

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

import orjson

from qsl.cache import CACHE_VARIABLE, cache_dir
from qsl.datasets.cnn_dailymail import TEMPLATE, encode_rows
from qsl.prepared_rows import write_rows
from qsl.tokenizers import load_tokenizer, tokenizer_fingerprint
from runs.errors import SetupError
from runs.record.observed import Weights

_DATA = Path(__file__).resolve().parent / "data"
_ARTICLE_FILES = ("articles-a.jsonl", "articles-b.jsonl")  # files of the articles, in order
BASELINE_FILE = _DATA / "baseline.json"
EMBEDDED_PARAMETERS = 134_515_008


@dataclass(frozen=True)
class Article:
    """A bundled article; `highlights` is its reference summary, with a sentence per line."""

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
    command: str  # command that computed the baseline
    versions: dict[str, str]  # versions of the libraries that computed the baseline

    @property
    def scores(self) -> dict[str, float]:
        """Return the scores by their names in accuracy.txt."""
        names = ("rouge1", "rouge2", "rougeL", "rougeLsum", "gen_len", "gen_num")
        return {name: getattr(self, name) for name in names}

    def is_of(self, model_sha256: str | None, weights: Weights | None) -> bool:
        """Return whether the scores apply to a model: the embedded model, or by its headers a quantized version.

        Args:
            model_sha256: SHA-256 of its model.safetensors.
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
    """Return the SHA-256 of the concatenated files of the bundled articles."""
    return sha256(_articles_bytes()).hexdigest()


def bundled_articles() -> list[Article]:
    """Return the bundled articles in their order."""
    return [Article(**orjson.loads(line)) for line in _articles_bytes().splitlines() if line.strip()]


def bundled_dataset(model_path: str) -> Path:
    """Return the bundled articles in the MLCommons format, tokenized for a model; they are cached.

    Args:
        model_path: model folder, model ID, or "bytes" for the byte tokenizer.

    Raises:
        InputError: If the model has no usable tokenizer.
        SetupError: If the cache cannot be written.
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
                f"{path} cannot be written: {error.strerror}", f"set {CACHE_VARIABLE} to a folder that you may write to"
            ) from error
    return path


def bundled_baseline(path: Path = BASELINE_FILE) -> Baseline | None:
    """Return the stored scores; None if they are missing, or the articles have changed since."""
    if not path.exists():
        return None
    baseline = Baseline(**orjson.loads(path.read_bytes()))
    return baseline if baseline.articles_sha256 == bundled_sha256() else None
