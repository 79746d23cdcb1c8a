"""Inputs of tools.peers and the tests: small random Llama models with tokenizers, texts, datasets."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from qsl.embedded.articles import bundled_articles
from runs.files.writing import write_atomic

VOCAB_SIZE = 1024
MAX_POSITIONS = 4096
BEGIN, END = "<|begin|>", "<|end|>"
PREDICTION_WORDS = 95
INVENTED_SHARE = 0.03  # share of the words of a text that are names unique to the text, as in news
# Lengths of rows, like the benchmark's: parameters of a log-normal distribution.
LONGEST_TOKENS, SHORTEST_TOKENS = 2_540, 200
MEDIAN_TOKENS, SPREAD = 770, 0.44
FIRST_ID = 10  # IDs below are special IDs


@dataclass(frozen=True)
class Shape:
    """Size of a Llama model."""

    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    key_value_heads: int
    head_dim: int


# T is so small that the overhead around the model dominates. C is large enough that the CPU's arithmetic dominates.
TINY = Shape(
    "T", hidden=96, intermediate=256, layers=2, heads=3, key_value_heads=1, head_dim=32
)  # 0.4 million parameters
COMPUTE = Shape("C", hidden=320, intermediate=896, layers=8, heads=5, key_value_heads=1, head_dim=64)  # 9.5 M
SHAPES = {shape.name: shape for shape in (TINY, COMPUTE)}


def make_llama(folder: Path, shape: Shape, texts: Sequence[str] | None = None) -> Path:
    """Write a random Llama model, reproducible for a shape, and a byte-level BPE tokenizer.

    Args:
        folder: folder for the model; an existing model is not changed.
        texts: training texts of the tokenizer; None = the bundled articles.
    """
    if (folder / "model.safetensors").exists():
        return folder
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[BEGIN, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts or [article.article for article in bundled_articles()], trainer)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BEGIN, eos_token=END, clean_up_tokenization_spaces=False
    ).save_pretrained(folder)
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_value_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=MAX_POSITIONS,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=False,
    )
    LlamaForCausalLM(config).float().save_pretrained(folder, safe_serialization=True)
    return folder


def make_texts(count: int) -> tuple[list[str], list[str]]:
    """Return predictions of about 128 tokens and reference summaries, each pair from one article.

    Invented names replace some words, so that the number of different words is similar to the real dataset.
    """
    articles = bundled_articles()
    draw = random.Random(13_368)
    predictions, references = [], []
    for number in range(count):
        article = articles[number % len(articles)]
        words = article.article.split()
        start = draw.randrange(max(1, len(words) - PREDICTION_WORDS))
        predictions.append(" ".join(_with_names(words[start : start + PREDICTION_WORDS], draw)))
        lines = article.highlights.split("\n")
        references.append("\n".join(" ".join(_with_names(line.split(), draw)) for line in lines))
    return predictions, references


def _with_names(words: Sequence[str], draw: random.Random) -> list[str]:
    return [_name(draw) if draw.random() < INVENTED_SHARE else word for word in words]


def _name(draw: random.Random) -> str:
    syllables = [draw.choice("bcdfghklmnprstvz") + draw.choice("aeiou") for _ in range(draw.randint(2, 5))]
    return "".join(syllables).capitalize()


def write_rows(path: Path, count: int, vocab_size: int) -> Path:
    """Write `count` rows of random prompt IDs, with texts as long as an article for a realistic file size."""
    articles = bundled_articles()
    draw = random.Random(count)
    rows = []
    for number in range(count):
        drawn = round(MEDIAN_TOKENS * math.exp(draw.gauss(0.0, SPREAD)))
        tokens = min(max(drawn, SHORTEST_TOKENS), LONGEST_TOKENS)
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


def model_and_rows(work: Path, shape: Shape, rows: int) -> dict[str, str]:
    """Return a model and a dataset as options of a run."""
    model, data = make_llama(work / "model", shape), write_rows(work / "rows.json", rows, VOCAB_SIZE)
    return {"model_path": str(model), "dataset_path": str(data)}
