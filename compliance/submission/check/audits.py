"""Rules on audits: their settings, the outcome and numbers in their texts, and the logged responses of TEST06."""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from compliance.accuracy.accuracy_text import stated_score
from compliance.audits.catalog.test06 import LOGGED_SAMPLES, OfficialTest06
from compliance.audits.logged_tokens import faults_in_text, judge_entries, text_not_of
from compliance.evidence.logged_responses import issued_pairs, not_as_issued
from compliance.evidence.official_rules import seeds
from compliance.evidence.performance import error_records
from compliance.evidence.truncate import is_truncated
from compliance.judge.check import decides
from compliance.judge.finding import Severity
from compliance.judge.rule import OURS, Rank
from compliance.submission.check.findings import is_folder, is_regular, is_safe, read_text
from compliance.submission.check.runs import add_violated, free_seeds, log_findings, scenario_findings
from compliance.submission.check.tree_evidence import STREAM_LATENCIES, Result, RunIdentity, read_log
from runs.benchmark import Benchmark, Scenario
from runs.errors import HarnessError
from runs.files import sha256_of
from runs.loadgen.accuracy_log import AccuracyEntry, read_accuracy_log
from runs.loadgen.detail_log import SIX_DIGITS, DetailLog
from runs.record.finished_run import PERFORMANCE
from runs.record.layout import RunDir

# The texts of each audit. [checker] compliance_check.dir_exists_check
AUDIT_TEXTS = {
    "TEST01": ("verify_accuracy.txt", "verify_performance.txt"), "TEST04": ("verify_performance.txt",),
    "TEST06": ("verify_accuracy.txt",), "TEST07": ("verify_accuracy.txt",), "TEST08": ("verify_accuracy.txt",),
    "TEST09": ("verify_output_len.txt",),
}  # fmt: skip
# What verify_performance.py of TEST01 and TEST04 compares, by LoadGen's scenario. [mlperf] compliance/TEST01, TEST04
_RATES = {"Offline": "result_samples_per_second", "Server": "result_completed_samples_per_sec"}
# A Server rate has two decimals in the summary, which TEST04 and older scripts of TEST01 read; TEST09 prints as many.
_PRINTED = 0.0051
_STATED = re.compile(r"^[ \t]*([A-Za-z][\w ]*?)[ \t]*[=:][ \t]*(\S+)[ \t\r]*$", re.MULTILINE)
_PASS, _FAIL = "TEST PASS", "TEST FAIL"
_RATES_TEXT = "verify_performance.txt"
# TEST01 lets responses differ from run to run where the score of both runs is the same.
FALLBACK = ("baseline_accuracy.txt", "compliance_accuracy.txt")
_TOKEN_BYTES = 4  # [mlperf] compliance/TEST09/run_verification.py
_TWO_FILES = "Multiple conf files"  # audit.config and user.conf. [checker] performance_check.loadgen_errors_check
# LoadGen logs this as an error where max_query_count ends a run, which the settings of TEST07 make it do.
_QUERY_LIMIT = "Max query count reached"
_STREAMS = 8  # samples of a query in MultiStream
# Numbers of a text with which a test cannot pass. [mlperf] compliance/TEST*/
MUST_BE_ZERO = ("num_perf_log_data_mismatch", "num_ne_mismatch", "num_unmatched", "num_missing_qsl_idxs")
_LIMITS = {
    "accuracy threshold": "test07_accuracy_threshold",
    "min threshold": "test09_min_output_tokens",
    "max threshold": "test09_max_output_tokens",
}
_LOGGED = {"TEST07": "total samples evaluated", "TEST09": "total samples"}
MIN_VALUES = (
    ("accuracy score", "accuracy threshold"),
    ("mean output tokens", "min threshold"),
    ("max threshold", "mean output tokens"),
    ("mean output tokens", "min output tokens"),
    ("max output tokens", "mean output tokens"),
)
# verify_performance.py lets the test score be that much greater, TEST01 also smaller; short latencies vary more.
_APART, _APART_OF_STREAMS, _SHORT = 0.1, 0.2, 1_600_000
_EVALUATED = re.compile(r"'exact_match':\s*(\d+(?:\.\d+)?)")  # what TEST07 takes as its score
MUST_NOT_BE_ZERO = ("num_perf_log_entries", "num_perf_log_qsl_idx_match", "num_matched", "total samples")


