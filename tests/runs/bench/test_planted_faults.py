"""Planted faults of the client, the engine and the server: each is reported with the numbers of the run."""

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from runs.bench.bench_record import BenchRun, Limits, LoadKind
from runs.bench.measure import measure_run
from runs.errors import ExitCode
from runs.record.layout import RunDir
from runs.wording import milliseconds
from tests.conftest import RunMain
from tests.support.runs.dummy_runs import DummyRuns
from tests.support.runs.http_campaign import make_model
from tests.support.runs.recorded import OVER_HTTP, recorded
from tests.support.runs.run_commands import arguments
from tests.support.servers.computing_server import Computing
from tests.support.servers.http_server import HttpServer, serving

CONF = """
*.Server.target_qps = {rate}
*.Server.min_query_count = {queries}
*.Server.min_duration = 0
*.Server.target_latency_percentile = 90
"""


def measure_folder(run_dir: Path, kind: LoadKind = "server", tokens: int | None = None) -> BenchRun:
    return measure_run(
        run_dir, number=1, kind=kind, limits=Limits(ttft=2000, tpot=100), percentile="p90", output_tokens=tokens,
        folder=run_dir.parent,
    )  # fmt: skip


def test_an_overload_within_the_limits_is_reported_by_open_queries(run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    engine = ("--dummy-slots", 8, "--dummy-ttft-ms", 100, "--dummy-tpot-ms", 0)  # 80 queries/s
    finished = run_main(*arguments("Server", out, *engine, conf=CONF.format(rate=110, queries=300)))
    assert finished.code == ExitCode.OK, finished.stderr
    run = measure_folder(out)
    assert (run.verdict, run.loadgen_verdict, run.within_limits) == ("saturated", "VALID", 1.0)
    assert run.reasons[0].startswith("open queries grew by ")
    assert run.reasons[0].endswith("the latency depends on the duration of the run")
    assert run.done_qps == pytest.approx(80, rel=0.05)
    assert run.offered_qps == pytest.approx(110, rel=0.1)


def test_waiting_for_client_connections_is_reported(run_main: RunMain, tmp_path: Path) -> None:
    """One connection and 60 ms per response for 12 queries/s: queries wait for the connection."""
    out, conf = tmp_path / "run", tmp_path / "user.conf"
    conf.write_text(CONF.format(rate=12, queries=64))
    with serving(HttpServer("/v1/completions", Computing(0.01, 0.05), "vllm")) as server:
        finished = run_main(
            "run", "--scenario", "Server", "--api-server", server.url, "--api-connections", 1, "--model-path",
            make_model(tmp_path / "model"), "--user-conf", conf, "--output-log-dir", out,
        )  # fmt: skip
    assert finished.code == ExitCode.OK, finished.stderr
    run = measure_folder(out)
    assert run.client is not None
    assert run.client.issue_to_engine is not None
    assert run.client.issue_to_engine > 100
    assert run.ttft is not None
    assert run.reasons[0] == (
        f"client: issue to wire p99 {milliseconds(run.client.issue_to_engine)} ms of p90 TTFT "
        f"{milliseconds(run.ttft.p90 or 0)} ms"
    )
    assert run.cached_share == 0.0
    assert run.tokens is not None
    assert run.tokens.server in (None, run.tokens.counted)


def measure_with_changes(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> BenchRun:
    """Measure the recorded Server run over HTTP with changed observations."""
    copytree(recorded() / OVER_HTTP / "campaign/llama3.1-8b/Server/performance/run_1", tmp_path / "run")
    edit_observed(tmp_path / "run", change)
    return measure_folder(tmp_path / "run", tokens=1)


def edit_observed(run_dir: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads(RunDir(run_dir).manifest.read_text())
    change(manifest["observed"])
    RunDir(run_dir).manifest.write_text(json.dumps(manifest))


TEXT = {
    "is_tokenized": True, "responses_with_usage": 512, "tokens_by_usage": 70_000, "tokens_by_tokenizer": 65_536,
    "responses_estimated": 0, "short": 0, "empty": 0, "issue_to_text": {"count": 0, "p99_ms": None},
}  # fmt: skip


@pytest.mark.parametrize(
    ("client", "reason"),
    [
        ({}, None),
        ({"cached_tokens": 20_000, "answers_with_cached_count": 512}, "cache: 2.7% of the prompt tokens were read"),
        ({"cached_tokens_by_metrics": 20_000}, "cache: 2.7% of the prompt tokens were read from a cache"),
        ({"tokens_by_metrics": 60_000}, "tokens: the server counts "),
        ({"text": TEXT}, "tokens: the server counts 70,000 output tokens, the tokenizer of --model-path 65,536"),
        ({"text": TEXT | {"tokens_by_tokenizer": 67_000}}, None),
        ({"text": TEXT | {"tokens_by_usage": 65_536, "short": 7}}, "tokens: 7 of 512"),
        ({"text": TEXT | {"responses_with_usage": 0, "responses_estimated": 9}}, "tokens: estimated from chunks"),
        ({"first_tokens_with_others": 100}, "TTFT: 100 of 512 first tokens arrived together with later"),
        ({"issue_to_wire": {"count": 512, "p99_ms": 200.0}}, "client: issue to wire p99 20"),
    ],
)
def test_faults_recorded_by_server_and_client_are_reported(
    tmp_path: Path, client: dict[str, Any], reason: str | None
) -> None:
    run = measure_with_changes(tmp_path, lambda observed: observed["engines"][0]["client"].update(client))
    is_late = reason is not None and reason.startswith("client: ")
    is_doubtful = client.get("text") == TEXT  # the token counts of tokenizer and server differ by 6%
    assert (run.verdict, run.queries) == ("unclear" if is_late or is_doubtful else "within", 512)
    assert [text[: len(reason or "")] for text in run.reasons] == ([] if reason is None else [reason])


def test_responses_read_at_once_have_no_tpot(tmp_path: Path) -> None:
    def unstreamed(observed: dict[str, Any]) -> None:
        observed["engines"][0]["client"]["answers_read_at_once"] = 6

    run = measure_with_changes(tmp_path, unstreamed)
    assert (run.verdict, run.tpot, run.within_limits) == ("unchecked", None, None)
    assert run.reasons[1] == "TPOT: not measured, because 6 of 512 responses arrived at once"


def test_an_uncounted_cache_has_an_unknown_share(tmp_path: Path) -> None:
    assert measure_with_changes(tmp_path, lambda _: None).cached_share is None


def test_cpu_time_of_other_processes_is_reported(tmp_path: Path) -> None:
    def busy(observed: dict[str, Any]) -> None:
        contention = observed["contention"]
        contention["foreign_cpu_s"] = contention["window_s"] * contention["usable_cores"] * 0.3

    run = measure_with_changes(tmp_path, busy)
    assert (run.contention, run.reasons) == (None, [])  # the server on this host is one of the other processes
    copytree(DummyRuns()("Server"), tmp_path / "in-process")
    edit_observed(tmp_path / "in-process", busy)
    assert measure_folder(tmp_path / "in-process").contention == pytest.approx(0.3)
    assert measure_folder(tmp_path / "in-process").reasons == ["machine: other processes used 30% of the cores' time"]
