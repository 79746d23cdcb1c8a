"""All rules on one scenario of one system: its legs by the rules of any benchmark, then by its own benchmark's.

What cannot be said without a benchmark's own rules is told as not judged: no finding does not mean clean then.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from compliance.accuracy.metrics import metric_of
from compliance.evidence.accuracy import ScoreSources, verify_accuracy
from compliance.evidence.performance import AUDIT_SETTINGS, verify_performance
from compliance.evidence.truncate import CUT, SHOWN_BYTES, is_truncated
from compliance.finding import (
    RERUN,
    Finding,
    Severity,
    UnknownRuleError,
    asked,
    decides,
    noting_what_is_asked,
    passed_over,
)
from compliance.submission.check.audit import TEST, check_audit
from compliance.submission.check.descriptions import check_measurements, mapped_benchmark, says_network
from compliance.submission.check.findings import Findings, is_regular, read_bytes, read_text
from compliance.submission.check.legs import (
    ComparedLeg,
    Result,
    check_kind,
    check_one_configuration,
    check_user_conf,
    note_contradictions,
    note_errors,
    note_judged,
    read_log,
)
from compliance.submission.check.lines import located
from compliance.submission.tree import Place, Tree
from runs.benchmark import SCENARIOS, Benchmark, Scenario
from runs.benchmarks import SUBMISSIONS, submitted_benchmark
from runs.loadgen.detail_log import NETWORK_SUT, DetailLog
from runs.record.layout import RunDir
from runs.record.leg import FinishedLeg

# One pass over a fixed number of samples. [checker] performance_check.min_duration_check
_NOT_TIME_BOUND = frozenset({"e2e-rag-qna", "e2e-rag-db"})
# The headline of a scenario. [checker] constants.RESULT_FIELD_NEW, RESULT_FIELD_BENCHMARK_OVERWRITE
_METRIC = {
    "Offline": "result_tokens_per_second",
    "Server": "result_completed_tokens_per_second",
    "SingleStream": "result_90.00_percentile_latency_ns",
}
MAX_LOG_BYTES = 10 * 1024  # [checker] constants.MAX_ACCURACY_LOG_SIZE
_HASH = re.compile(r"^hash=(\w+)$")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NUMPY = re.compile(r"np\.(int|float)\d*\(")


@dataclass
class ScenarioOutcome:
    """Findings, and what other scenarios are compared with."""

    place: Place
    findings: list[Finding]
    legs: list[ComparedLeg] = field(default_factory=list)
    scenario: Scenario | None = None  # None where the directory names none of the benchmark's
    asked: frozenset[str] = frozenset()  # rules that were, kept or broken


def check_scenario(tree: Tree, place: Place) -> ScenarioOutcome:
    """Check one scenario directory."""
    with noting_what_is_asked() as noted:
        outcome = _check_scenario(tree, place)
    return replace(outcome, asked=noted.rules)


def _check_scenario(tree: Tree, place: Place) -> ScenarioOutcome:
    findings = Findings(tree.root)
    check_measurements(tree, place, findings)
    result = _claimed(tree, place, findings)
    legs: list[ComparedLeg] = []
    if result is not None:
        for name, check in (("performance", _check_performance), ("accuracy", _check_accuracy), (TEST, check_audit)):
            try:
                leg = check(result)
            except UnknownRuleError:
                raise
            except Exception as error:  # whatever stands in a foreign file must not end the other checks
                said = f"cannot be judged: {type(error).__name__}: {error}"
                findings.add("log-damaged", tree.scenario(place) / name, said)
                continue
            if leg is not None:
                legs.append(leg)
        check_one_configuration([leg for leg in legs if leg.identity], findings)
    return ScenarioOutcome(place, located(tree.root, findings.items), legs, result.scenario if result else None)


@decides(
    "tree",
    ("tree-benchmark", "error", "[checker] loader.Loader.load", "benchmark directories are known", "rename it"),
    ("tree-scenario", "error", "[checker] performance_check.scenarios_check", "scenarios are known", "rename it"),
)  # fmt: skip
def _claimed(tree: Tree, place: Place, findings: Findings) -> Result | None:
    """What the directories' names claim; None with a finding where the benchmark or its scenario is not known."""
    folder, name = tree.scenario(place), mapped_benchmark(tree, place)
    if name is None:
        known = ", ".join(sorted(tree.round.benchmarks))
        findings.add("tree-benchmark", folder.parent, f"{place.benchmark} is no benchmark of this checker", known)
        return None
    # Another case has a finding of its own, and is judged all the same.
    scenario = next((one for one in SCENARIOS if one.lower() == place.scenario.lower()), None)
    if name not in SUBMISSIONS:
        result = Result(tree, place, findings, None, scenario)
        if result.loadgen_scenario is None:
            findings.add("tree-scenario", folder, f"{place.scenario} is no scenario of LoadGen's")
        return result
    allowed = SUBMISSIONS[name].scenarios
    if scenario is None or scenario not in allowed:
        findings.add("tree-scenario", folder, f"{place.scenario} is no scenario of {name}", ", ".join(sorted(allowed)))
        return None
    return Result(tree, place, findings, submitted_benchmark(name, scenario), scenario)


