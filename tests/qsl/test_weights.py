"""Facts in the headers of a model's weights."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qsl.model_files import file_hashes
from qsl.weights import read_weights
from runs.benchmarks import BENCHMARKS
from runs.errors import InputError
from runs.record.observed import Weights
from runs.record.official_inputs import dataset_reasons, model_reasons

OFFICIAL = BENCHMARKS["llama3_1-8b"].model
LAYER = {"q": (8, 8), "k": (4, 8), "v": (4, 8), "o": (8, 8), "gate": (16, 8), "up": (16, 8), "down": (8, 16)}


def parameters_of(shape: Mapping[str, int]) -> int:
    """Return the number of weights of a Llama: no biases, separate input and output embeddings.

    [transformers, LlamaForCausalLM]
    """
    width, inner, vocabulary, layers = (
        shape[key] for key in ("hidden_size", "intermediate_size", "vocab_size", "num_hidden_layers")
    )
    keys = width * shape["num_key_value_heads"] // shape["num_attention_heads"]
    layer = 2 * width * width + 2 * width * keys + 3 * width * inner + 2 * width
    return 2 * vocabulary * width + layers * layer + width


SHAPE = {
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 16, "vocab_size": 10,
}  # fmt: skip
SMALL = replace(OFFICIAL, weights_sha256={}, shape=SHAPE, parameters=parameters_of(SHAPE))


def groups(kind: str, bits: int, inputs: int | None) -> dict[str, Any]:
    activations = {"num_bits": inputs, "type": kind} if inputs else None
    group = {"weights": {"num_bits": bits, "type": kind}, "input_activations": activations}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}


def quark(weight: str, inputs: str | None = None) -> dict[str, Any]:
    types = {"weight": [{"dtype": weight}]} | ({"input_tensors": {"dtype": inputs}} if inputs else {})
    return {"quant_method": "quark", "global_quant_config": types}


def model(folder: Path, kind: str, quantization: dict[str, Any] | None = None, packed: int = 1) -> Path:
    """Write a Llama of one layer, with projections of type `kind` and `packed` numbers in each value."""
    import torch
    from safetensors.torch import save_file

    tensors: dict[str, torch.Tensor] = {}
    for name, (rows, columns) in LAYER.items():
        tensors[f"model.layers.0.{name}_proj.weight"] = torch.zeros(rows, columns // packed).to(getattr(torch, kind))
        if quantization:
            tensors[f"model.layers.0.{name}_proj.weight_scale"] = torch.zeros(rows, 1)
    ends = {"model.embed_tokens": (10, 8), "lm_head": (10, 8), "model.norm": (8,), "a_norm": (8,), "b_norm": (8,)}
    tensors |= {f"{name}.weight": torch.zeros(shape, dtype=torch.bfloat16) for name, shape in ends.items()}
    names = sorted(tensors)
    for number, part in enumerate((names[:5], names[5:])):
        save_file({name: tensors[name] for name in part}, folder / f"model-{number}.safetensors")
    config = {**SMALL.shape, **({"quantization_config": quantization} if quantization else {})}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("kind", "packed", "quantization", "precision"),
    [
        ("bfloat16", 1, None, "bfloat16"),
        ("float32", 1, None, "float32"),
        ("int8", 1, groups("int", 8, 8), "int8_w8a8"),
        ("float8_e4m3fn", 1, groups("float", 8, 8), "fp8_w8a8"),
        ("float8_e4m3fn", 1, {"quant_method": "fp8", "activation_scheme": "static"}, "fp8_w8a8"),
        ("int32", 8, groups("int", 4, None), "int4_w4a16"),
        ("int32", 8, {"quant_method": "awq", "bits": 4}, "int4_w4a16"),
        ("uint8", 2, {"quant_method": "modelopt", "quant_algo": "NVFP4"}, "fp4_w4a4"),
        ("uint8", 2, quark("fp4", "fp4"), "fp4_w4a4"),
        ("float8_e4m3fn", 1, quark("fp8_e4m3", "bfloat16"), "fp8_w8a16"),
        ("int8", 1, quark("uint8"), "int8_w8a16"),
        ("uint8", 2, {"quant_method": "mxfp4"}, "fp4_w4a16"),
        ("bfloat16", 1, {"quant_method": "bitsandbytes"}, "bitsandbytes (BF16)"),
        ("float8_e5m2", 1, None, "unknown (F8_E5M2)"),
    ],
)
def test_precision_and_number_of_parameters_are_read(
    tmp_path: Path, kind: str, packed: int, quantization: dict[str, Any] | None, precision: str
) -> None:
    weights = read_weights(model(tmp_path, kind, quantization, packed))
    assert (weights.precision, weights.quantized) == (precision, precision not in ("bfloat16", "float32"))
    assert weights.parameters == SMALL.parameters
    assert model_reasons(SMALL, weights.shape, weights, {}) == []


@pytest.mark.parametrize("key", ["llama3_1-8b", "llama2-70b"])
def test_numbers_of_parameters_follow_from_the_shapes(key: str) -> None:
    model = BENCHMARKS[key].model
    assert model.parameters == parameters_of(model.shape)


def test_missing_weights_are_reported(tmp_path: Path) -> None:
    weights = read_weights(model(tmp_path, "bfloat16"))
    fewer = weights.model_copy(update={"parameters": weights.parameters - 8})
    assert "the weights have" in model_reasons(SMALL, weights.shape, fewer)[0]
    sparse = {**groups("int", 8, 8), "sparsity_config": {"format": "sparse-24-bitmask"}}
    for name in ("quantization_config", "compression_config"):
        (tmp_path / "config.json").write_text(json.dumps({**SMALL.shape, name: sparse}))
        weights = read_weights(tmp_path)
        assert weights.precision == "int8_w8a8"
        assert "weights are missing" in model_reasons(SMALL, weights.shape, weights)[0]


def test_only_published_weights_count_as_unchanged() -> None:
    part = Weights(
        files=4, tensors=291, parameters=OFFICIAL.parameters, dtypes={"BF16": OFFICIAL.parameters},
        precision="bfloat16", quantized=False, sparse=False, shape=dict(OFFICIAL.shape), headers_sha256="0" * 64,
    )  # fmt: skip
    published = dict(OFFICIAL.weights_sha256)
    assert model_reasons(OFFICIAL, part.shape, part, {**published, "config.json": "any"}) == []
    assert model_reasons(OFFICIAL, part.shape, part) == []  # not hashed yet
    (reason,) = model_reasons(OFFICIAL, part.shape, part, {**published, "model-00001-of-00004.safetensors": "0" * 64})
    assert "their files differ from those of Llama-3.1-8B" in reason
    assert model_reasons(OFFICIAL, part.shape, part, {})
    quantized = part.model_copy(update={"quantized": True, "precision": "fp8_w8a8"})
    # Weights that a submitter quantized have no published hash
    assert model_reasons(OFFICIAL, part.shape, quantized, {}) == []


def test_only_the_distributed_dataset_is_official() -> None:
    for key in ("llama3_1-8b", "llama3_1-8b-interactive", "llama3_1-8b-edge"):
        assert dataset_reasons(BENCHMARKS[key], BENCHMARKS[key].data_sha256 or "") == []
        assert "MLCommons distributes" in dataset_reasons(BENCHMARKS[key], "0" * 64)[0]
    assert dataset_reasons(BENCHMARKS["llama2-70b"], "any") == []


def test_a_folder_without_weights_has_no_parameters(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert (read_weights(tmp_path).parameters, read_weights(tmp_path).precision) == (0, "none")


@pytest.mark.parametrize("content", [b"", b"\xff" * 20, b"\2\0\0\0\0\0\0\0[]", b"\7\0\0\0\0\0\0\0" + b'{"a":1}'])
def test_an_invalid_safetensors_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(
        InputError, match=r"model.safetensors (is not a safetensors file|contains no weights: it is empty)"
    ):
        read_weights(tmp_path)


def header(**changes: Any) -> bytes:
    tensor = {"dtype": "BF16", "shape": [2, 4], "data_offsets": [0, 16], **changes}
    content = json.dumps({"a.weight": tensor}).encode()
    return len(content).to_bytes(8, "little") + content + bytes(16)


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [-2, -4]}, {"shape": [1e300]}, {"shape": [2.0, 4]}, {"shape": [True]}, {"shape": [2**40, 2**40]},
        {"shape": [2, 5]}, {"shape": "ab"}, {"shape": None}, {"data_offsets": [-16, 16]}, {"data_offsets": [16]},
        {"data_offsets": ["0", "16"]}, {"data_offsets": [0, 2**70]}, {"dtype": "F32"},
    ],
)  # fmt: skip
def test_a_header_that_contradicts_the_file_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    path = tmp_path / "model.safetensors"
    path.write_bytes(header())
    assert read_weights(tmp_path).parameters == 8
    path.write_bytes(header(**changes))
    with pytest.raises(InputError, match=r"model.safetensors is not a safetensors file"):
        read_weights(tmp_path)


GROUP = {"weights": [], "input_activations": 3}
ODD: list[Any] = [
    "x", [1], {"": None}, {"quant_method": []}, {"sparsity_config": 1},
    {"quant_method": "compressed-tensors", "config_groups": [1]},
    {"quant_method": "compressed-tensors", "config_groups": {"g": GROUP}},
    {"quant_method": "quark", "global_quant_config": [1]},
    {"quant_method": "quark", "global_quant_config": {"weight": 1}},
    {"quant_method": "awq", "bits": []}, {"quant_method": "modelopt", "quant_algo": {}},
]  # fmt: skip


@pytest.mark.parametrize("quantization", ODD)
def test_unknown_quantization_settings_are_never_plain(quantization: Any, tmp_path: Path) -> None:
    """Such a configuration states nothing or is refused. A model with an unknown word in it is never plain."""
    (tmp_path / "model.safetensors").write_bytes(header())
    for config, beside in ((quantization, {}), (None, {"quantization": quantization})):
        (tmp_path / "config.json").write_text(json.dumps({"quantization_config": config}))
        (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside))
        if not isinstance(config, dict | None):
            with pytest.raises(InputError, match="quantization_config is"):
                read_weights(tmp_path)
        else:
            assert read_weights(tmp_path).quantized


def test_files_are_hashed_by_content(tmp_path: Path) -> None:
    """The hub's cache has links to blobs that are named by their hash. Here the name is wrong."""
    blob = tmp_path / ("a" * 64)
    blob.write_bytes(b"other weights")
    (tmp_path / "model.safetensors").symlink_to(blob)
    assert file_hashes(tmp_path) == {"model.safetensors": hashlib.sha256(b"other weights").hexdigest()}
