"""What a device allows, against figures worked out by hand."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from compliance.report import ceiling as module
from compliance.report.ceiling import Ceiling, Device, ceiling, find_device
from runs.record.manifest import LegPlan, Manifest
from tests.compliance.report.test_series import table

LLAMA = {"num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096, "num_hidden_layers": 32}
ONE_BILLION = 10**9


@pytest.mark.parametrize(
    ("name", "known"),
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
def test_names_as_drivers_tell_them(name: str, known: str | None) -> None:
    found = find_device(name)
    assert (found.name if found else None) == known


def manifest(folder: Path, scenario: str, **configuration: Any) -> Manifest:
    plan = LegPlan.model_construct(engine="vllm", scenario=scenario)
    return Manifest.model_construct(
        resolved=plan,
        accelerator=[{"name": "NVIDIA H100 80GB HBM3"}] * 2,
        engine={"configuration": {"dtype": "bfloat16", "tensor_parallel_size": 2, **configuration}},
        model={"folder": str(folder)},
        replicas=[],
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.setattr(module, "read_weights", lambda _: SimpleNamespace(parameters=ONE_BILLION))
    return tmp_path


def test_both_bounds(folder: Path) -> None:
    requests = table(100)
    found = ceiling(manifest(folder, "Offline"), requests, None)
    assert isinstance(found, Ceiling)
    output = 1100
    work = 2 * ONE_BILLION * (int(requests.prompt_tokens.sum()) + output)
    assert found.arithmetic == pytest.approx(output / (work / (2 * 989e12)))
    # 2 × 32 layers × 8 heads × 128 numbers of 2 bytes: 131,072 bytes a token of context; weights at least 11 times.
    context = float((requests.output_tokens * (requests.prompt_tokens + requests.output_tokens / 2)).sum())
    read = context * 131_072 + 11 * 2 * ONE_BILLION
    assert found.memory == pytest.approx(output / (read / (2 * 3.35e12)))
    assert found.lowest == min(found.memory, found.arithmetic)


def test_one_query_at_a_time_reads_all_weights_for_each_token(folder: Path) -> None:
    found = ceiling(manifest(folder, "SingleStream"), table(10), None)
    assert isinstance(found, Ceiling)
    assert found.memory < 2 * 3.35e12 / (2 * ONE_BILLION)


def test_what_is_not_known_is_said(folder: Path) -> None:
    unknown = manifest(folder, "Offline")
    unknown.accelerator = [{"name": "NVIDIA GeForce RTX 4090"}]
    assert ceiling(unknown, table(3), None) == "NVIDIA GeForce RTX 4090 is not in the table of devices"
    unknown.accelerator = []
    assert "--measure-machine" in str(ceiling(unknown, table(3), None))
    device = Device("this processor", 1e10, 1e11, "measured")
    assert isinstance(ceiling(unknown, table(3), device), Ceiling)
    away = manifest(folder / "away", "Offline")
    assert "is not here" in str(ceiling(away, table(3), None))
    assert np.isfinite(module.measure_cpu().flops)
