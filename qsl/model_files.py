"""Facts from the files of a model folder, without loading the model: limits, files, special token IDs."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qsl.hub import FETCH_AGAIN, first_line, from_hub
from qsl.tokenizers import BOS_ID, EOS_ID
from runs.errors import InputError, SetupError
from runs.files.reading import MAX_TEXT_BYTES, MAX_WEIGHTS_BYTES, TOKENIZER, read_object
from runs.files.writing import sha256_of

# Files that determine the computation and the tokenizer of a model.
_RELEVANT = (".safetensors", ".json", ".bin", ".model", ".txt", ".jinja")

UNKNOWN = "unknown"  # architecture if config.json does not state it

CALIBRATION = "calibration.md"  # description of the quantization of a model

_WANTED = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]  # files of a hub model to download


@dataclass(frozen=True)
class ModelFacts:
    """The folder of a model, and the limits of its inputs."""

    name: str  # the requested name
    folder: Path
    revision: str | None  # commit on the hub; None for a local folder
    vocab_size: int
    max_positions: int
    architecture: str
    config: dict[str, Any]  # content of config.json

    @property
    def quantization(self) -> dict[str, Any]:
        """The quantization settings in config.json; empty for unquantized weights."""
        config = self.config.get("quantization_config") or self.config.get("compression_config")
        return config if isinstance(config, dict) else {}


def find_model(name: str) -> tuple[Path, str | None]:
    """Find a model's folder, and its commit on the hub; the files of a hub ID are fetched if missing.

    Raises:
        InputError: If the folder or hub ID does not exist, or the folder is unreadable.
    """
    folder = Path(name).absolute()  # the engine runs in another working directory
    try:
        if folder.is_dir():
            next(folder.iterdir(), None)  # raises if the folder cannot be listed
            return folder, None
        exists = folder.exists()
    except OSError as error:  # such as a name that is too long
        fix = (
            "give this user read permission (chmod)"
            if isinstance(error, PermissionError)
            else "give a model folder or a hub ID"
        )
        raise InputError(f"--model-path {name:.80}: {error.strerror}", fix) from error
    if exists:
        raise InputError(f"--model-path {name}: this is a file, not a folder", "give the folder of this file")
    if folder.is_symlink():
        raise InputError(f"--model-path {name}: the target of the link is not a folder", "give a model folder")
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise InputError(f"--model-path {name}: folder does not exist", "give a model folder or a hub ID like org/name")
    folder = _from_hub(name)
    return folder, folder.name


def facts_of(name: str, folder: Path, revision: str | None) -> ModelFacts:
    """Read the config.json of a model's folder.

    Raises:
        InputError: If config.json is missing or unusable.
    """
    path = folder / "config.json"
    config = read_object(path, "give --model-path a folder with a complete config.json")
    for key in ("vocab_size", "max_position_embeddings"):
        if type(config.get(key)) is not int or config[key] < 1:
            raise InputError(
                f"{path}: {key} is missing or not a number from 1: {config.get(key)!s:.60}",
                "use a decoder model such as Llama",
            )
    architectures = config.get("architectures")
    return ModelFacts(
        name=name,
        folder=folder,
        revision=revision,
        vocab_size=config["vocab_size"],
        max_positions=config["max_position_embeddings"],
        architecture=str(architectures[0]) if isinstance(architectures, list) and architectures else UNKNOWN,
        config=config,
    )


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download  # slow to import, and rarely needed

    def fetch(local: bool) -> Path:
        return Path(snapshot_download(name, allow_patterns=_WANTED, local_files_only=local))

    try:
        return from_hub(f"--model-path {name}", fetch)
    except SetupError:
        raise
    except Exception as error:  # the hub's client raises many unrelated exceptions
        raise InputError(
            f"--model-path {name}: folder does not exist, and the download failed: {first_line(error)}",
            "fetch the model first, check HF_TOKEN for gated models, or give a folder",
        ) from error


def file_hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each relevant file. It is computed from the bytes: names in a cache may be wrong."""
    return {
        path.name: sha256_of(path, max_bytes=MAX_WEIGHTS_BYTES)
        for path in sorted(folder.iterdir())
        if (path.suffix in _RELEVANT or path.name == CALIBRATION) and path.is_file() and path.name[0] != "."
    }


@dataclass(frozen=True)
class SpecialIds:
    """Special token IDs by purpose; `neutral` IDs neither begin nor end a text."""

    stop: tuple[int, ...]
    begin: tuple[int, ...]
    neutral: tuple[int, ...] = ()


BYTES = SpecialIds((EOS_ID,), (BOS_ID,))  # special IDs of the byte tokenizer


def special_ids(model: ModelFacts | None) -> SpecialIds:
    """Return a model's special IDs.

    IDs that begin and end texts are from generation_config.json or config.json, the others are the tokens that
    tokenizer.json marks as `special`. A model may generate added tokens without this mark.

    Args:
        model: facts of the model; None = the byte tokenizer.

    Raises:
        InputError: If an existing file cannot be parsed.
    """
    if model is None:
        return BYTES
    stop, begin = token_ids(model, "eos_token_id"), token_ids(model, "bos_token_id")
    marked = _marked_special(model.folder / "tokenizer.json")
    return SpecialIds(stop, begin, tuple(sorted(marked - {*stop, *begin})))


def token_ids(model: ModelFacts, key: str) -> tuple[int, ...]:
    """Return token IDs from generation_config.json, otherwise from config.json."""
    path = model.folder / "generation_config.json"
    value = _read(path).get(key, model.config.get(key))
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(token_id) is int for token_id in values):
        raise InputError(f"{path}: {key} is {str(value)[:60]}, not token IDs", FETCH_AGAIN)
    return tuple(values)


def _marked_special(path: Path) -> set[int]:
    added = _read(path, TOKENIZER.file_bytes).get("added_tokens", [])
    try:
        marked = {token["id"] for token in added if token["special"]}
    except (TypeError, KeyError) as error:
        raise InputError(f"{path}: added_tokens is not a list of tokens with id and special", FETCH_AGAIN) from error
    if not all(type(token_id) is int for token_id in marked):
        raise InputError(f"{path}: added_tokens has an ID that is not a whole number", FETCH_AGAIN)
    return marked


def _read(path: Path, max_bytes: int = MAX_TEXT_BYTES) -> dict[str, Any]:
    """Return the JSON object in a file; empty if the file does not exist."""
    return read_object(path, FETCH_AGAIN, max_bytes=max_bytes) if os.path.lexists(path) else {}
