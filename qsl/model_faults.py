"""Faults of the files in a model's folder, found before an engine loads them."""

import json
import os
import re
from collections.abc import Iterator, Set
from pathlib import Path

import orjson

from qsl.hub import FETCH_AGAIN, first_line
from qsl.model_files import UNKNOWN, ModelFacts, token_ids
from qsl.tokenizers import TOKENIZER_FILES
from qsl.weights import PLAIN, open_weights, tensors_of
from runs.errors import InputError
from runs.files.reading import TOKENIZER, open_file, read_object, read_whole, stand_in

_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
# Data types of PyTorch.
_DATA_TYPE = re.compile(r"auto|(torch\.)?(half|double|bfloat16|float(16|32|64|8_\w+)?|u?int\d+)")
MAX_PARTS = 10_000
_LOADED = (".safetensors", ".bin", ".pt")  # suffixes of the weights that vLLM loads [vLLM 0.32, default_loader.py]
# Prefixes of files with such suffixes that are not weights of a model. [filter_files_not_needed_for_inference]
_NO_WEIGHTS = ("adapter_", "training_args.", "optimizer.", "scheduler.", "scaler.")
_INDEX = "model.safetensors.index.json"
_PART = re.compile(r"(.+-)(\d{5})(-of-(\d{5})\.safetensors)")  # groups: prefix, number of the part, number of all parts


def config_faults(model: ModelFacts) -> Iterator[InputError]:
    """Yield the values in a model's config.json and generation_config.json that an engine cannot use."""
    path = model.folder / "config.json"
    if model.architecture == UNKNOWN:
        yield InputError(f"{path}: architectures is missing: the kind of model is unknown", FETCH_AGAIN)
    for key in ("dtype", "torch_dtype"):
        if isinstance(value := model.config.get(key), str) and not _DATA_TYPE.fullmatch(value):
            yield InputError(f"{path}: {key} {value:.40}: PyTorch has no such data type", FETCH_AGAIN)
    try:
        stop = token_ids(model, "eos_token_id")
    except InputError as error:
        yield error
        return
    if outside := [number for number in stop if not 0 <= number < model.vocab_size]:
        yield InputError(
            f"{model.folder}: eos_token_id {', '.join(map(str, outside[:4]))} is outside the vocabulary of "
            f"{model.vocab_size:,} IDs",
            "correct generation_config.json and config.json, or fetch the model again",
        )


def weight_faults(folder: Path, vocab_size: int | None) -> Iterator[InputError]:
    """Yield the faults of the weights in a directory, from the names, sizes and headers of the files.

    Args:
        vocab_size: vocab_size in config.json; None = unknown.
    """
    names = {path.name for path in folder.iterdir()}
    yield from _missing_parts(folder, names)
    weights = {name for name in names if name.endswith(_LOADED) and not name.startswith(_NO_WEIGHTS)}
    if not weights:
        yield InputError(f"{folder} has {_instead(names)}", "give a model folder with weights as *.safetensors")
    safetensors = {name for name in names if name.endswith(".safetensors")}
    for path in sorted(folder / name for name in safetensors or weights):
        try:
            if not safetensors:
                open_weights(path).close()
                continue
            for name, kind, shape in tensors_of(path):
                if name.endswith("embed_tokens.weight") and kind in PLAIN and shape[:1] != [vocab_size or shape[0]]:
                    raise InputError(
                        f"{path}: {name} has the shape {shape}, but config.json has vocab_size {vocab_size}",
                        "give a folder with weights and config.json of one model",
                    )
        except InputError as error:
            yield error


def _instead(names: Set[str]) -> str:
    """Return the content of a folder without weights, as text."""
    if "adapter_config.json" in names:
        return "only a LoRA adapter, not a model"
    if any(name.endswith(".gguf") for name in names):
        return "only GGUF files, which vLLM does not load"
    return "no weights (*.safetensors)"


