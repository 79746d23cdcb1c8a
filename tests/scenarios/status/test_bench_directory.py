"""The directory of a bench, in the commands on runs."""

import csv
import io
from pathlib import Path

import pytest

from runs.bench.bench_record import BenchRecord, BenchRun, Limits, write_bench
from runs.bench.best_rate import best_rate
from runs.bench.recomputed import recompute_bench
from runs.bench.single_run import bench_of_run
from runs.errors import ExitCode
from runs.record.manifest import read_manifest
from runs.what_is import what_is
from tests.conftest import run_here
from tests.support.files.editing import set_record
from tests.support.runs.dummy_runs import DummyRuns
from tests.support.runs.punctual import punctual_issue

__all__ = ["punctual_issue"]


@pytest.fixture
def bench(tmp_path: Path, punctual_issue: None) -> Path:
    """Return the directory of a bench with an Offline run and a Server run."""
    root, runs = tmp_path / "bench-before", DummyRuns()
    copies = [runs.copy(root / "runs" / name, scenario) for name, scenario in RUNS.items()]
    options = read_manifest(copies[1].manifest).plan.engine_options
    set_record(copies[0], {"plan.engine_options": options})  # the runs of a bench have one engine
    places = [run.root for run in copies]
    records = [bench_of_run(place) for place in places]
    bench_runs = [
        record.runs[0].model_copy(update={"number": number, "run_dir": str(place.relative_to(root))})
        for number, (record, place) in enumerate(zip(records, places, strict=True), 1)
    ]
    record = records[1].model_copy(update={"label": "before", "runs": bench_runs, "percentile": "p99"})
    measured = recompute_bench(root, record).record
    write_bench(root, measured.model_copy(update={"best": best_rate(measured.runs)}))
    return root


RUNS = {"01-offline": "Offline", "02-server-400": "Server"}


def change(root: Path, **values: object) -> BenchRecord:
    record = bench_of_run(root / "runs/02-server-400").model_copy(update={"label": "before", **values})
    write_bench(root, record)
    return record


def test_results_lists_the_runs_of_a_bench(bench: Path) -> None:
    shown = run_here("results", bench, "--csv")
    assert (shown.code, shown.stderr) == (ExitCode.OK, "")
    rows = list(csv.DictReader(io.StringIO(shown.stdout)))
    assert sorted(Path(row["directory"]).name for row in rows) == list(RUNS)
    assert what_is(bench).kind == "bench"


def test_a_run_of_a_bench_passes_verify(bench: Path) -> None:
    for name in RUNS:
        verified = run_here("verify", bench / "runs" / name, "--performance-only")
        assert verified.code == ExitCode.OK, verified.stdout + verified.stderr


def test_status_shows_the_state_of_a_bench(bench: Path) -> None:
    shown = run_here("status", bench)
    assert shown.code == ExitCode.OK
    assert "finished    bench" in shown.stdout
    assert "before: 2 runs, best rate 400/s within the limits" in shown.stdout
    change(bench, best=None, limits=Limits(ttft=1))
    assert run_here("status", bench).code == ExitCode.NEGATIVE
    failed = BenchRun(number=1, kind="server", scenario="Server", verdict="failed")
    change(bench, runs=[failed])
    assert run_here("status", bench).code == ExitCode.FAILED
    change(bench, status="running")
    shown = run_here("status", bench)
    assert "best rate" in shown.stdout
    assert shown.code != ExitCode.OK


def test_report_writes_the_page_of_the_bench(bench: Path, tmp_path: Path) -> None:
    shown = run_here("report", bench)
    assert (shown.code, shown.stdout) == (ExitCode.OK, f"written to {bench / 'report.html'}\n"), shown.stderr
    title = "<title>Bench before: "
    assert title in (bench / "report.html").read_text()
    reported = run_here("report", bench, "--output", tmp_path / "other.html")
    assert (reported.code, title in (tmp_path / "other.html").read_text()) == (ExitCode.OK, True)
    both = run_here("report", bench, bench / "runs/01-offline")
    assert (both.code, "has the page of a bench" in both.stderr) == (ExitCode.BAD_INPUT, True)
