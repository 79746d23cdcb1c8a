"""Audits and a tune against a server, started as by a user."""

import json
from pathlib import Path

import pytest

from runs.errors import ExitCode
from tests.conftest import StartMain
from tests.support.runs.http_campaign import make_model
from tests.support.servers.computing_server import Computing
from tests.support.servers.http_server import HttpServer, serving

CONF = """
*.Offline.target_qps = 50
*.Offline.min_duration = 200
*.Offline.min_query_count = 64
"""


@pytest.mark.long
def test_a_caching_server_fails_the_audit(start_main: StartMain, tmp_path: Path) -> None:
    """An honest server passes the audit in the recorded campaign over HTTP."""
    (tmp_path / "user.conf").write_text(CONF)
    with serving(HttpServer("/v1/completions", Computing(2.5, keeps=True), "vllm")) as server:
        engine = ("--engine", "endpoint", "--api-server", server.url, "--api-connections", 256)
        places = ("--model-path", make_model(tmp_path / "model"), "--user-conf", tmp_path / "user.conf")
        words = ("audit", "--scenario", "Offline", "--test", "output_caching", *engine, *places)
        finished = start_main(*words, "--output-log-dir", tmp_path / "out").wait()
    assert finished.code == ExitCode.NEGATIVE, finished.stdout + finished.stderr
    (record,) = (tmp_path / "out").rglob("audit_output_caching.json")
    assert json.loads(record.read_bytes())["passed"] is False


def test_doctor_names_dialect_and_model_of_a_server(start_main: StartMain) -> None:
    make_reply = Computing(0.0, counts=False)
    with serving(HttpServer("/v1/completions", make_reply, "vllm", model="model\x1b]0;owned\x07")) as server:
        finished = start_main("doctor", "--api-server", server.url).wait()
    assert finished.code == ExitCode.OK, finished.stdout + finished.stderr
    assert r"dialect vllm, model model\x1b]0;owned\x07" in finished.stdout
