"""Rules on a scenario's compliance test: TEST06, its text, its answers and, where it lies there, its own log."""

from pathlib import Path

from compliance.audits import test06
from compliance.audits.base import in_force
from compliance.audits.test06 import LOGGED_SAMPLES, SETTINGS, judge_entries, official_text
from compliance.finding import OURS, Finding, decides
from compliance.submission.check.logs import (
    ComparedLeg,
    check_scenario_name,
    check_seeds,
    contradictions,
    facts,
    judged,
    note_errors,
    note_findings,
    read_log,
)
from compliance.submission.check.structure import is_safe
from compliance.submission.check.tree_finding import Findings
from compliance.submission.check.tree_reading import is_folder, is_regular, read_text
from compliance.submission.tree import Place, Tree
from runs.benchmark import Benchmark, Scenario
from runs.errors import HarnessError
from runs.files import sha256_of
from runs.loadgen.accuracy_log import AccuracyEntry, read_accuracy_log
from runs.loadgen.detail_log import DetailLog
from runs.loadgen.replay import expected_order, expected_samples
from runs.record.layout import RunDir

TEST = test06.OfficialTest06.name
# [checker] compliance_check.accuracy_check: one of each
_LINES = ((f"{test06.FIRST}: True", test06.SKIPPED), (f"{test06.END}: True",), (f"{test06.LENGTH}: True",))
# Of lines that the script writes, in whatever spelling: they say of a check how it ended.
_BEGINNINGS = tuple(name.casefold() for name in (test06.FIRST, test06.END, test06.LENGTH, "TEST06"))


def check_audit(
    tree: Tree, place: Place, scenario: Scenario, benchmark: Benchmark, findings: Findings
) -> ComparedLeg | None:
    """Judge TEST06 where it is asked for or lies there; gives back what other legs are compared with."""
    folder = tree.audit(place, TEST)
    required = place.division != "open" and TEST in benchmark.submission.audits
    if not is_folder(folder):
        if required:
            findings.add("audit-missing", folder, "there is no such directory", f"{TEST} in every scenario")
        return None
    text = _check_text(folder / test06.TEXT_NAME, scenario, findings)
    entries = _entries(folder, required, findings)
    model = None if place.division == "open" else benchmark.model
    if entries is not None:
        checks = judge_entries(
            entries,
            scenario=scenario,
            stop_ids=model.stop_ids if model else (),
            bos_ids=model.bos_ids if model else (),
            special_ids=model.special_ids if model else (),
            expected_count=LOGGED_SAMPLES,
            max_tokens=benchmark.sampling["performance"].max_tokens if model else None,
        )
        _note_entries(folder, entries, checks, scenario, text, findings)
    run = RunDir(folder / "performance" / "run_1")
    if not is_folder(run.root):
        return _only_answers(folder, run)
    detail = read_log(run, findings)
    if detail is None:
        return None
    known = facts("audit", run, detail)
    check_seeds(detail, tree.round, "perf-seeds", findings)
    if check_scenario_name(detail, scenario, "audit-settings", findings):
        _check_settings(detail, scenario, findings)
        _check_log(run, detail, findings)
    if entries is not None:
        _check_order(_accuracy_log(folder), entries, detail, findings)
    return known


def _accuracy_log(folder: Path) -> Path:
    return RunDir(folder / "accuracy").accuracy_log


def _only_answers(folder: Path, run: RunDir) -> ComparedLeg:
    """The official script keeps no log of the audit's run: its answers are all that tells it from another."""
    known = ComparedLeg("audit", run.detail)
    path = _accuracy_log(folder)
    if is_regular(path) and path.stat().st_size > LOGGED_SAMPLES:
        known.answers, known.answers_file = sha256_of(path), path
    return known


@decides(
    "tree",
    ("audit-text", "error", "[checker] compliance_check.accuracy_check", "verify_accuracy.txt says that all passed",
     "run the audit again"),
)  # fmt: skip
def _check_text(path: Path, scenario: Scenario, findings: Findings) -> str | None:
    text = read_text(path, findings, "audit-text")
    if text is None:
        return None
    lines = {line.strip() for line in text.splitlines()}
    for wanted in _LINES:
        if not lines & set(wanted):
            findings.add("audit-text", path, f"no line {' or '.join(map(repr, wanted))}", "all three checks passed")
    passed = {line for wanted in _LINES for line in wanted} | {test06.COMPLETE}
    for line in sorted(lines - passed):
        if line.casefold().startswith(_BEGINNINGS):
            findings.add("audit-text", path, f"it says {line!r}", "no check failed")
    if test06.SKIPPED in lines and scenario != "Offline":
        findings.add("audit-text", path, f"the first token check was skipped in {scenario}", _LINES[0][0])
    return text


