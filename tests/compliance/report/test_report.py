"""Pages: series of records, charts, the curve of multiple runs, and the section of one run."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from compliance.accuracy.accuracy_files import scores_record
from compliance.accuracy.accuracy_verdict import judge_scores
from compliance.accuracy.metrics import ROUGE
from compliance.report.page import render_page
from compliance.report.report_page import CurvePoint, Page, curves, point_of_folder
from compliance.report.run_charts import distribution
from compliance.report.run_section import run_section, score_rows
from compliance.report.series import BINS, CDF_POINTS, cdf, time_series
from runs.benchmark import Target
from runs.loadgen.early_stopping import judge_latencies
from runs.mlperf_endpoints.layout import SUMMARY
from runs.record.layout import RunDir
from runs.record.requests_log import RequestTable
from scenarios.status.shown_runs import write_page
from tests.support.mlperf_endpoints.endpoints_client import unpack
from tests.support.runs.dummy_runs import DummyRuns
from tests.support.runs.recorded import OVER_HTTP, recorded
from tests.support.runs.records import request_table
from tests.support.runs.submission_runs import edit

FAST = CurvePoint("fast", "8", 900.0, 20.0, 2.0)
SLOW = CurvePoint("slow", "1", 100.0, 30.0, 4.0)
OURS = CurvePoint("run", "12/s", 500.0, 25.0, 3.0, (2000.0, 100.0), is_own=True)
MS = 1_000_000


@pytest.mark.parametrize(
    ("late", "count", "sentence"),
    [
        (0, 10, "0 late, none allowed (too few queries)"),
        (3, 1000, "3 late of 2 allowed"),
        (0, 1000, "0 late of 2 allowed"),
    ],
)
def test_a_distribution_shows_the_limit_and_the_allowed_late_queries(late: int, count: int, sentence: str) -> None:
    values_ns = np.full(count, 10 * MS)
    values_ns[:late] = 2001 * MS
    drawn = distribution("TTFT", values_ns, "p99", 10 * MS, 2000 * MS, judge_latencies(values_ns, 2000 * MS, 0.99))
    assert drawn.title == f"TTFT: p99 10 ms of 2,000 ms; {sentence}"
    assert [line.name for line in drawn.lines] == ["limit 2,000 ms"]
    assert distribution("latency", values_ns, "p99", 10 * MS, None, None).title == "latency: p99 10 ms"


def test_runs_are_drawn_as_points_on_curves() -> None:
    charts = curves([FAST, SLOW, OURS])
    assert [chart.title.partition(":")[0] for chart in charts] == ["p90 TTFT", "p90 TPOT", "tokens/s per user"]
    assert "12/s: 25 ms at 500.0 tokens/s, run" in charts[0].words
    assert [(series.name, series.style, len(series.points)) for series in charts[0].series] == [
        ("Endpoints client", "joined", 2), ("this harness", "joined", 1)
    ]  # fmt: skip
    failed = curves([FAST, SLOW, replace(OURS, holds=False)])[0].series[-1]
    assert (failed.name, failed.style, failed.is_hollow) == ("this harness, failed or INVALID", "marks", True)
    assert curves([FAST]) == []
    assert curves([FAST, replace(SLOW, ttft_ms=None, tpot_ms=None)]) == []


# Series --------------------------------------------------------------------------------------------------------------


def table(count: int, *, offline: bool = False) -> RequestTable:
    """Return queries that arrive each ms: the first token after 10 ms, and 11 tokens, one each ms."""
    issue_ns = 10**18 + np.arange(count) * 1_000_000
    first_ns = np.zeros(count) if offline else issue_ns + 10_000_000
    return request_table(issue_ns, first_ns, issue_ns + 20_000_000, prompt_tokens=100 + np.arange(count) % 7)


def test_the_size_of_charts_does_not_grow_with_the_number_of_queries() -> None:
    requests = table(300_000)
    over_time = time_series(requests, lateness_ns=requests.seq, late=requests.seq % 1000 == 0)
    assert len(cdf(requests.complete_ns - requests.issue_ns)[1]) <= CDF_POINTS
    assert len(over_time.tokens_per_second) == BINS
    assert over_time.lateness_ms is not None
    assert len(over_time.lateness_ms) == BINS
    assert over_time.late is not None
    assert over_time.late.sum() == 300


def test_the_drawn_distribution_keeps_the_percentiles() -> None:
    values = np.random.default_rng(1).permutation(np.arange(1, 10_001)) * 1_000_000
    values_ms, shares = cdf(values)
    assert (values_ms[0], values_ms[-1], shares[-1]) == (1, 10_000, 1)
    assert np.interp(0.99, shares, values_ms) == pytest.approx(9_900, rel=0.001)
    assert (np.diff(shares) > 0).all()


def test_the_token_rate_sums_to_the_number_of_tokens() -> None:
    for requests in (table(50), table(50, offline=True), table(1)):
        over_time = time_series(requests)
        made = (over_time.tokens_per_second * np.diff(over_time.edges_s)).sum()
        assert made == pytest.approx(requests.output_tokens.sum(), rel=1e-6)


def test_tokens_are_distributed_over_the_duration_of_a_response() -> None:
    over_time = time_series(table(1))  # 20 ms; first token after 10 ms, then one each ms
    middle = over_time.edges_s[:-1]
    assert (over_time.tokens_per_second[middle < 0.0099] == 0).all()
    assert over_time.tokens_per_second[middle > 0.0101] == pytest.approx(1000)


def test_open_queries_are_counted_over_time() -> None:
    over_time = time_series(table(100))
    assert over_time.waiting is not None
    assert over_time.waiting.max() == pytest.approx(10, abs=1)
    assert over_time.computing.max() == pytest.approx(10, abs=1)
    assert over_time.computing[-1] == 0
    offline = time_series(table(100, offline=True))
    assert offline.waiting is None
    assert offline.computing.max() == pytest.approx(20, abs=1)


# Run folders ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("recorded"))


def test_a_run_directory_is_one_point_of_a_curve(folders: Path, tmp_path: Path) -> None:
    point = point_of_folder(folders / "concurrency", "c")
    assert point is not None
    assert (point.load, point.holds, point.is_own) == ("8", True, False)
    assert point.tokens_per_user == pytest.approx(1000 / (point.tpot_ms or 0))
    died = point_of_folder(folders / "server-died", "d")
    assert died is not None
    assert not died.holds
    offline = point_of_folder(folders / "offline", "o")
    assert offline is not None
    assert (offline.load, offline.ttft_ms) == ("Offline", None)
    poisson = point_of_folder(folders / "poisson", "p")
    assert poisson is not None
    assert (poisson.load, poisson.is_joined, point.is_joined) == ("Poisson 30/s", False, True)
    shutil.copytree(folders / "concurrency", tmp_path / "forged")
    edit(tmp_path / "forged" / SUMMARY, qps=999.0)
    forged = point_of_folder(tmp_path / "forged", "f")
    assert forged is not None
    assert (forged.outcome, forged.holds) == ("ERROR", False)


def test_an_offline_run_is_a_vertical_line() -> None:
    offline = CurvePoint("offline", "Offline", 1000.0, None, None)
    assert [line.name for line in curves([FAST, SLOW, offline])[0].lines] == ["Offline 1,000"]
    assert curves([FAST, SLOW]) == curves([FAST, SLOW, replace(offline, holds=False)])
    alone = curves([FAST, replace(SLOW, is_joined=False)])[0].series[1]
    assert (alone.name, alone.style) == ("Endpoints client, not a point of a curve", "marks")


def test_one_curve_shows_both_kinds_of_runs_over_http(folders: Path, tmp_path: Path) -> None:
    run = recorded() / OVER_HTTP / "campaign" / "llama3.1-8b" / "Server" / "performance"
    page = write_page([folders, run], tmp_path / "page.html").read_text()
    assert "Throughput against latency over concurrency" in page
    assert 'aria-label="p90 TTFT. ' in page
    assert "server-died" in page
    assert "100/s: " in page


# A run ---------------------------------------------------------------------------------------------------------------


def test_margins_are_relative_to_the_required_scores() -> None:
    scores = {"rouge1": 39.0, "rouge2": 15.0, "rougeL": 24.0, "rougeLsum": 36.0, "gen_len": 100, "gen_num": 4}
    targets = {"rouge1": Target(38.0, 0.99, None), "rouge2": Target(16.0, 0.99, None)}
    rows, below = score_rows(scores_record(judge_scores(ROUGE, scores, targets, "a test")))
    margins = {score.name: score.margin for score in rows}
    assert margins["rouge1"] == pytest.approx(100 * (39 / (38 * 0.99) - 1))
    assert margins["rouge2"] == pytest.approx(100 * (15 / (16 * 0.99) - 1))
    assert margins["rougeL"] is None
    assert next(score.value for score in rows if score.name == "gen_len") == 100
    assert below == ["rouge2 is 15, required: at least 15.84"]


def test_the_output_tokens_of_each_replica_are_shown() -> None:
    section = run_section(recorded() / "replicas", "run1", "replicas")
    assert (section.outcome, section.is_good) == ("VALID", True)
    rows = dict(dict(section.facts)["Samples"])
    shares, _, busiest = rows["output tokens of replicas"].partition("; ")
    first, second = (int(share.replace(",", "")) for share in shares.split(", "))
    number = int(second > first)
    assert busiest == f"replica {number} has {max(first, second) / (first + second) * 2:.3f} × the mean"


def test_queue_and_compute_times_are_shown_only_if_recorded(tmp_path: Path) -> None:
    run = DummyRuns().copy(tmp_path / "run", "Offline")
    engines = [{"client": None, "query_times": {"queries": 10, "queued_s": 1.0, "prefill_s": 1.0, "decode_s": 2.0}}]
    for observed, shown in ([], False), (engines, True):
        edit(RunDir(tmp_path / "run").manifest, observed={"engines": observed})
        page = render_page(Page("Report", "now", [run_section(run.root, "run1", "run")]))
        assert ("50.0%, 200 ms per query" in page) == shown
