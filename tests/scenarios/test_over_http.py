"""Audits and a tune against a server, as a user runs them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runs.errors import ExitCode
from tests.conftest import Finished, StartedMain
from tests.support.http_campaign import Computing, make_model
from tests.support.http_server import HttpServer, serving

pytestmark = pytest.mark.slow

CONF = """
*.Offline.target_qps = 50
*.Offline.min_duration = 200
*.Offline.min_query_count = 64
*.SingleStream.target_latency = 100
*.Server.target_qps = 1
*.Server.min_duration = 3000
*.Server.min_query_count = 459
*.Server.ttft_latency = 2000
"""
TIMEOUT_S = 300.0
Run = Callable[..., Finished]


@pytest.fixture
def run(start_main: Callable[..., StartedMain], tmp_path: Path) -> Run:
    """Runs a command against a server."""
    model = make_model(tmp_path / "model")
    conf = tmp_path / "user.conf"
    conf.write_text(CONF)

    def run(command: str, scenario: str, speaks: Computing, *more: object) -> Finished:
        with serving(HttpServer("/v1/completions", speaks, "vllm")) as server:
            engine = ("--engine", "endpoint", "--api-server", server.url, "--api-connections", 256)
            places = ("--model-path", model, "--user-conf", conf, "--output-log-dir", tmp_path / "out")
            return start_main(command, "--scenario", scenario, *engine, *places, *more).wait(TIMEOUT_S)

    return run


def _audit(folder: Path, test: str) -> dict[str, Any]:
    return dict(json.loads((folder / "out" / "audit" / test / f"audit_{test}.json").read_text()))


@pytest.mark.long
@pytest.mark.parametrize("keeps", [False, True])
def test_a_box_that_answers_from_a_cache_is_caught(keeps: bool, run: Run, tmp_path: Path) -> None:
    finished = run("audit", "Offline", Computing(1.0, keeps=keeps), "--test", "output_caching", "--samples", 20)
    assert finished.code == (ExitCode.NEGATIVE if keeps else ExitCode.OK), finished.stdout + finished.stderr
    assert _audit(tmp_path, "output_caching")["passed"] is not keeps


def test_a_first_look_at_a_server_says_what_the_client_holds(
    start_main: Callable[..., StartedMain],
) -> None:
    speaks = Computing(0.0, counts=False)
    with serving(HttpServer("/v1/completions", speaks, "vllm", model="model\x1b]0;owned\x07")) as server:
        finished = start_main("doctor", "--api-server", server.url).wait(TIMEOUT_S)
    assert finished.code == ExitCode.OK, finished.stdout + finished.stderr
    lines = [line for line in finished.stdout.splitlines() if server.url in line or " client " in line]
    assert r"dialect vllm, model model\x1b]0;owned\x07" in lines[0]
    assert "answers/s of one client process" in lines[-1]
    assert "2 events an answer (vllm)" in lines[-1]
