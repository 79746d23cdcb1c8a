"""The policy of `check` on one scenario of one system: rules for any benchmark, and for benchmarks of this harness."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from compliance.judge.rule import Check, check_of, decides
from compliance.judge.verdict import Finding, NotApplied, Policy, compared
from compliance.results import accuracy, input_checks, logged_responses, official_rules, performance, plausibility
from compliance.results.attestation_check import unchanged
from compliance.results.loadgen_build import loadgen_sources
from compliance.trees import runs, streams
from compliance.trees.audits import (
    AUDIT_TEXTS,
    OF_TEST06,
    TEST,
    WITHOUT_AUDIT_LOG,
    check_audit,
    check_audit_run,
    check_audit_texts,
)
from compliance.trees.descriptions import check_measurements
from compliance.trees.evaluation_texts import check_places, check_scores, scores_in
from compliance.trees.findings import is_folder, is_regular, presented, read_tree_bytes, value_of
from compliance.trees.log_bytes import check_line_ends, check_responses
from compliance.trees.run_files import OF_ACCURACY, check_accuracy_files, check_power
from compliance.trees.runs import (
    check_one_configuration,
    check_tokens,
    check_user_conf,
    damaged_run,
    exempt_rules,
    free_seeds,
    violations,
)
from compliance.trees.scenario_directory import DETAIL, RunIdentity, ScenarioDirectory, TreeRun, read_log
from compliance.trees.tree import OPEN_IS_FREE, Place
from runs.files.writing import sha256_of
from runs.record.layout import RunDir

_LONG_RESPONSE = re.compile(rb'"data" : "[0-9A-F]{17,}"')  # matches a response that is longer than a class or a number
# Texts with times or numbers that differ between any two runs.
OWN_TEXTS = {test: AUDIT_TEXTS[test] for test in ("TEST07", "TEST09")}
_AUDITS_WITH_RUNS = frozenset({"TEST01", "TEST04"})  # audits that must have the log of their run


# Checks of mode, seeds and scenario: they show if a log belongs to its directory. If the mode is wrong, no other check
# is applied. For benchmarks of this harness, the same is true of the scenario.
_MODE = {"performance": performance.CLAIM, "accuracy": accuracy.CLAIM}
_SEEDS = {"performance": official_rules.PERFORMANCE_SEEDS, "accuracy": official_rules.ACCURACY_SEEDS}


def _claims(mode: str, *, is_own_benchmark: bool) -> tuple[Check, ...]:
    seeds = (replace(check, applies=lambda run: free_seeds(run.claim), is_decisive=False) for check in _SEEDS[mode])
    return (*_MODE[mode], *seeds, replace(runs.CLAIM[mode], is_decisive=is_own_benchmark))


def _no_accuracy_log(run: TreeRun) -> str:
    return "" if is_regular(run.dir.accuracy_log) else "the run has no accuracy log"


# Checks on runs of all benchmarks, and additional checks (_OUR_…) on runs of the benchmarks of this harness.
_PERFORMANCE: tuple[Check, ...] = (
    *(*performance.OF_ANY, *runs.PERFORMANCE, *streams.PERFORMANCE, *official_rules.PERFORMANCE),
    check_of(loadgen_sources),
)
_ACCURACY: tuple[Check, ...] = (
    *(*accuracy.OF_ANY, *runs.ACCURACY, check_of(performance.detail_against_summary)),
    check_of(loadgen_sources),
    replace(logged_responses.ISSUED, applies=_no_accuracy_log),
)
_UNCHANGED = check_of(unchanged, needs=("record",))
_OUR_PERFORMANCE = (_UNCHANGED, *performance.OF_OURS, *plausibility.PERFORMANCE, *input_checks.OF_OURS)
_OUR_ACCURACY = tuple(
    replace(check, needs=("scores", "log", *check.needs))
    for check in (
        *(_UNCHANGED, *logged_responses.OF_RESPONSES, *input_checks.OF_OURS, *official_rules.ACCURACY),
        *(replace(check, needs=(*check.needs, "text")) for check in accuracy.OF_OURS),
    )
)


@dataclass
class PlaceDetails:
    """The runs of a scenario directory, for the comparison with other directories."""

    place: Place
    runs: list[RunIdentity]


def _measurements(directory: ScenarioDirectory) -> Iterator[Finding]:
    """Check the description of the system's measurements."""
    yield from check_measurements(directory.tree, directory.place)


