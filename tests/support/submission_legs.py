"""A small campaign for the tests of submission trees: recorded legs and audits of the dummy engine, and the limits of
the benchmark lowered to what such legs reach."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from compliance.accuracy.accuracy_verdict import parse_accuracy_text
from compliance.accuracy.metrics import ROUGE
from compliance.signoff.signoff_verdict import SignOff
from runs.benchmarks.llama3_1_8b import MODEL
from runs.record.layout import CampaignDir, ResultDir, RunDir
from tests.support.editing import reseal
from tests.support.mechanism_rows import weights
from tests.support.official import shorten_benchmarks, targets_at
from tests.support.recorded import recorded

BENCHMARK = "llama3.1-8b"
SAMPLES = 64  # articles that are bundled
# As configs/system-example.yaml has it: the fields that nothing else tells on a machine without accelerators.
SYSTEM = {"status": "available", "host_memory_configuration": "2x 16GB DDR5", "cooling": "air"}
SCENARIOS = ("Offline", "Server")
CALIBRATION = b"# Calibration\n"  # of the weights that `claim_official` claims


def recorded_campaign() -> CampaignDir:
    """Performance, accuracy and TEST06 of two scenarios. Read it only."""
    return CampaignDir(recorded() / "campaign")


CONFIGURATION = {
    "dtype": "bfloat16", "quantization": None, "kv_cache_dtype": "auto", "enable_prefix_caching": False,
    "speculative": False, "max_model_len": 4096, "enforce_eager": False, "max_num_seqs": 256,
    "max_num_batched_tokens": 8192, "enable_chunked_prefill": True, "async_scheduling": True,
    "tensor_parallel_size": 1, "data_parallel_size": 1, "pipeline_parallel_size": 1, "device": "cuda",
    "environment": {},
}  # fmt: skip
OFFICIAL = weights("fp8_w8a8", shape=dict(MODEL.shape), parameters=MODEL.parameters)  # nobody publishes their hash


def lower_limits(campaign: CampaignDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the short legs be as long as the benchmark asks, and the dummy's own scores be the reference."""
    shorten_benchmarks(monkeypatch, SAMPLES, 100)
    text = campaign.result(BENCHMARK, "Offline").accuracy.accuracy_text.read_text()
    scores = parse_accuracy_text(ROUGE, text)
    monkeypatch.setattr("compliance.evidence.accuracy.target_of", lambda leg: (targets_at(scores), "the dummy itself"))


def copy_of(campaign: CampaignDir, folder: Path) -> CampaignDir:
    """A copy to change, of one harness commit: the checkout may have moved on between two legs of the test."""
    shutil.copytree(campaign.root, folder)
    copy = CampaignDir(folder)
    for path in folder.rglob("manifest.json"):
        edit(path, observed={"harness": {"version": "0.1.0", "git_commit": "0" * 40, "git_changed": False}})
    return copy


def _replaced(content: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    both = {name: content.get(name) for name in changes}
    return content | {
        name: _replaced(both[name], value) if isinstance(value, dict) and isinstance(both[name], dict) else value
        for name, value in changes.items()
    }


def edit(path: Path, **changes: object) -> None:
    """Replace keys of a JSON file, those of nested objects one by one; a leg of which it is a file is sealed anew."""
    path.write_text(json.dumps(_replaced(json.loads(path.read_bytes()), changes)))
    if (run := RunDir(path.parent)).seal.is_file():
        reseal(run)


def claim_official(campaign: CampaignDir) -> None:
    """Let the records say what those of an official campaign would say. The sign-off sees through it."""
    for path in campaign.root.rglob("manifest.json"):
        hashes = {"model.safetensors": "0" * 64, "calibration.md": hashlib.sha256(CALIBRATION).hexdigest()}
        weights = {"weights": OFFICIAL, "sha256": hashes, "folder": "bytes"}  # a folder that is not there
        content = json.loads(path.read_bytes())
        options, seen = content["plan"]["engine_options"], content["observed"]
        edit(
            path,
            official=True,
            unofficial_reasons=[],
            asked={"engine": "vllm"},
            plan={"engine": "vllm", "compiles": True},
            engine={"versions": {"vllm": "0.32.0"}, "configuration": {**options, **CONFIGURATION}},
            observed={"model": seen["model"] | weights, "software": seen["software"] | {"vllm": "0.32.0"}},
        )


def sign_off_all(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Let everything sign off, where legs only claim to be official; gives back the directories that were handed in."""
    asked: list[Path] = []

    def passes(scope: str, directories: list[Path], **options: object) -> SignOff:
        asked.extend(directories)
        return SignOff("bundle", 0.5, "closed")

    monkeypatch.setattr("compliance.submission.build_submission.judge_legs", passes)
    monkeypatch.setattr("compliance.submission.build_submission.audit_problems", lambda performance, legs: [])
    return asked


def results_of(campaign: CampaignDir) -> list[ResultDir]:
    return [campaign.result(BENCHMARK, scenario) for scenario in SCENARIOS]
