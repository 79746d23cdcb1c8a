"""A data set of many rows for the bench, in the MLCommons format, with lengths like the benchmark's."""

import math
import random
from pathlib import Path

import orjson

from qsl.embedded.articles import bundled_articles
from runs.files import write_atomic

LONGEST_TOKENS, SHORTEST_TOKENS = 2_540, 200
MEDIAN_TOKENS, SPREAD = 770, 0.44  # a logarithmic normal distribution
FIRST_ID = 10  # below lie special ids


def prompt_lengths(count: int, seed: int) -> list[int]:
    """Tokens of `count` prompts."""
    draw = random.Random(seed)
    return [_length(draw) for _ in range(count)]


def _length(draw: random.Random) -> int:
    tokens = round(MEDIAN_TOKENS * math.exp(draw.gauss(0.0, SPREAD)))
    return min(max(tokens, SHORTEST_TOKENS), LONGEST_TOKENS)


def write_rows(path: Path, count: int, vocab_size: int) -> Path:
    """Write `count` rows of random prompt ids; the texts beside them are as long as an article, for the file's size."""
    articles = bundled_articles()
    draw = random.Random(count)
    rows = []
    for number in range(count):
        tokens = _length(draw)
        article = articles[number % len(articles)]
        rows.append(
            {
                "input": (article.article * 4)[: 5 * tokens],
                "tok_input": draw.choices(range(FIRST_ID, vocab_size), k=tokens),
                "output": article.highlights,
            }
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, orjson.dumps(rows))
    return path
