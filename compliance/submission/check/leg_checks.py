"""Rules on a scenario's legs: performance with its user.conf, accuracy with accuracy.txt and the truncated answers.

LoadGen skips what it does not know in a user.conf, so what is held against the log are the lines that it takes.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from compliance.accuracy.metrics import metric_of
from compliance.evidence.accuracy import ScoreSources, verify_accuracy
from compliance.evidence.performance import verify_performance
from compliance.evidence.truncate import CUT, SHOWN_BYTES, is_truncated
from compliance.finding import RERUN, Severity, decides
from compliance.submission.check.descriptions import says_network
from compliance.submission.check.logs import (
    ComparedLeg,
    check_scenario_name,
    check_seeds,
    facts,
    judged,
    make_leg,
    note_errors,
    note_findings,
    read_log,
)
from compliance.submission.check.tree_finding import Findings
from compliance.submission.check.tree_reading import is_regular, read_bytes, read_text
from compliance.submission.tree import Place, Tree
from runs.benchmark import Benchmark, Scenario
from runs.loadgen.detail_log import NETWORK_SUT, DetailLog
from runs.loadgen.given import mismatches
from runs.loadgen.user_conf import Setting, lines_taken
from runs.record.layout import RunDir
from runs.record.leg import ACCURACY, PERFORMANCE

# The headline of a scenario. [checker] constants.RESULT_FIELD_NEW, RESULT_FIELD_BENCHMARK_OVERWRITE
_METRIC = {
    "Offline": "result_tokens_per_second",
    "Server": "result_completed_tokens_per_second",
    "SingleStream": "result_90.00_percentile_latency_ns",
}
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
MAX_LOG_BYTES = 10 * 1024  # [checker] constants.MAX_ACCURACY_LOG_SIZE
_HASH = re.compile(r"^hash=(\w+)$")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NUMPY = re.compile(r"np\.(int|float)\d*\(")


@decides(
    "tree",
    ("perf-mode", "error", "[rules] performance mode", "a performance log comes from a performance run", RERUN),
    ("perf-scenario", "error", "[checker] performance_check.inferred_check", "the log is of the directory's scenario",
     "put the log where it belongs"),
)  # fmt: skip
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
        note_findings(part.findings, place.division, run, findings)
    return known


@decides(
    "tree",
    ("perf-errors", "error", "[checker] performance_check.loadgen_errors_check", "no error records", RERUN),
    ("perf-early-stopping", "error", "[checker] performance_check.latency_check", "early stopping is met",
     "lower target_qps (Server) or run longer"),
)  # fmt: skip
def check_verdict(detail: DetailLog, findings: Findings) -> None:
    """What LoadGen itself says of the run."""
    note_errors(detail, "perf-errors", findings)
    if detail.validity != "VALID":
        reason = " ".join(str(detail.get("result_invalid_reason") or "").split())
        findings.add("perf-validity", detail.path, f"result_validity is {detail.validity} {reason}".strip(), "VALID")
    if detail.get("early_stopping_met") is False:
        said = " ".join(str(detail.get("early_stopping_result") or "early_stopping_met is false").split())
        findings.add("perf-early-stopping", detail.path, said, "early_stopping_met true")


@decides(
    "tree",
    ("perf-metric", "error", "[checker] performance_check.get_performance_metric_check", "the metric is there", RERUN),
)  # fmt: skip
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


def check_user_conf(path: Path, names: set[str], benchmark: Benchmark, detail: DetailLog, findings: Findings) -> None:
    """Hold user.conf against the performance log.

    Args:
        names: further names of the model that the submitter may have given LoadGen.
    """
    models = (benchmark.loadgen_key, benchmark.submission_name, *sorted(names))
    _hold(path, models, detail, findings)


def check_user_conf_of(path: Path, detail: DetailLog, findings: Findings) -> None:
    """The same where the name that LoadGen was given for the model is not known: of lines of any model only those
    are held against the log that no line of a named model can outweigh."""
    _hold(path, None, detail, findings)


@decides(
    "tree",
    ("user-conf-differs", "error", "[rules] user.conf is what the run was made with",
     "user.conf gives the settings in the log", "submit the user.conf that the run was made with"),
    ("user-conf-absent", "warning", "[rules] user.conf is what the run was made with",
     "user.conf sets the target in the log", "submit the user.conf that the run was made with"),
)  # fmt: skip
def _hold(path: Path, models: tuple[str, ...] | None, detail: DetailLog, findings: Findings) -> None:
    if not is_regular(path):
        return  # has a finding already
    text = read_text(path, findings, "scenario-file")
    if text is None:
        return
    lines = list(_lines(text))
    named = set() if models is not None else {line.key for line in lines if line.model != "*"}
    for found in mismatches(lines, models or (), detail, named):
        wanted = f"{found.logged:.10g}, as {found.record} of the log has it"
        if found.line is None:
            findings.add("user-conf-absent", path, f"no line sets {detail.scenario} {found.key}", wanted)
        else:
            said = f"line {found.line.line}: {found.line.name} = {found.line.value}"
            findings.add("user-conf-differs", path, said, wanted)


def _lines(text: str) -> Iterator[Setting]:
    """Those with a number, which LoadGen reads up to the first sign that belongs to none (of 5_00 the 5)."""
    for line in lines_taken(text):
        if number := _NUMBER.match(line.value):
            yield replace(line, value=number[0])


@decides(
    "tree",
    ("accuracy-mode", "error", "[rules] accuracy mode", "an accuracy log comes from an accuracy run", RERUN),
    ("accuracy-scenario", "error", "[rules] accuracy of each scenario", "the log is of the directory's scenario",
     "put the log where it belongs"),
)  # fmt: skip
def check_accuracy(
    tree: Tree, place: Place, scenario: Scenario, benchmark: Benchmark, findings: Findings
) -> ComparedLeg | None:
    """Judge the accuracy leg; gives back what other legs are compared with, if its log can be read."""
    run = tree.accuracy(place)
    readable, digest = _check_text(run.accuracy_text, benchmark, place.division, findings)
    _check_size(run, findings)
    detail = read_log(run, findings)
    if detail is None:
        return None
    known = facts("accuracy", run, detail)
    known.answers, known.answers_file = digest, run.accuracy_text
    mode = detail.get("effective_test_mode", detail.get("requested_test_mode"))
    if mode != ACCURACY:
        findings.add("accuracy-mode", run.detail, f"effective_test_mode is {mode}", ACCURACY)
    check_seeds(detail, tree.round, "accuracy-seeds", findings)
    same = check_scenario_name(detail, scenario, "accuracy-scenario", findings)
    if mode != ACCURACY or not same:
        return known
    _check_settings(detail, benchmark, findings)
    if not readable or not is_regular(run.accuracy_log):
        return known  # has findings already; verify needs all of them
    leg = make_leg(run, detail, scenario, benchmark)
    part = judged(lambda: verify_accuracy(leg, ScoreSources()), run, findings)
    if part is not None:
        note_findings(part.findings, place.division, run, findings)
    return known


@decides(
    "tree",
    ("accuracy-text", "error", "[checker] accuracy_check.accuracy_result_check",
     "accuracy.txt has every score in a form that the checker reads", "write plain numbers, each score once"),
)  # fmt: skip
def _check_text(path: Path, benchmark: Benchmark, division: str, findings: Findings) -> tuple[bool, str]:
    """accuracy.txt, read as the checker reads it: whether every score could be read, and the hash in it."""
    text = read_text(path, findings, "accuracy-text")
    if text is None:
        return False, ""
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        if _NUMPY.search(line):
            said = f"line {number} has NumPy's form of a number: {line.strip()}"
            findings.add("accuracy-text", path, said, "plain numbers; the checker cannot read others")
    metric = metric_of(benchmark)
    # The checker reads the scores that it has targets for, each line from its start. [checker] constants.ACC_PATTERN
    forms = {form.name: re.compile(f".*{form.pattern}") for form in metric.forms if form.name in benchmark.targets}
    read = {name: [match[1] for line in lines if (match := form.match(line))] for name, form in forms.items()}
    counts = read.pop(metric.count, [])
    readable = True
    for name, found in read.items():
        values = [value for value in map(_number, found) if value is not None]
        if len(set(values)) != 1 or len(values) != len(found):
            said = f"{name} stands there as {', '.join(found)}" if found else f"no {name} that the checker can read"
            findings.add("accuracy-text", path, said, f"one line with '{name}': and a plain number")
            readable = False
        elif division != "open":
            _check_target(path, name, values[0], benchmark, findings)
    if any(_number(count) != benchmark.accuracy_samples for count in counts):
        said = f"{metric.count} is {', '.join(counts)}"
        findings.add("accuracy-samples", path, said, f"{benchmark.accuracy_samples}")
    return readable, _check_hash(path, lines, findings)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _check_target(path: Path, name: str, value: float, benchmark: Benchmark, findings: Findings) -> None:
    low, high = benchmark.targets[name].low, benchmark.targets[name].high
    if value < low or (high is not None and value > high):
        required = f"at least {low:.10g}" if high is None else f"{low:.10g} to {high:.10g}"
        findings.add("accuracy-target", path, f"{name} is {value:.10g}", required)


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


@decides(
    "tree",
    ("accuracy-audit-settings", "error", "[rules] audits are runs of their own", "no audit settings in a normal run",
     "remove audit.config and run the leg again"),
)  # fmt: skip
def _check_settings(detail: DetailLog, benchmark: Benchmark, findings: Findings) -> None:
    # Logs of LoadGen 5 have no such record; there the size of the data set tells.
    count = detail.get("effective_accuracy_sample_count", detail.get("qsl_reported_total_count"))
    if count != benchmark.accuracy_samples:
        said = f"the run covers {count} samples"
        findings.add("accuracy-samples", detail.path, said, f"{benchmark.accuracy_samples}")
    note_errors(detail, "accuracy-errors", findings)
    for name in ("performance_issue_same", "performance_issue_unique", "accuracy_log_sampling_target"):
        if detail.effective(name, 0):
            said = f"effective_{name} is {detail.effective(name)}"
            findings.add("accuracy-audit-settings", detail.path, said, "no audit settings")