@decides(
    "tree",
    ("perf-errors", "error", "[checker] performance_check.loadgen_errors_check", "no error records", RERUN),
    ("perf-early-stopping", "error", "[checker] performance_check.latency_check", "early stopping is met",
     "lower target_qps (Server) or run longer"),
    ("perf-metric", "error", "[checker] performance_check.get_performance_metric_check", "the metric is there", RERUN),
)  # fmt: skip
def _check_performance(result: Result) -> ComparedLeg | None:
    """Judge the performance leg; gives back what other legs are compared with, if its log can be read."""
    place, findings, benchmark = result.place, result.findings, result.benchmark
    run = result.tree.performance(place)
    detail = read_log(run, findings)
    if detail is None:
        return None
    known = ComparedLeg.of("performance", run, detail)
    check_user_conf(result, detail)
    if not check_kind(result, "performance", detail):
        passed_over("perf-errors", "perf-early-stopping", "perf-metric")
        return known
    note_errors(result, "perf-errors", detail)
    asked("perf-validity")
    if detail.validity != "VALID":
        reason = " ".join(str(detail.get("result_invalid_reason") or "").split())
        findings.add("perf-validity", run.detail, f"result_validity is {detail.validity} {reason}".strip(), "VALID")
    if detail.get("early_stopping_met") is False:
        said = " ".join(str(detail.get("early_stopping_result") or "early_stopping_met is false").split())
        findings.add("perf-early-stopping", run.detail, said, "early_stopping_met true")
    if benchmark is None:
        least_ms, wanted_ms = detail.get("effective_min_duration_ms"), result.tree.round.table.min_duration_ms
        bound = not result.is_open and place.benchmark not in _NOT_TIME_BOUND
        asked(*["perf-min-duration"] * bound)
        if bound and isinstance(least_ms, int | float) and least_ms < wanted_ms:
            said = f"effective_min_duration_ms is {least_ms:,}"
            findings.add("perf-min-duration", run.detail, said, f"at least {wanted_ms:,} ms")
        note_contradictions(result, "performance", run, detail)
        passed_over("perf-metric")
        return known
    metric = _METRIC[detail.scenario]
    value = detail.get(metric)
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        findings.add("perf-metric", run.detail, f"{metric} is {value}", "a number above 0")
    _check_name(result, detail)
    leg = _leg(result, run, detail, benchmark)
    note_judged(lambda: verify_performance(leg).findings, place.division, run, findings)
    return known


def _leg(result: Result, run: RunDir, detail: DetailLog, benchmark: Benchmark) -> FinishedLeg:
    """The leg as its directory claims it. What a manifest beside it says counts for nothing here."""
    leg = FinishedLeg(run, result.scenario, benchmark, foreign=True)
    leg.detail = detail  # read once
    return leg


def _check_name(result: Result, detail: DetailLog) -> None:
    """The open division has both kinds: what its description says of itself has to be so."""
    asked("perf-network")
    network = result.place.division == "network" or (result.is_open and says_network(result.tree, result.place))
    if detail.is_network != network and (network or not result.is_open):
        wanted = f"{'a name with' if network else 'no'} {NETWORK_SUT!r}"
        # The official checker asks of the network division alone: systems of several nodes bear the name in others.
        severity: Severity = "error" if network else "warning"
        said = f"sut_name is {detail.get('sut_name')!r}"
        result.findings.add("perf-network", detail.path, said, wanted, severity=severity)


@decides(
    "tree",
    ("accuracy-audit-settings", "error", "compliance/README.md: remove audit.config afterwards",
     "no audit settings in a normal run", "remove audit.config and run the leg again"),
)  # fmt: skip
def _check_accuracy(result: Result) -> ComparedLeg | None:
    """Judge the accuracy leg; gives back what other legs are compared with, if its log can be read."""
    findings, benchmark = result.findings, result.benchmark
    run = result.tree.accuracy(result.place)
    readable, digest = False, ""
    if benchmark is not None:
        readable, digest = _check_text(run.accuracy_text, benchmark, result)
        _check_size(run, findings)
    detail = read_log(run, findings)
    if detail is None:
        return None
    known = ComparedLeg.of("accuracy", run, detail)
    known.answers, known.answers_file = digest, run.accuracy_text
    if not check_kind(result, "accuracy", detail):
        passed_over("accuracy-audit-settings")
        return known
    note_errors(result, "accuracy-errors", detail)
    if benchmark is None:
        note_contradictions(result, "accuracy", run, detail)
        passed_over("accuracy-audit-settings")
        return known
    # Logs of LoadGen 5 have no such record; there the size of the data set tells.
    count = detail.get("effective_accuracy_sample_count", detail.get("qsl_reported_total_count"))
    if count != benchmark.accuracy_samples:
        said = f"the run covers {count} samples"
        findings.add("accuracy-samples", detail.path, said, f"{benchmark.accuracy_samples}")
    for name in AUDIT_SETTINGS:
        if detail.effective(name, 0):
            said = f"effective_{name} is {detail.effective(name)}"
            findings.add("accuracy-audit-settings", detail.path, said, "no audit settings")
    if readable and is_regular(run.accuracy_log):  # else there are findings already; verify needs all of them
        leg = _leg(result, run, detail, benchmark)
        note_judged(lambda: verify_accuracy(leg, ScoreSources()).findings, result.place.division, run, findings)
    return known


