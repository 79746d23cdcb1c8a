"""Rules on the runs of a result in a tree, and `judge_run`, which applies the rules on any run to one in a tree."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from compliance.evidence.log_arithmetic import log_contradictions
from compliance.evidence.official_rules import tokens_as_in_accuracy
from compliance.evidence.performance import rule_of
from compliance.evidence.same_system import MAX_DAYS_APART, too_far_apart
from compliance.judge.check import WITHOUT_INPUT, Check, Judgement, check, decides, judge
from compliance.judge.finding import Finding, compared
from compliance.judge.rule import OURS, RERUN, Rank, find_rule
from compliance.submission.check.descriptions import says_network
from compliance.submission.check.findings import Findings, object_or_empty, read_bytes, read_text
from compliance.submission.check.tree_evidence import (
    AUDIT_APART,
    IDENTITY,
    INFERRED,
    SAME_SAMPLES,
    SIZE,
    SIZES,
    WHOLE_LOG,
    Result,
    RunIdentity,
    TreeRun,
    without_root,
)
from compliance.submission.tree import NOT_IN_OPEN, OPEN_IS_FREE
from runs.errors import HarnessError
from runs.loadgen.conf_in_log import Mismatch, mismatches
from runs.loadgen.conf_lines import decode_conf, stored_lines
from runs.loadgen.detail_log import NETWORK_SUT, DetailLog, power_time
from runs.loadgen.summary_log import read_summary
from runs.record.layout import RunDir

# Rules on the scores of a run that have rules on accuracy.txt in their place.
_BY_TEXT = frozenset({"accuracy-target", "accuracy-count", "accuracy-no-target", "accuracy-scored-again"})


def judge_run(run: TreeRun, checks: Iterable[Check]) -> Judgement:
    """Apply checks to a run, and add the violated rules that count in its division to the result's findings.

    A contradiction names all its files, since any of them may be the changed one.
    """
    result, run_dir = run.of, run.dir
    judged = judge(run, checks, lambda error: [damaged(run_dir, error)])
    add_violated(result, run_dir, (one for one in judged.findings if counts_in(one.rule, result.place.division)))
    whole = dict.fromkeys(_BY_TEXT, (WITHOUT_INPUT, WHOLE_LOG))
    result.judged.take(Judgement([], judged.applied - _BY_TEXT, judged.reasons | whole))
    return judged


def add(findings: Findings, run: RunDir, found: Finding) -> None:
    """Add a violated rule on a run to the findings of its tree."""
    contradicts = found.kind == "contradiction"
    said = found.sentence if contradicts else replace(found, required="").sentence
    first, *others = found.files if contradicts or found.rule == "log-damaged" else (run.detail,)
    findings.add(
        found.rule,
        first,
        without_root(said, run.detail),
        found.required,
        severity=found.severity,
        others=others,
        line=found.line,
        decided_by=found.decided_by,
    )


def damaged(run: RunDir, error: Exception) -> Finding:
    """That a run cannot be judged: untrusted content must not end the other checks."""
    known = error if isinstance(error, HarnessError) else None
    text = known.message if known else f"cannot be judged: {type(error).__name__}: {error}"
    path, line = (known.path or run.detail, known.line) if known else (run.detail, None)
    return Finding("log-damaged", "error", "", (path,), {}, text, find_rule("log-damaged").summary, line=line)


def counts_in(rule_id: str, division: str) -> bool:
    """Whether a violated rule on a run counts in a tree of this division."""
    return rule_id not in _BY_TEXT and not (division == "open" and rule_id in NOT_IN_OPEN)


def add_violated(result: Result, run: RunDir, found: Iterable[Finding]) -> None:
    """Add the violated rules on a run to the result's findings."""
    for one in found:
        if one.violated:
            add(result.findings, run, one)


def log_findings(run: RunDir, detail: DetailLog) -> list[Finding]:
    """Contradictions between both logs of an audit's run, or that they are damaged."""
    try:
        return list(log_contradictions(detail, read_summary(run.summary)))
    except Exception as error:
        return [damaged(run, error)]


