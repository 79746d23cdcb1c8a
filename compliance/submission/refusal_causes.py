"""Causes of the refusals of `submit`: one setting or fact can violate several rules, in several results."""

import re
from collections.abc import Sequence

from compliance.judge.finding import Finding

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
_DECLARED = re.compile(
    r"not eligible for submission: (?:user\.conf: (?P<key>\w+) |(?P<rows>[\d,]+ samples instead of )|"
    r"(?:dataset: |weights: )?(?P<text>.*))"
)


def by_cause(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Group refusals by cause, in the order of their first finding. The first finding of a group has the fix."""
    violated = {(found.text, setting) for found in findings if (setting := _setting(found))}
    groups: dict[str, list[Finding]] = {}
    for found in findings:
        follows = _FOLLOWS.get(found.rule, "")
        cause = _setting(found) or (follows if (found.text, follows) in violated else _reason(found))
        groups.setdefault(cause, []).append(found)
    return list(groups.values())


def _setting(found: Finding) -> str:
    declared = _DECLARED.match(found.found)
    if declared is None:
        return _SETTING_OF.get(found.rule, "")
    key = declared["key"] or (_ROWS if declared["rows"] else "")
    return _LIMITS if key in _OF_LIMITS else key


def _reason(found: Finding) -> str:
    """Return the rule with its reason, which is equal in results of one cause."""
    if found.files or not found.found:
        return str(found)
    declared = _DECLARED.match(found.found)
    return f"{found.rule}: {declared['text'] if declared is not None else found.found}"
