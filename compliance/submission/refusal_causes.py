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
# A reason in a manifest: a key of user.conf, the number of rows, or another fact.
_REASON = re.compile(
    r"user\.conf: (?P<key>\w+) |(?P<rows>[\d,]+ samples instead of )|(?:dataset: |weights: )?(?P<fact>.*)"
)


def cause_of(reason: str) -> str:
    """Return the setting or fact that a reason in a manifest is about."""
    found = _REASON.match(reason)
    assert found is not None  # the last alternative matches every text
    key = _ROWS if found["rows"] else found["key"] or found["fact"]
    return _LIMITS if key in _OF_LIMITS else key


def by_cause(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Group refusals by cause, in the order of their first finding. The first finding of a group has the fix."""
    violated = {(found.text, _cause(found)) for found in findings}
    groups: dict[str, list[Finding]] = {}
    for found in findings:
        follows = _FOLLOWS.get(found.rule, "")
        cause = _cause(found) or (follows if (found.text, follows) in violated else "")
        groups.setdefault(cause or _reason(found), []).append(found)
    return list(groups.values())


def _cause(found: Finding) -> str:
    return str(found.numbers.get("cause", "")) or _SETTING_OF.get(found.rule, "")


def _reason(found: Finding) -> str:
    """Return the rule with its reason, which is equal in results of one cause."""
    return str(found) if found.files or not found.found else f"{found.rule}: {found.found}"
