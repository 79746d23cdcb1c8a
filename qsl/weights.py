"""What a model's weights are, from the headers of their safetensors files and the model's own configuration.

Nothing is loaded: a header names each tensor with its type and shape. The configuration (config.json's
`quantization_config`, or hf_quant_config.json) tells what packed numbers mean and what activations become.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from runs.errors import InputError
from runs.reading import MAX_WEIGHTS_BYTES, open_file, read_object
from runs.record.observed import Weights

LONGEST_HEADER = 100_000_000  # bytes [huggingface/safetensors]
# Names of types in headers, and of the data types that they are. [huggingface/safetensors]
PLAIN = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64"}
_BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U8": 8, "BOOL": 8,
         "F8_E4M3": 8, "F8_E5M2": 8}  # fmt: skip
_PACKED_BITS = {"U8": 8, "I16": 16, "I32": 32, "I64": 64}  # types that hold several numbers each
_WEIGHTS = ("weight", "weight_packed", "qweight")  # last part of a weight's name; all else is scales and the like
_FILES = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_SHAPE = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
)
_FIX = "fetch the model again"


def read_weights(folder: Path) -> Weights:
    """Read the headers and the configuration of a model's folder.

    Raises:
        InputError: a file cannot be read, or is no safetensors file.
    """
    tensors = sorted(_tensors(folder))
    files = len(list(folder.glob("*.safetensors")))
    config = read_object(folder / "config.json", _FIX)
    if config.get("quantization_config") is None:  # an older name, which engines read as well
        config["quantization_config"] = config.get("compression_config")
    scheme = _scheme(folder, config)
    bits = scheme.get("bits") or 4
    counts: Counter[str] = Counter()
    parameters = 0
    for name, kind, shape in tensors:
        if name.rpartition(".")[2] not in _WEIGHTS:
            continue
        numbers = math.prod(shape) * (_PACKED_BITS[kind] // bits if kind in _PACKED_BITS else 1)
        counts[kind] += numbers
        parameters += numbers
    most = max(counts, key=lambda kind: counts[kind], default="none")
    quantized = bool(scheme) or any(kind not in PLAIN for kind in counts)
    return Weights(
        files=files,
        tensors=len(tensors),
        parameters=parameters,
        dtypes=dict(sorted(counts.items())),
        precision=_precision(scheme, most) if quantized else PLAIN.get(most, most),
        quantized=quantized,
        sparse=bool(_object(config.get("quantization_config")).get("sparsity_config")),
        shape={key: value if isinstance(value := config.get(key), int) else None for key in _SHAPE},
        headers_sha256=hashlib.sha256(orjson.dumps(tensors)).hexdigest(),
    )


def check_weights(folder: Path) -> None:
    """See that a folder has weights, and all files of them; none but their headers is read.

    Raises:
        InputError: naming what is missing or damaged.
    """
    index = folder / "model.safetensors.index.json"
    if index.exists():
        named = read_object(index, _FIX).get("weight_map")
        files = sorted({str(file) for file in named.values()}) if isinstance(named, dict) else []
        if not files:
            raise InputError(f"{index} names no files of weights", _FIX)
        if lacking := [file for file in files if not (folder / file).is_file()]:
            raise InputError(f"{folder} lacks {', '.join(lacking[:3])}, which its index names", _FIX)
    if not any(path.suffix in _FILES for path in folder.iterdir()):
        raise InputError(f"{folder} holds no weights (*.safetensors)", "fetch the model again, with its weights")
    for _ in _tensors(folder):
        pass


def _tensors(folder: Path) -> Iterator[tuple[str, str, list[int]]]:
    """(name, type, shape) of each tensor. [8 bytes, little endian, with the length of a JSON object: name → facts]"""
    for path in folder.glob("*.safetensors"):
        try:
            with open_file(path, _FIX, max_bytes=MAX_WEIGHTS_BYTES) as stream:
                length = int.from_bytes(stream.read(8), "little")
                header = orjson.loads(stream.read(min(length, LONGEST_HEADER)))
            tensors = {name: tensor for name, tensor in header.items() if name != "__metadata__"}
            end = 8 + length + max((tensor["data_offsets"][1] for tensor in tensors.values()), default=0)
            if path.stat().st_size != end:
                raise ValueError(f"{path.stat().st_size:,} bytes, by its header {end:,}")
            for name, tensor in tensors.items():
                kind, shape, (begin, end) = str(tensor["dtype"]), tensor["shape"], tensor["data_offsets"]
                if len(shape) > 8 or not all(type(size) is int and 0 <= size < 2**31 for size in shape):
                    raise ValueError(f"{name[:40]!r} has the shape {str(shape)[:40]}")
                if begin < 0 or math.prod(shape) * _BITS.get(kind, 1) > 8 * (end - begin):
                    raise ValueError(f"{name[:40]!r} has more numbers than bytes")
                yield name, kind, shape
        except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise InputError(f"{path} is no safetensors file: {error}", _FIX) from error


def _scheme(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """How the configuration says that the model is quantised: `method`, and where it tells them `kind`, `bits` and
    `activation_bits`. Empty: it says nothing of quantisation."""
    quantization = config.get("quantization_config")
    if not isinstance(quantization, dict) and quantization is not None:
        raise InputError(
            f"{folder / 'config.json'}: quantization_config is {str(quantization)[:40]!r}, no object", _FIX
        )
    path = folder / "hf_quant_config.json"
    if quantization is None and path.is_file():  # what modelopt wrote before it used config.json
        quantization = {"quant_method": "modelopt", **_object(read_object(path, _FIX).get("quantization"))}
    if not quantization:
        return {}
    method = str(quantization.get("quant_method") or "unknown").lower()
    found: dict[str, Any] = {"method": method}
    if method == "compressed-tensors":
        found |= _of_groups(quantization.get("config_groups"))
    elif method == "quark":
        found |= _of_quark(_object(quantization.get("global_quant_config")))
    elif method.startswith("modelopt"):
        found |= _ALGORITHMS.get(str(quantization.get("quant_algo") or "").upper(), {})
    elif method in ("fp8", "fbgemm_fp8"):
        found |= {"kind": "fp", "bits": 8, "activation_bits": 8}
    elif method == "mxfp4":
        found |= {"kind": "fp", "bits": 4, "activation_bits": 16}
    elif (bits := quantization.get("bits", quantization.get("w_bit"))) in (2, 3, 4, 8):  # awq, gptq and their kin
        found |= {"kind": "int", "bits": bits, "activation_bits": 16}
    return found


# Of NVIDIA's Model Optimizer. [NVIDIA/TensorRT-Model-Optimizer, quant_algo]
_ALGORITHMS: dict[str, dict[str, Any]] = {
    "FP8": {"kind": "fp", "bits": 8, "activation_bits": 8},
    "NVFP4": {"kind": "fp", "bits": 4, "activation_bits": 4},
    "W4A16_NVFP4": {"kind": "fp", "bits": 4, "activation_bits": 16},
    "INT8_SQ": {"kind": "int", "bits": 8, "activation_bits": 8},
    "W4A16_AWQ": {"kind": "int", "bits": 4, "activation_bits": 16},
    "W4A8_AWQ": {"kind": "int", "bits": 4, "activation_bits": 8},
}


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _of_groups(groups: object) -> dict[str, Any]:
    """Of compressed-tensors: the group with the fewest bits counts."""
    best: dict[str, Any] = {}
    for group in map(_object, _object(groups).values()):
        weights, inputs = _object(group.get("weights")), _object(group.get("input_activations"))
        bits = weights.get("num_bits")
        if type(bits) is int and 0 < bits < best.get("bits", 17):
            kind = "fp" if str(weights.get("type")) == "float" else "int"
            best = {"kind": kind, "bits": bits, "activation_bits": inputs.get("num_bits") or 16}
    return best


def _of_quark(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Of AMD Quark: data types by name, such as fp8_e4m3, int8, fp4."""

    def one(name: str) -> tuple[str, int] | None:
        part = parts.get(name)
        part = part[0] if isinstance(part, list) and part else part
        text = str(part.get("dtype") or "") if isinstance(part, dict) else ""
        digits = "".join(letter for letter in text.partition("_")[0] if letter.isdigit())
        return ("fp" if text.startswith("fp") else "int", int(digits)) if digits in ("4", "6", "8", "16") else None

    weights, inputs = one("weight"), one("input_tensors")
    if weights is None:
        return {}
    return {"kind": weights[0], "bits": weights[1], "activation_bits": inputs[1] if inputs else 16}


def _precision(scheme: Mapping[str, Any], most: str) -> str:
    """fp8_w8a8 and its like; the method's or the type's own name where nothing tells the bits."""
    if "bits" in scheme:
        return f"{scheme['kind']}{scheme['bits']}_w{scheme['bits']}a{scheme['activation_bits']}"
    return f"{scheme.get('method', 'unknown')} ({most})"