@decides(
    "tree",
    ("audit-settings", "error", "compliance/TEST*/audit.config", "the audit's log was made under its settings",
     "run the audit with its own audit.config"),
    ("audit-errors", "error", OURS, "no error records", "run the audit again"),
    rank=Rank.AUDITS,
)  # fmt: skip
def check_audit_run(result: Result, test: str, run: RunDir, detail: DetailLog) -> None:
    """The log of an audit's own run, whose verdict does not count: its numbers and its settings."""
    result.met("audit-settings", "audit-errors")
    found = [*log_findings(run, detail), *scenario_findings("audit-settings", result, detail)]
    if not free_seeds(result):
        found.append(seeds("perf-seeds", detail, (result.tree.round.name,)))
    wrong: dict[str, tuple[object, str]] = (
        {} if detail.mode == PERFORMANCE else {"test_mode": (detail.mode, PERFORMANCE)}
    )
    for name, value in result.entry.audit_settings.get(test, {}).items():
        there = detail.effective(name)
        # Earlier files of the same round had more logged.
        more = name == "accuracy_log_sampling_target" and isinstance(there, int) and there > int(value)
        if there != value and not more and not name.startswith("test0"):
            wrong[name] = there, str(value)
    if wrong:
        text = ", ".join(f"effective_{name} is {there}" for name, (there, _) in wrong.items())
        required = ", ".join(value for _, value in wrong.values())
        keys = [f"effective_{name}" for name in wrong]
        result.findings.add("audit-settings", detail.path, text, f"{required} ({test})", decided_by=keys)
    expected = (_TWO_FILES, _QUERY_LIMIT) if detail.effective("max_query_count", 0) else (_TWO_FILES,)
    if not all(any(text in str(record.value) for text in expected) for record in detail.errors):
        found.append(error_records("audit-errors", detail))
    add_violated(result, run, found)
    _check_order(result, test, detail)


@dataclass(frozen=True)
class _Audit:
    """One audit of a result, and the runs that its texts are about."""

    result: Result
    test: str
    folder: Path
    runs: Sequence[RunIdentity]

    def run(self, name: str) -> RunIdentity | None:
        return next((one for one in self.runs if one.name == name), None)

    def responses(self) -> list[AccuracyEntry] | None:
        """The responses that the audit's run logged; None where its log is missing or cut."""
        path = self.folder / "accuracy" / "mlperf_log_accuracy.json"
        if is_regular(path) and is_safe(path.parent):
            with suppress(HarnessError):
                return read_accuracy_log(path)
        return None

    def add(
        self,
        rule: str,
        path: Path,
        found: str,
        wanted: str,
        *others: Path,
        decided_by: Sequence[str] = (_FAIL,),
        warning: bool = False,
    ) -> None:
        severity: Severity | None = "warning" if warning or self.result.is_open else None
        self.result.findings.add(rule, path, found, wanted, severity=severity, others=others, decided_by=decided_by)


