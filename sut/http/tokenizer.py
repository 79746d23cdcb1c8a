"""The tokenizer for servers that send text. qsl/tokenizers.py has the tokenizer for datasets and scores."""

from pathlib import Path
from typing import Any, Protocol

from runs.errors import InputError
from runs.files.reading import TOKENIZER, open_file

BYTES = "bytes"  # model whose token IDs are bytes: the tokenizer of the server's model is unknown
_BYTE_IDS = 256  # IDs below this number are bytes; special IDs follow


class TextTokenizer(Protocol):
    """Text from token IDs, and token IDs from parts of a text."""

    @property
    def lead(self) -> list[int]:
        """Special IDs that begin every text."""

    def decode(self, ids: list[int]) -> str:
        """Return the text of a prompt with its special tokens, except leading special tokens."""

    def encode(self, text: str) -> list[int]:
        """Return the IDs of a part of a text, without special IDs."""


class _Bytes:
    lead: list[int] = []  # noqa: RUF012

    def decode(self, ids: list[int]) -> str:
        try:
            content = bytes(ids)  # much faster than a loop; needed for each request
        except ValueError:
            content = bytes(token_id for token_id in ids if 0 <= token_id < _BYTE_IDS)
        return content.decode(errors="replace")

    def encode(self, text: str) -> list[int]:
        return list(text.encode(errors="replace"))


class _OfModel:
    """A tokenizer of Hugging Face's `tokenizers`."""

    def __init__(self, backend: Any) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self.lead: list[int] = backend.encode("").ids

    def decode(self, ids: list[int]) -> str:
        without_lead = ids[len(self.lead) :] if ids[: len(self.lead)] == self.lead else ids
        return str(self._backend.decode(without_lead, skip_special_tokens=False))

    def encode(self, text: str) -> list[int]:
        return list(self._backend.encode(text, add_special_tokens=False).ids)


def load_text_tokenizer(model_path: str) -> TextTokenizer:
    """Return the tokenizer in the directory of a model, or the byte tokenizer.

    Raises:
        InputError: If the folder has no usable tokenizer.
    """
    if model_path == BYTES:
        return _Bytes()
    file = Path(model_path) / "tokenizer.json"
    try:
        if file.is_file():
            import tokenizers

            open_file(file, "", max_bytes=TOKENIZER.file_bytes).close()
            return _OfModel(tokenizers.Tokenizer.from_file(str(file)))
        from transformers import AutoTokenizer

        return _OfModel(AutoTokenizer.from_pretrained(model_path, local_files_only=True).backend_tokenizer)
    except Exception as error:  # both libraries raise plain exceptions, and transformers many kinds
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(
            f"--model-path {model_path}: its tokenizer cannot be loaded: {reason}",
            "give a model folder with tokenizer.json; the harness counts the tokens of texts with this tokenizer",
        ) from error
