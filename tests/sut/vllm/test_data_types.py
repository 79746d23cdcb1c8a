"""Facts on vLLM's CPU build (sut/vllm/cpu.py, check_data_types), compared with the installed build."""

import mmap
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from runs.machine.environment import vllm_is_cpu_build
from sut.vllm.vllm_kind import IN_FLOAT32

if not vllm_is_cpu_build():
    pytest.skip("another build of vLLM", allow_module_level=True)

SPEC = find_spec("vllm")
assert SPEC is not None
assert SPEC.origin is not None
VLLM = Path(SPEC.origin).parent
OF_FILES = {"auto_awq.py": "awq", "auto_gptq.py": "gptq", "fp8.py": "fp8", "quark.py": "quark"}


def operations(name: str, *wanted: bytes) -> list[bool]:
    """Return whether a library of vLLM has these operations, by their schemas."""
    with (VLLM / name).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return [content.find(value) >= 0 for value in wanted]


def test_compiled_libraries_have_the_expected_operations() -> None:
    nothing = b"static_scaled_fp8_quant() -> ()"  # a name without arguments, which cannot be called
    assert operations("_C_AVX2.abi3.so", b"onednn_scaled_mm(", b"cpu_gemm_wna16(", nothing) == [True, False, True]
    assert operations("_C_AVX512.abi3.so", b"cpu_gemm_wna16(", b"fp8_scaled_mm_cpu(", nothing) == [True, False, True]


def test_an_fp8_cache_requires_amx_or_avx512() -> None:
    text = (VLLM / "v1/attention/backends/cpu_attn.py").read_text()
    assert "if fp8_kv and not supports_amx and not supports_avx512:" in text


def test_quantization_methods_that_compute_in_float32_are_known() -> None:
    by_method: dict[str, bool] = {}
    for path in (VLLM / "model_executor/layers/quantization").rglob("*.py"):
        types = re.findall(r"def get_supported_act_dtypes.*?return (\[.*?\])", path.read_text(), re.DOTALL)
        if types:
            by_method[OF_FILES.get(path.name, path.stem.replace("_", "-"))] = any("float32" in value for value in types)
    assert {method for method, in_float32 in by_method.items() if in_float32} == set(IN_FLOAT32)
    assert not any(by_method[method] for method in OF_FILES.values())
