"""The page of runs: its headline, its numbers with units, and repeated remarks once."""

import re
from pathlib import Path

import pytest

from compliance.report.page import render_page
from compliance.report.report_page import Page, make_page
from tests.support.runs.dummy_runs import DummyRuns
from tests.support.runs.recorded import RESULTS, recorded
from tests.support.runs.submission_runs import edit


def page_of(*runs: tuple[str, Path]) -> Page:
    return make_page("Report", "now", runs, [])


def text_of(page: Page) -> str:
    return " ".join(render_page(page).split())


@pytest.fixture(scope="module")
def campaign() -> Page:
    roots = {name: recorded() / RESULTS[name] / "performance" / "run_1" for name in ("Offline", "Server")}
    return page_of(*((f"llama3.1-8b/{name}/performance", root) for name, root in roots.items()))


def test_the_headline_of_a_run_has_its_verdict_rates_and_limited_latencies() -> None:
    (headline,) = page_of(("run", recorded() / RESULTS["Server"] / "performance" / "run_1")).headlines
    assert (headline.outcome, headline.is_good) == ("VALID", True)
    numbers = r"[\d.,]+ samples/s, [\d,]+ tokens/s, p99 TTFT [\d.]+ ms of 2,000 ms, p99 TPOT [\d.]+ ms of 100 ms"
    assert re.fullmatch(numbers, headline.text)


def test_an_invalid_run_states_its_reason_first(tmp_path: Path) -> None:
    run = DummyRuns().copy(tmp_path / "run", "Offline")
    edit(run.result, verdict="INVALID", reasons=["the run took 1 s"])
    (headline,) = page_of(("run", run.root)).headlines
    assert (headline.outcome, headline.is_good) == ("INVALID", False)
    assert headline.text.startswith("the run took 1 s; ")


def test_a_limit_of_an_hour_is_unlimited(tmp_path: Path) -> None:
    run = DummyRuns().copy(tmp_path / "run", "Server")
    edit(run.result, in_force={"ttft_limit_ns": 3_600_000_000_000})
    page = page_of(("run", run.root))
    (headline,) = page.headlines
    assert re.search(r"p99 TTFT [\d.]+ ms, p99 TPOT [\d.]+ ms of 100 ms", headline.text)
    text = text_of(page)
    assert "<th>ttft limit</th><td>unlimited</td>" in text
    assert "3,600,000" not in text


def test_the_headline_of_several_runs_counts_outcomes_and_names_problems(tmp_path: Path) -> None:
    run = DummyRuns().copy(tmp_path / "run", "Offline")
    edit(run.result, verdict="INVALID", reasons=["the run took 1 s"])
    valid = recorded() / RESULTS["Server"] / "performance" / "run_1"
    tally, problems = page_of(("a", valid), ("b", run.root)).headlines
    assert tally.text == "2 runs: 1 VALID, 1 INVALID"
    assert problems.text == "b"


def test_equal_remarks_and_violations_are_stated_once_with_their_runs(campaign: Page) -> None:
    texts = [remark.text for remark in campaign.remarks]
    assert len(texts) == len(set(texts))
    shared = next(remark for remark in campaign.remarks if "runs no model" in remark.text)
    assert shared.places == ("llama3.1-8b/Offline/performance", "llama3.1-8b/Server/performance")
    assert text_of(campaign).count("the dummy engine runs no model") == 1


def test_runs_are_compared_in_charts_without_the_directory_that_they_share(campaign: Page) -> None:
    throughput, latencies = campaign.charts
    assert throughput.y.rows == ["Offline/performance", "Server/performance"]
    assert [len(series.points) for series in throughput.series] == [2, 0]
    assert [[point.y for point in series.points] for series in latencies.series] == [[1], [1]]


def test_requested_settings_come_before_the_folded_effective_settings(campaign: Page) -> None:
    text = text_of(page_of(("run", campaign.runs[1].directory)))
    requested, effective = text.index("Requested settings"), text.index("All effective settings")
    assert requested < text.index("dummy ttft") < effective
    assert "<details><summary>All effective settings" in text
