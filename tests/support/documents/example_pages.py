"""One example of each kind of page, made by the commands or from a record."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from compliance.report.ab_page import write_page_of_ab
from compliance.report.bench_page import write_bench_page
from compliance.report.curve_page import curve_page, page_row
from runs.ab.ab_record import AbBlock, AbChange, AbLoad, AbRecord, AbSystem, AbVerdict, write_ab
from runs.bench.bench_record import BenchRecord, BenchRun, Limits
from tests.conftest import run_here
from tests.support.runs.bench_records import bench_record, write_folder
from tests.support.runs.dummy_runs import DummyRuns
from tests.support.runs.recorded import RESULTS, recorded
from tests.support.runs.submission_runs import edit
from tests.support.trees import clean_trees

PAGE = "page.html"


def run_page(folder: Path) -> Path:
    """Write the page of one Server run."""
    return _reported(folder, recorded() / RESULTS["Server"] / "performance" / "run_1")


def campaign_page(folder: Path) -> Path:
    """Write the page of all runs of a campaign."""
    return _reported(folder, recorded() / "campaign")


def _reported(folder: Path, *runs: Path) -> Path:
    finished = run_here("report", *runs, "--output", folder / PAGE)
    assert finished.code == 0, finished.stderr
    return folder / PAGE


def tree_page(folder: Path) -> Path:
    """Write the page of a tree with many findings: the rules of whole runs, on short runs."""
    tree, _ = clean_trees.short_tree()
    run_here("check", tree.root, "--round", tree.round, "--report", folder / PAGE)
    return folder / PAGE


def bench_page(folder: Path) -> Path:
    """Write the page of a bench with saturated and repeated runs, and with the pictures of its runs."""
    return write_bench_page(write_folder(folder / "bench", saturated_bench(), recorded() / "replicas"))


def saturated_bench(label: str = "base", speed: float = 40.0) -> BenchRecord:
    """Return a bench whose highest rates are saturated."""
    return bench_record(label, speed, shares=(0.25, 0.5, 0.75, 0.9, 0.97, 1.0, 1.05))


def compare_page(folder: Path) -> Path:
    """Write the page of a comparison of two benches."""
    benches = []
    for label, speed in (("before", 40.0), ("after", 47.0)):
        record = saturated_bench(label, speed)
        runs = [run.model_copy(update={"seal_sha256": None}) for run in record.runs]
        benches.append(write_folder(folder / label, record.model_copy(update={"runs": runs})))
    finished = run_here("compare", *benches, "-o", folder)
    assert finished.code == 0, finished.stderr
    return folder / "compare.html"


def ab_page(folder: Path) -> Path:
    """Write the page of a comparison of two systems at one load, with 12 blocks."""
    jitter = np.random.default_rng(7)
    blocks = []
    for number in range(1, 13):
        run = BenchRun(
            number=number, kind="server", scenario="Server", verdict="measured", queries=160, duration_s=20.0,
            start_time_ns=10**18 + number * 25 * 10**9,
        )  # fmt: skip
        levels = {
            name: [float(level * jitter.normal(1, 0.02)), float(level * factor * jitter.normal(1, 0.02))]
            for name, level, factor in (("TTFT mean", 210.0, 1.0), ("TPOT mean", 31.0, 0.93))
        }
        blocks.append(
            AbBlock(number=number, load=0, pair=number - 1, systems=[0, 1], run=run, seconds=24.0, levels=levels,
                    within=[155, 158])
        )  # fmt: skip
    record = AbRecord(
        status="complete", command=["ab", "http://localhost:8000", "http://localhost:8001"], method="interleaved",
        systems=[
            AbSystem(name="A", target="http://localhost:8000", facts={"max_num_seqs": 128, "vllm": "0.33.0"}),
            AbSystem(name="B", target="http://localhost:8001", facts={"max_num_seqs": 256, "vllm": "0.33.0"}),
        ],
        loads=[AbLoad(kind="server", qps=8)], precision=0.02, max_time_s=600, fail_if_slower=None, seed=1,
        conditions={"input tokens": 1024, "output tokens": 128}, limits=Limits(ttft=500, tpot=50), blocks=blocks,
        changes=[
            _change("TTFT mean", "ms", 210.0, 0.004, "equal", jitter),
            _change("TPOT mean", "ms", 31.0, -0.07, "faster", jitter),
            _change("TPOT p99", "ms", 48.0, -0.03, "undecided", jitter),
        ],
        sentences=["B has a shorter TPOT (-7.0%); the other means are equal within 2%."],
    )  # fmt: skip
    write_ab(folder, record)
    return write_page_of_ab(folder)


def _change(
    quantity: str, unit: str, base: float, change: float, verdict: AbVerdict, jitter: np.random.Generator
) -> AbChange:
    values = (change + jitter.normal(0, 0.02, 60)).tolist()
    half = 0.05 if verdict == "undecided" else 0.008
    return AbChange(
        load=0, system=1, quantity=quantity, unit=unit, is_main=quantity.endswith("mean"), base=base,
        value=base * (1 + change), change=change, low=change - half, high=change + half, values=values,
        times_s=[4.0 * place for place in range(60)], trimmed=[3], verdict=verdict,
    )  # fmt: skip


def curve_example(folder: Path) -> Path:
    """Write the page of an MLPerf Endpoints curve with seven points, of which one is not measured."""
    rows = []
    for number, concurrency in enumerate((64, 48, 32, 24, 16, 8, 4), start=1):
        run = {
            "samples": 4000, "rate": 40 * (1 - 0.9 ** (concurrency / 4)), "duration_s": 600.0,
            "tokens_per_second": 5120 * (1 - 0.9 ** (concurrency / 4)), "tokens_per_user": 90 - concurrency,
            "steady_state": {"status": "detected", "verdict": "PASS"},
        }  # fmt: skip
        point = {"name": f"r{number}", "concurrency": concurrency}
        is_done = concurrency != 24
        rows.append(page_row(point, "measured", "done" if is_done else "open", run if is_done else None, 8))
    regions = {"low_latency": (1, 8), "high_concurrency": (9, 64)}
    probes = {8: 20.0, 32: 33.0, 64: 39.0, 128: 39.5}
    path = folder / PAGE
    path.write_text(curve_page("Endpoints curve of llama3.1-8b", rows, regions, probes, ["c_max: 64, from probes"]))
    return path


def invalid_page(folder: Path) -> Path:
    """Write the page of an INVALID run in an oddly named directory beside a valid run."""
    runs = DummyRuns()
    invalid = runs.copy(folder / ("a $x$ <b>&amp; " + "long" * 20), "Offline")
    edit(invalid.result, verdict="INVALID", reasons=["the run took 1 s; min_duration asks for 60 s"])
    runs.copy(folder / "valid", "Server")
    return _reported(folder, folder)


WRITERS: dict[str, Callable[[Path], Path]] = {
    "run": run_page,
    "campaign": campaign_page,
    "runs": invalid_page,
    "tree": tree_page,
    "bench": bench_page,
    "compare": compare_page,
    "ab": ab_page,
    "curve": curve_example,
}
