"""The page of a bench: its sentence, curves, panels of runs, and missing checks."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from compliance.report.bench_page import bench_page, draw_records, write_bench_page
from compliance.report.page import render_page
from compliance.report.pictures import Picture
from runs.bench.bench_record import BenchRecord, Best, Limits
from runs.errors import InputError
from tests.support.runs.bench_records import bench_record, bench_run, latency, write_folder
from tests.support.runs.recorded import recorded

NS = "{http://www.w3.org/2000/svg}"


def page_text(folder: Path, record: BenchRecord) -> str:
    """Return the text of the page with single blanks."""
    return " ".join(render_page(bench_page(folder, record), "bench_page.html").split())


def fills(picture: Picture, color: str) -> int:
    """Return the number of marks that are filled with a color."""
    root = ElementTree.fromstring(picture.svg)
    return sum(f"fill: {color}" in use.get("style", "") for use in root.iter(f"{NS}use"))


def test_a_bench_page_is_one_file_with_all_parts(tmp_path: Path) -> None:
    record = bench_record("fp8 <1>")
    late = record.runs[1].model_copy(update={"reasons": ["client: issue to wire p99 200 ms of p99 TTFT 300 ms"]})
    record = record.model_copy(update={"runs": [record.runs[0], late, *record.runs[2:]]})
    text = write_bench_page(write_folder(tmp_path, record, recorded() / "replicas")).read_text()
    assert "<script" not in text
    assert 'src="http' not in text
    assert text.count("<img ") == len(record.runs) + 3
    assert "fp8 &lt;1&gt;" in text
    assert "Highest rate within the limits (TTFT 2000 ms, TPOT 100 ms): 36 queries/s, 4,608 output tokens/s; " in text
    assert text.count("<s title=") == 1
    assert "What could not be checked" not in text
    for part in ("Conditions", "Definitions", "too narrow", "arrival pattern", "vllm bench", "max_num_seqs"):
        assert part in text


def test_saturated_and_repeated_runs_have_marks_of_their_own() -> None:
    record = bench_record(shares=(0.5, 0.9))
    saturated = bench_run(5, 39.9, share=0.9975)
    with_one = record.model_copy(update={"runs": [*record.runs, saturated]})
    assert saturated.verdict == "saturated"
    assert fills(draw_records([with_one]), "#ffffff") == 2  # TTFT and TPOT
    assert fills(draw_records([record]), "#ffffff") == 0
    without = record.model_copy(update={"runs": [run for run in record.runs if not run.again]})
    assert draw_records([record]).words.count(" at ") == draw_records([without]).words.count(" at ") + 2
    limited = record.model_copy(update={"limits": Limits(e2el=9000)})
    assert "p99 latency: " in draw_records([limited]).words
    both = draw_records([record, bench_record("other", 44)])
    assert {"base", "other"} <= {
        "".join(element.itertext()) for element in ElementTree.fromstring(both.svg).iter() if element.tag == f"{NS}text"
    }


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
              "attestations", "noise", "tokens/s per accelerator", "Server 10/s: pictures")  # fmt: skip
    assert len(items) == len(starts)
    assert all(value.startswith(start) for value, start in zip(items, starts, strict=True))


def test_a_stopped_run_is_named_as_missing_from_the_pictures(tmp_path: Path) -> None:
    record = bench_record()
    stopped = record.runs[-1].model_copy(
        update={"duration_s": None, "ttft": None, "tpot": None, "again": False, "verdict": "saturated",
                "reasons": ["stopped after 11 s"]}
    )  # fmt: skip
    page = bench_page(tmp_path, record.model_copy(update={"runs": [stopped]}))
    assert page.unread == [f"{page.labels[0]}: not in the pictures: stopped after 11 s"]


def test_closed_loops_and_repetitions_are_labeled(tmp_path: Path) -> None:
    run = bench_run(1, 10).model_copy(update={"kind": "concurrency", "asked_qps": None, "concurrency": 8})
    again = run.model_copy(update={"number": 2, "repetition": 2, "ttft": latency(100)})
    page = bench_page(tmp_path, bench_record(runs=[run, again], best=None))
    assert page.labels == ["closed loop 8 open", "closed loop 8 open, repetition 2"]
    assert page.pictures[0].words.startswith("Closed loop, measured by the harness. p99 TTFT: 8 open: ")
    text = page_text(tmp_path, page.record)
    assert "<th>closed loop 8 open, 2 runs</th>" in text
    assert "mean TTFT, ms 78.3 (56.7 to 100)" in text


def test_a_directory_without_a_bench_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"bench\.json"):
        write_bench_page(tmp_path)
