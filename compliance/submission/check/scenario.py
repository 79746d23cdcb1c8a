"""All rules on one scenario of one system: those of any benchmark, then those of a benchmark that runs here."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from compliance.evidence.accuracy import ScoreSources, verify_accuracy
from compliance.evidence.official_rules import official_rules_of_table
from compliance.evidence.performance import AUDIT_SETTINGS, audit_settings, verify_performance
from compliance.finding import (
    RERUN,
    Finding,
    UnknownRuleError,
    applied,
    applied_rules,
    decides,
    note_applied,
)
from compliance.submission.check.audits import AUDIT_TEXTS, TEST, check_audit, check_audit_settings, check_audit_texts
from compliance.submission.check.descriptions import check_measurements, mapped_benchmark, says_network
from compliance.submission.check.findings import Findings, is_folder, is_regular, located, read_bytes
from compliance.submission.check.layout import AUDIT_FOLDERS
from compliance.submission.check.leg_files import check_accuracy_files, check_power
from compliance.submission.check.legs import (
    ComparedLeg,
    Result,
    check_kind,
    check_one_configuration,
    check_tokens,
    check_user_conf,
    note_contradictions,
    note_errors,
    note_judged,
    read_log,
)
from compliance.submission.tree import Place, Tree
from runs.benchmark import SCENARIOS, Benchmark, Scenario
from runs.benchmarks import BENCHMARKS
from runs.loadgen.detail_log import NETWORK_SUT, DetailLog
from runs.record.layout import RunDir
from runs.record.leg import FinishedLeg
from runs.rounds import RoundBenchmark, RoundTable

_LONG_ANSWER = re.compile(rb'"data" : "[0-9A-F]{17,}"')  # longer than a class or a number
_AUDITS_WITH_RUNS = frozenset({"TEST01", "TEST04"})  # whose run must have its log


@dataclass
class ScenarioOutcome:
    """Findings on a scenario, and what other scenarios are compared with."""

    place: Place
    findings: list[Finding]
    legs: list[ComparedLeg] = field(default_factory=list)
    scenario: Scenario | None = None  # None where the directory names none of the benchmark's
    applied: frozenset[str] = frozenset()  # rules, kept or broken


def check_scenario(tree: Tree, place: Place) -> ScenarioOutcome:
    """Check one scenario directory."""
    findings = Findings(tree.root)
    legs: list[ComparedLeg] = []
    with applied_rules() as applied:
        check_measurements(tree, place, findings)
        result = _claimed(tree, place, findings)
        if result is not None:
            legs = _check_legs(result)
    scenario = result.scenario if result is not None else None
    return ScenarioOutcome(place, located(tree.root, findings.items), legs, scenario, frozenset(applied))


def _check_legs(result: Result) -> list[ComparedLeg]:
    tree, place, findings, legs = result.tree, result.place, result.findings, list[ComparedLeg]()
    for name, check in (("performance", _check_performance), ("accuracy", _check_accuracy), (TEST, check_audit)):
        try:
            leg = check(result)
        except UnknownRuleError:
            raise
        except Exception as error:  # untrusted content must not end the other checks
            found = f"cannot be judged: {type(error).__name__}: {error}"
            findings.add("log-damaged", tree.scenario(place) / name, found)
            continue
        if leg is not None:
            legs.append(leg)
    if "performance" in result.details:
        check_user_conf(result, result.details["performance"], result.details.get("accuracy"))
    _check_audits(result)
    legs += _other_audits(result, {leg.detail for leg in legs})
    check_tokens(result, legs)
    check_power(result)
    for test in AUDIT_TEXTS:
        if test != TEST and is_folder(folder := tree.audit(place, test)):
            check_audit_texts(result, test, folder, legs)
    check_one_configuration([leg for leg in legs if leg.identity], findings, one_size=result.one_size)
    return legs


@decides(
    "tree",
    ("tree-benchmark", "error", "[checker] loader.Loader.load", "benchmark directories are known", "rename it"),
    ("tree-scenario", "error", "[checker] performance_check.scenarios_check", "scenarios are known", "rename it"),
)  # fmt: skip
def _claimed(tree: Tree, place: Place, findings: Findings) -> Result | None:
    """The result that the directories name; None, with a finding, where the benchmark or scenario is not known."""
    folder, name = tree.scenario(place), mapped_benchmark(tree, place)
    if name is None:
        known = ", ".join(sorted(tree.round.benchmarks))
        findings.add("tree-benchmark", folder.parent, f"{place.benchmark} is no benchmark of this checker", known)
        return None
    entry = tree.round.table.benchmarks[name]
    # A name in another case is judged all the same; tree-case reports it.
    scenario = next((one for one in SCENARIOS if one.lower() == place.scenario.lower()), None)
    ours = _benchmark_like(entry, tree.round.table, scenario) if scenario in entry.scenarios else None
    result = Result(tree, place, findings, entry, ours, scenario)
    if result.loadgen_scenario is None:
        findings.add("tree-scenario", folder, f"{place.scenario} is no scenario of LoadGen's")
    elif not result.is_open and result.scenario_name not in entry.scenarios:
        known = ", ".join(sorted(entry.scenarios))
        findings.add("tree-scenario", folder, f"{place.scenario} is no scenario of {name}", known)
        return None
    return result


def _benchmark_like(entry: RoundBenchmark, table: RoundTable, scenario: Scenario | None) -> Benchmark | None:
    """The benchmark that runs here with the same model, with the accuracy targets of the given one."""
    for one in BENCHMARKS.values():
        other = table.benchmarks.get(one.submission_name)
        if other is not None and other.model == entry.model and scenario in one.scenarios:
            if other is entry:
                return one
            asked = {score.lower(): limits for score, limits in entry.targets_of(one.scenarios[0]).items()}
            targets = {
                name: replace(target, low_share=limits.low / target.reference)
                if (limits := asked.get(name.lower())) and limits.low is not None
                else target
                for name, target in one.targets.items()
            }
            return replace(one, targets=targets)
    return None


def _check_performance(result: Result) -> ComparedLeg | None:
    """Judge the performance leg. Returns what other legs are compared with; None if its log cannot be read."""
    run = result.tree.performance(result.place)
    detail = read_log(run, result.findings)
    if detail is None:
        return None
    known = ComparedLeg.of("performance", run, detail)
    result.details["performance"] = detail
    if check_kind(result, "performance", detail):
        _judge_performance(result, run, detail)
    return known


@decides(
    "tree",
    ("perf-early-stopping", "error", "[checker] performance_check.latency_check", "early stopping is met",
     "lower target_qps (Server) or run longer"),
    ("perf-metric", "error", "[checker] performance_check.get_performance_metric_check", "the metric is there", RERUN),
)  # fmt: skip
def _judge_performance(result: Result, run: RunDir, detail: DetailLog) -> None:
    place, findings = result.place, result.findings
    note_errors(result, "perf-errors", detail)
    note_applied("perf-validity")
    if detail.validity != "VALID":
        reason = " ".join(str(detail.get("result_invalid_reason") or "").split())
        findings.add("perf-validity", run.detail, f"result_validity is {detail.validity} {reason}".strip(), "VALID")
    if detail.get("early_stopping_met") is False:
        found = " ".join(str(detail.get("early_stopping_result") or "early_stopping_met is false").split())
        findings.add("perf-early-stopping", run.detail, found, "early_stopping_met true")
    _check_metric(result, detail)
    _check_name(result, detail)
    if result.benchmark is not None:
        leg = _leg(result, run, detail, result.benchmark)
        note_judged(lambda: verify_performance(leg).findings, place.division, run, findings)
        return
    table, entry, name = result.tree.round.table, result.entry, result.scenario_name
    note_judged(lambda: official_rules_of_table(table, entry, name, detail), place.division, run, findings)
    note_judged(lambda: [audit_settings(detail), _cut_short(detail)], place.division, run, findings)
    note_contradictions(result, run, detail)


def _cut_short(detail: DetailLog) -> Finding:
    """Whether max_query_count ended the run, which MLPerf's rules allow. Offline has one query, of many samples."""
    most, samples = detail.integer("effective_max_query_count"), detail.samples_per_query or 0
    ends = most < samples if detail.scenario == "Offline" else most <= detail.integer("result_query_count")
    required = "0, or more than were issued"
    found = applied("perf-cut-short", "max_query_count", not (most and ends), f"{most}", required, detail.path)
    return found if found.passed else replace(found, severity="warning")  # published results of wan-2.2 have it