def _missing_parts(folder: Path, names: Set[str]) -> Iterator[InputError]:
    """Yield missing files of weights, from the index or from the numbers in the names of the parts."""
    wanted, why = set[str](), f"which {_INDEX} lists"
    if _INDEX in names:
        try:
            weight_map = read_object(folder / _INDEX, FETCH_AGAIN).get("weight_map")
        except InputError as error:
            yield error
            return
        wanted = set(map(str, weight_map.values())) if isinstance(weight_map, dict) else set()
        if not wanted:
            yield InputError(f"{folder / _INDEX} lists no weight files", FETCH_AGAIN)
    else:
        why = "according to the names of the other weight files"
        for part in filter(None, map(_PART.fullmatch, names)):
            if int(part[4]) <= MAX_PARTS:
                wanted |= {f"{part[1]}{number:05}{part[3]}" for number in range(1, int(part[4]) + 1)}
    if missing := sorted(wanted - names):
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        yield InputError(f"{folder}: missing files: {', '.join(missing[:3])}{more}, {why}", FETCH_AGAIN)


def tokenizer_faults(folder: Path, vocab_size: int | None) -> Iterator[InputError]:
    """Yield the faults of the tokenizer files in a directory. The tokenizer itself is not loaded.

    Args:
        vocab_size: vocab_size in config.json; None = unknown.
    """
    existing = [name for name in TOKENIZER_FILES if os.path.lexists(folder / name)]
    if set(existing) <= set(_SETTINGS):
        yield InputError(f"{folder} has no tokenizer (tokenizer.json, tokenizer.model or vocab.json)", FETCH_AGAIN)
    for name in existing:
        try:
            if name in _SETTINGS:
                _check_settings(folder / name)
            elif name == "tokenizer.json":
                _check_ids(folder / name, vocab_size)
            elif "tokenizer.json" not in existing:
                _check_content(folder / name)
        except InputError as error:
            yield error


def _check_content(path: Path) -> None:
    with open_file(path, FETCH_AGAIN) as stream:
        if problem := stand_in(stream.peek()):
            raise InputError(f"{path} is not a tokenizer: {problem}", FETCH_AGAIN)


def _check_settings(path: Path) -> None:
    """Check that a file contains a JSON object. Numbers up to 10^30 are allowed, because transformers writes them."""
    content = read_whole(path, FETCH_AGAIN)
    try:
        if isinstance(json.loads(content), dict):
            return
        why = "it is not a JSON object"
    except (ValueError, RecursionError) as error:
        why = f"it is not JSON ({error})"
    raise InputError(f"{path} cannot be read: {stand_in(content) or why}", FETCH_AGAIN)


def _check_ids(path: Path, vocab_size: int | None) -> None:
    """Check a tokenizer.json and its IDs against the model; loading it with `tokenizers` would take four times as long.

    The ID of a padding token may be outside the vocabulary, as in early Llama 2.
    """
    content = read_whole(path, FETCH_AGAIN, max_bytes=TOKENIZER.file_bytes)
    try:
        content_object = orjson.loads(content)
        vocabulary = content_object["model"]["vocab"]  # token → ID, or a list of tokens
        numbers = vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))
        added = [token["id"] for token in content_object.get("added_tokens") or () if "pad" not in token["content"]]
        ids = [*numbers, *added]
        if not ids:
            raise ValueError("it has no tokens")
        if any(type(token_id) is not int or token_id < 0 for token_id in ids):
            raise ValueError("it has an ID that is not a whole number from 0")
        highest = max(ids)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else first_line(error)
        raise InputError(f"{path} is not a tokenizer: {stand_in(content) or why}", FETCH_AGAIN) from error
    if vocab_size is not None and highest >= vocab_size:
        raise InputError(
            f"{path} has IDs up to {highest:,}, but config.json has vocab_size {vocab_size:,}",
            "give a folder with tokenizer and config.json of one model",
        )