def _performance(directory: ScenarioDirectory) -> Iterator[Finding]:
    """Check that the logs of the performance run are readable, and store the values that identify it."""
    run = directory.performance
    yield from run.log_read[0]
    if run.is_readable:
        directory.identities.append(RunIdentity.of("performance", run.dir, run.detail))


def _accuracy(directory: ScenarioDirectory) -> Iterator[Finding | NotApplied]:
    """Check the files of the accuracy run, and store the values that identify it."""
    accuracy_run = directory.accuracy
    run = accuracy_run.dir
    yield from check_accuracy_files(directory, run)
    yield from accuracy_run.log_read[0]
    identity = RunIdentity("accuracy", run.detail)
    if accuracy_run.is_readable:
        identity = RunIdentity.of("accuracy", run, accuracy_run.detail)
    identity.responses, identity.responses_file = directory.text_read[1][1], run.accuracy_text
    identity.scores = scores_in(run.accuracy_text)
    identity.cut = value_of(read_tree_bytes(run.accuracy_log, "accuracy-size")) or b""
    identity.long_responses = directory.claim.benchmark is not None or bool(_LONG_RESPONSE.search(identity.cut))
    directory.identities.append(identity)


@decides(
    "tree",
    ("tree-benchmark", "error", "[checker] loader.Loader.load", "benchmark directory", "rename the directory"),
    ("tree-scenario", "error", "[checker] performance_check.scenarios_check", "scenario name", "rename the directory"),
)  # fmt: skip
def _names(directory: ScenarioDirectory) -> Iterator[Finding]:
    """Check that the directories are named after a benchmark of the round and one of its scenarios."""
    tree, place, name = directory.tree, directory.place, directory.benchmark_name
    folder = tree.scenario(place)
    if name is None:
        names = ", ".join(sorted(tree.round.benchmarks))
        yield compared("tree-benchmark", False, place.benchmark, f"one of {names}", folder.parent)
    elif directory.claim.loadgen_scenario is None:
        yield compared("tree-scenario", False, place.scenario, "a scenario of LoadGen", folder)
    elif not directory.is_known:
        names = ", ".join(sorted(directory.claim.entry.scenarios))
        yield compared("tree-scenario", False, place.scenario, f"a scenario of {name}: {names}", folder)


def _unread_scores(directory: ScenarioDirectory) -> Iterator[NotApplied]:
    """Yield the rules that need all scores, if some of them cannot be read."""
    if directory.claim.benchmark is not None and (why := directory.accuracy.absent("scores")):
        yield NotApplied(why, tuple(rule for check in _OUR_ACCURACY for rule in check.rules), lacks_input=True)


def _test06(directory: ScenarioDirectory) -> Iterator[Finding | NotApplied]:
    """Check TEST06 if its directory exists."""
    run = yield from check_audit(directory)
    if run is not None:
        directory.identities.append(run)


@decides("tree", needs=("audit",), also=("audit-settings", "audit-errors", "audit-order"))
def _other_audits(directory: ScenarioDirectory) -> Iterator[Finding | NotApplied]:
    """Check the runs of audits other than TEST06. Their logs may be copies or contain contradictions."""
    is_checked = has_responses = False
    logs = {identity.detail for identity in directory.identities}
    for test in directory.audits:
        run = RunDir(directory.audit(test) / "performance" / "run_1")
        if run.detail in logs or not (is_regular(run.detail) and is_regular(run.summary)):
            continue
        detail = yield from read_log(run)
        if detail is not None:
            is_checked = True
            has_responses |= yield from check_audit_run(directory, test, run, detail)
            known_as = RunIdentity.of(test, run, detail)
            texts = [directory.audit(test) / name for name in OWN_TEXTS.get(test, ())]
            known_as.hashes |= {text: sha256_of(text) for text in texts if is_regular(text)}
            directory.identities.append(known_as)
    if not is_checked:
        yield WITHOUT_AUDIT_LOG
    if not has_responses:
        yield NotApplied(f"{TEST}/performance/run_1/{DETAIL}", ("audit-order",), lacks_input=True)


