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

# Files that decide what the model computes and how its IDs become text.
_RELEVANT = (".safetensors", ".json", ".bin", ".model", ".txt", ".jinja")

UNKNOWN = "unknown"  # architecture

CALIBRATION = "calibration.md"  # how a quantized model was made

_WANTED = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]  # files of a hub model that are downloaded


@dataclass(frozen=True)
class ModelFacts:
    """The folder of a model, and the limits of its inputs."""

    name: str  # the requested name
    folder: Path
    revision: str | None  # commit on the hub, None for a plain folder
    vocab_size: int
    max_positions: int
    architecture: str
    config: dict[str, Any]  # config.json

    @property
    def quantization(self) -> dict[str, Any]:
        """The quantization of the weights in config.json; empty for plain weights."""
        found = self.config.get("quantization_config") or self.config.get("compression_config")
        return found if isinstance(found, dict) else {}


def find_model(name: str) -> tuple[Path, str | None]:
    """Find a model's folder, and its commit on the hub; a hub ID is looked up, and fetched if missing.

    Raises:
        InputError: no such folder or hub ID, or a folder that cannot be read.
    """
    folder = Path(name).absolute()  # the engine runs in another working directory
    try:
        if folder.is_dir():
            next(folder.iterdir(), None)  # raises for one that cannot be listed
            return folder, None
        there = folder.exists()
    except OSError as error:  # such as a name that is too long
        fix = (
            "let this user read it (chmod)" if isinstance(error, PermissionError) else "name a model folder or a hub ID"
        )
        raise InputError(f"--model-path {name:.80}: {error.strerror}", fix) from error
    if there:
        raise InputError(f"--model-path {name}: this is a file, not a folder", "name its folder")
    if folder.is_symlink():
        raise InputError(f"--model-path {name}: the link has no folder as its target", "name a model folder")
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise InputError(f"--model-path {name}: folder does not exist", "name a model folder or a hub ID like org/name")
    folder = _from_hub(name)
    return folder, folder.name


def facts_of(name: str, folder: Path, revision: str | None) -> ModelFacts:
    """Read the config.json of a model's folder.

    Raises:
        InputError: there is none that can be used.
    """
    path = folder / "config.json"
    config = read_object(path, "give --model-path a folder with a complete config.json")
    for key in ("vocab_size", "max_position_embeddings"):
        if type(config.get(key)) is not int or config[key] < 1:
            raise InputError(
                f"{path}: {key} is missing or not a number from 1: {config.get(key)!s:.60}",
                "name a decoder model such as Llama",
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
    except Exception as error:  # the hub's client raises a dozen unrelated kinds
        raise InputError(
            f"--model-path {name}: folder does not exist, and the hub download failed: {first_line(error)}",
            "fetch the model first, check HF_TOKEN for gated models, or name a folder",
        ) from error


def file_hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of each relevant file, of its bytes: that the hub's cache names a file by its hash proves nothing."""
    return {
        path.name: sha256_of(path, max_bytes=MAX_WEIGHTS_BYTES)
        for path in sorted(folder.iterdir())
        if (path.suffix in _RELEVANT or path.name == CALIBRATION) and path.is_file() and path.name[0] != "."
    }


@dataclass(frozen=True)
class SpecialIds:
    """Token IDs by what they are for; `other`: special ones that neither end nor begin a text."""

    stop: tuple[int, ...]
    begin: tuple[int, ...]
    other: tuple[int, ...] = ()


BYTES = SpecialIds((EOS_ID,), (BOS_ID,))  # special IDs of the byte tokenizer


def special_ids(model: ModelFacts | None) -> SpecialIds:
    """End and begin from generation_config.json, else config.json; the others are the tokens of tokenizer.json that
    are marked `special`. Added tokens without that mark are ordinary text, and a model may well answer with them.

    Args:
        model: None = no model, the byte tokenizer.

    Raises:
        InputError: a file exists and cannot be parsed.
    """
    if model is None:
        return BYTES
    stop, begin = token_ids(model, "eos_token_id"), token_ids(model, "bos_token_id")
    marked = _marked_special(model.folder / "tokenizer.json")
    return SpecialIds(stop, begin, tuple(sorted(marked - {*stop, *begin})))


def token_ids(model: ModelFacts, key: str) -> tuple[int, ...]:
    """Token IDs of generation_config.json, else of config.json."""
    path = model.folder / "generation_config.json"
    value = _read(path).get(key, model.config.get(key))
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(one) is int for one in values):
        raise InputError(f"{path}: {key} is {str(value)[:60]}, not token IDs", FETCH_AGAIN)
    return tuple(values)


def _marked_special(path: Path) -> set[int]:
    added = _read(path, TOKENIZER.file_bytes).get("added_tokens", [])
    try:
        marked = {token["id"] for token in added if token["special"]}
    except (TypeError, KeyError) as error:
        raise InputError(f"{path}: added_tokens is not a list of tokens with id and special", FETCH_AGAIN) from error
    if not all(type(one) is int for one in marked):
        raise InputError(f"{path}: added_tokens has an ID that is not a whole number", FETCH_AGAIN)
    return marked


def _read(path: Path, max_bytes: int = MAX_TEXT_BYTES) -> dict[str, Any]:
    """Return the JSON object in a file; empty if the file does not exist."""
    return read_object(path, FETCH_AGAIN, max_bytes=max_bytes) if os.path.lexists(path) else {}