@decides(
    "tree",
    ("accuracy-text", "error", "[checker] accuracy_check.accuracy_result_check",
     "accuracy.txt has every score in a form that the checker reads", "write plain numbers, each score once"),
)  # fmt: skip
def _check_text(path: Path, benchmark: Benchmark, result: Result) -> tuple[bool, str]:
    """accuracy.txt, read as the checker reads it: whether every score could be read, and the hash in it."""
    findings = result.findings
    text = read_text(path, findings, "accuracy-text")
    if text is None:
        return False, ""
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        if _NUMPY.search(line):
            said = f"NumPy's form of a number: {line.strip()}"
            findings.add("accuracy-text", path, said, "plain numbers; the checker cannot read others", line=number)
    metric = metric_of(benchmark)
    readable = True
    for form in metric.forms:
        if form.name not in benchmark.targets:
            continue  # the checker reads the scores that it has targets for, each line from its start
        pattern = re.compile(f".*{form.pattern}")  # [checker] constants.ACC_PATTERN
        found = [match[1] for line in lines if (match := pattern.match(line))]
        if form.name == metric.count:
            if any(float(count) != benchmark.accuracy_samples for count in found):
                said = f"{metric.count} is {', '.join(found)}"
                findings.add("accuracy-samples", path, said, f"{benchmark.accuracy_samples}")
        elif len(set(map(float, found))) != 1:
            said = (
                f"{form.name} stands there as {', '.join(found)}"
                if found
                else f"no {form.name} that the checker can read"
            )
            findings.add("accuracy-text", path, said, f"one line with '{form.name}': and a plain number")
            readable = False
        elif not result.is_open:
            target, value = benchmark.targets[form.name], float(found[0])
            if value < target.low or (target.high is not None and value > target.high):
                most = "" if target.high is None else f"{target.low:.10g} to {target.high:.10g}"
                required = most or f"at least {target.low:.10g}"
                findings.add("accuracy-target", path, f"{form.name} is {value:.10g}", required)
    return readable, _check_hash(path, lines, findings)


@decides(
    "tree",
    ("accuracy-hash", "error", "[checker] accuracy_check.accuracy_result_check", "accuracy.txt has one hash line",
     "truncate the log with the official tool, which appends it"),
)  # fmt: skip
def _check_hash(path: Path, lines: list[str], findings: Findings) -> str:
    """The hash that accuracy.txt gives; empty with a finding where it gives none."""
    found = [match[1] for line in lines if (match := _HASH.match(line))]
    if not found:
        findings.add("accuracy-hash", path, "no line `hash=...`", "the SHA-256 of the whole accuracy log")
    elif len(set(found)) > 1:
        findings.add("accuracy-hash", path, f"several hash lines: {', '.join(found)}", "one")
    elif not _SHA256.fullmatch(found[0].lower()):
        findings.add("accuracy-hash", path, f"hash={found[0]} is no SHA-256", "64 hexadecimal digits")
    else:
        return found[0].lower()
    return ""


@decides(
    "tree",
    ("accuracy-size", "error", "[checker] accuracy_check.accuracy_json_check", "the accuracy log is truncated",
     "truncate it with the official tool"),
    ("accuracy-shape", "error", "tools/submission/truncate_accuracy_log.py",
     "the log is cut as the official tool cuts it", "truncate LoadGen's own log with the official tool"),
)  # fmt: skip
def _check_size(run: RunDir, findings: Findings) -> None:
    path = run.accuracy_log
    content = read_bytes(path, findings, "accuracy-size", 64 * 1024)
    if content is None:
        return
    if len(content) > MAX_LOG_BYTES:
        findings.add("accuracy-size", path, f"{len(content):,} bytes", f"at most {MAX_LOG_BYTES:,} bytes")
    elif problem := next(_shape_problems(content, is_truncated(run)), None):
        findings.add("accuracy-shape", path, problem)


def _shape_problems(content: bytes, truncated: bool) -> Iterator[str]:
    """The official tool keeps 4,096 characters of both ends; on some systems it writes lines that end in \\r\\n."""
    if not truncated:
        yield "the log is not truncated"
        return
    plain = content.replace(b"\r\n", b"\n")
    whole = SHOWN_BYTES * 2 + len(CUT)
    if len(plain) != whole:
        yield f"{len(plain):,} bytes, the tool leaves {whole:,}"
    elif plain[SHOWN_BYTES : SHOWN_BYTES + len(CUT)] != CUT:
        yield f"the cut is not after {SHOWN_BYTES:,} bytes"
    elif not plain.startswith(b"[") or not plain.rstrip().endswith(b"]"):
        yield "it is not the beginning and the end of a LoadGen accuracy log"
