"""A tiny random Llama with a tokenizer of its own, made in a second: the real engine's smallest real model."""

from pathlib import Path

from scripts.bench.tools.models import TINY, make_llama


def make_tiny_llama(folder: Path, texts: list[str]) -> Path:
    """Write a Llama of 0.4 M parameters, seeded, and a byte-level BPE tokenizer trained on `texts`."""
    return make_llama(folder, TINY, texts)
