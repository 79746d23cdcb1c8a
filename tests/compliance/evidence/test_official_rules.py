"""Rows of the official rules that need a benchmark of their own."""

from pathlib import Path

import pytest

from compliance.evidence.official_rules import official_rules
from runs.benchmarks import BENCHMARKS
from runs.numbers.numbers import reported_numbers
from runs.record.layout import RunDir
from runs.record.leg import FinishedLeg
from tests.support.signoff_fixtures import FrozenLegs


@pytest.mark.parametrize(("tokens", "broken"), [(294.45, False), (266.0, False), (2 * 294.45, True), (147.0, True)])
def test_tokens_per_sample_are_those_of_the_accuracy_target(
    tokens: float, broken: bool, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    run = RunDir(FrozenLegs(tmp_path_factory).copy(tmp_path / "leg", "off-1"))
    leg = FinishedLeg(run, benchmark_override=BENCHMARKS["llama2-70b"])
    numbers = reported_numbers(leg.detail)
    assert numbers.samples_per_second is not None
    said = numbers.model_copy(update={"tokens_per_second": tokens * numbers.samples_per_second})
    found = [one.passed for one in official_rules(leg, said) if one.rule == "perf-tokens-per-sample"]
    assert len(found) == 2
    assert all(found) is not broken


def test_other_benchmarks_have_no_such_rule(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    leg = FinishedLeg(RunDir(FrozenLegs(tmp_path_factory).copy(tmp_path / "leg", "off-1")))
    rules = [one.rule for one in official_rules(leg, reported_numbers(leg.detail))]
    assert "perf-output-tokens" in rules
    assert "perf-tokens-per-sample" not in rules
