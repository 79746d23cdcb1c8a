"""Manifests as legs write them, for tests that need no leg."""

from typing import Any

from runs.record.manifest import LegPlan, Manifest

GPU = {
    "index": "0",
    "name": "NVIDIA H100 80GB HBM3",
    "uuid": "GPU-1",
    "memory.total": "81559",
    "driver_version": "570.1",
    "clocks.max.sm": "1980",
    "power.limit": "[N/A]",
}
ELSEWHERE = {"hostname": "far", "system": "Linux-6.8", "cpu": "Another CPU", "cores_logical": 7, "memory_bytes": 2**40}


def manifest(**changes: Any) -> Manifest:
    """The record of a leg on one GPU of another machine."""
    plan = LegPlan(
        scenario="Offline",
        loadgen_scenario="Offline",
        mode="performance",
        loadgen_key="llama3_1-8b",
        dataset_path="/data/cnn.json",
        dataset_sha256="d",
        sample_count=13368,
        longest_prompt_tokens=2000,
        audit=False,
        trace=False,
        engine=changes.pop("engine", "vllm"),
        model_path="/models/llama",
        engine_options=changes.pop("engine_options", {"dtype": "bfloat16"}),
        environment={},
        sampling={},
        admission=None,
        warmup_prompts=1,
        engine_start_timeout_s=1,
        stall_timeout_s=1,
    )
    values: dict[str, Any] = {
        "official": True,
        "unofficial_reasons": [],
        "asked": {},
        "resolved": plan,
        "harness": {"version": "0.1.0", "git_commit": None, "git_changed": None},
        "software": {"python": "3.11.7", "vllm": "0.32.0", "torch": "2.13.0"},
        "loadgen": {},
        "host": ELSEWHERE,
        "accelerator": [GPU],
        "model": {"name": "meta-llama/Llama-3.1-8B-Instruct"},
        "dataset": {},
        "parent_pid": 1,
    }
    return Manifest(**{**values, **changes})
