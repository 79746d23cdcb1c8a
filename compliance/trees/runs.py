"""Rules on the runs of a result in a tree, besides the rules that are valid for any run."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from compliance.judge.rule import OURS, RERUN, Rank, check_of, decides
from compliance.judge.verdict import Finding, NotApplied, Subject, compared
from compliance.results.log_contradictions import log_contradictions
from compliance.results.official_rules import tokens_as_in_accuracy
from compliance.results.performance import rule_of
from compliance.results.run_claim import RunClaim
from compliance.results.same_system import MAX_DAYS_APART, too_far_apart
from compliance.trees.descriptions import says_network
from compliance.trees.findings import object_or_empty, read_tree_bytes, read_tree_text, value_of
from compliance.trees.scenario_directory import (
    AUDIT_APART,
    IDENTITY,
    INFERRED,
    SAME_SAMPLES,
    SIZE,
    SIZES,
    WHOLE_LOG,
    RunIdentity,
    ScenarioDirectory,
    TreeRun,
    without_root,
)
from compliance.trees.tree import NOT_IN_OPEN, OPEN_IS_FREE
from runs.errors import HarnessError
from runs.loadgen.conf_in_log import Mismatch, mismatches
from runs.loadgen.conf_lines import decode_conf, stored_lines
from runs.loadgen.detail_log import NETWORK_SUT, DetailLog, power_time
from runs.loadgen.summary_log import read_summary
from runs.record.finished_run import PERFORMANCE as PERFORMANCE_MODE
from runs.record.layout import RunDir

# Rules on scores that are not applied here, because rules on accuracy.txt replace them.
BY_TEXT = frozenset({"accuracy-target", "accuracy-count", "accuracy-no-target", "accuracy-scored-again"})


def in_tree(run: RunDir, finding: Finding) -> Finding:
    """Return a finding on a run as a finding on its tree, with file names in place of paths."""
    names_all = finding.kind == "contradiction" or finding.rule == "log-damaged"
    text, value, required = (without_root(part, run.detail) for part in (finding.text, finding.found, finding.required))
    files = finding.files if names_all else (run.detail,)
    return replace(finding, files=files, text=text, found=value, required=required)


def damaged_run(run: RunDir, error: Exception) -> Finding:
    """Return the finding for a run that cannot be checked. Untrusted content must not end the other checks."""
    harness_error = error if isinstance(error, HarnessError) else None
    text = harness_error.message if harness_error else f"{type(error).__name__}: {error}"
    path, line = (harness_error.path or run.detail, harness_error.line) if harness_error else (run.detail, None)
    return compared("log-damaged", False, text, "", path, line=line)


def exempt_rules(subject: Subject) -> Iterator[NotApplied]:
    """Yield the rules on a run that do not count in its tree."""
    if not isinstance(subject, TreeRun):
        return
    if subject.is_readable and (subject.claimed_mode == PERFORMANCE_MODE or subject.directory.scores_readable):
        yield NotApplied(WHOLE_LOG, tuple(BY_TEXT), lacks_input=True)
    if subject.claim.is_open:
        yield NotApplied(OPEN_IS_FREE, tuple(NOT_IN_OPEN))


def violations(run: RunDir, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the violated rules on a run, as findings on its tree."""
    return (in_tree(run, finding) for finding in findings if finding.violated)


def log_findings(run: RunDir, detail: DetailLog) -> list[Finding]:
    """Return the contradictions between the two logs of an audit run, or the finding that a log is damaged."""
    try:
        return list(log_contradictions(detail, read_summary(run.summary)))
    except Exception as error:
        return [damaged_run(run, error)]


def free_seeds(claim: RunClaim) -> str:
    """Return the reason why seeds are not checked; empty if they are checked."""
    return OPEN_IS_FREE if claim.benchmark is None and claim.is_open else ""


