"""The points of a bench for other tools, and a single run as a bench."""

import csv
import io
import json
from importlib.util import find_spec
from pathlib import Path
from shutil import copytree

import pytest

from runs.bench.bench_record import BenchRecord, BenchRun, Conditions, Limits
from runs.bench.measure import failed_run
from runs.bench.points import points_csv, vllm_file_name, vllm_result
from runs.bench.single_run import bench_of_run
from runs.errors import InputError
from runs.record.layout import RunDir
from runs.record.requests_log import RequestTable, read_request_table
from scenarios.bench.table import bench_closing, token_gaps
from scenarios.status.result_rows import COLUMNS
from tests.support.runs.dummy_runs import DummyRuns

DUMMY_RUNS = DummyRuns()


def test_a_single_run_is_a_bench_with_one_point() -> None:
    record = bench_of_run(DUMMY_RUNS("Server"), "before")
    (run,) = record.runs
    assert (record.label, record.percentile, record.limits) == ("before", "p95", Limits(ttft=2000, tpot=100))
    assert (run.kind, run.asked_qps, run.verdict, record.best and record.best.low) == ("server", 400, "within", 400)
    assert record.conditions.equal["sampling.max_tokens"] == 128
    assert bench_of_run(DUMMY_RUNS("Interactive")).runs[0].scenario == "Interactive"
    assert record.conditions.system["engine"] == "dummy"
    offline = bench_of_run(DUMMY_RUNS("Offline"))
    assert (offline.label, offline.percentile, offline.best, offline.limits) == ("run_1", "p90", None, None)
    stream = bench_of_run(DUMMY_RUNS("SingleStream")).runs[0]
    assert (stream.kind, stream.concurrency, stream.verdict) == ("concurrency", 1, "measured")
    assert stream.open is not None
    assert stream.open.mean == pytest.approx(1, abs=0.1)
    with pytest.raises(InputError, match="is an accuracy run"):
        bench_of_run(DUMMY_RUNS("Server", "accuracy"))


def record_of(*runs: BenchRun) -> BenchRecord:
    return BenchRecord(
        status="complete", label="a b", command=[], target="org/model", conditions=Conditions(equal={}, system={}),
        limits=Limits(ttft=500), percentile=None, percentile_reason="", metadata={"note": "x"}, runs=list(runs),
    )  # fmt: skip


def test_points_have_the_column_names_of_results(tmp_path: Path) -> None:
    measured = bench_of_run(DUMMY_RUNS("Server")).runs[0]
    record = record_of(measured, failed_run(tmp_path, 'a "b"', number=2, kind="offline", folder=tmp_path))
    first, second = csv.DictReader(io.StringIO(points_csv(record)))
    shared = [name for name in first if name in COLUMNS]
    assert shared == sorted(shared, key=COLUMNS.index)
    assert {"directory", "samples", "tokens_per_second", "ttft_p99_ms", "tpot_mean_ms", "mean_open"} <= set(shared)
    assert float(first["ttft_p99_ms"]) == measured.ttft.p99  # type: ignore[union-attr]
    assert (first["outcome"], first["ttft_limit_ms"], first["tpot_limit_ms"]) == ("within", "500.0", "")
    assert (second["outcome"], second["samples_per_second"], second["reasons"]) == ("failed", "", 'a "b"')
    assert len(list(csv.DictReader(io.StringIO(points_csv(record_of()))))) == 0


def test_a_run_is_written_in_the_format_of_vllm() -> None:
    run = bench_of_run(DUMMY_RUNS("Server")).runs[0]
    record = record_of(run)
    saved = json.loads(json.dumps(vllm_result(record, run)))
    assert vllm_file_name(record, run) == "a_b-400.0qps-model-01.json"
    assert (saved["request_rate"], saved["completed"], saved["failed"], saved["note"]) == (400.0, 640, 0, "x")
    assert saved["request_throughput"] == pytest.approx(640 / saved["duration"])
    assert saved["output_throughput"] == pytest.approx(saved["total_output_tokens"] / saved["duration"])
    assert saved["total_token_throughput"] > saved["output_throughput"]
    assert saved["median_ttft_ms"] == run.ttft.p50  # type: ignore[union-attr]
    assert saved["p99_e2el_ms"] == run.latency.rank_p99  # type: ignore[union-attr]
    assert saved["std_tpot_ms"] == run.tpot.std  # type: ignore[union-attr]
    assert (saved["model_id"], saved["tokenizer_id"]) == ("org/model", "org/model")
    named = vllm_result(record.model_copy(update={"model": "smol", "tokenizer": "/models/smol"}), run)
    assert (named["model_id"], named["tokenizer_id"]) == ("smol", "/models/smol")
    offline = bench_of_run(DUMMY_RUNS("Offline")).runs[0]
    assert vllm_result(record_of(offline), offline)["request_rate"] == "inf"


def run_with_token_gaps(tmp_path: Path) -> tuple[BenchRun, RequestTable]:
    """Return the recorded Server run with single tokens: each second gap is 3 ms, the others 1 ms."""
    copytree(DUMMY_RUNS("Server"), tmp_path / "run")
    path = RunDir(tmp_path / "run").requests
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    for line in lines:
        line["token_gaps_us"] = [(1_000, 3_000)[place % 2] for place in range(line["output_tokens"] - 1)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return bench_of_run(tmp_path / "run").runs[0], read_request_table(path)


def test_inter_token_latencies_are_measured_and_written(tmp_path: Path) -> None:
    run, requests = run_with_token_gaps(tmp_path)
    assert run.itl is not None
    assert (run.itl.p50, run.itl.p95, run.itl.p99, run.tokens_per_part) == (1.0, 3.0, 3.0, 1.0)
    record = record_of(run)
    assert list(token_gaps(run)) == ["  ITL p50 1  p95 3  p99 3 ms"]
    assert "ITL not measured" not in " ".join(bench_closing(record))
    saved = vllm_result(record, run, requests)
    assert (saved["median_itl_ms"], saved["p99_itl_ms"]) == (1.0, 3.0)
    assert [len(gaps) + 1 for gaps in saved["itls"]] == saved["output_lens"] == requests.output_tokens.tolist()
    assert saved["itls"][0][:2] == [0.001, 0.003]
    assert saved["ttfts"][0] == pytest.approx(float(requests.first_token_ns[0] - requests.issue_ns[0]) / 1e9)
    assert float(next(csv.DictReader(io.StringIO(points_csv(record))))["itl_p95_ms"]) == 3.0


def test_itl_is_omitted_without_token_times() -> None:
    run = bench_of_run(DUMMY_RUNS("Server")).runs[0]
    assert run.itl is None
    assert "ITL not measured" in " ".join(bench_closing(record_of(run)))
    assert not [name for name in vllm_result(record_of(run), run) if "itl" in name]


def test_written_keys_exist_in_the_vllm_benchmark(tmp_path: Path) -> None:
    spec = find_spec("vllm")
    if spec is None or spec.origin is None:
        pytest.skip("vLLM is not installed")
    source = Path(spec.origin).with_name("benchmarks").joinpath("serve.py").read_text()
    run, requests = run_with_token_gaps(tmp_path)
    names = set(vllm_result(record_of(run), run, requests)) - {"note"}
    plain = {name for name in names if not name.endswith("_ms")}
    assert [name for name in plain if f'"{name}"' not in source] == []
    assert {name.split("_")[1] for name in names - plain} <= {"ttft", "tpot", "itl", "e2el"}
