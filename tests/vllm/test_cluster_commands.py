"""Tune, audit, campaign and bench with replicas on two nodes of a real Ray cluster, as a user runs them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from compliance.signoff.judge import sign_off
from runs.errors import ExitCode
from runs.record.layout import CampaignDir, RunDir, audit_record
from runs.record.manifest import Manifest, read_manifest
from scenarios.tune.places import TuneDir
from scripts.bench import cluster as bench
from scripts.bench.sizes import SMALLEST
from tests.conftest import StartedMain
from tests.support.legs import USER_CONF, arguments
from tests.support.ray_nodes import TwoNodes

pytest.importorskip("ray.cluster_utils", reason="Ray is not installed (docs/parallel.md)")

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

StartMain = Callable[..., StartedMain]
TIMEOUT_S = 400.0
TUNE_CONF = """
*.Server.target_qps = 1
*.Server.min_duration = 1000
*.Server.min_query_count = 459
*.Server.ttft_latency = 300
"""
CAMPAIGN_CONF = """
*.Offline.min_duration = 1000
*.Offline.min_query_count = 64
*.Offline.target_qps = 10
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[TwoNodes]:
    nodes = TwoNodes()
    yield nodes
    nodes.shutdown()


def on_both_nodes(folder: Path) -> Manifest:
    """The record of a leg that both nodes computed."""
    manifest = read_manifest(RunDir(folder).manifest)
    assert manifest.resolved.replicas is not None
    assert [place.node for place in manifest.resolved.replicas.places] == [0, 1]
    assert min(record["queries"] for record in manifest.replicas) > 0
    return manifest


def test_tune(cluster: TwoNodes, start_main: StartMain, tmp_path: Path) -> None:
    words = arguments("Server", tmp_path / "tune", "--cluster", cluster.address, conf=TUNE_CONF)
    queue = ("--dummy-slots", 4, "--dummy-ttft-ms", 35, "--offline-qps", 120, "--max-probes", 2)
    finished = start_main("tune", *words, *queue).wait(TIMEOUT_S)
    assert finished.code == ExitCode.OK, finished.stdout + finished.stderr
    place = TuneDir(tmp_path / "tune")
    record = json.loads(place.record.read_bytes())
    on_both_nodes(place.root / record["confirmed_by"])
    assert cluster.left() == []


def test_audit(cluster: TwoNodes, start_main: StartMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = arguments("Offline", out, "--cluster", cluster.address)
    finished = start_main("audit", "--test", "TEST06", *words).wait(TIMEOUT_S)
    assert finished.code == ExitCode.OK, finished.stdout + finished.stderr
    folder = out / "audit" / "TEST06"
    assert json.loads(audit_record(folder, "TEST06").read_bytes())["passed"] is True
    on_both_nodes(folder / "performance")
    assert cluster.left() == []


def test_the_bench_holds_them_against_local_replicas(tmp_path: Path) -> None:
    part = bench.run(tmp_path, SMALLEST)
    assert part.figures[-1].name == "Ray ÷ local"
    assert part.figures[-1].median > 0
    assert read_manifest(RunDir(tmp_path / "ray-0").manifest).resolved.nodes


@pytest.mark.parametrize("engine", ["dummy", "vllm"])
def test_a_campaign_finds_its_legs_done(
    engine: str, cluster: TwoNodes, start_main: StartMain, tiny_model: Path, tmp_path: Path
) -> None:
    conf, file, place = tmp_path / "user.conf", tmp_path / "small.yaml", CampaignDir(tmp_path / "campaign")
    conf.write_text(USER_CONF if engine == "dummy" else CAMPAIGN_CONF)
    own = {"model_path": str(tiny_model)} if engine == "vllm" else {"dummy_ttft_ms": 250}
    content = {
        "benchmark": "llama3.1-8b", "division": "open", "user_conf": str(conf), "engine": engine,
        "cluster": cluster.address, **own, "scenarios": {"Offline": None},
    }  # fmt: skip
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    words = ("campaign", "--config", file, "--output-log-dir", place.root)
    finished = start_main(*words).wait(TIMEOUT_S)
    assert finished.code == ExitCode.OK, finished.stdout + finished.stderr
    result = place.result("llama3.1-8b", "Offline")
    legs = [on_both_nodes(result.performance.root), on_both_nodes(result.accuracy.root)]
    again = start_main(*words).wait(TIMEOUT_S)
    assert again.code == ExitCode.OK, again.stdout + again.stderr
    assert "2 of 2 legs are done" in again.stdout
    assert on_both_nodes(result.performance.root).start_time_ns == legs[0].start_time_ns
    signed = sign_off("harness", [result.root])
    assert signed.degraded is None
    assert [one for one in signed.reasons if "replica" in one.rule] == []
    assert cluster.left() == []
