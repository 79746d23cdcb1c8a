"""Small recorded campaigns for the tests of submission trees, and their changes."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from compliance.accuracy.accuracy_text import read_scores
from compliance.accuracy.metrics import ROUGE
from compliance.signoff.signoff_verdict import SignOff, SignOffDetails
from runs.benchmarks.llama3_1_8b import MODEL
from runs.record.layout import CampaignDir, ResultDir, RunDir
from tests.support.files.editing import reseal
from tests.support.official import shorten_benchmarks, targets_at
from tests.support.runs.recorded import recorded
from tests.support.runs.technique_rows import weights

BENCHMARK = "llama3.1-8b"
SAMPLES = 64  # number of bundled articles
# Fields of configs/system-example.yaml that no manifest records. No test runs on the host of the recorded runs, so its
# facts cannot be detected.
SYSTEM = {
    "status": "available", "host_processors_per_node": "1", "host_processor_core_count": "2",
    "host_memory_configuration": "2x 16GB DDR5", "host_storage_capacity": "1 TB", "host_storage_type": "virtual disk",
    "host_networking": "1x Ethernet", "host_network_card_count": "1", "cooling": "air",
}  # fmt: skip
SCENARIOS = ("Offline", "Server")
CALIBRATION = b"# Calibration\n"  # calibration.md of the weights in `claim_official`


CONFIGURATION = {
    "dtype": "bfloat16", "quantization": "compressed-tensors", "kv_cache_dtype": "auto", "enable_prefix_caching": False,
    "speculative": False, "max_model_len": 4096, "enforce_eager": False, "max_num_seqs": 256,
    "max_num_batched_tokens": 8192, "enable_chunked_prefill": True, "async_scheduling": True,
    "tensor_parallel_size": 1, "data_parallel_size": 1, "pipeline_parallel_size": 1, "device": "cuda",
    "environment": {},
}  # fmt: skip
OFFICIAL = weights("fp8_w8a8", shape=dict(MODEL.shape), parameters=MODEL.parameters)  # their hash is not published


def campaign_copy(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> CampaignDir:
    """Copy a recorded campaign to change it.

    The benchmark requires no more than its short runs reach, and the scores of its Offline run are the reference.
    """
    shorten_benchmarks(monkeypatch, SAMPLES, 100)
    campaign = CampaignDir(shutil.copytree(recorded() / name, folder))
    scores = read_scores(ROUGE, campaign.result(BENCHMARK, "Offline").accuracy.accuracy_text.read_text())
    monkeypatch.setattr(
        "compliance.results.run_evidence.target_of", lambda run: (targets_at(scores), "the dummy itself")
    )
    return campaign


def _replaced(content: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    both = {name: content.get(name) for name in changes}
    return content | {
        name: _replaced(both[name], value) if isinstance(value, dict) and isinstance(both[name], dict) else value
        for name, value in changes.items()
    }


def edit(path: Path, **changes: object) -> None:
    """Replace keys of a JSON file, those of nested objects one by one. Its run is attested again."""
    path.write_text(json.dumps(_replaced(json.loads(path.read_bytes()), changes)))
    if (run := RunDir(path.parent)).seal.is_file():
        reseal(run)


def claim_official(campaign: CampaignDir) -> None:
    """Change the records to those of an eligible campaign. The sign-off detects it."""
    for path in campaign.root.rglob("manifest.json"):
        hashes = {"model.safetensors": "0" * 64, "calibration.md": hashlib.sha256(CALIBRATION).hexdigest()}
        weights = {"weights": OFFICIAL, "sha256": hashes, "folder": "bytes"}  # a missing folder
        content = json.loads(path.read_bytes())
        options, seen = content["plan"]["engine_options"], content["observed"]
        edit(
            path,
            official=True,
            unofficial_reasons=[],
            asked={
                "engine": "vllm",
                "mechanism": {"mechanism": "weight_quantization", "mechanism_variant": "fp8_w8a8"},
            },
            plan={"engine": "vllm", "compiles": True},
            engine={"versions": {"vllm": "0.32.0"}, "configuration": {**options, **CONFIGURATION}},
            observed={"model": seen["model"] | weights, "software": seen["software"] | {"vllm": "0.32.0"}},
        )


def sign_off_all(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Let each sign-off pass. Return the signed-off directories."""
    signed_off: list[Path] = []

    def passes(scope: str, directories: list[Path], **options: object) -> SignOff:
        signed_off.extend(directories)
        return SignOff(details=SignOffDetails("bundle", 0.5, "closed"))

    monkeypatch.setattr("compliance.submission.build.judge_runs", passes)
    monkeypatch.setattr("compliance.submission.build.audit_problems", lambda performance, runs: [])
    return signed_off


def results_of(campaign: CampaignDir) -> list[ResultDir]:
    return [campaign.result(BENCHMARK, scenario) for scenario in SCENARIOS]
