"""The programs of examples/, each on recorded runs or with a run of its own."""

import importlib.util
import socket
import sys
from pathlib import Path
from types import ModuleType

import pytest

import mlperf_llama_vllm as api
from runs.bench.bench_record import BenchRecord, BenchRun, Conditions, Latency, write_bench
from tests.conftest import ROOT
from tests.support.runs.recorded import RESULTS, recorded

RESULT = RESULTS["Offline"]


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_example_is_tested_and_documented() -> None:
    page = (ROOT / "docs" / "python-api.md").read_text()
    for path in (ROOT / "examples").glob("*.py"):
        assert f"`examples/{path.name}`" in page
        assert f"def test_{path.stem}(" in Path(__file__).read_text()


def test_verify_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert example("verify_result").main(str(recorded() / RESULT)) == 1
    text = capsys.readouterr().out
    assert text.startswith("FAIL  ")
    assert "perf-duration: duration: 0.26 s (maximum latency), required: at least 600 s" in text
    assert "source: mlcommons/inference" in text


def test_custom_audit(capsys: pytest.CaptureFixture[str]) -> None:
    audit = example("custom_audit").main
    accuracy, performance = recorded() / RESULT / "accuracy", recorded() / RESULT / "performance/run_1"
    assert audit(str(accuracy), str(performance)) == 0
    assert "PASS: 0 of 64 outputs differ" in capsys.readouterr().out
    other_model = recorded() / "over-http" / RESULT / "performance/run_1"
    assert audit(str(accuracy), str(other_model)) == 1


def test_plot_bench(tmp_path: Path) -> None:
    def run(number: int, qps: float, ttft: float, verdict: str) -> BenchRun:
        latency = Latency(mean=ttft, p50=ttft, p90=ttft, p95=None, p99=None, max=ttft, bound=None)
        values = {"number": number, "kind": "server", "scenario": "Server", "verdict": verdict, "ttft": latency}
        return BenchRun.model_validate({**values, "done_qps": qps, "output_tokens_per_s": qps * 100})

    write_bench(
        tmp_path,
        BenchRecord(
            status="complete", label="before", command=[], target="m", conditions=Conditions(equal={}, system={}),
            limits=None, percentile="p90", percentile_reason="",
            runs=[run(1, 2, 20, "within"), run(2, 4, 90, "saturated")],
        ),
    )  # fmt: skip
    example("plot_bench").main(str(tmp_path / "curve.svg"), str(tmp_path), str(tmp_path))
    drawn = (tmp_path / "curve.svg").read_text()
    for text in ("before, p50", "before, p90", "saturated", "TTFT in ms"):
        assert f"<!-- {text} -->" in drawn or f">{text}<" in drawn  # as paths or as text, by the settings of matplotlib


def test_custom_engine(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serve = f"{sys.executable} {ROOT / 'examples' / 'custom_engine.py'} {port}"
    server = ("--api-server", f"http://127.0.0.1:{port}", "--serve", serve, "--api-connections", "8")
    (tmp_path / "user.conf").write_text(
        "*.Offline.min_duration = 1\n*.Offline.min_query_count = 8\n*.Offline.target_qps = 9\n"
    )
    load = ("--scenario", "Offline", "--total-sample-count", "8", "--user-conf", tmp_path / "user.conf")
    run = api.run(*load, *server, "--output-log-dir", tmp_path / "run")
    assert run.verdict == "VALID"
    assert run.manifest is not None
    assert run.manifest["asked"]["api_connections"] == 8
    assert set(api.read_requests(run.directory / "requests.jsonl")["output_tokens"].tolist()) == {128}
