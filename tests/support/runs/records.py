"""Records of runs, and runs as the plan of an engine sees them, for tests without runs."""

import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np

from runs.record.manifest import Manifest, RunPlan
from runs.record.requests_log import NO_TIME, Digests, RequestTable
from sut.engine_kind import RunFacts
from tests.support import official

SAMPLING = {"temperature": 0.0, "top_p": 1.0, "top_k": 1, "seed": 42, "min_tokens": 1, "max_tokens": 128}
HOST = {
    "hostname": "far", "boot_id": None, "system": "Linux-6.8", "cpu": "Another CPU", "cores_usable": 7,
    "cores_logical": 7, "memory_bytes": 2**40,
}  # fmt: skip


def run_plan(**changes: Any) -> RunPlan:
    """Return the plan of an Offline performance run."""
    values: dict[str, Any] = {
        "scenario": "Offline", "loadgen_scenario": "Offline", "mode": "performance", "loadgen_key": "llama3_1-8b",
        "dataset_path": "/data/cnn.json", "dataset_sha256": "0" * 64, "sample_count": 64, "longest_prompt_tokens": 10,
        "audit": False, "enable_log_trace": False, "engine": "dummy", "model_path": "model", "engine_options": {},
        "environment": {}, "sampling": SAMPLING, "warmup_prompts": 0, "engine_start_timeout_s": 1,
        "stall_timeout_s": 1,
    }  # fmt: skip
    return RunPlan(**values | changes)


def observed(**changes: Any) -> dict[str, Any]:
    """Return the facts of a host before a run starts; `model` and `host` change single facts."""
    values: dict[str, Any] = {
        "harness": {"version": "0.1.0", "git_commit": None, "git_changed": None},
        "software": {"python": "3.11.7"},
        "loadgen": {"version": "6.0.17", "extension": "/lib/loadgen.so", "extension_sha256": "0" * 64},
        "accelerators": [],
    }
    model = {"name": "model", "folder": None, "revision": None, "weights": None} | changes.pop("model", {})
    host = HOST | changes.pop("host", {})
    return values | changes | {"model": model, "host": host}


def record(plan: RunPlan | None = None, seen: dict[str, Any] | None = None, **changes: Any) -> Manifest:
    """Return the manifest of a run that is not eligible for submission; `seen` are facts for `observed`."""
    official = changes.get("official", False)
    values: dict[str, Any] = {
        "official": official, "unofficial_reasons": [] if official else ["a test"], "notes": [], "asked": {},
        "plan": plan or run_plan(), "observed": observed(**seen or {}), "parent_pid": 1,
        "start_time_ns": time.time_ns(),
    }  # fmt: skip
    return Manifest(**values | changes)


GPU = {
    "vendor": "NVIDIA", "index": "0", "name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-1", "memory.total": "81559",
    "driver_version": "570.1", "clocks.max.sm": "1980", "power.limit": "[N/A]",
}  # fmt: skip


def official_record(
    *, engine: str = "vllm", engine_options: dict[str, Any] | None = None, configuration: Any = None, **seen: Any
) -> Manifest:
    """Return the manifest of an eligible run on one GPU of another host; `seen` are facts for `observed`."""
    options = engine_options or {"dtype": "bfloat16"}
    sizes = {"sample_count": 13368, "longest_prompt_tokens": 2000}
    plan = run_plan(engine=engine, model_path="/models/llama", engine_options=options, **sizes)
    recorded = {
        "software": {"python": "3.11.7", "vllm": "0.32.0", "torch": "2.13.0"},
        "accelerators": [GPU],
        "model": {"name": "meta-llama/Llama-3.1-8B-Instruct"},
    }
    return record(plan, recorded | seen, official=True, engine={"configuration": configuration or {}})


def request_table(issue_ns: Any, first_token_ns: Any, complete_ns: Any, **columns: Any) -> RequestTable:
    """Return requests of 100 prompt tokens and 11 output tokens, each of its own sample, except for the given columns.

    A first token before the issue means a missing one.
    """
    count = len(issue_ns)
    arrays = {
        "seq": range(count), "sample_index": range(count), "prompt_tokens": 100, "output_tokens": 11,
        "issue_ns": issue_ns, "first_token_ns": first_token_ns, "complete_ns": complete_ns, **columns,
    }  # fmt: skip
    numbers = {
        name: np.array(np.broadcast_to(np.asarray(value).astype(np.int64), count)) for name, value in arrays.items()
    }
    numbers["first_token_ns"][numbers["first_token_ns"] < numbers["issue_ns"]] = NO_TIME
    return RequestTable(**numbers, finish_reason=["stop"] * count, output_sha256=Digests(bytes(32 * count)))


def most_open(starts_ns: Iterable[int], ends_ns: Iterable[int]) -> int:
    """Return the largest number of overlapping spans. A span that begins at the end of another does not overlap it."""
    steps = sorted([*((start_ns, 1) for start_ns in starts_ns), *((end_ns, -1) for end_ns in ends_ns)])
    return max(accumulate(step for _, step in steps))


_SERVER = RunFacts(
    scenario="Server",
    sampling=official.SAMPLING,
    official_model=official.DATACENTER.model,
    admission="off",
    longest_prompt_tokens=20,
    lead_tokens=2,
    model_folder=None,
    parameters=400_000,
)


def run_facts(**changes: Any) -> RunFacts:
    """Return the facts of a Server run of a small model, with changes."""
    return replace(_SERVER, **changes)