@decides(
    "tree",
    ("perf-scenario", "error", "[checker] performance_check.inferred_check", "scenario of the performance log",
     "move the log to the directory of its scenario"),
    ("accuracy-scenario", "error", "[rules] accuracy of each scenario", "scenario of the accuracy log",
     "move the log to the directory of its scenario"),
    needs=("log",),
)  # fmt: skip
def logged_scenario(run: TreeRun) -> Iterator[Finding]:
    """Compare the scenario of the log with the directory."""
    yield from scenario_findings(rule_of(run, "scenario"), run.directory, run.detail)


def scenario_findings(rule: str, directory: ScenarioDirectory, detail: DetailLog) -> Iterator[Finding]:
    """Compare the scenario of a log with its directory. Edge systems may infer it from another scenario."""
    claim, logged = directory.claim, detail.scenario
    wanted = claim.loadgen_scenario
    if wanted is None or logged == wanted:
        return
    if claim.benchmark is None and (logged, wanted) in INFERRED:
        place = directory.place
        system = object_or_empty(directory.tree.system(place.division, place.organization, place.system))
        if "edge" in str(system.get("system_type", "")).lower():
            return
    claimed = claim.harness_scenario or wanted
    as_loadgen = f" (LoadGen: {wanted})" if wanted != claimed else ""
    required, keys = f"{claimed}{as_loadgen}", ("effective_scenario",)
    yield compared(rule, False, logged, required, detail.path, decided_by=keys, text="scenario of the log")


@decides(
    "tree",
    ("perf-early-stopping", "error", "[checker] performance_check.latency_check", "early stopping",
     "lower target_qps (Server) or run longer"),
    needs=("log",),
    rank=Rank.LIMITS,
)  # fmt: skip
def early_stopping(run: TreeRun) -> Iterator[Finding]:
    """Check that LoadGen had enough queries for its estimate of the percentile."""
    detail = run.detail
    if detail.get("early_stopping_met") is False:
        text = " ".join(str(detail.get("early_stopping_result") or "early_stopping_met is false").split())
        required, keys = "early_stopping_met true", ("early_stopping_met",)
        yield compared("perf-early-stopping", False, text, required, detail.path, decided_by=keys)


@decides(
    "tree",
    ("perf-metric", "error", "[checker] performance_check.get_performance_metric_check", "metric of the result", RERUN),
    needs=("log",),
    rank=Rank.LIMITS,
)  # fmt: skip
def metric(run: TreeRun) -> Iterator[Finding]:
    """Check the number that ranks the result."""
    name = run.claim.entry.metrics.get(run.detail.scenario)
    value = None if name is None else run.detail.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        stated, keys = f"{name or 'metric'} is {value}", () if name is None else (name,)
        yield compared("perf-metric", False, stated, "a number above 0", run.detail.path, decided_by=keys)


@decides("tree", needs=("log",), also=("perf-network", "perf-network-name"))
def network_name(run: TreeRun) -> Iterator[Finding]:
    """Compare the name of the SUT with the division; in the open division, with the system description."""
    claim, directory, detail = run.claim, run.directory, run.detail
    network = claim.division == "network" or (claim.is_open and says_network(directory.tree, directory.place))
    if detail.is_network != network and (network or not claim.is_open):
        wanted = f"{'a name with' if network else 'no'} {NETWORK_SUT!r}"
        stated = f"sut_name is {detail.get('sut_name')!r}"
        # Outside the network division the official checker accepts such a name. Systems with multiple nodes use it.
        rule = "perf-network" if network else "perf-network-name"
        yield compared(rule, False, stated, wanted, detail.path, decided_by=("sut_name",))


@decides("result", needs=("log",), also=("perf-cut-short",))
def ended_by_query_limit(run: TreeRun) -> Iterator[Finding]:
    """Report a run that max_query_count ended. MLPerf allows it. In Offline, the limit counts samples."""
    detail = run.detail
    most, samples = detail.integer("effective_max_query_count"), detail.samples_per_query or 0
    ends = most < samples if detail.scenario == "Offline" else most <= detail.integer("result_query_count")
    required, keys, cut = "0, or above the number of queries", ("effective_max_query_count",), bool(most and ends)
    finding = compared(
        "perf-cut-short", not cut, f"{most}", required, detail.path, decided_by=keys, text="max_query_count"
    )
    yield replace(finding, severity="warning") if cut else finding  # published results of wan-2.2 end early


