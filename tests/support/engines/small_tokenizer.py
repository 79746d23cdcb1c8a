"""Folders of small models: a byte-level BPE tokenizer without merges, created quickly; and a tiny random Llama."""

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from tools.peers.support.models import TINY, make_llama


def make_tokenizer(folder: Path, *, clean_up: bool = False) -> Path:
    """Write tokenizer.json and tokenizer_config.json into `folder`. `<bos>` (ID 0) is added by default."""
    folder.mkdir(parents=True, exist_ok=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = ["<bos>", "<eos>", *alphabet]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<bos>", "<eos>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 0)])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "clean_up_tokenization_spaces": clean_up,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def make_tiny_llama(folder: Path, texts: list[str]) -> Path:
    """Write a Llama of 0.4 M parameters, seeded, and a byte-level BPE tokenizer trained on `texts`."""
    return make_llama(folder, TINY, texts)
