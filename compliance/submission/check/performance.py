"""Rules on a scenario's performance leg."""

from compliance.evidence.performance import verify_performance
from compliance.finding import Severity
from compliance.submission.check.descriptions import says_network
from compliance.submission.check.finding import Findings
from compliance.submission.check.logs import (
    ComparedLeg,
    check_scenario_name,
    check_seeds,
    facts,
    judged,
    make_leg,
    note_findings,
    read_log,
)
from compliance.submission.check.policy import policy_of
from compliance.submission.check.settings import check_user_conf
from compliance.submission.tree import Place, Tree
from runs.benchmark import Benchmark, Scenario
from runs.loadgen.detail_log import NETWORK_SUT, DetailLog
from runs.record.leg import PERFORMANCE

# The headline of a scenario. [checker] constants.RESULT_FIELD_NEW, RESULT_FIELD_BENCHMARK_OVERWRITE
_METRIC = {
    "Offline": "result_tokens_per_second",
    "Server": "result_completed_tokens_per_second",
    "SingleStream": "result_90.00_percentile_latency_ns",
}


def check_performance(
    tree: Tree, place: Place, scenario: Scenario, benchmark: Benchmark, findings: Findings
) -> ComparedLeg | None:
    """Judge the performance leg; gives back what other legs are compared with, if its log can be read."""
    run = tree.performance(place)
    detail = read_log(run, findings)
    if detail is None:
        return None
    known = facts("performance", run, detail)
    mode = detail.get("effective_test_mode", detail.get("requested_test_mode"))
    if mode != PERFORMANCE:
        findings.add("perf-mode", run.detail, f"effective_test_mode is {mode}", PERFORMANCE)
    check_seeds(detail, tree.round, "perf-seeds", findings)
    check_user_conf(tree.user_conf(place), {place.benchmark}, benchmark, detail, findings)
    same = check_scenario_name(detail, scenario, "perf-scenario", findings)
    if mode != PERFORMANCE or not same:
        return known  # its figures would be held to the wrong rules
    check_verdict(detail, findings)
    _check_metric(detail, findings)
    _check_name(detail, tree, place, findings)
    leg = make_leg(run, detail, scenario, benchmark)
    part = judged(lambda: verify_performance(leg), run, findings)
    if part is not None:
        note_findings(part.findings, policy_of(place.division), run, findings)
    return known


def check_verdict(detail: DetailLog, findings: Findings) -> None:
    """What LoadGen itself says of the run."""
    if detail.error_count:
        first = detail.errors[0]
        said = f"{detail.error_count} error records, the first in line {first.line_number}: {first}"
        findings.add("perf-errors", detail.path, said, "none")
    if detail.validity != "VALID":
        reason = " ".join(str(detail.get("result_invalid_reason") or "").split())
        findings.add("perf-validity", detail.path, f"result_validity is {detail.validity} {reason}".strip(), "VALID")
    if detail.get("early_stopping_met") is False:
        said = " ".join(str(detail.get("early_stopping_result") or "early_stopping_met is false").split())
        findings.add("perf-early-stopping", detail.path, said, "early_stopping_met true")


def _check_metric(detail: DetailLog, findings: Findings) -> None:
    metric = _METRIC[detail.scenario]
    value = detail.get(metric)
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        findings.add("perf-metric", detail.path, f"{metric} is {value}", "a number above 0")


def _check_name(detail: DetailLog, tree: Tree, place: Place, findings: Findings) -> None:
    """The open division has both kinds: what its description says of itself has to be so."""
    network = place.division == "network" or (place.division == "open" and says_network(tree, place))
    if detail.is_network != network and (network or place.division != "open"):
        wanted = f"{'a name with' if network else 'no'} {NETWORK_SUT!r}"
        # The official checker asks of the network division alone: systems of several nodes bear the name in others.
        severity: Severity = "error" if network else "warning"
        findings.add("perf-network", detail.path, f"sut_name is {detail.get('sut_name')!r}", wanted, severity=severity)