def free_seeds(result: Result) -> str:
    """Why the seeds are not judged; empty where they are."""
    return OPEN_IS_FREE if result.benchmark is None and result.is_open else ""


@decides(
    "tree",
    ("perf-scenario", "error", "[checker] performance_check.inferred_check", "the log is of the directory's scenario",
     "put the log where it belongs"),
    ("accuracy-scenario", "error", "[rules] accuracy of each scenario", "the log is of the directory's scenario",
     "put the log where it belongs"),
    needs=("log",),
)  # fmt: skip
def scenario(run: TreeRun) -> Iterator[Finding]:
    """Is the log of the scenario that its directory claims?"""
    yield from scenario_findings(rule_of(run, "scenario"), run.of, run.detail)


def scenario_findings(rule: str, result: Result, detail: DetailLog) -> Iterator[Finding]:
    """Compare a log's scenario with its directory's, which on the edge may be inferred from another."""
    wanted, found = result.loadgen_scenario, detail.scenario
    if wanted is None or found == wanted:
        return
    if result.benchmark is None and (found, wanted) in INFERRED:
        place = result.place
        system = object_or_empty(result.tree.system(place.division, place.organization, place.system))
        if "edge" in str(system.get("system_type", "")).lower():
            return
    claimed = result.scenario or wanted
    as_loadgen = f" (LoadGen: {wanted})" if wanted != claimed else ""
    required, keys = f"{claimed}{as_loadgen}", ("effective_scenario",)
    yield compared(rule, "", False, f"the log is of {found}", required, detail.path, decided_by=keys)


@decides(
    "tree",
    ("perf-early-stopping", "error", "[checker] performance_check.latency_check", "early stopping is met",
     "lower target_qps (Server) or run longer"),
    needs=("log",),
    rank=Rank.LIMITS,
)  # fmt: skip
def early_stopping(run: TreeRun) -> Iterator[Finding]:
    """Has LoadGen enough queries for its estimate?"""
    detail = run.detail
    if detail.get("early_stopping_met") is False:
        found = " ".join(str(detail.get("early_stopping_result") or "early_stopping_met is false").split())
        required, keys = "early_stopping_met true", ("early_stopping_met",)
        yield compared("perf-early-stopping", "", False, found, required, detail.path, decided_by=keys)


@decides(
    "tree",
    ("perf-metric", "error", "[checker] performance_check.get_performance_metric_check", "the metric is there", RERUN),
    needs=("log",),
    rank=Rank.LIMITS,
)  # fmt: skip
def metric(run: TreeRun) -> Iterator[Finding]:
    """Has the log the number that the result is ranked by?"""
    name = run.of.entry.metrics.get(run.detail.scenario)
    value = None if name is None else run.detail.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        found, keys = f"{name} is {value}", () if name is None else (name,)
        yield compared("perf-metric", "", False, found, "a number above 0", run.detail.path, decided_by=keys)


@decides("tree", needs=("log",), also=("perf-network", "perf-network-name"))
def network_name(run: TreeRun) -> Iterator[Finding]:
    """Compare the system's name with the division; in the open division, with its description."""
    result, detail = run.of, run.detail
    network = result.place.division == "network" or (result.is_open and says_network(result.tree, result.place))
    if detail.is_network != network and (network or not result.is_open):
        wanted = f"{'a name with' if network else 'no'} {NETWORK_SUT!r}"
        found = f"sut_name is {detail.get('sut_name')!r}"
        # The official checker has this rule for the network division only: systems of several nodes use such a name.
        rule = "perf-network" if network else "perf-network-name"
        yield compared(rule, "", False, found, wanted, detail.path, decided_by=("sut_name",))


