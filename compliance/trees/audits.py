"""Rules on audits in a tree: their settings, the verdict and numbers in their texts, and the responses of TEST06."""

import math
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from compliance.accuracy.accuracy_text import stated_score
from compliance.audits.catalog.test06 import LOGGED_SAMPLES, OfficialTest06
from compliance.audits.logged_tokens import faults_in_text, judge_entries, text_not_of
from compliance.judge.rule import OURS, Rank, check_of, decides
from compliance.judge.verdict import Finding, NotApplied, Severity, compared
from compliance.results.logged_responses import not_as_issued
from compliance.results.official_rules import seeds
from compliance.results.performance import error_records
from compliance.results.run_claim import RunClaim
from compliance.results.truncate import is_truncated
from compliance.trees.findings import MISSING, UNSAFE, Reads, is_folder, is_regular, is_safe, read_tree_text
from compliance.trees.runs import free_seeds, log_findings, scenario_findings, violations
from compliance.trees.scenario_directory import (
    DETAIL,
    RESPONSES,
    STREAM_LATENCIES,
    RunIdentity,
    ScenarioDirectory,
    read_log,
)
from runs.benchmark import Scenario
from runs.errors import HarnessError
from runs.files.writing import sha256_of
from runs.loadgen.accuracy_log import AccuracyEntry
from runs.loadgen.detail_log import SIX_DIGITS, DetailLog, read_detail
from runs.record.finished_run import PERFORMANCE
from runs.record.layout import RunDir

# The texts of each audit. [checker] compliance_check.dir_exists_check
AUDIT_TEXTS = {
    "TEST01": ("verify_accuracy.txt", "verify_performance.txt"), "TEST04": ("verify_performance.txt",),
    "TEST06": ("verify_accuracy.txt",), "TEST07": ("verify_accuracy.txt",), "TEST08": ("verify_accuracy.txt",),
    "TEST09": ("verify_output_len.txt",),
}  # fmt: skip
# Scores that TEST01 and TEST04 compare, by LoadGen's scenario. [mlperf] compliance/TEST01, TEST04
_RATES = {"Offline": "result_samples_per_second", "Server": "result_completed_samples_per_sec"}
# Rounding error of numbers with two decimals: Server rates in the summary (TEST01, TEST04), and the means of TEST09.
_PRINTED = 0.0051
_STATED = re.compile(r"^[ \t]*([A-Za-z][\w ]*?)[ \t]*[=:][ \t]*(\S+)[ \t\r]*$", re.MULTILINE)
_PASS, _FAIL = "TEST PASS", "TEST FAIL"
_RATES_TEXT = "verify_performance.txt"
# TEST01 accepts runs with different responses if their scores agree.
FALLBACK = ("baseline_accuracy.txt", "compliance_accuracy.txt")
_TOKEN_BYTES = 4  # [mlperf] compliance/TEST09/run_verification.py
# Errors that LoadGen logs in a valid audit run: two files of settings, and TEST07's max_query_count. [checker]
# performance_check.loadgen_errors_check
_TWO_FILES = "Multiple conf files"
_QUERY_LIMIT = "Max query count reached"
_STREAMS = 8  # samples per query in MultiStream
# Numbers in a text that must be 0 for a test to pass. [mlperf] compliance/TEST*/
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
# Shares by which verify_performance.py allows a higher test score (TEST01: also a lower one). Short latencies in ns.
_APART, _APART_OF_STREAMS, _SHORT = 0.1, 0.2, 1_600_000
_EVALUATED = re.compile(r"'exact_match':\s*(\d+(?:\.\d+)?)")  # score of TEST07
MUST_NOT_BE_ZERO = ("num_perf_log_entries", "num_perf_log_qsl_idx_match", "num_matched", "total samples")


