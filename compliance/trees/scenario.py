"""All rules on one scenario of one system: for any benchmark, then for benchmarks that this harness can run."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from compliance.judge.check import Check, Judgement, check_of, decides, judge, rules_of
from compliance.judge.finding import Finding, compared
from compliance.results import accuracy, input_checks, logged_responses, official_rules, performance, plausibility
from compliance.results.attestation_check import unchanged
from compliance.trees import runs, streams
from compliance.trees.audits import (
    AUDIT_TEXTS,
    OF_TEST06,
    TEST,
    check_audit,
    check_audit_run,
    check_audit_texts,
)
from compliance.trees.descriptions import check_measurements, mapped_benchmark
from compliance.trees.evaluation_texts import check_places, check_scores, scores_in
from compliance.trees.findings import Reads, is_folder, is_regular, presented, read_tree_bytes, value_of
from compliance.trees.log_bytes import check_line_ends, check_responses
from compliance.trees.run_files import OF_ACCURACY, check_accuracy_files, check_power
from compliance.trees.runs import (
    check_one_configuration,
    check_tokens,
    check_user_conf,
    free_seeds,
    judge_tree_run,
)
from compliance.trees.tree import OPEN_IS_FREE, Place, Tree
from compliance.trees.tree_evidence import DETAIL, RESPONSES, Result, RunIdentity, TreeRun, read_log
from runs.benchmark import SCENARIOS, Benchmark, Scenario
from runs.benchmarks import BENCHMARKS
from runs.files.writing import sha256_of
from runs.loadgen.detail_log import DetailLog
from runs.record.layout import RunDir
from runs.rounds import RoundBenchmark, RoundTable

_LONG_RESPONSE = re.compile(rb'"data" : "[0-9A-F]{17,}"')  # matches a response that is longer than a class or a number
# Texts with times or numbers that differ between any two runs.
OWN_TEXTS = {test: AUDIT_TEXTS[test] for test in ("TEST07", "TEST09")}
_AUDITS_WITH_RUNS = frozenset({"TEST01", "TEST04"})  # audits that must have the log of their run


# Checks of mode, seeds and scenario: they show if a log belongs to its directory. If the mode is wrong, no other check
# is applied. For benchmarks of this harness, the same is true of the scenario.
MODE = {"performance": performance.CLAIM, "accuracy": accuracy.CLAIM}
_SEEDS = {"performance": official_rules.PERFORMANCE_SEEDS, "accuracy": official_rules.ACCURACY_SEEDS}
CLAIMS: dict[str, tuple[Check, ...]] = {
    name: (
        *MODE[name],
        *(replace(one, applies=lambda run: free_seeds(run.of)) for one in _SEEDS[name]),
        *runs.CLAIM[name],
    )
    for name in MODE
}
# Checks on runs of all benchmarks, and additional checks (OUR_…) on runs of the benchmarks of this harness.
PERFORMANCE: tuple[Check, ...] = (
    *(*performance.OF_ANY, *runs.PERFORMANCE, *streams.PERFORMANCE, *official_rules.PERFORMANCE),
)
ACCURACY: tuple[Check, ...] = (*accuracy.OF_ANY, *runs.ACCURACY, check_of(performance.detail_against_summary))
UNCHANGED = check_of(unchanged, needs=("record",))
OUR_PERFORMANCE = (UNCHANGED, *performance.OF_OURS, *plausibility.PERFORMANCE, *input_checks.OF_OURS)
OUR_ACCURACY = (
    *(UNCHANGED, *logged_responses.OF_RESPONSES, *input_checks.OF_OURS, *official_rules.ACCURACY),
    *(replace(one, needs=(*one.needs, "text")) for one in accuracy.OF_OURS),
)


@dataclass
class ScenarioOutcome:
    """Findings on a scenario, and its runs for the comparison with other scenarios."""

    place: Place
    findings: list[Finding] = field(default_factory=list)
    runs: list[RunIdentity] = field(default_factory=list)
    scenario: Scenario | None = None  # None: the directory is not named after a scenario of the benchmark
    judged: Judgement = field(default_factory=Judgement)


def check_scenario(tree: Tree, place: Place) -> ScenarioOutcome:
    """Check one scenario directory."""
    outcome = ScenarioOutcome(place)
    outcome.findings = presented(tree.root, _findings(tree, outcome))
    return outcome


def _findings(tree: Tree, outcome: ScenarioOutcome) -> Iterator[Finding]:
    """Yield the findings on a scenario, and store its runs and the applied rules in the outcome."""
    yield from check_measurements(tree, outcome.place)
    result = yield from _claimed(tree, outcome.place)
    if result is None:
        outcome.judged.applied |= rules_of(_claimed)
        return
    outcome.runs, outcome.scenario, outcome.judged = result.runs, result.scenario, result.judged
    result.judged.applied |= rules_of(_claimed, read_log)
    for item in RESULT:
        judgement = judge(result, (item,), partial(_damaged, result, item))
        yield from judgement.findings
        result.judged.take(replace(judgement, findings=[]))


def _damaged(result: Result, item: Check, error: Exception) -> tuple[Finding, ...]:
    """Report an exception as a finding, because untrusted content must not end the other checks."""
    folder = result.tree.scenario(result.place) / _FOLDERS.get(item.decide, "")
    return (compared("log-damaged", False, f"{type(error).__name__}: {error}", "", folder),)


def _performance(result: Result) -> Iterator[Finding]:
    """Check the performance run, and store the values that identify it."""
    run = result.tree.performance(result.place)
    detail = yield from read_log(run)
    checks = PERFORMANCE + (runs.FOREIGN_PERFORMANCE if result.benchmark is None else OUR_PERFORMANCE)
    if detail is None:
        result.judged.skip((*CLAIMS["performance"], *checks), result.absent("log"))
        return
    result.runs.append(RunIdentity.of("performance", run, detail))
    yield from _judge(result, "performance", run, detail, checks)


def _accuracy(result: Result) -> Iterator[Finding]:
    """Check the accuracy run, and store the values that identify it."""
    run = result.tree.accuracy(result.place)
    yield from check_accuracy_files(result, run)
    detail = yield from read_log(run)
    identity = RunIdentity("accuracy", run.detail) if detail is None else RunIdentity.of("accuracy", run, detail)
    identity.responses, identity.responses_file = result.answers_sha256, run.accuracy_text
    identity.scores = scores_in(run.accuracy_text)
    identity.cut = value_of(read_tree_bytes(run.accuracy_log, "accuracy-size")) or b""
    identity.long_responses = result.benchmark is not None or bool(_LONG_RESPONSE.search(identity.cut))
    result.runs.append(identity)
    checks, own_checks = ACCURACY, OUR_ACCURACY if result.benchmark is not None else ()
    if is_regular(run.accuracy_log):
        checks += (logged_responses.ISSUED,)
    if result.scores_readable and is_regular(run.accuracy_log):
        checks += own_checks
    else:  # other rules report missing files
        result.judged.skip(own_checks, f"accuracy/{run.accuracy_text.name} with all scores, and accuracy/{RESPONSES}")
    if detail is None:
        result.judged.skip((*CLAIMS["accuracy"], *checks), f"accuracy/{DETAIL}")
    else:
        yield from _judge(result, "accuracy", run, detail, checks)


def _judge(
    result: Result, name: str, run_dir: RunDir, detail: DetailLog, checks: tuple[Check, ...]
) -> Iterator[Finding]:
    result.details[name] = detail
    run = TreeRun.of_result(result, name, run_dir, detail)
    judgement = yield from judge_tree_run(run, CLAIMS[name])
    violated = {finding.rule for finding in judgement.findings if finding.violated}
    decisive = MODE[name] if result.benchmark is None else MODE[name] + runs.CLAIM[name]
    if not any(violated.intersection(one.rules) for one in decisive):
        yield from judge_tree_run(run, checks)


@decides(
    "tree",
    ("tree-benchmark", "error", "[checker] loader.Loader.load", "benchmark directory", "rename the directory"),
    ("tree-scenario", "error", "[checker] performance_check.scenarios_check", "scenario name", "rename the directory"),
)  # fmt: skip
def _claimed(tree: Tree, place: Place) -> Reads[Result | None]:
    """Return the result of a directory. If its benchmark or scenario is unknown, yield a finding and return None."""
    folder, name = tree.scenario(place), mapped_benchmark(tree, place)
    if name is None:
        names = ", ".join(sorted(tree.round.benchmarks))
        yield compared("tree-benchmark", False, place.benchmark, f"one of {names}", folder.parent)
        return None
    entry = tree.round.table.benchmarks[name]
    # A name in a different case is still checked; tree-case reports it.
    scenario = next((one for one in SCENARIOS if one.lower() == place.scenario.lower()), None)
    benchmark = _benchmark_like(entry, tree.round.table, scenario) if scenario in entry.scenarios else None
    result = Result(tree, place, entry, benchmark, scenario)
    if result.loadgen_scenario is None:
        yield compared("tree-scenario", False, place.scenario, "a scenario of LoadGen", folder)
    elif not result.is_open and result.scenario_name not in entry.scenarios:
        names = ", ".join(sorted(entry.scenarios))
        yield compared("tree-scenario", False, place.scenario, f"a scenario of {name}: {names}", folder)
        return None
    return result


def _benchmark_like(entry: RoundBenchmark, table: RoundTable, scenario: Scenario | None) -> Benchmark | None:
    """Return the benchmark of this harness with this model, with the accuracy targets of the given entry."""
    for benchmark in BENCHMARKS.values():
        benchmark_entry = table.benchmarks.get(benchmark.submission_name)
        if benchmark_entry is not None and benchmark_entry.model == entry.model and scenario in benchmark.scenarios:
            if benchmark_entry is entry:
                return benchmark
            limits_of = {score.lower(): limits for score, limits in entry.targets_of(benchmark.scenarios[0]).items()}
            targets = {
                name: replace(target, low_share=limits.low / target.reference)
                if (limits := limits_of.get(name.lower())) and limits.low is not None
                else target
                for name, target in benchmark.targets.items()
            }
            return replace(benchmark, targets=targets)
    return None


def _test06(result: Result) -> Iterator[Finding]:
    """Check TEST06 if its directory exists."""
    result.without(f"{TEST}/accuracy/{RESPONSES}", "audit-log", "audit-answers", "audit-text-differs")
    result.without(f"{TEST}/performance/run_1/{DETAIL}", "audit-order")
    run = yield from check_audit(result)
    if run is not None:
        result.runs.append(run)


@decides("tree", needs=("audit",), also=("audit-settings", "audit-errors"))
def _other_audits(result: Result) -> Iterator[Finding]:
    """Check the runs of audits other than TEST06. Their logs may be copies or contain contradictions."""
    result.without(f"the performance/run_1/{DETAIL} of an audit", "audit-settings", "audit-errors")
    logs = {identity.detail for identity in result.runs}
    for test in result.audits:
        run = RunDir(result.tree.audit(result.place, test) / "performance" / "run_1")
        if run.detail in logs or not (is_regular(run.detail) and is_regular(run.summary)):
            continue
        detail = yield from read_log(run)
        if detail is not None:
            yield from check_audit_run(result, test, run, detail)
            known_as = RunIdentity.of(test, run, detail)
            texts = [result.tree.audit(result.place, test) / name for name in OWN_TEXTS.get(test, ())]
            known_as.hashes |= {text: sha256_of(text) for text in texts if is_regular(text)}
            result.runs.append(known_as)


@decides("tree", needs=("audit",), also=("audit-verdict", "audit-fallback", "audit-numbers"))
def _texts(result: Result) -> Iterator[Finding]:
    """Check the texts of all audits except TEST06."""
    result.without("the text of an audit", "audit-verdict", "audit-numbers", "audit-fallback")
    for test in AUDIT_TEXTS:
        if test != TEST and test in result.audits:
            yield from check_audit_texts(result, test, result.tree.audit(result.place, test), result.runs)


@decides("tree", applies=lambda result: OPEN_IS_FREE if result.is_open else "", also=("audit-missing",))
def _required_audits(result: Result) -> Iterator[Finding]:
    """Check that the required audits and their files exist."""
    for test in result.entry.audits:
        folder = result.tree.audit(result.place, test)
        if not is_folder(folder):
            required = f"{', '.join(result.entry.audits)} in every scenario"
            yield compared("audit-missing", False, f"{test} does not exist", required, folder)
            continue
        files = [("audit-missing", folder / name) for name in AUDIT_TEXTS[test]]
        if test in _AUDITS_WITH_RUNS:
            files.append(("log-missing", RunDir(folder / "performance" / "run_1").detail))
        for rule, path in files:
            if test != TEST and not is_regular(path):
                yield compared(rule, False, f"{path.name} does not exist", "a regular file", path)


# Checks on a result. Their order matters: later checks compare the runs that earlier checks have read.
RESULT: tuple[Check, ...] = (
    check_of(_performance),
    check_of(_accuracy, *OF_ACCURACY),
    check_of(_test06, *OF_TEST06, needs=("audit",), silent=()),
    check_of(check_user_conf),
    check_of(_required_audits),
    check_of(_other_audits, silent=()),
    check_of(check_tokens, silent=()),
    check_of(check_power),
    check_of(_texts, silent=()),
    check_of(check_one_configuration),
    check_of(check_scores),
    check_of(check_places),
    check_of(check_responses),
    check_of(check_line_ends),
)
ON_RUNS = (
    *(one for checks in CLAIMS.values() for one in checks),
    *(*PERFORMANCE, *ACCURACY, logged_responses.ISSUED, *runs.FOREIGN_PERFORMANCE, *OUR_PERFORMANCE, *OUR_ACCURACY),
)
_FOLDERS: dict[Callable[..., object], str] = {_performance: "performance", _accuracy: "accuracy", _test06: TEST}
