"""`report`: the page of real runs, as text."""

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from runs.errors import ExitCode
from runs.record.layout import RunDir
from tests.conftest import run_here
from tests.support.runs.dummy_runs import DummyRuns
from tests.support.runs.run_commands import USER_CONF
from tests.support.runs.submission_runs import edit
from tests.support.simulated.virtual_tune import VirtualRuns


@pytest.fixture(scope="module")
def report_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a page on a valid, an invalid and an accuracy run and a tune, one of them in an oddly named directory."""
    folder, runs = tmp_path_factory.mktemp("measured"), DummyRuns()
    runs.copy(folder / "valid", "Server")
    runs.copy(folder / "scores", "Server", "accuracy")
    invalid = runs.copy(folder / ("a $x$ <b>&amp; " + "long" * 20), "Offline")
    edit(invalid.result, verdict="INVALID", reasons=["the run took 1 s; min_duration asks for 60 s"])
    (folder / "user.conf").write_text(USER_CONF)
    with pytest.MonkeyPatch.context() as patch:
        VirtualRuns().install(patch)
        tune = run_here(
            "tune", "--scenario", "Server", "--engine", "dummy", "--user-conf", folder / "user.conf",
            "--output-log-dir", folder / "tune", "--max-probes", 2, "--offline-qps", 2000,
        )  # fmt: skip
    assert f"report: {folder / 'tune' / 'report.html'}" in tune.stdout, tune.stderr
    made = run_here("report", folder)
    assert made.code == ExitCode.OK, made.stderr
    return folder


@pytest.fixture(scope="module")
def text(report_folder: Path) -> str:
    return (report_folder / "report.html").read_text()


class _Balanced(HTMLParser):
    """A parser that requires that each opened element is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        if tag not in ("meta", "br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_valid_html_without_external_files(text: str) -> None:
    parser = _Balanced()
    parser.feed(text)
    assert parser.open == []
    charts = re.findall(r'<svg [^>]*role="img" aria-label="[^"]+">', text)
    assert len(charts) == text.count("<figure ") >= 10
    assert parser.scripts == len(charts) + 1, "the points of each chart, and the script of the page"
    linked = re.findall(r'href="([^"]*)"', text)
    assert all(target.startswith("#") for target in linked), linked
    assert "@import" not in text
    ids = re.findall(r'\bid="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    assert all(target[1:] in ids for target in linked)


def test_the_page_shows_the_measured_numbers(text: str, report_folder: Path) -> None:
    assert text.count("<section id=") >= 3
    assert "INVALID" in text
    assert ">no target applies<" in text
    assert "min_duration" in text
    assert "a $x$ &lt;b&gt;&amp;amp; long" in text
    assert re.search(r"<th>input tokens</th><td>[\d,.]+ per sample, from", text)
    assert "<th>finish reasons</th><td>stop" in text
    assert "probe 1" in text
    assert ">p50</th>" in text
    assert "p99.9" not in text  # too few queries for p99.9
    assert re.search(r'aria-label="TTFT: p99 [\d,.]+ ms of 2,000 ms; 0 late of \d+ allowed\. ', text)


def test_the_size_of_the_page_is_limited(text: str) -> None:
    assert len(text) < 2_000_000


def test_a_page_of_one_run_has_no_comparison(report_folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "new folder" / "page.html"
    finished = run_here("report", report_folder / "valid", "--output", target)
    assert finished.code == ExitCode.OK
    assert finished.stdout.strip() == f"written to {target}"
    assert "side by side" not in target.read_text()
    assert not (RunDir(report_folder / "valid").root / "report.html").exists()


def test_a_damaged_run_is_named_and_the_others_are_shown(report_folder: Path, tmp_path: Path) -> None:
    for name in ("valid", "scores"):
        shutil.copytree(report_folder / name, tmp_path / "runs" / name)
    (tmp_path / "runs" / "scores" / "requests.jsonl").write_text("{}\n")
    finished = run_here("report", tmp_path / "runs")
    assert finished.code == ExitCode.OK
    text = (tmp_path / "runs" / "report.html").read_text()
    assert "Not on this page" in text
    assert text.count("<section id=") == 1
    (tmp_path / "runs" / "valid" / "requests.jsonl").unlink()
    assert run_here("report", tmp_path / "runs").code == ExitCode.BAD_INPUT


def test_an_unwritable_page_is_refused(report_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    finished = run_here("report", report_folder / "valid", "--output", tmp_path / "file" / "page.html")
    assert finished.code == ExitCode.REFUSED
    assert "cannot be written" in finished.stderr


def test_a_picture_of_multiple_runs_is_refused(report_folder: Path, tmp_path: Path) -> None:
    refused = run_here("report", report_folder, "--output", tmp_path / "run.svg")
    assert refused.code == ExitCode.BAD_INPUT
    assert re.search(
        r"--output .*run\.svg: a picture shows one finished run of this harness, found: \d", refused.stderr
    )
    assert list(tmp_path.iterdir()) == []
