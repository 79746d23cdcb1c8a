"""Tokenizers of models, and the byte tokenizer for engines without a model.

A run does not tokenize. A tokenizer is needed to prepare a dataset, and to decode responses for scoring.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from qsl.hub import first_line, from_hub
from runs.errors import InputError, SetupError
from runs.files.reading import TOKENIZER, open_file, read_object, read_whole
from runs.files.writing import sha256_of

BYTES = "bytes"
BOS_ID = 256  # begin-of-text ID of the byte tokenizer
EOS_ID = 257

# Files of a model folder that determine its tokenizer.
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
)
# Settings of a tokenizer_config.json that change the effect of tokenizer.json. [transformers 5]
_NOT_PLAIN = frozenset({"auto_map", "add_bos_token", "add_eos_token", "split_special_tokens", "fix_mistral_regex"})
_PANIC = "PanicException"  # raised by Rust code, such as `tokenizers` on a damaged charsmap; not an Exception
# Replacements of clean-up, in this order. [transformers, clean_up_tokenization]
_CLEAN_UP = [(f" {end}", end) for end in (".", "?", "!", ",")]
_CLEAN_UP += [(" ' ", "'")] + [(f" {end}", end) for end in ("n't", "'m", "'s", "'ve", "'re")]


class Tokenizer(Protocol):
    """The interface of a tokenizer."""

    @property
    def vocab_size(self) -> int:
        """Number of IDs, including special tokens."""

    def encode(self, text: str) -> list[int]:
        """Return the IDs of `text`, with the special tokens that the tokenizer adds by default."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return `[encode(text) for text in texts]`, but faster."""

    def batch_decode(self, sequences: Iterable[Any]) -> list[str]:
        """Return the text of each sequence without special tokens; sequences are lists or one-dimensional integer
        arrays.
        """


class ByteTokenizer:
    """A tokenizer for engines without a model: IDs 0 to 255 are bytes, 256 begins a text and 257 ends one."""

    vocab_size = 258
    eos_token_id = EOS_ID
    fingerprint = "bytes-1"

    def encode(self, text: str) -> list[int]:
        """Return the begin-of-text ID and the bytes of `text`."""
        return [BOS_ID, *text.encode(errors="replace")]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return `encode` of each text."""
        return [self.encode(text) for text in texts]

    def batch_decode(self, sequences: Iterable[Iterable[int]]) -> list[str]:
        """Return the text of each sequence without special IDs; bytes that are not UTF-8 become U+FFFD.

        Raises:
            InputError: If an ID is outside 0 to 257.
        """
        return list(map(_decoded, sequences))


def _decoded(ids: Iterable[int]) -> str:
    content = bytearray()
    for token_id in ids:
        if not 0 <= token_id <= EOS_ID:
            raise InputError(f"token ID {token_id} is outside 0 to {EOS_ID}, the IDs of the byte tokenizer")
        if token_id < BOS_ID:
            content.append(token_id)
    return content.decode(errors="replace")


class _ModelTokenizer:
    """A tokenizer of Hugging Face's `tokenizers` with the interface `Tokenizer`.

    Args:
        backend: the `tokenizers.Tokenizer`.
        clean_up: whether blanks before punctuation are removed from decoded texts. The reference scores text from
            transformers 4, which applies the tokenizer's setting (on for Llama 3.1: " ." becomes ".").
    """

    def __init__(self, backend: Any, clean_up: bool) -> None:
        backend.no_truncation()
        backend.no_padding()
        backend.encode("a")  # raises if a post-processor uses an unknown token
        self._backend, self._clean_up = backend, clean_up

    @property
    def vocab_size(self) -> int:
        return int(self._backend.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._backend.encode_batch_fast(list(texts))]

    def batch_decode(self, sequences: Iterable[Any]) -> list[str]:
        lists = [ids.tolist() if isinstance(ids, np.ndarray) else [int(i) for i in ids] for ids in sequences]
        texts: list[str] = self._backend.decode_batch(lists, skip_special_tokens=True)
        for apart, together in _CLEAN_UP if self._clean_up else ():
            texts = [text.replace(apart, together) for text in texts]
        return texts


def load_tokenizer(model_path: str) -> Tokenizer:
    """Return the tokenizer of a model folder or model ID, or the byte tokenizer for "bytes".

    Raises:
        InputError: If the model does not exist, or its tokenizer is missing or unusable.
    """
    if model_path == BYTES:
        return ByteTokenizer()
    folder = Path(model_path)
    # A model ID has the form "name" or "organization/name".
    looks_local = model_path.startswith((".", "/", "~")) or model_path.count("/") > 1
    if looks_local and not folder.is_dir():
        raise InputError(
            f"model folder {model_path} does not exist", "check --model-path; scripts/get_model.py makes a small model"
        )
    try:
        if folder.is_dir():
            _check_sizes(folder)
            return _plain_tokenizer(folder) or _by_transformers(model_path, True)
        return from_hub(f"--model-path {model_path}", partial(_by_transformers, model_path))
    except SetupError:
        raise
    except BaseException as error:  # transformers raises OSError, ValueError, KeyError, … for unusable files
        if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise
        reason = f"its files do not contain {error}" if isinstance(error, KeyError) else first_line(error)
        raise InputError(
            f"no tokenizer could be loaded from {model_path!r}: {reason}",
            "give a folder with tokenizer.json and tokenizer_config.json, or a model ID that is downloaded or can be "
            "(gated models need HF_TOKEN)",
        ) from error


def _check_sizes(folder: Path) -> None:
    """Check that files that transformers reads completely are regular files of a bounded size."""
    for name in (*TOKENIZER_FILES, "chat_template.jinja"):
        if (folder / name).exists():
            open_file(folder / name, "", max_bytes=TOKENIZER.file_bytes).close()


def _by_transformers(model_path: str, local: bool) -> Tokenizer:
    """Load any tokenizer with AutoTokenizer, whose import loads PyTorch and takes some seconds."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_path, use_fast=True, local_files_only=local)
    if not tokenizer.is_fast:
        raise ValueError(f"a {type(tokenizer).__name__} has no tokenizer.json, and cannot be converted")
    return _ModelTokenizer(tokenizer.backend_tokenizer, tokenizer.clean_up_tokenization_spaces)