@decides(
    "tree",
    ("audit-settings", "error", "compliance/TEST*/audit.config", "settings of the audit run",
     "run the audit with its own audit.config"),
    ("audit-errors", "error", OURS, "error records in the log of the audit run", "repeat the audit"),
    rank=Rank.AUDITS,
)  # fmt: skip
def check_audit_run(directory: ScenarioDirectory, test: str, run: RunDir, detail: DetailLog) -> Reads[bool]:
    """Check the settings and numbers in the log of an audit run. The run need not be VALID.

    Returns:
        True if the logged responses were compared with the issued samples.
    """
    problems = [*log_findings(run, detail), *scenario_findings("audit-settings", directory, detail)]
    if not free_seeds(directory.claim):
        problems.append(seeds("perf-seeds", detail, (directory.tree.round.name,)))
    wrong: dict[str, tuple[object, str]] = (
        {} if detail.mode == PERFORMANCE else {"test_mode": (detail.mode, PERFORMANCE)}
    )
    for name, value in directory.claim.entry.audit_settings.get(test, {}).items():
        effective = detail.effective(name)
        # Earlier versions of audit.config in this round log more responses.
        more = name == "accuracy_log_sampling_target" and isinstance(effective, int) and effective > int(value)
        if effective != value and not more and not name.startswith("test0"):
            wrong[name] = effective, str(value)
    if wrong:
        text = ", ".join(f"effective_{name} is {effective}" for name, (effective, _) in wrong.items())
        required = ", ".join(value for _, value in wrong.values())
        keys = [f"effective_{name}" for name in wrong]
        yield compared("audit-settings", False, text, f"{required} ({test})", detail.path, decided_by=keys)
    expected = (_TWO_FILES, _QUERY_LIMIT) if detail.effective("max_query_count", 0) else (_TWO_FILES,)
    if not all(any(text in str(record.value) for text in expected) for record in detail.errors):
        problems.append(error_records("audit-errors", detail))
    yield from violations(run, problems)
    return (yield from _check_order(directory, test, detail))


@dataclass(frozen=True)
class _Audit:
    """One audit of a scenario directory, and the runs that its texts describe."""

    directory: ScenarioDirectory
    test: str

    @property
    def claim(self) -> RunClaim:
        return self.directory.claim

    @property
    def folder(self) -> Path:
        """The directory of the audit."""
        return self.directory.audit(self.test)

    @property
    def settings(self) -> Mapping[str, int | float]:
        """Settings in the audit.config of the round."""
        return self.claim.entry.audit_settings.get(self.test, {})

    def run(self, name: str) -> RunIdentity | None:
        """Return the performance run or the audit run, if its log is readable."""
        return next((run for run in self.directory.identities if run.name == name), None)

    def responses(self) -> list[AccuracyEntry] | None:
        """Return the logged responses of the audit run; None if the log is missing or truncated."""
        path = self.folder / "accuracy" / "mlperf_log_accuracy.json"
        if is_regular(path) and is_safe(path.parent):
            with suppress(HarnessError):
                return self.directory.logged_samples(path).entries
        return None

    def differs(
        self,
        rule: str,
        path: Path,
        value: str,
        required: str,
        *further: Path,
        decided_by: Sequence[str] = (_FAIL,),
        is_warning: bool = False,
    ) -> Finding:
        severity: Severity | None = "warning" if is_warning or self.claim.is_open else None
        return compared(rule, False, value, required, path, *further, severity=severity, decided_by=decided_by)


@decides(
    "tree",
    ("audit-verdict", "error", "[checker] compliance_check.compliance_performance_check, accuracy_check",
     "verdict in the text of the audit", "run the audit's verification script again"),
    ("audit-fallback", "warning", "[checker] compliance_check.accuracy_check",
     "responses that differ from the accuracy run", "compare the scores of both runs"),
    ("audit-numbers", "error", OURS, "number in the text of the audit, compared with the logs and limits",
     "run the audit's verification script on the submitted runs"),
    rank=Rank.AUDITS,
)  # fmt: skip
def check_audit_texts(directory: ScenarioDirectory, test: str) -> Reads[bool]:
    """Check the texts of an audit. Other checks report missing texts.

    Returns:
        True if a text was read.
    """
    audit, is_read = _Audit(directory, test), False
    for name in AUDIT_TEXTS[test]:
        path = audit.folder / name
        text = (yield from read_tree_text(path, "audit-verdict")) if is_regular(path) else None
        if text is None:
            continue
        is_read = True
        shown = [(key.lower(), value) for key, value in _STATED.findall(text)]
        stated = dict(shown)
        scores = [audit.folder / "accuracy" / score_text for score_text in FALLBACK]
        fails = next(chain(_refuting(stated), _refuting_runs(audit, stated)), None)
        if test == "TEST01" and _PASS not in text and _FAIL in text and all(map(is_regular, scores)):
            baseline = (yield from read_tree_text(scores[0], "audit-verdict")) or ""
            of_audit = (yield from read_tree_text(scores[1], "audit-verdict")) or ""
            for apart in _scores_apart(audit, baseline, of_audit):
                yield audit.differs("audit-verdict", path, f"{_FAIL}, and {apart}", _PASS, *scores)
            different, total = (stated.get(f"num_perf_log_{name}", "?") for name in ("data_mismatch", "entries"))
            shown_text = f"{different} of {total} ({_FAIL}; both runs have scores)"
            yield audit.differs("audit-fallback", path, shown_text, "0", *scores, is_warning=True)
        elif _FAIL in text or _PASS not in text:
            yield audit.differs("audit-verdict", path, _FAIL if _FAIL in text else "none", _PASS)
        elif fails is not None:
            key, reason = fails
            shown_text, required = f"{_PASS}, but {reason}", "a verdict that follows from the numbers"
            yield audit.differs("audit-verdict", path, shown_text, required, decided_by=[key])
        for key, wanted, slack, *sources in _expected(audit, name, text):
            for value in dict.fromkeys(value for name, value in shown if name == key):
                if not _is_close(value, wanted, slack):
                    yield audit.differs(
                        "audit-numbers", path, f"{key} is {value}", f"{wanted:.10g}", *sources, decided_by=[key]
                    )
    return is_read