@decides("result", needs=("log",), also=("perf-cut-short",))
def cut_short(run: TreeRun) -> Iterator[Finding]:
    """Whether max_query_count ended the run, which MLPerf's rules allow. Offline has one query, of many samples."""
    detail = run.detail
    most, samples = detail.integer("effective_max_query_count"), detail.samples_per_query or 0
    ends = most < samples if detail.scenario == "Offline" else most <= detail.integer("result_query_count")
    required, keys, cut = "0, or more than were issued", ("effective_max_query_count",), bool(most and ends)
    found = compared("perf-cut-short", "max_query_count", not cut, f"{most}", required, detail.path, decided_by=keys)
    yield replace(found, severity="warning") if cut else found  # published results of wan-2.2 have it


@decides("official", needs=("log",), also=("accuracy-samples",))
def accuracy_samples(run: TreeRun) -> Iterator[Finding]:
    """Does the run cover the dataset? Logs of LoadGen 5 have only the dataset's size."""
    detail, wanted = run.detail, run.of.accuracy_samples
    count = detail.get("effective_accuracy_sample_count", detail.get("qsl_reported_total_count"))
    found, keys = f"the run covers {count} samples", ("effective_accuracy_sample_count", "qsl_reported_total_count")
    yield compared("accuracy-samples", "", count == wanted, found, f"{wanted}", detail.path, decided_by=keys)


@decides(
    "tree",
    ("user-conf-differs", "error", OURS,
     "user.conf gives the settings in the log", "submit the user.conf that the run was made with"),
    ("user-conf-accuracy", "warning", OURS,
     "user.conf is the performance run's", "also submit the settings of the performance run"),
    ("user-conf-absent", "warning", OURS,
     "user.conf sets the target in the log", "submit the user.conf that the run was made with"),
    needs=("log", "conf"),
    rank=Rank.SETTINGS,
)  # fmt: skip
def check_user_conf(result: Result) -> None:
    """Compare the lines of user.conf that LoadGen reads with the performance log, and else with the accuracy log.

    Where LoadGen's name of the model is not known, lines for all models count only for keys that have no line of a
    named model.
    """
    path, benchmark = result.tree.user_conf(result.place), result.benchmark
    detail, accuracy = result.details["performance"], result.details.get("accuracy")
    content = read_bytes(path, result.findings, "scenario-file")
    if content is None:
        return
    lines = stored_lines(decode_conf(content))
    models = (*result.entry.keys_of(result.scenario_name), *result.tree.round.table.names_of(result.entry))
    models += (result.place.benchmark,)
    named = set() if benchmark else {line.key for line in lines if line.model not in ("*", *models)}
    # One file for two runs, which by the rules may be of two sizes.
    sizes = () if result.one_size else (result.accuracy_samples, result.entry.performance_samples)
    of_accuracy: list[Mismatch] = []
    differ_in_both = {found.key for found in mismatches(lines, models, accuracy, named)} if accuracy else None
    for found in mismatches(lines, models, detail, named):
        if found.line is None:
            shown = f"no line sets {detail.scenario} {found.key}"
            result.findings.add("user-conf-absent", path, shown, _logged(found))
        elif found.key in SIZES and found.given in sizes:
            continue  # of the other run
        elif differ_in_both is not None and found.key not in differ_in_both:
            of_accuracy.append(found)
        else:
            shown = f"{found.line.name} = {found.line.value}"
            result.findings.add("user-conf-differs", path, shown, _logged(found), line=found.line.line)
    if of_accuracy:
        theirs = [found.line for found in of_accuracy if found.line is not None]
        shown = ", ".join(f"{line.name} = {line.value}" for line in theirs) + ", as in the accuracy run"
        wanted = ", ".join(map(_logged, of_accuracy))
        result.findings.add("user-conf-accuracy", path, shown, wanted, line=theirs[0].line)


def _logged(found: Mismatch) -> str:
    return f"{found.logged:.10g}, as {found.record} of the performance log has it"


