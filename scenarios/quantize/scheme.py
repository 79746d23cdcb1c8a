"""The quantization schemes, and the interpreter with llm-compressor."""

from typing import Literal

from runs.harness import HARNESS_ROOT

Scheme = Literal["fp8", "int8"]
ENVIRONMENT = HARNESS_ROOT / ".venv-quantize"
