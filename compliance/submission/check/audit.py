"""Rules on TEST06 of a scenario: its text, its logged answers and, where it is there, the log of its run."""

from pathlib import Path

from compliance.audits.test06 import (
    LOGGED_SAMPLES,
    OfficialTest06,
    faults_in_text,
    judge_entries,
    text_not_of,
)
from compliance.evidence.truncate import is_truncated
from compliance.finding import OURS, decides
from compliance.submission.check.audit_texts import check_audit_settings
from compliance.submission.check.findings import is_folder, is_regular, is_safe, read_text
from compliance.submission.check.legs import (
    ComparedLeg,
    Result,
    note_contradictions,
    read_log,
)
from runs.benchmark import Benchmark, Scenario
from runs.errors import HarnessError
from runs.files import sha256_of
from runs.loadgen.accuracy_log import AccuracyEntry, read_accuracy_log
from runs.loadgen.detail_log import DetailLog
from runs.loadgen.replay import expected_order, expected_samples
from runs.record.layout import RunDir

TEST = OfficialTest06.name


def check_audit(result: Result) -> ComparedLeg | None:
    """Judge TEST06 where its directory is there. Returns what other legs are compared with."""
    findings, scenario = result.findings, result.scenario
    folder = result.tree.audit(result.place, TEST)
    if scenario is None or not is_folder(folder):
        return None
    text = folder / OfficialTest06.text_name
    lines = _check_text(result, scenario, text)
    answers = RunDir(folder / "accuracy").accuracy_log
    entries = _read_entries(result, answers, required=not result.is_open and TEST in result.entry.audits)
    if entries is not None:
        _check_entries(result, result.benchmark, scenario, answers, entries)
        if lines is not None:
            _check_text_of_entries(result, scenario, text, lines, entries)
    run = RunDir(folder / "performance" / "run_1")
    if not is_folder(run.root):
        # The official script keeps no log of the audit's run: only its answers distinguish it from another run.
        known = ComparedLeg("audit", run.detail)
        if is_regular(answers) and answers.stat().st_size > LOGGED_SAMPLES:
            known.answers, known.answers_file = sha256_of(answers), answers
        return known
    detail = read_log(run, findings)
    if detail is None:
        return None
    check_audit_settings(result, TEST, detail)
    note_contradictions(result, run, detail)  # its verdict does not count
    if entries is not None:
        _check_order(result, answers, entries, detail)
    return ComparedLeg.of("audit", run, detail)


@decides(
    "tree",
    ("audit-text", "error", "[checker] compliance_check.accuracy_check",
     "verify_accuracy.txt shows that all checks passed", "run the audit again"),
)  # fmt: skip
def _check_text(result: Result, scenario: Scenario, path: Path) -> set[str] | None:
    """The lines of the text; None where it cannot be read."""
    text = read_text(path, result.findings, "audit-text")
    if text is None:
        return None
    lines = {line.strip() for line in text.splitlines()}
    for found, wanted in faults_in_text(lines, scenario):
        result.findings.add("audit-text", path, found, wanted)
    return lines


@decides(
    "tree",
    ("audit-text-differs", "error", "compliance/TEST06/run_verification.py",
     "verify_accuracy.txt is what its log gives", "write it from this log"),
)  # fmt: skip
def _check_text_of_entries(
    result: Result, scenario: Scenario, text: Path, lines: set[str], entries: list[AccuracyEntry]
) -> None:
    for found, wanted in text_not_of(entries, lines, scenario):
        result.findings.add("audit-text-differs", text, found, f"{wanted}, by the logged answers")


@decides(
    "tree",
    ("audit-log", "error", OURS, "TEST06 has the logged answers that its text is about",
     "put LoadGen's whole accuracy/mlperf_log_accuracy.json there"),
)  # fmt: skip
def _read_entries(result: Result, path: Path, *, required: bool) -> list[AccuracyEntry] | None:
    if not is_regular(path):
        if required or path.is_symlink():
            result.findings.add("audit-log", path, "there is no such file", severity="warning")
        return None
    if not is_safe(path.parent):
        said = "it has links, pipes or very large files: its log was not read"
        result.findings.add("log-damaged", path.parent, said)
        return None
    try:
        return read_accuracy_log(path)
    except HarnessError as error:
        # No official rule requires the log of this test: a cut log is a warning, a damaged one an error.
        said, cut = error.message.replace(f"{path.parent}/", ""), is_truncated(RunDir(path.parent))
        result.findings.add("audit-log", path, said, "LoadGen's own log", severity="warning" if cut else None)
        return None


@decides("tree", ("audit-answers", "error", OURS, "each query has one logged answer", "run the audit again"))
def _check_entries(
    result: Result, benchmark: Benchmark | None, scenario: Scenario, path: Path, entries: list[AccuracyEntry]
) -> None:
    model = None if result.is_open or benchmark is None else benchmark.model
    checks = judge_entries(
        entries,
        scenario=scenario,
        stop_ids=model.stop_ids if model else (),
        bos_ids=model.bos_ids if model else (),
        special_ids=model.special_ids if model else (),
        expected_count=LOGGED_SAMPLES,
        max_tokens=benchmark.sampling["performance"].max_tokens if model and benchmark else None,
    )
    for check in checks:
        if not check.passed and (entries or check.rule == "test06-count"):
            result.findings.add(check.rule, path, f"{check.text}: {check.found}", check.required)
    if (different := len({entry.seq_id for entry in entries})) < len(entries):
        said = f"{len(entries)} answers to {different} queries"
        result.findings.add("audit-answers", path, said, "one answer a query")


@decides(
    "tree",
    ("audit-order", "error", "[loadgen]", "the logged answers are of the samples that the log issued",
     "submit the audit's own logs"),
)  # fmt: skip
def _check_order(result: Result, path: Path, entries: list[AccuracyEntry], detail: DetailLog) -> None:
    """Compare the logged answers with the samples that this run issued."""
    try:
        count = expected_samples(detail) or 0
        order = expected_order(detail, count)
    except Exception as error:  # untrusted numbers must not end the other checks
        result.findings.add("log-damaged", detail.path, f"its order of issue cannot be replayed: {error}")
        return
    for entry in entries:
        if entry.seq_id >= count:
            said, wanted = f"an answer with seq_id {entry.seq_id}", f"below {count}, the samples that the log issued"
        elif order is not None and int(order[entry.seq_id]) != entry.qsl_idx:
            said = f"qsl_idx {entry.qsl_idx} for seq_id {entry.seq_id}"
            wanted = f"{int(order[entry.seq_id])}, by the seeds in force"
        else:
            continue
        result.findings.add("audit-order", path, said, wanted)
        return  # one is enough