@decides(
    "tree",
    ("audit-verdict", "error", "[checker] compliance_check.compliance_performance_check, accuracy_check",
     "the audit's texts say TEST PASS", "run the audit's verification again; a text without a verdict was cut short"),
    ("audit-fallback", "warning", "[checker] compliance_check.accuracy_check",
     "the audit's responses are those of the accuracy run", "compare the scores of both runs"),
    ("audit-numbers", "error", OURS, "the audit's text has the numbers of the logs and limits that it compares",
     "verify the submitted runs, not others"),
    rank=Rank.AUDITS,
)  # fmt: skip
def check_audit_texts(result: Result, test: str, folder: Path, runs: Sequence[RunIdentity]) -> None:
    """Judge the texts of an audit. Other checks report missing ones.

    Args:
        folder: of the audit.
        runs: the performance run and the audit's own run, where their logs can be read.
    """
    audit = _Audit(result, test, folder, runs)
    for name in AUDIT_TEXTS[test]:
        path = folder / name
        text = read_text(path, result.findings, "audit-verdict") if is_regular(path) else None
        if text is None:
            continue
        result.met("audit-verdict", "audit-numbers", *(["audit-fallback"] if test == "TEST01" else []))
        shown = [(key.lower(), value) for key, value in _STATED.findall(text)]
        stated = dict(shown)
        scores = [folder / "accuracy" / one for one in FALLBACK]
        fails = next(chain(_refuting(stated), _refuting_scores(audit, stated) if name == _RATES_TEXT else ()), None)
        if test == "TEST01" and _PASS not in text and _FAIL in text and all(map(is_regular, scores)):
            for apart in _scores_apart(result, *scores):
                audit.add("audit-verdict", path, f"it says {_FAIL}, and {apart}", _PASS, *scores)
            different, of = (stated.get(f"num_perf_log_{one}", "?") for one in ("data_mismatch", "entries"))
            found = f"{different} of {of} responses differ from the accuracy run's; the scores of both runs are there"
            audit.add("audit-fallback", path, f"{_FAIL}: {found}", _PASS, *scores, warning=True)
        elif _FAIL in text or _PASS not in text:
            audit.add("audit-verdict", path, f"it says {_FAIL}" if _FAIL in text else "it has no verdict", _PASS)
        elif fails is not None:
            key, said = fails
            found, required = f"it says {_PASS}, and {said}", "a verdict that follows from its numbers"
            audit.add("audit-verdict", path, found, required, decided_by=[key])
        for key, wanted, slack, *others in _expected(audit, name, text):
            for value in dict.fromkeys(value for name, value in shown if name == key):
                if not _is_close(value, wanted, slack):
                    audit.add("audit-numbers", path, f"{key} is {value}", f"{wanted:.10g}", *others, decided_by=[key])


def _scores_apart(result: Result, baseline: Path, audit: Path) -> Iterator[str]:
    """Scores of the two runs of TEST01 that are too far apart. [checker] configuration.get_delta_perc"""
    texts = [read_text(path, result.findings, "audit-verdict") or "" for path in (baseline, audit)]
    for score in result.entry.targets_of(result.scenario_name):
        most = result.entry.audit_deltas.get(score, 0.1 if "99.9" in result.place.benchmark else 1.0)
        one, other = (next(iter(stated_score(text.splitlines(), score, one=False).values), 0.0) for text in texts)
        if not one or not other or abs(1 - one / other) * 100 > most:
            yield f"{score} is {one:g} and {other:g}, at most {most:g} % apart"


def _is_close(value: str, wanted: float, slack: float) -> bool:
    try:
        return math.isclose(float(value), wanted, rel_tol=1e-6, abs_tol=slack)
    except ValueError:
        return False


