"""The page of a bench: its sentence, charts, and missing checks."""

import re
from pathlib import Path
from typing import Any

import pytest

from compliance.report.bench_charts import bench_charts
from compliance.report.bench_page import bench_page, write_bench_page
from compliance.report.chart import Chart
from compliance.report.page import render_page
from runs.bench.bench_record import BenchRecord, Best, Limits
from runs.errors import InputError
from tests.support.runs.bench_records import bench_record, bench_run, latency, write_folder
from tests.support.runs.recorded import recorded


def page_text(folder: Path, record: BenchRecord) -> str:
    """Return the text of the page with single blanks."""
    return " ".join(render_page(bench_page(folder, record), "bench_page.html").split())


def names(charts: list[Chart]) -> list[list[str]]:
    """Return the names of the series of each chart."""
    return [[series.name for series in chart.series] for chart in charts]


def test_a_bench_page_is_one_file_with_all_parts(tmp_path: Path) -> None:
    record = bench_record("fp8 <1>")
    late = record.runs[1].model_copy(update={"reasons": ["client: issue to wire p99 200 ms of p99 TTFT 300 ms"]})
    record = record.model_copy(update={"runs": [record.runs[0], late, *record.runs[2:]]})
    text = write_bench_page(write_folder(tmp_path, record, recorded() / "replicas")).read_text()
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!data:|#)""", text)
    assert text.count("<figure ") == len(record.runs) + 6
    assert "fp8 &lt;1&gt;" in text
    assert "Highest rate within the limits (TTFT 2000 ms, TPOT 100 ms): 36 queries/s, 4,608 output tokens/s; " in text
    assert text.count("<s title=") == 1
    assert "What could not be checked" not in text
    for part in ("Conditions", "Definitions", "too narrow", "arrival pattern", "vllm bench", "max num seqs"):
        assert part in text


def test_no_line_joins_saturated_and_repeated_runs() -> None:
    record = bench_record(shares=(0.5, 0.9))
    saturated = bench_run(5, 39.9, share=0.9975)
    assert saturated.verdict == "saturated"
    charts = bench_charts([record.model_copy(update={"runs": [*record.runs, saturated]})])
    assert names(charts) == [["measured rates", "repeated", "saturated"]] * 3
    for chart in charts:
        assert [(series.style, series.is_hollow) for series in chart.series] == [
            ("joined", False), ("marks", False), ("marks", True)
        ]  # fmt: skip


def test_charts_have_the_values_of_the_record() -> None:
    record = bench_record(shares=(0.5,))
    ttft, tpot, users = bench_charts([record])
    run = record.runs[1]
    assert run.ttft is not None
    assert run.tpot is not None
    for chart, measured in ((ttft, run.ttft), (tpot, run.tpot)):
        point = chart.series[0].points[0]
        assert (point.x, point.y, point.high) == (run.output_tokens_per_s, measured.p99, measured.bound)
    assert users.series[0].points[0].y == 1000 / run.tpot.p50
    assert [line.name for line in ttft.lines] == ["limit 2,000 ms", "Offline 5,120"]
    assert ttft.series[0].points[0].text == "50%: 2,560 tokens/s, p99 TTFT 210 ms (at most 231 ms), within"


def test_a_latency_has_a_chart_if_it_has_a_limit() -> None:
    limited = bench_record(limits=Limits(e2el=9000))
    assert [chart.title for chart in bench_charts([limited])][:3] == ["p99 TTFT", "p99 TPOT", "p99 latency"]


