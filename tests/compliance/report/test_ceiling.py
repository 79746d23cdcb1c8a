"""Bounds of a device, compared with numbers that were computed by hand."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compliance.report import ceiling as module
from compliance.report.ceiling import Device, bounds, ceiling_rows, find_device
from runs.record.manifest import EngineState, Manifest, RunPlan
from runs.record.observed import Model, Observed
from tests.compliance.report.test_report import table

LLAMA = {"num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096, "num_hidden_layers": 32}
ONE_BILLION = 10**9


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4090", None),
    ],
)
def test_devices_are_found_by_the_names_that_drivers_report(name: str, expected: str | None) -> None:
    device = find_device(name)
    assert (device.name if device else None) == expected


def manifest(folder: Path, scenario: str, **configuration: Any) -> Manifest:
    plan = RunPlan.model_construct(engine="vllm", scenario=scenario)
    return Manifest.model_construct(
        plan=plan,
        engine=EngineState(configuration={"dtype": "bfloat16", "tensor_parallel_size": 2, **configuration}),
        observed=Observed.model_construct(
            accelerators=[{"name": "NVIDIA H100 80GB HBM3"}] * 2, model=Model.model_construct(folder=str(folder))
        ),
        replicas=[],
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.setattr(module, "read_weights", lambda _: SimpleNamespace(parameters=ONE_BILLION))
    return tmp_path


def test_bounds_follow_from_arithmetic_and_memory_traffic(folder: Path) -> None:
    requests = table(100)
    run = manifest(folder, "Offline")
    arithmetic, memory = bounds(Device("one", 3.35e12, 989e12, "a test"), run, requests)
    output = 1100
    work = 2 * ONE_BILLION * (int(requests.prompt_tokens.sum()) + output)
    assert arithmetic == pytest.approx(output / (work / 989e12))
    # 2 × 32 layers × 8 heads × 128 numbers of 2 bytes: 131,072 bytes a token of context; weights at least 11 times.
    context = float((requests.output_tokens * (requests.prompt_tokens + requests.output_tokens / 2)).sum())
    read = context * 131_072 + 11 * 2 * ONE_BILLION
    assert memory == pytest.approx(output / (read / 3.35e12))
    rows = dict(ceiling_rows(run, requests, min(arithmetic, memory)))
    assert rows["device"] == "2 × H100 (NVIDIA H100 data sheet, SXM)"
    assert rows["memory allows"].startswith(f"{2 * memory:,.0f} tokens/s")
    assert rows["arithmetic allows"].startswith(f"{2 * arithmetic:,.0f} tokens/s")
    assert rows["reached"].endswith("tokens/s, 50.0% of the lower bound")


def test_a_single_stream_reads_all_weights_for_each_token(folder: Path) -> None:
    _, memory = bounds(Device("one", 3.35e12, 989e12, "a test"), manifest(folder, "SingleStream"), table(10))
    assert memory < 3.35e12 / (2 * ONE_BILLION)


def test_unknown_models_and_devices_have_no_bound(folder: Path) -> None:
    away = dict(ceiling_rows(manifest(folder / "away", "Offline"), table(3), None))
    assert str(folder / "away") in away["unknown"]
    run = manifest(folder, "Offline")
    run.observed.accelerators = [{"name": "NVIDIA GeForce RTX 4090"}]
    assert ceiling_rows(run, table(3), None) == [("unknown", "NVIDIA GeForce RTX 4090 is not in the table of devices")]
    run.observed.accelerators = []
    assert ceiling_rows(run, table(3), None) == []
