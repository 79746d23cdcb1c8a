"""The check of a finished run of a point: planted faults, and the numbers of its record."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from scenarios.curve.client_config import ClientForm, PlannedLoad, client_config
from scenarios.curve.curve_config import CurveConfig, load_curve
from scenarios.curve.examined_run import examine_point, measured_rate
from tests.scenarios.curve.conftest import ROWS, CurveFiles
from tests.support.mlperf_endpoints import stub_client

LOAD = PlannedLoad(40, 10 * ROWS)
GIT_SHA = stub_client.StubServer().git_sha


@pytest.fixture
def run_point(curve_files: CurveFiles) -> Callable[..., tuple[CurveConfig, dict[str, Any], Path]]:
    """Return a function that lets the stub measure a point; it returns the curve, the configuration and the folder."""

    def run(**server: Any) -> tuple[CurveConfig, dict[str, Any], Path]:
        curve_files.serve(**server)
        curve = load_curve(curve_files.write(), curve_files.output, is_rehearsal=True)
        folder = curve_files.output / "points" / "r1"
        folder.mkdir(parents=True)
        config = client_config(curve, ClientForm("since 24 September 2026", 13), LOAD, folder)
        path = curve_files.root / "client.yaml"
        path.write_text(yaml.safe_dump(config))
        assert stub_client.main(["benchmark", "from-config", "--config", str(path)]) == 0
        return curve, config, folder

    return run


def test_a_point_that_equals_its_plan_has_no_reason_against_it(run_point: Callable[..., Any]) -> None:
    curve, config, folder = run_point()
    record = examine_point(curve, folder, LOAD, config, {"git_sha": GIT_SHA})
    assert record["reasons"] == []
    assert record["rate"] == pytest.approx(80, rel=0.05)  # 40 slots of 0.5 s
    assert record["samples"] == LOAD.samples
    assert record["steady_state"]["window"]["super_pass_size"] == ROWS


@pytest.mark.parametrize(
    ("server", "load", "change", "git_sha", "words"),
    [
        ({"failed": {"40": 1}}, LOAD, {}, GIT_SHA, "failed samples: 1"),
        ({}, replace(LOAD, samples=11 * ROWS), {}, GIT_SHA, "issued samples: 240, required: 264"),
        ({}, LOAD, {"name": "another"}, GIT_SHA, "model_params.name: model, required: another"),
        ({}, LOAD, {}, "0" * 40, "git_sha of the client"),
    ],
    ids=["failed sample", "number of samples", "model", "client"],
)  # fmt: skip
def test_a_planted_fault_is_a_reason_against_the_point(
    run_point: Callable[..., Any],
    server: dict[str, Any],
    load: PlannedLoad,
    change: dict[str, str],
    git_sha: str,
    words: str,
) -> None:
    curve, config, folder = run_point(**server)
    planned = config | {"model_params": config["model_params"] | change}
    reasons = examine_point(curve, folder, load, planned, {"git_sha": git_sha})["reasons"]
    assert any(words in reason for reason in reasons), reasons


def test_a_changed_summary_is_a_reason_against_the_point(run_point: Callable[..., Any]) -> None:
    curve, config, folder = run_point()
    path = folder / "performance" / "result_summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"qps": 999.0}))
    assert examine_point(curve, folder, LOAD, config, {"git_sha": GIT_SHA})["reasons"]


def test_the_rate_excludes_the_first_issues_and_the_drain() -> None:
    issued = np.array([0, 0, 1, 1, 2, 2], np.int64) * 10**9  # two open samples of 1 s each
    assert measured_rate(issued, issued + 10**9, 2) == pytest.approx(2)
    assert measured_rate(issued, issued + 10**9, 0) == pytest.approx(6 / 3)