@decides("tree", needs=("audit",), also=("audit-verdict", "audit-fallback", "audit-numbers"))
def _texts(directory: ScenarioDirectory) -> Iterator[Finding | NotApplied]:
    """Check the texts of all audits except TEST06."""
    read = set()
    for test in AUDIT_TEXTS:
        if test != TEST and test in directory.audits and (yield from check_audit_texts(directory, test)):
            read.add(test)
    rules = [] if read else ["audit-verdict", "audit-numbers"]
    rules += [] if "TEST01" in read else ["audit-fallback"]
    if rules:
        yield NotApplied("the text of an audit", tuple(rules), lacks_input=True)


@decides("tree", applies=lambda directory: OPEN_IS_FREE if directory.claim.is_open else "", also=("audit-missing",))
def _required_audits(directory: ScenarioDirectory) -> Iterator[Finding]:
    """Check that the required audits and their files exist."""
    tests = directory.claim.entry.audits
    for test in tests:
        folder = directory.audit(test)
        if not is_folder(folder):
            required = f"{', '.join(tests)} in every scenario"
            yield compared("audit-missing", False, f"{test} does not exist", required, folder)
            continue
        files = [("audit-missing", folder / name) for name in AUDIT_TEXTS[test]]
        if test in _AUDITS_WITH_RUNS:
            files.append(("log-missing", RunDir(folder / "performance" / "run_1").detail))
        for rule, path in files:
            if test != TEST and not is_regular(path):
                yield compared(rule, False, f"{path.name} does not exist", "a regular file", path)


# Checks on a result. Their order matters: later checks compare the runs that earlier checks have read.
_UNKNOWN = (check_of(_measurements), check_of(_names))
_RESULT: tuple[Check, ...] = (
    *_UNKNOWN,
    check_of(_performance, read_log),
    check_of(_accuracy, *OF_ACCURACY),
    Check(_unread_scores, ()),
    check_of(_test06, *OF_TEST06, needs=("audit",)),
    check_of(check_user_conf),
    check_of(_required_audits),
    check_of(_other_audits),
    check_of(check_tokens),
    check_of(check_power),
    check_of(_texts),
    check_of(check_one_configuration),
    check_of(check_scores),
    check_of(check_places),
    check_of(check_responses),
    check_of(check_line_ends),
)
_FOLDERS: dict[Callable[..., object], str] = {_performance: "performance", _accuracy: "accuracy", _test06: TEST}


def damage(subject: ScenarioDirectory | TreeRun, check: Check, error: Exception) -> Finding:
    """Report an exception as a finding, because untrusted content must not end the other checks."""
    if isinstance(subject, TreeRun):
        return damaged_run(subject.dir, error)
    folder = subject.tree.scenario(subject.place) / _FOLDERS.get(check.decide, "")
    return compared("log-damaged", False, f"{type(error).__name__}: {error}", "", folder)


def presented_on_result(subject: ScenarioDirectory | TreeRun, findings: list[Finding]) -> list[Finding]:
    """Return the violated rules as the report of a tree shows them."""
    if isinstance(subject, TreeRun):
        return presented(subject.directory.tree.root, violations(subject.dir, findings))
    return presented(subject.tree.root, (finding for finding in findings if not finding.passed))


def _of_log(*checks: Check) -> tuple[Check, ...]:
    """Return checks on a run, each of which needs its log."""
    return tuple(replace(check, needs=("log", *check.needs)) for check in checks)


# The policy of `check` on a result and its runs.
CHECK = Policy(
    checks={
        "result": _RESULT,
        "unknown result": _UNKNOWN,
        "performance": _of_log(*_PERFORMANCE, *_OUR_PERFORMANCE),
        "performance of another benchmark": _of_log(*_PERFORMANCE, *runs.FOREIGN_PERFORMANCE),
        "accuracy": (*_of_log(*_ACCURACY), *_OUR_ACCURACY),
        "accuracy of another benchmark": _of_log(*_ACCURACY),
    },
    claims={
        "performance": _claims("performance", is_own_benchmark=True),
        "performance of another benchmark": _claims("performance", is_own_benchmark=False),
        "accuracy": _claims("accuracy", is_own_benchmark=True),
        "accuracy of another benchmark": _claims("accuracy", is_own_benchmark=False),
    },
    exempt=exempt_rules,
    damage=damage,
    present=presented_on_result,
    details=dict.fromkeys(
        ("result", "unknown result"), lambda directory, _: PlaceDetails(directory.place, directory.identities)
    ),
)
