"""The official rules with the requirements of a round."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from compliance.results.log_rates import _completed
from compliance.results.official_rules import performance_limits, performance_seeds
from compliance.results.run_evidence import RunEvidence
from runs.benchmarks import BENCHMARKS
from runs.numbers.numbers import LatencyNumbers, Numbers
from runs.record.layout import RunDir
from runs.rounds import CURRENT_ROUND, ROUNDS, Round
from tests.support.runs.signoff_fixtures import FrozenRuns

NAME = "llama2-70b-99.9"
ENTRY = CURRENT_ROUND.table.benchmarks[NAME]


def round_with_changes(**changes: object) -> Round:
    table, entry = CURRENT_ROUND.table, ENTRY.model_copy(update=changes)
    changed = {"benchmarks": {**table.benchmarks, NAME: entry}, "min_duration_ms": 1_234}
    return replace(CURRENT_ROUND, other_table=table.model_copy(update=changed))


@pytest.fixture(scope="module")
def requirements_of(frozen: FrozenRuns) -> Callable[..., dict[str, str]]:
    """Return the requirements of a performance run, by rule."""
    run_dir, benchmark = RunDir(frozen("off-1")), BENCHMARKS["llama2-70b"]

    def requirements(in_round: Round | None = None) -> dict[str, str]:
        run = RunEvidence(run_dir, benchmark_override=benchmark, in_round=in_round)
        findings = [*performance_limits(run), *performance_seeds(run)]
        return {finding.rule: str(finding.numbers["wanted"]) for finding in findings}

    return requirements


def test_a_round_has_its_own_requirements(requirements_of: Callable[..., dict[str, str]]) -> None:
    now, then = requirements_of(), requirements_of(round_with_changes(performance_samples=99, offline_min_samples=98))
    assert (now["perf-sample-count"], now["perf-min-duration"]) == (str(ENTRY.performance_samples), "600000")
    assert (then["perf-sample-count"], then["perf-samples"], then["perf-min-duration"]) == ("99", "98", "1234")
    assert now["perf-seeds"] == str(tuple(ROUNDS))
    assert then["perf-seeds"] == str((CURRENT_ROUND.name,))


def test_an_earlier_round_without_the_benchmark_keeps_the_current_requirements(
    requirements_of: Callable[..., dict[str, str]],
) -> None:
    table = CURRENT_ROUND.table
    remaining = {name: value for name, value in table.benchmarks.items() if name != NAME}
    without = replace(CURRENT_ROUND, other_table=table.model_copy(update={"benchmarks": remaining}))
    required = requirements_of(without)
    assert required.pop("perf-seeds") != requirements_of()["perf-seeds"]
    assert required == {rule: value for rule, value in requirements_of().items() if rule != "perf-seeds"}


def test_a_benchmark_without_minimum_duration_has_no_duration_rule(
    requirements_of: Callable[..., dict[str, str]],
) -> None:
    assert "perf-min-duration" not in requirements_of(round_with_changes(time_bound=False))


@pytest.mark.parametrize(
    ("run", "fix", "keys"),
    [
        ("off-1", "raise target_qps in user.conf and rerun", ("result_max_latency_ns",)),
        (
            "srv-1",
            "set min_duration = 600000 in user.conf and rerun",
            ("result_scheduled_samples_per_sec", "result_query_count"),
        ),
    ],
)
def test_a_computed_value_states_its_formula_and_keys(
    frozen: FrozenRuns, run: str, fix: str, keys: tuple[str, ...]
) -> None:
    findings = {finding.rule: finding for finding in performance_limits(RunEvidence(RunDir(frozen(run))))}
    assert (findings["perf-duration"].fix or findings["perf-duration"].definition.fix) == fix
    assert findings["perf-duration"].decided_by == keys
    assert "--dataset-path" in findings["perf-data-set"].definition.fix
    assert "(tokens/s ÷ samples/s)" in findings["perf-output-tokens"].found
    assert len(findings["perf-output-tokens"].decided_by) == 2


def test_a_rate_above_the_schedule_is_reported() -> None:
    latency = LatencyNumbers(min=10**6, mean=2 * 10**6, max=3 * 10**6, p50=0, p90=0, p95=0, p97=0, p99=0, p99_9=0)
    numbers = Numbers(samples_per_second=12.0, scheduled_samples_per_second=10.0)
    ((stated, keys, required),) = _completed(100, numbers, latency)
    assert (stated, required) == ("completed samples/s is 12", "must be at most scheduled samples/s 10")
    assert keys == ("result_completed_samples_per_sec", "result_scheduled_samples_per_sec")