@decides("official", needs=("log",), also=("accuracy-samples",))
def accuracy_samples(run: TreeRun) -> Iterator[Finding]:
    """Compare the samples of the run with the dataset. Logs of LoadGen 5 have only the size of the dataset."""
    detail, wanted = run.detail, run.claim.accuracy_samples
    count = detail.get("effective_accuracy_sample_count", detail.get("qsl_reported_total_count"))
    value, keys = f"{count} samples", ("effective_accuracy_sample_count", "qsl_reported_total_count")
    yield compared("accuracy-samples", count == wanted, value, f"{wanted}", detail.path, decided_by=keys)


@decides(
    "tree",
    ("user-conf-differs", "error", OURS,
     "setting in user.conf, compared with the performance log", "submit the user.conf of the run"),
    ("user-conf-accuracy", "warning", OURS,
     "settings in user.conf that only the accuracy run has", "add the settings of the performance run to user.conf"),
    ("user-conf-absent", "warning", OURS,
     "target in user.conf", "submit the user.conf of the run"),
    needs=("log", "conf"),
    rank=Rank.SETTINGS,
)  # fmt: skip
def check_user_conf(directory: ScenarioDirectory) -> Iterator[Finding]:
    """Compare the lines of user.conf with the performance log. Lines that differ are compared with the accuracy log.

    If LoadGen's name of the model is unknown, a line for all models counts only for keys that no line of a named
    model sets.
    """
    path, claim = directory.tree.user_conf(directory.place), directory.claim
    detail = directory.performance.detail
    accuracy = directory.accuracy.detail if directory.accuracy.is_readable else None
    content = yield from read_tree_bytes(path, "scenario-file")
    if content is None:
        return
    lines = stored_lines(decode_conf(content))
    models = (*claim.entry.keys_of(claim.scenario), *directory.tree.round.table.names_of(claim.entry))
    models += (directory.place.benchmark,)
    named = set() if claim.benchmark else {line.key for line in lines if line.model not in ("*", *models)}
    # Both runs share the file, and their datasets may have different sizes.
    sizes = () if claim.is_one_size else (claim.accuracy_samples, claim.entry.performance_samples)
    of_accuracy: list[Mismatch] = []
    differ_in_both = {mismatch.key for mismatch in mismatches(lines, models, accuracy, named)} if accuracy else None
    for mismatch in mismatches(lines, models, detail, named):
        if mismatch.line is None:
            yield compared(
                "user-conf-absent", False, f"{detail.scenario}.{mismatch.key} is missing", _logged(mismatch), path
            )
        elif mismatch.key in SIZES and mismatch.configured in sizes:
            continue  # the key sets the size of the accuracy run
        elif differ_in_both is not None and mismatch.key not in differ_in_both:
            of_accuracy.append(mismatch)
        else:
            shown, line = f"{mismatch.line.name} = {mismatch.line.value}", mismatch.line.line
            yield compared("user-conf-differs", False, shown, _logged(mismatch), path, line=line)
    if of_accuracy:
        lines_of_accuracy = [mismatch.line for mismatch in of_accuracy if mismatch.line is not None]
        shown = ", ".join(f"{line.name} = {line.value}" for line in lines_of_accuracy)
        used = ", ".join(map(_logged, of_accuracy))
        yield compared("user-conf-accuracy", False, shown, used, path, line=lines_of_accuracy[0].line)


def _logged(mismatch: Mismatch) -> str:
    return f"{mismatch.logged:.10g} ({mismatch.record} in the performance log)"


