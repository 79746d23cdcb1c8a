"""Offline runs with a limited number of open queries, through the real LoadGen."""

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from runs.bench.bench_record import Limits
from runs.bench.measure import measure_run
from runs.errors import ExitCode
from runs.record.layout import RunDir
from runs.record.manifest import read_manifest
from runs.record.requests_log import NO_TIME, RequestTable, read_request_table
from tests.conftest import RunMain
from tests.support.runs.http_campaign import make_model
from tests.support.runs.records import most_open
from tests.support.runs.run_commands import arguments, progress
from tests.support.servers import server_dialects
from tests.support.servers.http_server import HttpServer, ServerReply, serving

CONF = "*.Offline.min_duration = 1\n*.Offline.min_query_count = 64\n*.Offline.target_qps = 50\n"


def _check(table: RequestTable, limit: int) -> None:
    assert table.submit_ns is not None
    assert (table.issue_ns <= table.submit_ns).all()
    assert (table.submit_ns <= table.first_token_ns).all()
    assert (table.first_token_ns <= table.complete_ns).all()
    assert most_open(table.submit_ns.tolist(), table.complete_ns.tolist()) == limit


def test_two_replicas_share_the_open_queries(run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    more = ("--replicas", 2, "--concurrency", 6, "--dummy-slots", 2, "--dummy-ttft-ms", 8)
    finished = run_main(*arguments("Offline", out, *more, conf=CONF))
    assert finished.code == ExitCode.OK, finished.stderr
    table = read_request_table(RunDir(out).requests)
    assert len(table) == 64
    _check(table, 6)
    assert table.replica is not None
    assert min(Counter(table.replica.tolist()).values()) > 0
    manifest = read_manifest(RunDir(out).manifest)
    assert manifest.plan.concurrency == 6
    assert any("closed loop" in reason for reason in manifest.unofficial_reasons)
    assert table.submit_ns is not None
    latency_ms, ttft_ms = ((ends - table.submit_ns) / 1e6 for ends in (table.complete_ns, table.first_token_ns))
    # The bins of the histogram are 2% wide
    assert progress(out)["ttft_p99_ms"] == pytest.approx(ttft_ms.max(), rel=0.04)
    run = measure_run(
        out, number=2, kind="concurrency", limits=Limits(ttft=ttft_ms.max() + 1), percentile="p90",
        output_tokens=None, folder=tmp_path, concurrency=6,
    )  # fmt: skip
    assert run.verdict in ("within", "unclear")  # unclear if the host delayed the client
    assert (run.scenario, run.queries, run.concurrency) == ("Offline", 64, 6)
    assert run.ttft is not None
    assert run.latency is not None
    assert (run.ttft.max, run.latency.max) == (ttft_ms.max(), latency_ms.max())
    assert run.latency.mean == pytest.approx(latency_ms.mean())
    assert run.open is not None
    assert run.open.max == 6
    assert 5 < run.open.mean <= 6


def test_a_server_never_has_more_requests_than_the_concurrency(run_main: RunMain, tmp_path: Path) -> None:
    lock, open_now, most = threading.Lock(), 0, 0

    def reply_to(body: dict[str, Any]) -> ServerReply:
        nonlocal open_now, most
        reply = server_dialects.vllm(body)

        async def steps() -> Any:
            nonlocal open_now, most
            with lock:
                open_now += 1
                most = max(most, open_now)
            for step in reply.steps:
                yield step
            with lock:
                open_now -= 1

        return ServerReply(steps(), content_type=reply.content_type)

    conf = tmp_path / "user.conf"
    conf.write_text(CONF)
    out = tmp_path / "run"
    with serving(HttpServer("/v1/completions", reply_to, "vllm")) as server:
        finished = run_main(
            "run", "--scenario", "Offline", "--api-server", server.url, "--model-path", make_model(tmp_path / "model"),
            "--user-conf", conf, "--output-log-dir", out, "--concurrency", 4,
        )  # fmt: skip
    assert finished.code == ExitCode.OK, finished.stderr
    table = read_request_table(RunDir(out).requests)
    _check(table, 4)
    assert most == 4
    assert not (table.first_token_ns == NO_TIME).any()
