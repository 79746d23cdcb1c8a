"""The verification document: everything in it comes from findings, and nothing that was not checked is passed over."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from compliance.finding import all_rules
from runs.errors import ExitCode
from runs.loadgen.detail_log import read_detail
from runs.record.layout import RunDir
from tests.conftest import Finished
from tests.support.verify_legs import DummyLegs

RunMain = Callable[..., Finished]


@pytest.fixture
def leg(legs: DummyLegs) -> Path:
    return legs("Server")


def made(leg: Path, folder: Path, run_main: RunMain) -> tuple[Finished, str]:
    """What verify did, and its document."""
    path = folder / "documents" / "leg.md"
    finished = run_main("verify", leg, "--output", folder / "verdict", "--document", path)
    return finished, path.read_text()


def row(text: str, rule: str) -> list[str]:
    (line,) = re.findall(rf"^\|[^|]*\| {rule} .*$", text, re.MULTILINE)
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_each_rule_has_its_claim_its_source_its_line_and_its_result(
    leg: Path, tmp_path: Path, run_main: RunMain
) -> None:
    finished, text = made(leg, tmp_path, run_main)
    assert finished.code == ExitCode.OK
    claim, rule, where, found, required, result = row(text, "perf-min-duration")
    assert claim == all_rules()["perf-min-duration"].summary
    assert "performance_check.min_duration_check" in rule
    name, _, number = where.partition(":")
    assert name == "mlperf_log_detail.txt"
    line = RunDir(leg).detail.read_text().splitlines()[int(number) - 1]
    assert '"key": "effective_min_duration_ms"' in line
    assert f"{read_detail(RunDir(leg).detail).integer('effective_min_duration_ms'):,} ms" == found
    assert required.startswith("at least 600,000")
    assert result == "error"
    assert row(text, "perf-validity")[-1] == "pass"


def test_every_rule_is_accounted_for(leg: Path, tmp_path: Path, run_main: RunMain) -> None:
    _, text = made(leg, tmp_path, run_main)
    asked = [
        rule.id
        for rule in all_rules().values()
        if rule.kind in ("result", "official", "plausible", "contradiction")
        and not rule.id.startswith(("accuracy-", "endpoints-"))
    ]
    assert [name for name in asked if name != "one-system" and name not in text] == []
    assert "no accuracy leg was given" in text
    assert f"the {sum(rule.kind == 'signoff' for rule in all_rules().values())} rules of `main.py signoff`" in text
    assert "Is the model as accurate in this configuration?" in text


def test_what_is_missing_is_not_called_checked(leg: Path, tmp_path: Path, run_main: RunMain) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(leg, bare)
    for name in ("requests.jsonl", "seal.json", "result.json", "progress.json"):
        (bare / name).unlink()
    _, text = made(bare, tmp_path, run_main)
    unchecked = text.partition("### What was not checked")[2]
    for rule in ("log-records", "attested"):
        assert re.search(rf"- performance: {rule}: .*there is no", unchecked), rule
    assert "where is requests.jsonl?" in unchecked


def test_a_leg_that_cannot_be_judged_says_so(leg: Path, tmp_path: Path, run_main: RunMain) -> None:
    cut = tmp_path / "cut"
    shutil.copytree(leg, cut)
    detail = RunDir(cut).detail
    detail.write_bytes(detail.read_bytes()[:3000])
    finished, text = made(cut, tmp_path, run_main)
    assert finished.code != ExitCode.OK
    assert "Nothing could be judged" in text
    assert "all rules on performance" in text


def test_bad_input(leg: Path, tmp_path: Path, run_main: RunMain) -> None:
    finished = run_main("verify", leg, "--output", tmp_path / "v", "--document", tmp_path / "document.html")
    assert finished.code == ExitCode.BAD_INPUT
    assert "document.html: the document is Markdown" in finished.stderr
    assert "fix: end its name in .md" in finished.stderr
    assert not (tmp_path / "v").exists()
