"""Causes of the refusals of `submit`: one setting or fact can violate several rules, in several results."""

import re
from collections.abc import Sequence

from compliance.judge.verdict import Finding

_ROWS, _LIMITS = "rows of the dataset", "token latency limits"
# Setting or fact that a rule checks. The first finding of a cause has the fix.
_SETTING_OF = {
    "perf-min-duration": "min_duration",
    "perf-percentile": "target_latency_percentile",
    "perf-limits": _LIMITS,
    "perf-equal-issue": "sample_concatenate_permutation",
    "perf-samples": "min_query_count",
    "perf-sample-count": "performance_sample_count_override",
    "perf-data-set": _ROWS,
    "accuracy-samples": _ROWS,
}
_FOLLOWS = {"perf-duration": "min_duration", "accuracy-no-target": _ROWS}  # rules that a violated setting explains
_OF_LIMITS = frozenset({"ttft_latency", "tpot_latency"})
# A reason in a manifest: a key of user.conf, the number of rows, or another fact.
_REASON = re.compile(
    r"user\.conf: (?P<key>\w+) |(?P<rows>[\d,]+ samples instead of )|(?:dataset: |weights: )?(?P<fact>.*)"
)


def cause_of(reason: str) -> str:
    """Return the setting or fact that a reason in a manifest is about."""
    match = _REASON.match(reason)
    assert match is not None  # the last alternative matches every text
    key = _ROWS if match["rows"] else match["key"] or match["fact"]
    return _LIMITS if key in _OF_LIMITS else key


def by_cause(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Group refusals by cause, in the order of their first finding. The first finding of a group has the fix."""
    violated = {(refusal.text, _cause(refusal)) for refusal in findings}
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        follows = _FOLLOWS.get(finding.rule, "")
        cause = _cause(finding) or (follows if (finding.text, follows) in violated else "")
        groups.setdefault(cause or _reason(finding), []).append(finding)
    return list(groups.values())


def _cause(finding: Finding) -> str:
    return str(finding.numbers.get("cause", "")) or _SETTING_OF.get(finding.rule, "")


def _reason(finding: Finding) -> str:
    """Return the rule with its reason, which is equal in results of one cause."""
    return str(finding) if finding.files or not finding.found else f"{finding.rule}: {finding.found}"
