"""Rules on the texts of TEST01 and TEST04: what they say of the outcome, and their numbers against the two logs."""

import math
import re
from collections.abc import Sequence
from pathlib import Path

from compliance.finding import OURS, decides
from compliance.submission.check.findings import Findings, is_regular, read_text
from compliance.submission.check.legs import STREAM_LATENCIES, ComparedLeg, Result

# What verify_performance.py of each test compares, by LoadGen's scenario. [mlperf] compliance/TEST01, TEST04
_RATES = {"Offline": "result_samples_per_second", "Server": "result_completed_samples_per_sec"}
# TEST04 reads the summary, where a Server rate has two decimals.
_PRINTED = 0.0051
_SCORE = re.compile(r"^(reference|test) score = (\S+)", re.IGNORECASE | re.MULTILINE)
_PASS, _FAIL = "TEST PASS", "TEST FAIL"
# TEST01 lets answers differ from run to run where the score of both runs is the same.
_FALLBACK = ("baseline_accuracy.txt", "compliance_accuracy.txt")


@decides(
    "tree",
    ("audit-verdict", "error", "[checker] compliance_check.compliance_performance_check, accuracy_check",
     "the audit's texts say TEST PASS", "run the audit's verification again; a text without a verdict was cut short"),
    ("audit-fallback", "warning", "[checker] compliance_check.accuracy_check",
     "the audit's answers are those of the accuracy leg", "look at the scores beside the text"),
    ("audit-numbers", "error", OURS, "the audit's text has the numbers of the two logs that it compares",
     "verify the submitted runs, not others"),
)  # fmt: skip
def check_audit_texts(result: Result, test: str, folder: Path, legs: Sequence[ComparedLeg]) -> None:
    """Judge what TEST01 or TEST04 left; a text that is missing is told elsewhere.

    Args:
        folder: of the audit.
        legs: the performance leg and the audit's own run, where their logs can be read.
    """
    text = _text(folder / "verify_performance.txt", result.findings)
    if text is not None:
        _check_verdict(result, folder / "verify_performance.txt", text)
        for name, stated in _SCORE.findall(text):
            wanted_leg = "performance" if name.lower() == "reference" else test
            leg = next((one for one in legs if one.name == wanted_leg), None)
            _check_number(result, folder / "verify_performance.txt", test, (name, stated), leg)
    answers = _text(folder / "verify_accuracy.txt", result.findings)
    if test == "TEST01" and answers is not None:
        scores = [folder / "accuracy" / name for name in _FALLBACK]
        if _PASS not in answers and _FAIL in answers and all(map(is_regular, scores)):
            said = f"{_FAIL}: {_mismatches(answers)}; the scores of both runs are beside it"
            result.findings.add("audit-fallback", folder / "verify_accuracy.txt", said, _PASS, beside=scores)
        else:
            _check_verdict(result, folder / "verify_accuracy.txt", answers)


def _text(path: Path, findings: Findings) -> str | None:
    return read_text(path, findings, "audit-verdict") if is_regular(path) else None


def _check_verdict(result: Result, path: Path, text: str) -> None:
    if _PASS in text and _FAIL not in text:
        return
    said = f"it says {_FAIL}" if _FAIL in text else "it ends without a verdict"
    result.findings.add("audit-verdict", path, said, _PASS, severity="warning" if result.is_open else "error")


def _mismatches(text: str) -> str:
    different = re.search(r"^num_perf_log_data_mismatch = (\d+)", text, re.MULTILINE)
    entries = re.search(r"^num_perf_log_entries = (\d+)", text, re.MULTILINE)
    count, of = (one[1] if one else "?" for one in (different, entries))
    return f"{count} of {of} answers differ from the accuracy leg's"


def _check_number(result: Result, path: Path, test: str, said: tuple[str, str], leg: ComparedLeg | None) -> None:
    """One score of the text against the log that it was read from."""
    name, stated = said
    wanted = None if leg is None else _score(test, leg)
    if leg is None or wanted is None:
        return
    slack = _PRINTED if test == "TEST04" and leg.scenario == "Server" else 0.0
    try:
        same = math.isclose(float(stated), wanted, rel_tol=1e-6, abs_tol=slack)
    except ValueError:
        same = False
    if not same:
        found = f"{name.lower()} score is {stated}"
        result.findings.add("audit-numbers", path, found, f"{wanted:g}, by the log", beside=[leg.detail])


def _score(test: str, leg: ComparedLeg) -> float | None:
    """The number that the test compares: TEST04 takes rates of latencies."""
    if leg.scenario in _RATES:
        return leg.numbers.get(_RATES[leg.scenario])
    latency_ns = leg.numbers.get(STREAM_LATENCIES.get(leg.scenario, ""))
    if not latency_ns:
        return None
    return 1e9 / latency_ns if test == "TEST04" else latency_ns
