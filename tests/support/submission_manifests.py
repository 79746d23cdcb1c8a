"""Manifests as legs write them, for tests that need no leg."""

from typing import Any

from runs.record.manifest import Manifest
from tests.support.records import leg_plan, record

GPU = {
    "vendor": "NVIDIA",
    "index": "0",
    "name": "NVIDIA H100 80GB HBM3",
    "uuid": "GPU-1",
    "memory.total": "81559",
    "driver_version": "570.1",
    "clocks.max.sm": "1980",
    "power.limit": "[N/A]",
}


def manifest(
    *, engine: str = "vllm", engine_options: dict[str, Any] | None = None, configuration: Any = None, **seen: Any
) -> Manifest:
    """The record of an official leg on one GPU of another machine; `seen` are facts for `observed`."""
    plan = leg_plan(
        sample_count=13368,
        longest_prompt_tokens=2000,
        engine=engine,
        model_path="/models/llama",
        engine_options=engine_options or {"dtype": "bfloat16"},
    )
    known = {
        "software": {"python": "3.11.7", "vllm": "0.32.0", "torch": "2.13.0"},
        "accelerators": [GPU],
        "model": {"name": "meta-llama/Llama-3.1-8B-Instruct"},
    }
    return record(plan, known | seen, official=True, engine={"configuration": configuration or {}})
