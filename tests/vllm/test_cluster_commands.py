"""Tune, audit and campaign with replicas on two nodes of a real Ray cluster, as a user runs them."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from compliance.signoff.judge import sign_off
from runs.errors import ExitCode
from runs.record.layout import CampaignDir, ResultDir, RunDir
from runs.record.manifest import Manifest, read_manifest
from runs.record.requests_log import read_requests
from tests.conftest import StartedMain
from tests.support.legs import USER_CONF
from tests.support.ray_nodes import TwoNodes, needs_ray

pytestmark = [pytest.mark.vllm, pytest.mark.slow, needs_ray]

StartMain = Callable[..., StartedMain]
TIMEOUT_S = 1200.0
CAMPAIGN_CONF = """
*.Offline.min_duration = 100
*.Offline.min_query_count = 64
*.Offline.target_qps = 10
"""


def on_both_nodes(folder: Path) -> Manifest:
    """The record of a leg that both nodes computed."""
    manifest = read_manifest(RunDir(folder).manifest)
    assert manifest.plan.replicas is not None
    assert [place.node for place in manifest.plan.replicas.places] == [0, 1]
    assert set(read_requests(RunDir(folder).requests).replica.tolist()) == {0, 1}
    return manifest


class Small:
    """A campaign of one scenario: a performance and an accuracy leg."""

    def __init__(self, engine: str, cluster: TwoNodes, model: Path, folder: Path) -> None:
        conf, self._file = folder / "user.conf", folder / "small.yaml"
        conf.write_text(USER_CONF if engine == "dummy" else CAMPAIGN_CONF)
        own = {"model_path": str(model)} if engine == "vllm" else {"dummy_ttft_ms": 250}
        content = {
            "benchmark": "llama3.1-8b", "division": "open", "user_conf": str(conf), "engine": engine,
            "cluster": cluster.address, **own, "scenarios": {"Offline": None},
        }  # fmt: skip
        self._file.write_text(yaml.safe_dump(content, sort_keys=False))
        self.place = CampaignDir(folder / "campaign")
        self.result = self.place.result("llama3.1-8b", "Offline")

    @property
    def words(self) -> tuple[object, ...]:
        return "campaign", "--config", self._file, "--output-log-dir", self.place.root


def check_sign_off(result: ResultDir) -> None:
    signed = sign_off("harness", [result.root])
    assert signed.error is None
    told_by_times = "H-5/replica_too_fast"  # of dummies that share cores with other tests
    assert [one for one in signed.findings if "replica" in one.rule and one.rule != told_by_times] == []


@pytest.mark.parametrize("engine", ["dummy", pytest.param("vllm", marks=pytest.mark.long)])
def test_a_campaign_finds_its_legs_done(
    engine: str, cluster: TwoNodes, start_main: StartMain, tiny_model: Path, tmp_path: Path
) -> None:
    small = Small(engine, cluster, tiny_model, tmp_path)
    finished = start_main(*small.words).wait(TIMEOUT_S)
    assert finished.code == ExitCode.OK, finished.stdout + finished.stderr
    legs = [on_both_nodes(small.result.performance.root), on_both_nodes(small.result.accuracy.root)]
    again = start_main(*small.words).wait(TIMEOUT_S)
    assert again.code == ExitCode.OK, again.stdout + again.stderr
    assert "2 of 2 legs are done" in again.stdout
    assert on_both_nodes(small.result.performance.root).start_time_ns == legs[0].start_time_ns
    check_sign_off(small.result)
    assert cluster.left() == []