def _check_metric(result: Result, detail: DetailLog) -> None:
    metric = result.entry.metrics.get(detail.scenario)
    value = None if metric is None else detail.get(metric)
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        result.findings.add("perf-metric", detail.path, f"{metric} is {value}", "a number above 0")


def _leg(result: Result, run: RunDir, detail: DetailLog, benchmark: Benchmark) -> FinishedLeg:
    """The leg, of the benchmark and scenario that its directory names; a manifest there is ignored."""
    leg = FinishedLeg(run, result.scenario, benchmark, foreign=True)
    leg.detail = detail  # read once
    return leg


def _check_name(result: Result, detail: DetailLog) -> None:
    """Compare the system's name with the division; in the open division, with its description."""
    note_applied("perf-network", *["perf-network-name"] * (not result.is_open))
    network = result.place.division == "network" or (result.is_open and says_network(result.tree, result.place))
    if detail.is_network != network and (network or not result.is_open):
        wanted = f"{'a name with' if network else 'no'} {NETWORK_SUT!r}"
        found = f"sut_name is {detail.get('sut_name')!r}"
        # The official checker has this rule for the network division only: systems of several nodes use such a name.
        rule = "perf-network" if network else "perf-network-name"
        result.findings.add(rule, detail.path, found, wanted)