def _plain_tokenizer(folder: Path) -> Tokenizer | None:
    """Load tokenizer.json without transformers, if its configuration has the generic class and no further settings, as
    in Llama 3.1 and the embedded model; otherwise return None.
    """
    config, model = _json_object(folder / "tokenizer_config.json"), _json_object(folder / "config.json")
    path, named = folder / "tokenizer.json", config | _json_object(folder / "special_tokens_map.json")
    generic = config.get("tokenizer_class") == "PreTrainedTokenizerFast" and not config.keys() & _NOT_PLAIN
    if not (generic and model.get("model_type", "llama") == "llama" and path.is_file()):
        return None
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as Backend

    backend = Backend.from_str(read_whole(path, "", max_bytes=TOKENIZER.file_bytes).decode())
    added = backend.get_added_tokens_decoder()
    listed = {int(number): AddedToken(**token) for number, token in (config.get("added_tokens_decoder") or {}).items()}
    tokens = [value for name, value in named.items() if name.endswith("_token")]
    tokens += [token for name, values in named.items() if name.endswith("_special_tokens") for token in values or ()]
    texts = {token["content"] if isinstance(token, dict) else token for token in tokens if token is not None}
    special = {token.content for token in added.values() if token.special}
    if not texts <= special or any(repr(added.get(number)) != repr(token) for number, token in listed.items()):
        return None
    return _ModelTokenizer(backend, bool(config.get("clean_up_tokenization_spaces", False)))


def _json_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; empty if the file does not exist."""
    try:
        return read_object(path, "")
    except InputError:
        return {}


def tokenizer_fingerprint(model_path: str) -> str:
    """Return a fingerprint of a tokenizer, which is cheap to compute for local files.

    Returns:
        SHA-256 of the tokenizer's files, or of its name if it is not a local folder.
    """
    folder = Path(model_path)
    parts = [ByteTokenizer.fingerprint if model_path == BYTES else ""]
    if model_path != BYTES and folder.is_dir():
        parts += [f"{name} {sha256_of(folder / name)}" for name in TOKENIZER_FILES if (folder / name).is_file()]
    elif model_path != BYTES:
        parts.append(f"ID {model_path}")
    return sha256("\n".join(parts).encode()).hexdigest()