def _refuting(stated: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Numbers and checks in a text that contradict a PASS, each with its name first."""
    for key, value in stated.items():
        wrong = key in MUST_BE_ZERO and value != "0"
        if (
            wrong
            or (key in MUST_NOT_BE_ZERO and value == "0")
            or (key.endswith("check pass") and value.lower() != "true")
        ):
            yield key, f"{key} is {value}"
    for key, least in MIN_VALUES:
        with suppress(KeyError, ValueError):
            if float(stated[key]) < float(stated[least]):
                yield key, f"{key} is {stated[key]}, {least} {stated[least]}"


def _refuting_scores(audit: _Audit, stated: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Scores, and runs that LoadGen calls INVALID, with which verify_performance.py prints no PASS."""
    for run in filter(None, (audit.run("performance"), audit.run(audit.test))):
        if run.validity == "INVALID":
            yield "test score", f"LoadGen calls the result of the {run.name} run INVALID"
    with suppress(KeyError, ValueError):
        reference, tested = float(stated["reference score"]), float(stated["test score"])
        short = audit.result.loadgen_scenario in STREAM_LATENCIES and reference <= _SHORT
        share = _APART_OF_STREAMS if short else _APART
        if tested > reference * (1 + share) or (audit.test == "TEST01" and tested < reference * (1 - share)):
            apart = f"more than {share:.0%} off reference score {reference:.10g}"
            yield "test score", f"test score is {tested:.10g}, {apart}"


def _expected(audit: _Audit, name: str, text: str) -> Iterator[tuple[str, float, float, Path]]:
    """The numbers that a text must have: key, value, tolerance, and the file or directory that the value is from."""
    result, responses = audit.result, audit.folder / "accuracy"
    settings = {} if result.is_open else result.entry.audit_settings.get(audit.test, {})
    if name == _RATES_TEXT:
        for key, run in (("reference score", audit.run("performance")), ("test score", audit.run(audit.test))):
            if run is not None and (wanted := _score(audit.test, run)) is not None:
                slack = _PRINTED if run.scenario == "Server" else 0.0
                yield key, wanted, max(slack, SIX_DIGITS * wanted), run.detail
    elif audit.test == "TEST01":
        whole = _STREAMS - 1.0 if result.loadgen_scenario == "MultiStream" else 0.0  # the last query is a whole one
        if not result.is_open:
            yield "num_acc_log_entries", result.accuracy_samples, whole, responses
        if (entries := audit.responses()) is not None:
            yield "num_perf_log_entries", len(entries), 0.0, responses
    elif audit.test == "TEST07":
        if evaluated := _EVALUATED.search(text):
            yield "accuracy score", float(evaluated[1]), 0.0, responses
    elif audit.test == "TEST09" and (entries := audit.responses()) is not None:
        lengths = [len(one.data) // _TOKEN_BYTES for one in entries] or [0]
        yield "total samples", len(entries), 0.0, responses
        yield "min output tokens", min(lengths), 0.0, responses
        yield "max output tokens", max(lengths), 0.0, responses
        yield "mean output tokens", sum(lengths) / len(lengths), _PRINTED, responses
    run = audit.run(audit.test)
    if run is not None and run.logged:
        yield _LOGGED.get(audit.test, ""), run.logged, 0.0, run.detail
    for key, setting in _LIMITS.items():
        if setting in settings:
            yield key, settings[setting], 0.0, responses


def _score(test: str, run: RunIdentity) -> float | None:
    """The number that the test compares; TEST04 turns latencies into rates."""
    if run.scenario in _RATES:
        return run.numbers.get(_RATES[run.scenario])
    latency_ns = run.numbers.get(STREAM_LATENCIES.get(run.scenario, ""))
    if not latency_ns:
        return None
    return 1e9 / latency_ns if test == "TEST04" else latency_ns


# TEST06 ---------------------------------------------------------------------------------------------------------------


TEST = OfficialTest06.name


def check_audit(result: Result) -> RunIdentity | None:
    """Judge TEST06 where its directory is there. Returns what other runs are compared with."""
    findings, scenario = result.findings, result.scenario
    folder = result.tree.audit(result.place, TEST)
    if scenario is None or not is_folder(folder):
        return None
    text = folder / OfficialTest06.text_name
    lines = _check_text(result, scenario, text)
    responses = RunDir(folder / "accuracy").accuracy_log
    entries = _read_entries(result, responses, required=not result.is_open and TEST in result.entry.audits)
    if entries is not None:
        _check_entries(result, result.benchmark, scenario, responses, entries)
        if lines is not None:
            _check_text_of_entries(result, scenario, text, lines, entries)
    run = RunDir(folder / "performance" / "run_1")
    if not is_folder(run.root):
        # The official script keeps no log of the audit's run: only its responses distinguish it from another run.
        known = RunIdentity("audit", run.detail)
        if is_regular(responses) and responses.stat().st_size > LOGGED_SAMPLES:
            known.responses, known.responses_file = sha256_of(responses), responses
        return known
    detail = read_log(run, findings)
    if detail is None:
        return None
    check_audit_run(result, TEST, run, detail)
    return RunIdentity.of("audit", run, detail)


@decides(
    "tree",
    ("audit-text", "error", "[checker] compliance_check.accuracy_check",
     "verify_accuracy.txt shows that all checks passed", "run the audit again"),
    rank=Rank.AUDITS,
)  # fmt: skip
def _check_text(result: Result, scenario: Scenario, path: Path) -> set[str] | None:
    """The lines of the text; None where it cannot be read."""
    result.met("audit-text")
    text = read_text(path, result.findings, "audit-text")
    if text is None:
        return None
    lines = {line.strip() for line in text.splitlines()}
    for found, wanted, line in faults_in_text(lines, scenario):
        result.findings.add("audit-text", path, found, wanted, decided_by=[line] if line else [])
    return lines


@decides(
    "tree",
    ("audit-text-differs", "error", "compliance/TEST06/run_verification.py",
     "verify_accuracy.txt is what its log gives", "write it from this log"),
    rank=Rank.AUDITS,
)  # fmt: skip
def _check_text_of_entries(
    result: Result, scenario: Scenario, text: Path, lines: set[str], entries: list[AccuracyEntry]
) -> None:
    result.met("audit-text-differs")
    for found, wanted, line in text_not_of(entries, lines, scenario):
        result.findings.add(
            "audit-text-differs", text, found, f"{wanted}, by the logged responses", decided_by=[line] if line else []
        )


@decides(
    "tree",
    ("audit-log", "error", OURS, "TEST06 has the logged responses that its text is about",
     "put LoadGen's whole accuracy/mlperf_log_accuracy.json there"),
    rank=Rank.AUDITS,
)  # fmt: skip
def _read_entries(result: Result, path: Path, *, required: bool) -> list[AccuracyEntry] | None:
    result.met("audit-log")
    if not is_regular(path):
        if required or path.is_symlink():
            result.findings.add("audit-log", path, "there is no such file", severity="warning")
        return None
    if not is_safe(path.parent):
        found = "it has links, pipes or very large files: its log was not read"
        result.findings.add("log-damaged", path.parent, found)
        return None
    try:
        return read_accuracy_log(path)
    except HarnessError as error:
        # No official rule requires the log of this test: a cut log is a warning, a damaged one an error.
        found, cut = error.message.replace(f"{path.parent}/", ""), is_truncated(RunDir(path.parent))
        result.findings.add("audit-log", path, found, "LoadGen's own log", severity="warning" if cut else None)
        return None


@decides(
    "tree",
    ("audit-answers", "error", OURS, "each query has one logged response", "run the audit again"),
    rank=Rank.AUDITS,
)
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
        result.judged.applied.add(check.rule)
        if check.violated and (entries or check.rule == "test06-count"):
            found = f"{check.text}: {check.found}"
            result.findings.add(check.rule, path, found, check.required, severity=check.severity)
    result.met("audit-answers")
    if (different := len({entry.seq_id for entry in entries})) < len(entries):
        found = f"{len(entries)} responses to {different} queries"
        result.findings.add("audit-answers", path, found, "one response a query")


@decides(
    "tree",
    ("audit-order", "error", "[loadgen]", "the logged responses are of the samples that the log issued",
     "submit the audit's own logs"),
    rank=Rank.AUDITS,
)  # fmt: skip
def _check_order(result: Result, test: str, detail: DetailLog) -> None:
    """Compare the logged responses with the samples that an audit's run issued."""
    path = RunDir(result.tree.audit(result.place, test) / "accuracy").accuracy_log
    if not is_regular(path) or not is_safe(path.parent):
        return
    result.met("audit-order")
    try:
        said = not_as_issued(detail, issued_pairs(path.read_bytes()))
    except Exception as error:  # untrusted numbers must not end the other checks
        result.findings.add("log-damaged", detail.path, f"its order of issue cannot be replayed: {error}")
        return
    if said:
        result.findings.add("audit-order", path, said, others=[detail.path])


OF_TEST06 = (_check_text, _check_text_of_entries, _read_entries, _check_entries, _check_order, judge_entries)