@decides(
    "tree",
    ("log-config", "error", OURS, "configuration, compared with the result's other runs",
     "repeat the runs with one LoadGen, SUT and dataset"),
    ("log-dates", "warning", OURS, "time between the runs of a result", "repeat the runs"),
    rank=Rank.SETTINGS,
)  # fmt: skip
def check_one_configuration(directory: ScenarioDirectory) -> Iterator[Finding]:
    """Compare the configurations and the dates of the runs of a result."""
    runs = [run for run in directory.identities if run.identity]
    keys = [key for key in IDENTITY if directory.claim.is_one_size or key != SIZE]
    texts = [str([run.identity.get(key) for key in keys]) for run in runs]
    # The finding names the run that differs from most others; of two runs, the later one.
    usual = Counter(texts).most_common(1)[0][0] if texts else ""
    for run, text in zip(runs, texts, strict=True):
        if text == usual:
            continue
        usual_run = runs[texts.index(usual)]
        different = [key for key in keys if run.identity.get(key) != usual_run.identity.get(key)]
        value, wanted = (
            "; ".join(f"{key} {_short(first.identity.get(key), two.identity.get(key))}" for key in different)
            for first, two in ((run, usual_run), (usual_run, run))
        )
        shown, wanted = f"{value} ({run.name} run)", f"{wanted} ({usual_run.name} run)"
        yield compared("log-config", False, shown, wanted, run.detail, usual_run.detail, decided_by=different)
    begun = [(power_time(run.window[0]), run) for run in runs if run.window]
    if apart := too_far_apart((int(time.timestamp()) * 10**9, run) for time, run in begun if time is not None):
        days, early, late = apart
        value = f"{late.name} run {days} days after the {early.name} run"
        yield compared("log-dates", False, value, f"at most {MAX_DAYS_APART} days", late.detail, early.detail)


@decides(
    "tree",
    ("audit-tokens", "error", OURS, "output tokens per sample of the audit run, compared with the performance run",
     "run the audit on the system of the performance run"),
    needs=("log",),
    also=("perf-tokens-accuracy",),
    rank=Rank.AUDITS,
)  # fmt: skip
def check_tokens(directory: ScenarioDirectory) -> Iterator[Finding | NotApplied]:
    """Compare output tokens per sample (tokens/s ÷ samples/s) with accuracy.txt and with the audit runs."""
    runs: list[RunIdentity] = directory.identities
    text, performance = directory.accuracy.dir.accuracy_text, runs[0] if runs else None
    tokens = performance.tokens if performance is not None and performance.name == "performance" else None
    audits = [audit for audit in runs if audit.name in SAME_SAMPLES and audit.tokens] if tokens else []
    if not audits:
        yield NotApplied("the logs of the audits have no tokens", ("audit-tokens",))
    if performance is None or not tokens:
        yield NotApplied("the performance log has no tokens", ("perf-tokens-accuracy",))
        return
    run = RunDir(performance.detail.parent)
    content = value_of(read_tree_text(text, "tree-unreadable"))  # other checks report it
    is_comparable = content and directory.claim.is_one_size
    of_text = [*tokens_as_in_accuracy(tokens, run.detail, content or "", text.name)] if is_comparable else []
    if not of_text:
        yield NotApplied("accuracy.txt has no tokens", ("perf-tokens-accuracy",))
    yield from violations(run, of_text)
    for audit in audits:
        if audit.tokens and abs(audit.tokens / tokens - 1) > AUDIT_APART:
            mean, wanted = f"{audit.tokens:.2f}", f"{tokens:.2f} ± 6%"
            yield compared("audit-tokens", False, mean, wanted, audit.detail, run.detail)


def _short(value: object, other_value: object) -> str:
    if not isinstance(value, dict) or not isinstance(other_value, dict):
        return f"{len(value)} files" if isinstance(value, dict) else str(value)[:80]
    names = sorted(name for name in value.keys() | other_value.keys() if value.get(name) != other_value.get(name))
    return ", ".join(f"{name} {str(value.get(name, 'missing'))[:12]}" for name in names[:3])


# Lists of checks for each kind of run.
CLAIM = {
    mode: check_of(logged_scenario, rules=rules, silent=rules)
    for mode, rules in (("performance", ("perf-scenario",)), ("accuracy", ("accuracy-scenario",)))
}
PERFORMANCE = tuple(map(check_of, (early_stopping, metric, network_name)))
FOREIGN_PERFORMANCE = (check_of(ended_by_query_limit),)
ACCURACY = (check_of(accuracy_samples),)