@decides(
    "tree",
    ("audit-log", "error", "compliance/TEST06/run_verification.py", "the logged answers are beside the text",
     "put LoadGen's whole accuracy/mlperf_log_accuracy.json there"),
)  # fmt: skip
def _entries(folder: Path, required: bool, findings: Findings) -> list[AccuracyEntry] | None:
    path = _accuracy_log(folder)
    if not is_regular(path):
        if required or path.is_symlink():
            findings.add("audit-log", path, "there is no such file")
        return None
    if not is_safe(path.parent):
        findings.add("log-damaged", path.parent, "it holds links, pipes or very large files; its log is not read")
        return None
    try:
        return read_accuracy_log(path)
    except HarnessError as error:
        findings.add("audit-log", path, error.message.replace(f"{path.parent}/", ""), "LoadGen's own log")
        return None


@decides(
    "tree",
    ("audit-answers", "error", "[rules] TEST06", "each query has one logged answer", "run the audit again"),
    ("audit-text-differs", "error", "compliance/TEST06/run_verification.py",
     "verify_accuracy.txt is what its log gives", "write it from this log"),
)  # fmt: skip
def _note_entries(
    folder: Path,
    entries: list[AccuracyEntry],
    checks: list[Finding],
    scenario: Scenario,
    text: str | None,
    findings: Findings,
) -> None:
    path = _accuracy_log(folder)
    for check in checks:
        if not check.passed and (entries or check.rule == "test06-count"):
            findings.add(check.rule, path, f"{check.text}: {check.found}", check.required)
    if (different := len({entry.seq_id for entry in entries})) < len(entries):
        findings.add("audit-answers", path, f"{len(entries)} answers to {different} queries", "one answer a query")
    said = {line.strip() for line in (text or "").splitlines()}
    for line in official_text(entries, scenario=scenario).splitlines() if text is not None else ():
        name = line.partition(":")[0]
        # The outcome on end-of-sequence ids depends on an option of the script.
        if name in (test06.FIRST, test06.LENGTH) and line not in said:
            other = next((one for one in sorted(said) if one.startswith(name)), f"no line {name!r}")
            findings.add("audit-text-differs", folder / test06.TEXT_NAME, other, f"{line}, by the logged answers")


@decides(
    "tree",
    ("audit-settings", "error", "compliance/TEST06/audit.config", "the audit's log was made under its settings",
     "run the audit with its own audit.config"),
    ("audit-errors", "error", OURS, "no error records", "run the audit again"),
)  # fmt: skip
def _check_settings(detail: DetailLog, scenario: Scenario, findings: Findings) -> None:
    for name, wanted in in_force(SETTINGS, scenario).items():
        found = detail.effective(name)
        if found != wanted:
            findings.add("audit-settings", detail.path, f"effective_{name} is {found}", f"{wanted}")
    note_errors(detail, "audit-errors", findings)


def _check_log(run: RunDir, detail: DetailLog, findings: Findings) -> None:
    """Contradictions within the audit's own logs; its verdict does not count."""
    found = judged(lambda: contradictions(run, detail), run, findings) or []
    note_findings(found, "closed", run, findings)


@decides(
    "tree",
    ("audit-order", "error", "[loadgen]", "the logged answers are of the samples that the log issued",
     "submit the audit's own logs"),
)  # fmt: skip
def _check_order(path: Path, entries: list[AccuracyEntry], detail: DetailLog, findings: Findings) -> None:
    """Are the logged answers to the samples that this run issued?"""
    try:
        count = expected_samples(detail) or 0
        order = expected_order(detail, count)
    except Exception as error:  # foreign numbers go through long computations; none may end the other checks
        findings.add("log-damaged", detail.path, f"its order of issue cannot be replayed: {error}")
        return
    for entry in entries:
        if entry.seq_id >= count:
            said = f"an answer with seq_id {entry.seq_id}"
            findings.add("audit-order", path, said, f"below {count}, the samples that the log issued")
            return
        if order is not None and int(order[entry.seq_id]) != entry.qsl_idx:
            said = f"qsl_idx {entry.qsl_idx} for seq_id {entry.seq_id}"
            findings.add("audit-order", path, said, f"{int(order[entry.seq_id])}, by the seeds in force")
            return
