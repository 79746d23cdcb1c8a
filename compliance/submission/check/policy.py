"""What `check` makes of what `compliance.verify` finds in a leg of a tree: its own rule for each of verify's."""

from compliance.finding import Policy
from compliance.rules import RULES

_ITS_OWN = (
    # Rules that look at the tree's own files, or at the round that was named, tell of these.
    "perf-benchmark-scenario",
    "perf-validity",
    "perf-seeds",
    "accuracy-errors",
    "accuracy-seeds",
    "accuracy-target",
    "accuracy-count",
    "accuracy-no-target",
    "one-system",
    "record-model",
)
_OTHERWISE = {
    "accuracy-token-counts": "accuracy-answers",
    "accuracy-longest": "accuracy-answers",
    "accuracy-scored-again": None,  # a tree has the answers truncated; check --runs has the whole ones
    **dict.fromkeys((rule.id for rule in RULES.values() if rule.kind == "contradiction"), "log-contradiction"),
    **dict.fromkeys((rule.id for rule in RULES.values() if rule.kind == "plausible"), "log-implausible"),
    "plausible-first-tokens-held": "perf-first-tokens-held",
    **dict.fromkeys(_ITS_OWN),
}
_SAME = {rule.id: rule.id for rule in RULES.values() if rule.kind in ("result", "official")}

CLOSED = Policy("check", {**_SAME, **_OTHERWISE})
# What the official checker does not ask there ([checker] performance_check.min_query_count_check), and scores that are
# out of reach of the benchmark's model: there it may be another.
OPEN = Policy("check", {**CLOSED.rules, "perf-samples": None, "plausible-scores": None})


def policy_of(division: str) -> Policy:
    """The policy for legs of a division."""
    return OPEN if division == "open" else CLOSED