def _scores_apart(audit: _Audit, baseline_text: str, audit_text: str) -> Iterator[str]:
    """Yield the scores in which the two runs of TEST01 differ too much. [checker] configuration.get_delta_perc"""
    default = 0.1 if "99.9" in audit.directory.place.benchmark else 1.0
    for score in audit.claim.targets:
        most = audit.claim.entry.audit_deltas.get(score, default)
        baseline_score, audit_score = (
            next(iter(stated_score(text.splitlines(), score, is_single=False).values), 0.0)
            for text in (baseline_text, audit_text)
        )
        if not baseline_score or not audit_score or abs(1 - baseline_score / audit_score) * 100 > most:
            yield f"{score} of the runs is {baseline_score:g} and {audit_score:g} (allowed difference: {most:g}%)"


def _is_close(value: str, wanted: float, slack: float) -> bool:
    try:
        return math.isclose(float(value), wanted, rel_tol=1e-6, abs_tol=slack)
    except ValueError:
        return False


def _refuting(stated: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the numbers and checks in a text that contradict TEST PASS, with their names."""
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
                yield key, f"{key} is {stated[key]}, {least} is {stated[least]}"


def _refuting_runs(audit: _Audit, stated: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the numbers and runs with which the official script of the test does not print TEST PASS."""
    for run in filter(None, (audit.run("performance"), audit.run(audit.test)) if "reference score" in stated else ()):
        if run.validity == "INVALID":
            yield "test score", f"the {run.name} run is INVALID"
    key = _LOGGED.get(audit.test, "")
    with suppress(KeyError, ValueError):  # earlier versions of audit.config in a round had more samples
        if float(stated[key]) < (least := audit.settings[f"{audit.test.lower()}_samples"]) and not audit.claim.is_open:
            yield key, f"{key} is {stated[key]}, audit.config requires {least:g}"
    with suppress(KeyError, ValueError):
        reference, tested = float(stated["reference score"]), float(stated["test score"])
        short = audit.claim.loadgen_scenario in STREAM_LATENCIES and reference <= _SHORT
        share = _APART_OF_STREAMS if short else _APART
        if tested > reference * (1 + share) or (audit.test == "TEST01" and tested < reference * (1 - share)):
            apart = f"which differs by more than {share:.0%} from reference score {reference:.10g}"
            yield "test score", f"test score is {tested:.10g}, {apart}"


def _expected(audit: _Audit, name: str, text: str) -> Iterator[tuple[str, float, float, Path]]:
    """Yield the numbers that a text must contain: key, value, tolerance, and the file with the value."""
    claim, responses = audit.claim, audit.folder / "accuracy"
    settings = {} if claim.is_open else audit.settings
    if name == _RATES_TEXT:
        for key, run in (("reference score", audit.run("performance")), ("test score", audit.run(audit.test))):
            if run is not None and (wanted := _score(audit.test, run)) is not None:
                slack = _PRINTED if run.scenario == "Server" else 0.0
                yield key, wanted, max(slack, SIX_DIGITS * wanted), run.detail
    elif audit.test == "TEST01":
        # LoadGen fills up the last query.
        filled_up = _STREAMS - 1.0 if claim.loadgen_scenario == "MultiStream" else 0.0
        if not claim.is_open:
            yield "num_acc_log_entries", claim.accuracy_samples, filled_up, responses
        if (entries := audit.responses()) is not None:
            yield "num_perf_log_entries", len(entries), 0.0, responses
    elif audit.test == "TEST07":
        if evaluated := _EVALUATED.search(text):
            yield "accuracy score", float(evaluated[1]), 0.0, responses
    elif audit.test == "TEST09" and (entries := audit.responses()) is not None:
        lengths = [len(entry.data) // _TOKEN_BYTES for entry in entries] or [0]
        yield "total samples", len(entries), 0.0, responses
        yield "min output tokens", min(lengths), 0.0, responses
        yield "max output tokens", max(lengths), 0.0, responses
        yield "mean output tokens", sum(lengths) / len(lengths), _PRINTED, responses
    run = audit.run(audit.test)
    if audit.test == "TEST09" and run is not None and run.logged and run.tokens:
        yield "mean output tokens", run.tokens, 1e-3 * run.tokens, run.detail
    if run is not None and run.logged:
        yield _LOGGED.get(audit.test, ""), run.logged, 0.0, run.detail
    for key, setting in _LIMITS.items():
        if setting in settings:
            yield key, settings[setting], 0.0, responses


def _score(test: str, run: RunIdentity) -> float | None:
    """Return the number of a run that the test compares. TEST04 converts latencies to rates."""
    if run.scenario in _RATES:
        return run.numbers.get(_RATES[run.scenario])
    latency_ns = run.numbers.get(STREAM_LATENCIES.get(run.scenario, ""))
    if not latency_ns:
        return None
    return 1e9 / latency_ns if test == "TEST04" else latency_ns


# TEST06 ---------------------------------------------------------------------------------------------------------------


TEST = OfficialTest06.name


_OF_RESPONSES = ("audit-log", "audit-answers", "audit-text-differs")
_ABSENT = "the result has no TEST06"
WITHOUT_AUDIT_LOG = NotApplied(
    f"the performance/run_1/{DETAIL} of an audit", ("audit-settings", "audit-errors"), lacks_input=True
)


def check_audit(directory: ScenarioDirectory) -> Generator[Finding | NotApplied, None, RunIdentity | None]:
    """Check TEST06 if its directory exists. Return its run, which is later compared with other runs."""
    claim, folder = directory.claim, directory.audit(TEST)
    scenario = claim.harness_scenario
    if scenario is None or not is_folder(folder):
        yield NotApplied(_ABSENT, check_of(check_audit, *OF_TEST06).rules)
        yield _without(f"accuracy/{RESPONSES}", *_OF_RESPONSES)
        yield _without(f"performance/run_1/{DETAIL}", "audit-order")
        yield WITHOUT_AUDIT_LOG
        return None
    text = folder / OfficialTest06.text_name
    lines = yield from _check_text(scenario, text)
    responses = RunDir(folder / "accuracy").accuracy_log
    entries = yield from _read_entries(directory, responses, required=not claim.is_open and TEST in claim.entry.audits)
    if entries is None or lines is None:
        yield _without(f"accuracy/{RESPONSES}", "audit-text-differs")
    if entries is None:
        yield _without(f"accuracy/{RESPONSES}", "audit-answers")
    else:
        yield from _check_entries(claim, scenario, responses, entries)
        if lines is not None:
            yield from _check_text_of_entries(scenario, text, lines, entries)
    run = RunDir(folder / "performance" / "run_1")
    if not is_folder(run.root):
        yield _without(f"performance/run_1/{DETAIL}", "audit-order")
        yield WITHOUT_AUDIT_LOG
        # The official script deletes the detail log of the audit run. So only the responses identify this run.
        identity = RunIdentity("audit", run.detail)
        if is_regular(responses) and responses.stat().st_size > LOGGED_SAMPLES:
            identity.responses, identity.responses_file = sha256_of(responses), responses
        return identity
    detail = yield from read_log(run)
    if detail is None:
        yield _without(f"performance/run_1/{DETAIL}", "audit-order")
        yield WITHOUT_AUDIT_LOG
        return None
    if not (yield from check_audit_run(directory, TEST, run, detail)):
        yield _without(f"performance/run_1/{DETAIL}", "audit-order")
    return RunIdentity.of("audit", run, detail)


def _without(path: str, *rules: str) -> NotApplied:
    return NotApplied(f"{TEST}/{path}", rules, lacks_input=True)


@decides(
    "tree",
    ("audit-text", "error", "[checker] compliance_check.accuracy_check",
     "check in verify_accuracy.txt", "repeat the audit"),
    rank=Rank.AUDITS,
)  # fmt: skip
def _check_text(scenario: Scenario, path: Path) -> Reads[set[str] | None]:
    """Check the lines of verify_accuracy.txt, and return them; None if it is unreadable."""
    text = yield from read_tree_text(path, "audit-text")
    if text is None:
        return None
    lines = {line.strip() for line in text.splitlines()}
    for stated, wanted, line in faults_in_text(lines, scenario):
        yield compared("audit-text", False, stated, wanted, path, decided_by=[line] if line else [])
    return lines


@decides(
    "tree",
    ("audit-text-differs", "error", "compliance/TEST06/run_verification.py",
     "line of verify_accuracy.txt, compared with the logged responses", "write verify_accuracy.txt from the log"),
    rank=Rank.AUDITS,
)  # fmt: skip
def _check_text_of_entries(
    scenario: Scenario, text: Path, lines: set[str], entries: list[AccuracyEntry]
) -> Iterator[Finding]:
    for stated, wanted, line in text_not_of(entries, lines, scenario):
        yield compared("audit-text-differs", False, stated, wanted, text, decided_by=[line] if line else [])


@decides(
    "tree",
    ("audit-log", "warning", OURS, "accuracy log of TEST06",
     "copy LoadGen's complete mlperf_log_accuracy.json into TEST06/accuracy"),
    rank=Rank.AUDITS,
)  # fmt: skip
def _read_entries(directory: ScenarioDirectory, path: Path, *, required: bool) -> Reads[list[AccuracyEntry] | None]:
    if not is_regular(path):
        if required or path.is_symlink():
            yield compared("audit-log", False, MISSING, "LoadGen's own log", path)
        return None
    if not is_safe(path.parent):
        yield compared("log-damaged", False, UNSAFE, "", path.parent)
        return None
    try:
        return directory.logged_samples(path).entries
    except HarnessError as error:
        # No official rule requires the log of TEST06, so a truncated log is a warning. A damaged log is an error.
        reason, cut = error.message.replace(f"{path.parent}/", ""), is_truncated(RunDir(path.parent))
        if cut:
            yield compared("audit-log", False, reason, "LoadGen's complete log", path, decided_by=["..."])
        else:
            yield compared("log-damaged", False, reason, "", path)
        return None


@decides(
    "tree",
    ("audit-answers", "error", OURS, "logged responses", "repeat the audit"),
    rank=Rank.AUDITS,
)
def _check_entries(claim: RunClaim, scenario: Scenario, path: Path, entries: list[AccuracyEntry]) -> Iterator[Finding]:
    benchmark = None if claim.is_open else claim.benchmark
    model = benchmark.model if benchmark else None
    checks = judge_entries(
        entries,
        scenario=scenario,
        stop_ids=model.stop_ids if model else (),
        bos_ids=model.bos_ids if model else (),
        special_ids=model.special_ids if model else (),
        expected_count=LOGGED_SAMPLES,
        max_tokens=benchmark.sampling["performance"].max_tokens if benchmark else None,
        issued=_samples_issued(path) if len(entries) != LOGGED_SAMPLES else None,
    )
    for check in checks:
        passed = not check.violated or not (entries or check.rule == "test06-count")
        value, required, keys = check.found, check.required, check.decided_by
        severity = None if passed else check.severity
        yield compared(check.rule, passed, value, required, path, text=check.text, severity=severity, decided_by=keys)
    if (different := len({entry.seq_id for entry in entries})) < len(entries):
        value = f"{len(entries)} for {different} queries"
        yield compared("audit-answers", False, value, "one for each query", path)


def _samples_issued(responses: Path) -> int | None:
    """Return the number of samples that the audit run issued; None if its log is missing or damaged."""
    with suppress(HarnessError):
        detail = read_detail(RunDir(responses.parent.parent / "performance" / "run_1").detail)
        return detail.integer("result_query_count") * (detail.samples_per_query or 1)
    return None


@decides(
    "tree",
    ("audit-order", "error", "[loadgen]", "samples with logged responses, compared with the issued samples",
     "submit the logs of the audit run"),
    rank=Rank.AUDITS,
)  # fmt: skip
def _check_order(directory: ScenarioDirectory, test: str, detail: DetailLog) -> Reads[bool]:
    """Compare the logged responses with the samples that the audit run issued. Return False without responses."""
    path = RunDir(directory.audit(test) / "accuracy").accuracy_log
    if not is_regular(path) or not is_safe(path.parent):
        return False
    try:
        problem = not_as_issued(detail, directory.logged_samples(path).issued)
    except Exception as error:  # Untrusted numbers must not end the other checks.
        yield compared("log-damaged", False, f"the issued samples cannot be computed: {error}", "", detail.path)
        return True
    if problem:
        yield compared("audit-order", False, problem, "", path, detail.path)
    return True


OF_TEST06 = (
    *(_check_text, _check_text_of_entries, _read_entries, _check_entries, _check_order, judge_entries, check_audit_run),
)
