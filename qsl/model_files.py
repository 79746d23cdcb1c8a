"""What a model folder says about itself, without loading the model."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from qsl.hub import from_hub
from runs.errors import InputError, SetupError
from runs.files import sha256_of
from runs.reading import open_file, read_object

# Files that decide what the model computes and how its ids become text.
_RELEVANT = (".safetensors", ".json", ".bin", ".model", ".txt", ".jinja")

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")

_WANTED = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]  # of a model on the hub

MAX_WEIGHTS_BYTES = 2**50  # only the header of a file of weights is read
LONGEST_HEADER = 100_000_000  # bytes [huggingface/safetensors]


@dataclass(frozen=True)
class ModelFacts:
    """Where a model lies and the limits its data must keep."""

    name: str  # as asked
    folder: Path
    revision: str | None  # commit on the hub, None for a plain folder
    vocab_size: int
    max_positions: int
    architecture: str
    config: dict[str, Any]  # config.json


def model_facts(name: str) -> ModelFacts:
    """Find a model's folder (a hub id is looked up, and fetched if missing) and read its config.json.

    Raises:
        InputError: no such folder or hub id, or no usable config.json in it.
    """
    folder = Path(name).absolute()  # the engine runs in another working directory
    revision = None
    if not folder.is_dir():
        if folder.exists():
            raise InputError(f"--model-path {name}: this is a file, not a folder", "name the folder that it lies in")
        if name.startswith((".", "/", "~")) or name.count("/") != 1:
            raise InputError(
                f"--model-path {name}: there is no such folder", "name a model folder or a hub id like org/name"
            )
        folder = _from_hub(name)
        revision = folder.name
    config = _read_config(folder)
    try:
        return ModelFacts(
            name=name,
            folder=folder,
            revision=revision,
            vocab_size=int(config["vocab_size"]),
            max_positions=int(config["max_position_embeddings"]),
            architecture=str((config.get("architectures") or ["unknown"])[0]),
            config=config,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{folder / 'config.json'}: {error} is missing or not a number", "name a decoder model such as Llama"
        ) from error


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download  # slow to import, and rarely needed

    def fetch(local: bool) -> Path:
        return Path(snapshot_download(name, allow_patterns=_WANTED, local_files_only=local))

    try:
        return from_hub(f"--model-path {name}", fetch)
    except SetupError:
        raise
    except Exception as error:  # the hub's client raises a dozen unrelated kinds
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"--model-path {name}: no such folder, and the hub did not give it: {first}",
            "fetch the model first, check HF_TOKEN for gated models, or name a folder",
        ) from error


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    return read_object(path, "--model-path must name a folder with a whole config.json")


def parameter_count(folder: Path) -> int:
    """Numbers in a folder's safetensors files, told from their headers; 0 where there are none.

    [huggingface/safetensors: 8 bytes, little endian, with the length of a JSON object, name → shape]

    Raises:
        InputError: a file that does not begin so.
    """
    count = 0
    for path in folder.glob("*.safetensors"):
        try:
            with open_file(path, "fetch the model again", max_bytes=MAX_WEIGHTS_BYTES) as stream:
                length = int.from_bytes(stream.read(8), "little")
                header = orjson.loads(stream.read(min(length, LONGEST_HEADER)))
            tensors = [tensor for name, tensor in header.items() if name != "__metadata__"]
            count += sum(math.prod(tensor["shape"]) for tensor in tensors)
            end = 8 + length + max((tensor["data_offsets"][1] for tensor in tensors), default=0)
            if path.stat().st_size != end:
                raise ValueError(f"{path.stat().st_size:,} bytes, by its header {end:,}")
        except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise InputError(f"{path} is no safetensors file: {error}", "fetch the model again") from error
    return count


def check_weights(folder: Path) -> None:
    """See that a folder has weights, and all files of them; none but their headers is read.

    Raises:
        InputError: naming what is missing or damaged.
    """
    index = folder / "model.safetensors.index.json"
    if index.exists():
        named = read_object(index, "fetch the model again").get("weight_map")
        files = sorted({str(file) for file in named.values()}) if isinstance(named, dict) else []
        if not files:
            raise InputError(f"{index} names no files of weights", "fetch the model again")
        if lacking := [file for file in files if not (folder / file).is_file()]:
            raise InputError(f"{folder} lacks {', '.join(lacking[:3])}, which its index names", "fetch the model again")
    if not any(path.suffix in _WEIGHTS for path in folder.iterdir()):
        raise InputError(f"{folder} holds no weights (*.safetensors)", "fetch the model again, with its weights")
    parameter_count(folder)


def file_hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of each relevant file. On the hub's cache a large file's blob is named by its hash, which is used."""
    hashes: dict[str, str] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix in _RELEVANT and path.is_file():
            blob = Path(os.path.realpath(path)).name
            named_by_hash = path.is_symlink() and len(blob) == 64 and set(blob) <= set("0123456789abcdef")
            hashes[path.name] = blob if named_by_hash else sha256_of(path)
    return hashes
