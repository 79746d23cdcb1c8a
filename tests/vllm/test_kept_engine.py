"""A real vLLM engine that serves multiple runs: other scenarios, a stopped run, the caching audit."""

import io
import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from runs.errors import ExitCode, Interrupted
from runs.harness import HARNESS_ROOT
from runs.record.layout import RunDir
from runs.record.manifest import read_manifest
from runs.record.progress import Progress
from scenarios.launch.parent import execute_run
from scenarios.launch.plan import prepare
from scenarios.launch.run_config import RunConfig, make_config
from sut.replicas.kept_engine import EngineKeeper
from tests.support.engines.engine_turn import engine_turn
from tests.support.engines.greedy import TIE, GreedyResponse
from tests.support.runs.run_commands import digests

pytestmark = pytest.mark.vllm

CONF = """
*.Offline.min_duration = 0
*.Offline.min_query_count = 64
*.Offline.target_qps = 1
*.Server.min_duration = 1000
*.Server.target_qps = 40
*.Server.min_query_count = 64
*.Server.sample_concatenate_permutation = 0
"""


def test_scenarios_share_an_engine(tiny_model: Path, responses: list[GreedyResponse], tmp_path: Path) -> None:
    user_conf = tmp_path / "user.conf"
    user_conf.write_text(CONF)

    def config(name: str) -> RunConfig:
        values = {"scenario": name.partition("-")[0], "model_path": str(tiny_model), "user_conf": user_conf}
        return make_config({**values, "output_log_dir": tmp_path / name})

    def run(keeper: EngineKeeper, name: str, watch: Any = lambda _: None) -> RunDir:
        execute_run(config(name), Console(file=io.StringIO()), watch=watch, keeper=keeper)
        return RunDir(tmp_path / name)

    def stop(progress: Progress) -> None:
        if progress.phase == "running" and progress.issued:
            raise Interrupted("enough")

    clear = {index: response for index, response in enumerate(responses) if min(response.margins) >= TIE}
    with engine_turn, EngineKeeper(tmp_path / "engine.log") as keeper:
        keeper.engine_plan = prepare(config("Server")).plan
        with pytest.raises(Interrupted):
            run(keeper, "Offline-stopped", stop)
        made = [run(keeper, name) for name in ("Offline-second", "Server-third")]
        assert keeper.starts == 1
    manifests = [read_manifest(value.manifest) for value in made]
    assert len({manifest.replicas[0].pid for manifest in manifests}) == 1
    for finished_run in made:
        hashes = digests(finished_run.root)
        compared = clear.keys() & hashes.keys()
        assert len(compared) >= len(hashes) / 2
        for index in compared:
            ids = np.array(clear[index].ids, "<i4")
            assert hashes[index] == sha256(ids.tobytes()).hexdigest(), f"sample {index}"
    assert all(manifest.observed.cached_prompt_tokens == 0 for manifest in manifests)


def test_runs_of_the_caching_audit_share_engines(tiny_model: Path, tmp_path: Path) -> None:
    command = [sys.executable, HARNESS_ROOT / "main.py", "audit", "--test", "output_caching", "--scenario", "Offline"]
    command += ["--model-path", tiny_model, "--output-log-dir", tmp_path / "run"]
    with engine_turn:
        finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    folder = tmp_path / "run/audit/output_caching"
    # On a fast host, the tiny model completes all articles in less than the shortest reference. Then there is no
    # verdict.
    assert finished.returncode in (ExitCode.OK, ExitCode.REFUSED), finished.stdout + finished.stderr
    records = [json.loads(path.read_bytes()) for path in folder.glob("*/manifest.json")]
    assert len(records) >= 2 or finished.returncode == ExitCode.REFUSED
    # One reference run may need all articles. Then each reference run has its own engine.
    references = [
        record for record in records if record["plan"]["sample_count"] == len(set(record["plan"]["rows"])) > 4
    ]
    processes = {record["replicas"][0]["pid"] for record in records}
    assert len(processes) <= len(references)
    assert (folder / "engine.log").read_text().count("replica 0: process") == len(processes)
