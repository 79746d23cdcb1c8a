"""What the bench and the tests make for themselves: small random Llamas with their tokenizer, texts, datasets."""

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
INVENTED_SHARE = 0.03  # of the words of a text: names that no other text has, as in news
# Of rows: lengths like the benchmark's, a logarithmic normal distribution.
LONGEST_TOKENS, SHORTEST_TOKENS = 2_540, 200
MEDIAN_TOKENS, SPREAD = 770, 0.44
FIRST_ID = 10  # below lie special IDs


@dataclass(frozen=True)
class Shape:
    """Size of a Llama."""

    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    key_value_heads: int
    head_dim: int


# T: so small that everything around the model shows. C: large enough that the CPU's arithmetic dominates.
TINY = Shape("T", hidden=96, intermediate=256, layers=2, heads=3, key_value_heads=1, head_dim=32)  # 0.4 M parameters
COMPUTE = Shape("C", hidden=320, intermediate=896, layers=8, heads=5, key_value_heads=1, head_dim=64)  # 9.5 M
SHAPES = {shape.name: shape for shape in (TINY, COMPUTE)}


def make_llama(folder: Path, shape: Shape, texts: Sequence[str] | None = None) -> Path:
    """Write a random Llama, always the same for one shape, and a byte-level BPE tokenizer.

    Args:
        folder: the model's folder; left as it is where it holds a model.
        texts: what the tokenizer is trained on; None = the bundled articles.
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
    """Predictions of about 128 tokens and reference summaries, a pair from one article.

    Some words are replaced by invented names, so that there are about as many different words as in the real dataset.
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
    """Write `count` rows of random prompt IDs; the texts beside them are as long as an article, for the file's size."""
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
    """A model and a dataset for it, as options of a run."""
    model, data = make_llama(work / "model", shape), write_rows(work / "rows.json", rows, VOCAB_SIZE)
    return {"model_path": str(model), "dataset_path": str(data)}
