"""Facts of a model's weights, from the headers of their safetensors files and the model's configuration.

Nothing is loaded: a header names each tensor with its type and shape. The configuration (config.json's
`quantization_config`, or hf_quant_config.json) has the precision of packed numbers and of activations.
"""

import hashlib
import math
import os
import re
from collections import Counter
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any

import orjson

from qsl.hub import FETCH_AGAIN
from runs.errors import InputError
from runs.files.reading import MAX_WEIGHTS_BYTES, open_file, read_object, stand_in
from runs.record.observed import Weights

LONGEST_HEADER = 100_000_000  # bytes [huggingface/safetensors]
# Type in headers → data type. [huggingface/safetensors]
PLAIN = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64"}
_BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U8": 8, "BOOL": 8,
         "F8_E4M3": 8, "F8_E5M2": 8}  # fmt: skip
_PACKED_BITS = {"U8": 8, "I16": 16, "I32": 32, "I64": 64}  # types that pack multiple numbers → bits
_WEIGHTS = ("weight", "weight_packed", "qweight")  # last part of a weight's name; other tensors are scales or similar
_SHAPE = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
)


def read_weights(folder: Path) -> Weights:
    """Read the headers and the configuration of a model's folder.

    Raises:
        InputError: If a file is unreadable, or not a safetensors file.
    """
    files = list(folder.glob("*.safetensors"))
    tensors = sorted(tensor for path in files for tensor in tensors_of(path))
    config = read_object(folder / "config.json", FETCH_AGAIN)
    if config.get("quantization_config") is None:  # an older key, which engines also read
        config["quantization_config"] = config.get("compression_config")
    method, numbers = _quantization(folder, config)
    bits = numbers[1] if numbers else 4
    counts: Counter[str] = Counter()
    parameters = 0
    for name, kind, shape in tensors:
        if name.rpartition(".")[2] not in _WEIGHTS:
            continue
        count = math.prod(shape) * (_PACKED_BITS[kind] // bits if kind in _PACKED_BITS else 1)
        counts[kind] += count
        parameters += count
    most = max(counts, key=lambda kind: counts[kind], default="none")
    quantized = bool(method) or any(kind not in PLAIN for kind in counts)
    precision = PLAIN.get(most, most)
    if quantized:
        precision = "{0}{1}_w{1}a{2}".format(*numbers) if numbers else f"{method or 'unknown'} ({most})"
    return Weights(
        files=len(files),
        tensors=len(tensors),
        parameters=parameters,
        dtypes=dict(sorted(counts.items())),
        precision=precision,
        quantized=quantized,
        sparse=bool(_object(config.get("quantization_config")).get("sparsity_config")),
        shape={key: value if isinstance(value := config.get(key), int) else None for key in _SHAPE},
        headers_sha256=hashlib.sha256(orjson.dumps(tensors)).hexdigest(),
    )


def open_weights(path: Path) -> BufferedReader:
    """Open a file of weights.

    Raises:
        InputError: If the file is unreadable, empty, or a git-lfs pointer.
    """
    stream = open_file(path, FETCH_AGAIN, max_bytes=MAX_WEIGHTS_BYTES)
    if problem := stand_in(stream.peek()):
        stream.close()
        raise InputError(f"{path} contains no weights: {problem}", FETCH_AGAIN)
    return stream


def tensors_of(path: Path) -> list[tuple[str, str, list[int]]]:
    """Yield name, type and shape of each tensor. [8 bytes, little endian: length of a JSON object: name → facts]

    Raises:
        InputError: If the file is unreadable, or not a safetensors file of its size.
    """
    listed: list[tuple[str, str, list[int]]] = []
    with open_weights(path) as stream:
        try:
            length = int.from_bytes(stream.read(8), "little")
            header = orjson.loads(stream.read(min(length, LONGEST_HEADER)))
            tensors = {name: tensor for name, tensor in header.items() if name != "__metadata__"}
            end = 8 + length + max((tensor["data_offsets"][1] for tensor in tensors.values()), default=0)
            if (size := os.fstat(stream.fileno()).st_size) != end:
                raise ValueError(f"it has {size:,} bytes, but its header states {end:,} bytes")
            for name, tensor in tensors.items():
                kind, shape, (begin, end) = str(tensor["dtype"]), tensor["shape"], tensor["data_offsets"]
                if len(shape) > 8 or not all(type(size) is int and 0 <= size < 2**31 for size in shape):
                    raise ValueError(f"{name[:40]!r} has the shape {str(shape)[:40]}")
                if begin < 0 or math.prod(shape) * _BITS.get(kind, 1) > 8 * (end - begin):
                    raise ValueError(f"{name[:40]!r} has more numbers than its bytes can hold")
                listed.append((name, kind, shape))
        except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise InputError(f"{path} is not a safetensors file: {error}", FETCH_AGAIN) from error
    return listed


_Numbers = tuple[str, int, int]  # number format (fp or int), bits of the weights, bits of the activations
_BY_METHOD: dict[str, _Numbers] = {"fp8": ("fp", 8, 8), "fbgemm_fp8": ("fp", 8, 8), "mxfp4": ("fp", 4, 16)}
# Algorithms of NVIDIA's Model Optimizer. [NVIDIA/TensorRT-Model-Optimizer, quant_algo]
_BY_ALGORITHM: dict[str, _Numbers] = {
    "FP8": ("fp", 8, 8),
    "NVFP4": ("fp", 4, 4),
    "W4A16_NVFP4": ("fp", 4, 16),
    "INT8_SQ": ("int", 8, 8),
    "W4A16_AWQ": ("int", 4, 16),
    "W4A8_AWQ": ("int", 4, 8),
}


def _quantization(folder: Path, config: Mapping[str, Any]) -> tuple[str, _Numbers | None]:
    """Return the quantization method in the configuration ("" for none), and its numbers if they are known."""
    quantization = config.get("quantization_config")
    if not isinstance(quantization, dict) and quantization is not None:
        raise InputError(
            f"{folder / 'config.json'}: quantization_config is {str(quantization)[:40]!r}, not an object", FETCH_AGAIN
        )
    path = folder / "hf_quant_config.json"
    if quantization is None and path.is_file():  # older versions of modelopt write this file instead of config.json
        quantization = {"quant_method": "modelopt", **_object(read_object(path, FETCH_AGAIN).get("quantization"))}
    if not quantization:
        return "", None
    method = str(quantization.get("quant_method") or "unknown").lower()
    if method == "compressed-tensors":
        return method, _of_groups(quantization.get("config_groups"))
    if method == "quark":
        return method, _of_quark(_object(quantization.get("global_quant_config")))
    if method.startswith("modelopt"):
        return method, _BY_ALGORITHM.get(str(quantization.get("quant_algo") or "").upper())
    bits = quantization.get("bits", quantization.get("w_bit"))  # key of awq, gptq and others
    return method, _BY_METHOD.get(method) or (("int", bits, 16) if bits in (2, 3, 4, 8) else None)


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _of_groups(groups: object) -> _Numbers | None:
    """Return the precision of compressed-tensors: the group with the fewest bits counts."""
    numbers: list[_Numbers] = []
    for group in map(_object, _object(groups).values()):
        weights, inputs = _object(group.get("weights")), _object(group.get("input_activations"))
        bits = weights.get("num_bits")
        if type(bits) is int and 0 < bits <= 16:
            numbers.append(("fp" if weights.get("type") == "float" else "int", bits, inputs.get("num_bits") or 16))
    return min(numbers, key=lambda numbers: numbers[1], default=None)


def _of_quark(parts: Mapping[str, Any]) -> _Numbers | None:
    """Return the precision of AMD Quark: data types by name, such as fp8_e4m3, int8, fp4."""

    def numbers(name: str) -> tuple[str, int] | None:
        part = parts.get(name)
        part = part[0] if isinstance(part, list) and part else part
        match = re.match(r"(fp|u?int)(4|6|8|16)(?!\d)", str(_object(part).get("dtype")))
        return ("fp" if match[1] == "fp" else "int", int(match[2])) if match else None

    weights, inputs = numbers("weight"), numbers("input_tensors")
    return (*weights, inputs[1] if inputs else 16) if weights else None
