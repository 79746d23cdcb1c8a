"""A model folder with the files that are read before an engine starts, and its faults."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.engines.small_tokenizer import make_tokenizer

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 3522658\n"
INDEX = "model.safetensors.index.json"
PARTS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
VOCABULARY, POSITIONS = 300, 200


def make_model(folder: Path) -> Path:
    """Write a model with 300 IDs, 200 positions, two weight files, and a tokenizer of 258 IDs."""
    make_tokenizer(folder)
    write(folder / "config.json", config())
    write(folder / "generation_config.json", {"bos_token_id": 0, "eos_token_id": [1, 2]})
    tensors = ("model.embed_tokens.weight", "lm_head.weight")
    for part, name in zip(PARTS, tensors, strict=True):
        (folder / part).write_bytes(weights(name))
    write(folder / INDEX, {"weight_map": dict(zip(tensors, PARTS, strict=True))})
    return folder


def config(**changes: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCABULARY,
        "max_position_embeddings": POSITIONS,
        "architectures": ["LlamaForCausalLM"],
        **changes,
    }


def weights(name: str, kind: str = "BF16", rows: int = VOCABULARY) -> bytes:
    """Return a safetensors file with one tensor of `rows` numbers."""
    size = rows * {"BF16": 2, "F8_E4M3": 1}[kind]
    header = json.dumps({name: {"dtype": kind, "shape": [rows, 1], "data_offsets": [0, size]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(size)


def write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))


def set_file(name: str, content: bytes | Any) -> Callable[[Path], None]:
    """Return a change that replaces a file. Content other than bytes is written as JSON."""

    def change(folder: Path) -> None:
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            write(folder / name, content)

    return change


def remove_files(*names: str) -> Callable[[Path], None]:
    """Return a change that removes files."""

    def change(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return change


def cut(folder: Path) -> None:
    content = (folder / PARTS[1]).read_bytes()
    (folder / PARTS[1]).write_bytes(content[:-1])


def link_file(name: str, target: str) -> Callable[[Path], None]:
    """Return a change that replaces a file by a link."""

    def change(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(target)

    return change


def keep_only(*names: str) -> Callable[[Path], None]:
    """Return a change that removes all files, and writes empty objects of these names."""

    def change(folder: Path) -> None:
        for path in folder.iterdir():
            path.unlink()
        for name in names:
            write(folder / name, {})

    return change


def directory(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return change


def with_pickled_weights(folder: Path) -> None:
    """Replace the weights by pytorch_model.bin, which is a pointer."""
    remove_files(*PARTS, INDEX)(folder)
    (folder / "pytorch_model.bin").write_bytes(POINTER)


def with_sentencepiece(folder: Path) -> None:
    """Replace the tokenizer by tokenizer.model, which is a pointer."""
    remove_files("tokenizer.json")(folder)
    (folder / "tokenizer.model").write_bytes(POINTER)


def stop_id_of_the_config(folder: Path) -> None:
    remove_files("generation_config.json")(folder)
    write(folder / "config.json", config(eos_token_id=-1))


def vocabulary(number: object) -> dict[str, Any]:
    return {"model": {"vocab": {"a": number}}}


# Change of a model folder → message
BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config": (remove_files("config.json"), "config.json: No such file"),
    "empty config": (set_file("config.json", b""), "config.json cannot be read: it is empty"),
    "no JSON": (set_file("config.json", b"<!DOCTYPE html>"), "config.json cannot be read: it is not JSON"),
    "no architecture": (set_file("config.json", config(architectures=None)), "architectures is missing"),
    "no vocabulary": (set_file("config.json", config(vocab_size="many")), "vocab_size is missing or not a number"),
    "data type": (set_file("config.json", config(torch_dtype="bf17")), "torch_dtype bf17: PyTorch has no such"),
    "config in a circle": (link_file("config.json", "config.json"), "config.json: Too many levels of symbolic links"),
    "stop id": (
        set_file("generation_config.json", {"eos_token_id": [1, 300]}),
        "eos_token_id 300 is outside the vocabulary of 300 IDs",
    ),
    "stop words": (set_file("generation_config.json", {"eos_token_id": "</s>"}), "eos_token_id is </s>, not token IDs"),
    "stop id of the config": (stop_id_of_the_config, "eos_token_id -1 is outside"),
    "no tokenizer": (remove_files("tokenizer.json", "tokenizer_config.json"), "has no tokenizer (tokenizer.json, "),
    "tokenizer pointer": (set_file("tokenizer.json", POINTER), "json is not a tokenizer: it is a git-lfs pointer"),
    "sentencepiece pointer": (with_sentencepiece, "tokenizer.model is not a tokenizer: it is a git-lfs pointer"),
    "empty tokenizer": (set_file("tokenizer.json", b""), "tokenizer.json is not a tokenizer: it is empty"),
    "another tokenizer": (set_file("tokenizer.json", {}), "tokenizer.json is not a tokenizer: it has no 'model'"),
    "tokens without numbers": (set_file("tokenizer.json", vocabulary("x")), "has an ID that is not a whole number"),
    "token below 0": (set_file("tokenizer.json", vocabulary(-1)), "has an ID that is not a whole number from 0"),
    "no tokens": (set_file("tokenizer.json", {"model": {"vocab": {}}}), "json is not a tokenizer: it has no tok"),
    "tokenizer settings": (set_file("tokenizer_config.json", POINTER), "tokenizer_config.json cannot be read: it is a"),
    "too many tokens": (set_file("config.json", config(vocab_size=257)), "tokenizer.json has IDs up to 257, but"),
    "missing part": (remove_files(PARTS[1]), f"missing files: {PARTS[1]}, which {INDEX} lists"),
    "part pointer": (set_file(PARTS[0], POINTER), f"{PARTS[0]} contains no weights: it is a git-lfs pointer"),
    "empty part": (set_file(PARTS[0], b""), f"{PARTS[0]} contains no weights: it is empty"),
    "cut part": (cut, f"{PARTS[1]} is not a safetensors file: "),
    "part elsewhere": (link_file(PARTS[1], "../blobs/1"), f"{PARTS[1]}: it is a link to ../blobs/1, which"),
    "folder as a part": (directory(PARTS[1]), f"{PARTS[1]}: it is a directory"),
    "other rows": (set_file(PARTS[0], weights("model.embed_tokens.weight", rows=299)), "has the shape [299, 1], but"),
    "index pointer": (set_file(INDEX, POINTER), f"{INDEX} cannot be read: it is a git-lfs pointer"),
    "empty index": (set_file(INDEX, {}), "lists no weight files"),
    "missing part without an index": (
        remove_files(PARTS[0], INDEX),
        f"missing files: {PARTS[0]}, according to the names of the other weight files",
    ),
    "no weights": (remove_files(*PARTS, INDEX), "has no weights (*.safetensors)"),
    "pickle pointer": (with_pickled_weights, "pytorch_model.bin contains no weights: it is a git-lfs pointer"),
    "adapter": (keep_only("adapter_config.json", "adapter_model.safetensors"), "has only a LoRA adapter, not a model"),
    "GGUF": (keep_only("llama-q4.gguf"), "has only GGUF files, which vLLM does not load"),
}  # fmt: skip