def _check_accuracy(result: Result) -> ComparedLeg:
    """Judge the accuracy leg. Returns what other legs are compared with."""
    run = result.tree.accuracy(result.place)
    readable, digest = check_accuracy_files(result, run)
    detail = read_log(run, result.findings)
    known = ComparedLeg("accuracy", run.detail) if detail is None else ComparedLeg.of("accuracy", run, detail)
    known.answers, known.answers_file = digest, run.accuracy_text
    known.cut = read_bytes(run.accuracy_log, Findings(run.root), "accuracy-size") or b""
    known.long_answers = result.benchmark is not None or bool(_LONG_ANSWER.search(known.cut))
    if detail is not None:
        result.details["accuracy"] = detail
        if check_kind(result, "accuracy", detail):
            _judge_accuracy(result, run, detail, readable=readable)
    return known


@decides(
    "tree",
    ("accuracy-audit-settings", "error", "compliance/README.md: remove audit.config afterwards",
     "no audit settings in a normal run", "remove audit.config and run the leg again"),
)  # fmt: skip
def _judge_accuracy(result: Result, run: RunDir, detail: DetailLog, *, readable: bool) -> None:
    findings, benchmark = result.findings, result.benchmark
    note_errors(result, "accuracy-errors", detail)
    note_applied("accuracy-samples")
    # Logs of LoadGen 5 lack the first record; the size of the data set takes its place.
    count = detail.get("effective_accuracy_sample_count", detail.get("qsl_reported_total_count"))
    if count != (wanted := result.accuracy_samples):
        findings.add("accuracy-samples", detail.path, f"the run covers {count} samples", f"{wanted}")
    for name in AUDIT_SETTINGS:
        if detail.effective(name, 0):
            found = f"effective_{name} is {detail.effective(name)}"
            findings.add("accuracy-audit-settings", detail.path, found, "no audit settings")
    if benchmark is None:
        note_contradictions(result, run, detail)
    elif readable and is_regular(run.accuracy_log):  # else there are findings already; verify needs all of them
        leg = _leg(result, run, detail, benchmark)
        note_judged(lambda: verify_accuracy(leg, ScoreSources()).findings, result.place.division, run, findings)


def _other_audits(result: Result, known: set[Path]) -> Iterator[ComparedLeg]:
    """The runs of the other audits, whose logs may be copies or contradict themselves."""
    for test in sorted(AUDIT_FOLDERS):
        run = RunDir(result.tree.audit(result.place, test) / "performance" / "run_1")
        if run.detail in known or not (is_regular(run.detail) and is_regular(run.summary)):
            continue
        detail = read_log(run, result.findings)
        if detail is not None:
            note_contradictions(result, run, detail)
            check_audit_settings(result, test, detail)
            yield ComparedLeg.of(test, run, detail)


def _check_audits(result: Result) -> None:
    """Check whether the required audits and their files are there."""
    if result.is_open:
        return
    note_applied("audit-missing")
    for test in result.entry.audits:
        folder = result.tree.audit(result.place, test)
        if not is_folder(folder):
            required = f"{', '.join(result.entry.audits)} in every scenario"
            result.findings.add("audit-missing", folder, "there is no such directory", required)
            continue
        files = [("audit-missing", folder / name) for name in AUDIT_TEXTS[test]]
        if test in _AUDITS_WITH_RUNS:
            files.append(("log-missing", RunDir(folder / "performance" / "run_1").detail))
        for rule, path in files:
            if test != TEST and not is_regular(path):
                result.findings.add(rule, path, "there is no such file")