def test_each_bench_of_a_comparison_has_its_own_series() -> None:
    charts = bench_charts([bench_record(shares=(0.5, 0.9)), bench_record("other", 44, shares=(0.5, 0.9))])
    assert names(charts)[0] == ["base", "base repeated", "other", "other repeated"]
    assert [line.name for line in charts[0].lines] == ["limit 2,000 ms", "Offline base 5,120", "Offline other 5,632"]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"best": Best(low=36, high=None)}, "36 queries/s; no measured rate is too high."),
        ({"limits": None}, "Highest rate without saturation: 36 queries/s"),
        ({"best": Best(low=None, high=10)}, "TPOT 100 ms) was found; lowest measured rate: 10 queries/s."),
        (
            {"best": None, "percentile": None, "runs": [bench_run(1, 10).model_copy(update={"verdict": "unchecked"})]},
            "No best rate: limits not checked: 700 queries",
        ),
        ({"best": None, "runs": [bench_run(1, None)]}, "Highest throughput: 5,120 output tokens/s (Offline)."),
        ({"best": None, "runs": []}, "No run has numbers."),
    ],
)
def test_the_page_states_the_best_rate_in_one_sentence(fields: dict[str, Any], sentence: str) -> None:
    assert sentence in page_text(Path("missing"), bench_record(**fields))


def test_missing_measurements_are_listed(tmp_path: Path) -> None:
    run = bench_run(1, 10).model_copy(
        update={"cached_share": None, "tokens": None, "client": None, "contention": None, "seal_sha256": None}
    )
    record = bench_record(
        runs=[run, run.model_copy(update={"verdict": "failed"})], percentile=None, percentile_reason="130 queries",
        limits=None, accelerators=None,
    )  # fmt: skip
    text = page_text(tmp_path, record).partition("What could not be checked")[2].partition("</ul>")[0]
    items = re.findall("<li>(.*?)</li>", text)
    starts = ("percentiles", "limits", "share of prompt tokens", "delays of the client", "processor time",
              "attestations", "noise", "tokens/s per accelerator", "Server 10/s: charts")  # fmt: skip
    assert len(items) == len(starts)
    assert all(value.startswith(start) for value, start in zip(items, starts, strict=True))


def test_a_stopped_run_is_named_as_missing_from_the_charts(tmp_path: Path) -> None:
    record = bench_record()
    stopped = record.runs[-1].model_copy(
        update={"duration_s": None, "ttft": None, "tpot": None, "again": False, "verdict": "saturated",
                "reasons": ["stopped after 11 s"]}
    )  # fmt: skip
    page = bench_page(tmp_path, record.model_copy(update={"runs": [stopped]}))
    assert page.unread == [f"{page.labels[0]}: not in the charts: stopped after 11 s"]


def test_repeated_remarks_are_shown_once_with_their_runs(tmp_path: Path) -> None:
    record = bench_record()
    record = record.model_copy(
        update={"runs": [run.model_copy(update={"reasons": ["other processes"]}) for run in record.runs]}
    )
    text = page_text(tmp_path, record)
    assert text.count("other processes") == 1
    assert '<li>other processes <span class="muted">7 runs: Offline; Server 25%; ' in text


def test_requested_options_are_shown_before_all_other_facts(tmp_path: Path) -> None:
    text = page_text(tmp_path, bench_record())
    assert text.index("<th>max num seqs</th><td>256</td>") > text.index("Requested options")
    assert text.index("Requested options") < text.index("Must be equal in a comparison")


def test_closed_loops_and_repetitions_are_labeled(tmp_path: Path) -> None:
    run = bench_run(1, 10).model_copy(update={"kind": "concurrency", "asked_qps": None, "concurrency": 8})
    again = run.model_copy(update={"number": 2, "repetition": 2, "ttft": latency(100)})
    page = bench_page(tmp_path, bench_record(runs=[run, again], best=None))
    assert page.labels == ["closed loop 8 open", "closed loop 8 open, repetition 2"]
    assert page.charts[0].title == "p99 TTFT, closed loop"
    text = page_text(tmp_path, page.record)
    assert "<th>closed loop 8 open, 2 runs</th>" in text
    assert "mean TTFT, ms 78.3 (56.7 to 100)" in text


def test_a_directory_without_a_bench_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"bench\.json"):
        write_bench_page(tmp_path)