@decides(
    "tree",
    ("log-config", "error", OURS, "the runs of a scenario come from one configuration",
     "start the runs with one LoadGen, SUT and dataset"),
    ("log-dates", "warning", OURS, "the runs of a scenario were made close in time", "repeat the runs"),
    rank=Rank.SETTINGS,
)  # fmt: skip
def check_one_configuration(result: Result) -> None:
    """Compare the configurations of a scenario's runs, and their dates."""
    runs, findings = [run for run in result.runs if run.identity], result.findings
    keys = [key for key in IDENTITY if result.one_size or key != SIZE]
    texts = [str([run.identity.get(key) for key in keys]) for run in runs]
    # The run that differs from most is named; of two, the later one.
    usual = Counter(texts).most_common(1)[0][0] if texts else ""
    for run, text in zip(runs, texts, strict=True):
        if text == usual:
            continue
        other = runs[texts.index(usual)]
        different = [key for key in keys if run.identity.get(key) != other.identity.get(key)]
        found, wanted = (
            "; ".join(f"{key} {_short(one.identity.get(key), two.identity.get(key))}" for key in different)
            for one, two in ((run, other), (other, run))
        )
        shown = f"in the {run.name} run {found}"
        wanted += f", as in the {other.name} run"
        findings.add("log-config", run.detail, shown, wanted, others=[other.detail], decided_by=different)
    begun = [(power_time(run.window[0]), run) for run in runs if run.window]
    if apart := too_far_apart((int(time.timestamp()) * 10**9, run) for time, run in begun if time is not None):
        days, early, late = apart
        found = f"the {late.name} run was run {days} days after the {early.name} run"
        findings.add("log-dates", late.detail, found, f"at most {MAX_DAYS_APART} days", others=[early.detail])


@decides(
    "tree",
    ("audit-tokens", "error", OURS, "an audit's run has the output tokens a sample of the performance run",
     "run the audit on the system that made the performance run"),
    needs=("log",),
    also=("perf-tokens-accuracy",),
    rank=Rank.AUDITS,
)  # fmt: skip
def check_tokens(result: Result) -> None:
    """Compare output tokens a sample, by tokens/s and samples/s, with accuracy.txt and with the audits' runs."""
    runs: list[RunIdentity] = result.runs
    text, performance = result.tree.accuracy(result.place).accuracy_text, runs[0] if runs else None
    if performance is None or performance.name != "performance" or not (tokens := performance.tokens):
        return
    run = RunDir(performance.detail.parent)
    content = read_text(text, Findings(text.parent), "tree-unreadable")  # other checks report it
    if content and result.one_size:
        judged = list(tokens_as_in_accuracy(tokens, run.detail, content, text.name))
        result.met(*(one.rule for one in judged))
        add_violated(result, run, judged)
    for audit in runs:
        if audit.name not in SAME_SAMPLES or not audit.tokens:
            continue
        result.met("audit-tokens")
        if abs(audit.tokens / tokens - 1) > AUDIT_APART:
            found, wanted = f"{audit.tokens:.2f} output tokens a sample", f"{tokens:.2f}, within 6 %"
            result.findings.add("audit-tokens", audit.detail, found, wanted, others=[run.detail])


def _short(value: object, other: object) -> str:
    if not isinstance(value, dict) or not isinstance(other, dict):
        return f"{len(value)} files" if isinstance(value, dict) else str(value)[:80]
    names = sorted(name for name in value.keys() | other.keys() if value.get(name) != other.get(name))
    return ", ".join(f"{name} {str(value.get(name, 'not there'))[:12]}" for name in names[:3])


# As in compliance/evidence/performance.py.
CLAIM = {
    mode: (check(scenario, rules=rules, silent=rules),)
    for mode, rules in (("performance", ("perf-scenario",)), ("accuracy", ("accuracy-scenario",)))
}
PERFORMANCE = tuple(map(check, (early_stopping, metric, network_name)))
FOREIGN_PERFORMANCE = (check(cut_short),)
ACCURACY = (check(accuracy_samples),)
