"""Tokenizers: the one a model brings, or the byte tokenizer for engines without a model.

At run time nothing is tokenised; a tokenizer is needed to prepare a data set and to turn answers into text for scoring.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from qsl.byte_tokenizer import ByteTokenizer
from qsl.hub import from_hub
from runs.errors import InputError, SetupError
from runs.files import sha256_of
from runs.reading import read_object

BYTES = "bytes"

# What decides a tokenizer's behaviour, of the files a model folder may hold.
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
)


class Tokenizer(Protocol):
    """What the harness needs of a tokenizer."""

    @property
    def vocab_size(self) -> int:
        """Number of ids, special tokens included."""

    def encode(self, text: str) -> list[int]:
        """Ids of `text` with the special tokens that the tokenizer adds by default."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Exactly `[encode(text) for text in texts]`, faster."""

    def batch_decode(self, sequences: Iterable[Any], skip_special_tokens: bool = True) -> list[str]:
        """The text of each sequence of ids; sequences are lists or one-dimensional integer arrays."""


class _ModelTokenizer:
    """A Hugging Face tokenizer behind `Tokenizer`."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        # The reference scores text from transformers 4, which applies the tokenizer's own clean-up setting (on, for
        # Llama 3.1: " ." becomes "."). Since version 5 that needs this switch for BPE tokenizers.
        tokenizer.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output = True

    @property
    def vocab_size(self) -> int:
        return len(self._tokenizer)

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        if not self._tokenizer.is_fast:  # there is nothing behind it
            return [self.encode(text) for text in texts]
        # The tokenizer behind it, without what transformers adds to the ids and without their places in the text.
        backend = self._tokenizer.backend_tokenizer
        backend.no_truncation()
        backend.no_padding()
        return [one.ids for one in backend.encode_batch_fast(list(texts))]

    def batch_decode(self, sequences: Iterable[Any], skip_special_tokens: bool = True) -> list[str]:
        tokenizer = self._tokenizer
        lists = [ids.tolist() if isinstance(ids, np.ndarray) else [int(i) for i in ids] for ids in sequences]
        if not tokenizer.is_fast:  # one at a time: an empty batch would be refused
            return [tokenizer.decode(ids, skip_special_tokens=skip_special_tokens) for ids in lists]
        texts = tokenizer.backend_tokenizer.decode_batch(lists, skip_special_tokens=skip_special_tokens)
        return list(map(tokenizer.clean_up_tokenization, texts) if tokenizer.clean_up_tokenization_spaces else texts)


def load_tokenizer(model_path: str) -> Tokenizer:
    """The tokenizer of a local model folder or of a model id, or the byte tokenizer for "bytes".

    Raises:
        InputError: no such model, no tokenizer in it, or one that cannot be loaded.
    """
    if model_path == BYTES:
        return ByteTokenizer()
    if _looks_local(model_path) and not Path(model_path).is_dir():
        raise InputError(
            f"model folder {model_path} does not exist", "check --model-path; scripts/get_model.py makes a small model"
        )

    def load(local: bool) -> Any:
        return _tokenizer_class(Path(model_path)).from_pretrained(model_path, use_fast=True, local_files_only=local)

    try:
        tokenizer = load(True) if Path(model_path).is_dir() else from_hub(f"--model-path {model_path}", load)
    except SetupError:
        raise
    except Exception as error:  # transformers raises OSError, ValueError, KeyError, … for files it cannot use
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        if isinstance(error, KeyError):
            reason = f"its files lack {reason}"
        raise InputError(
            f"no tokenizer could be loaded from {model_path!r}: {reason}",
            "give a folder with tokenizer.json and tokenizer_config.json, or a model id that is downloaded or can be "
            "(gated models need HF_TOKEN)",
        ) from error
    return _ModelTokenizer(tokenizer)


def _tokenizer_class(folder: Path) -> Any:
    """What loads a tokenizer: AutoTokenizer, or at once the class that it would choose.

    Importing AutoTokenizer brings PyTorch and takes some seconds. A Llama whose folder names the generic class, as
    Llama 3.1 and the embedded model do, needs neither.
    """
    config, model = _json_object(folder / "tokenizer_config.json"), _json_object(folder / "config.json")
    generic = config.get("tokenizer_class") == "PreTrainedTokenizerFast" and "auto_map" not in config
    if generic and model.get("model_type", "llama") == "llama" and (folder / "tokenizer.json").is_file():
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast
    from transformers import AutoTokenizer

    return AutoTokenizer


def _json_object(path: Path) -> dict[str, Any]:
    """A JSON file's object; empty where there is none."""
    try:
        return read_object(path, "")
    except InputError:
        return {}


def tokenizer_fingerprint(model_path: str) -> str:
    """A name for the tokenizer's behaviour, cheap where its files are local.

    Returns:
        Hex SHA-256 of the tokenizer's files, or of its name when it is no local folder.
    """
    folder = Path(model_path)
    parts = [ByteTokenizer.fingerprint if model_path == BYTES else ""]
    if model_path != BYTES and folder.is_dir():
        parts += [f"{name} {sha256_of(folder / name)}" for name in _TOKENIZER_FILES if (folder / name).is_file()]
    elif model_path != BYTES:
        parts.append(f"id {model_path}")
    return sha256("\n".join(parts).encode()).hexdigest()


def _looks_local(model_path: str) -> bool:
    # A model id has the form "name" or "organisation/name".
    return model_path.startswith((".", "/", "~")) or model_path.count("/") > 1
