"""The special token ids of the model under audit: which may end an answer, and which no answer may hold."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qsl.byte_tokenizer import BOS_ID, EOS_ID
from qsl.model_files import ModelFacts
from runs.errors import InputError
from runs.reading import read_object

_FIX = "fetch the model again"


@dataclass(frozen=True)
class SpecialIds:
    """Token ids by what they are for; `other`: special ones that neither end nor begin a text."""

    stop: tuple[int, ...]
    begin: tuple[int, ...]
    other: tuple[int, ...] = ()


BYTES = SpecialIds((EOS_ID,), (BOS_ID,))  # of the byte tokenizer


def special_ids(model: ModelFacts | None) -> SpecialIds:
    """End and begin from generation_config.json, else config.json; the others are the tokens of tokenizer.json that
    are marked `special`. Added tokens without that mark are ordinary text, and a model may well answer with them.

    Args:
        model: None = no model, the byte tokenizer.

    Raises:
        InputError: a file is there and cannot be understood.
    """
    if model is None:
        return BYTES
    path = model.folder / "generation_config.json"
    generation = _read(path)

    def ids(key: str) -> tuple[int, ...]:
        value = generation.get(key, model.config.get(key))
        values = value if isinstance(value, list) else [] if value is None else [value]
        if not all(type(one) is int for one in values):
            raise InputError(f"{path}: {key} is {str(value)[:60]}, not token ids", _FIX)
        return tuple(values)

    stop, begin = ids("eos_token_id"), ids("bos_token_id")
    marked = _marked_special(model.folder / "tokenizer.json")
    return SpecialIds(stop, begin, tuple(sorted(marked - {*stop, *begin})))


def _marked_special(path: Path) -> set[int]:
    added = _read(path).get("added_tokens", [])
    try:
        marked = {token["id"] for token in added if token["special"]}
    except (TypeError, KeyError) as error:
        raise InputError(f"{path}: added_tokens is no list of tokens with id and special", _FIX) from error
    if not all(type(one) is int for one in marked):
        raise InputError(f"{path}: added_tokens has an id that is no whole number", _FIX)
    return marked


def _read(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is no such file."""
    return read_object(path, _FIX) if path.exists() else {}
