"""What the sign-off makes of what `compliance.verify` finds in a leg: its own check and slug for each rule."""

from compliance.finding import Policy
from compliance.rules import RULES

# Rules that the sign-off only tells of, without lowering its verdict.
TOLD_ONLY = frozenset({"accuracy-no-target"})

SIGN_OFF = Policy(
    "the sign-off",
    {
        # Files that cannot all be true.
        "log-settings": "P-3/reported_vs_raw_mismatch",
        "log-arithmetic": "P-3/reported_vs_raw_mismatch",
        "log-summary": "P-3/reported_vs_raw_mismatch",
        "log-records": "P-3/reported_vs_raw_mismatch",
        "log-answers": "P-3/reported_vs_raw_mismatch",
        "record-result": "P-3/reported_vs_raw_mismatch",
        "accuracy-text-differs": "P-3/reported_vs_raw_mismatch",
        "log-order": "P-6/not_loadgens_queries",
        "log-clock": "P-5/clock",
        "record-hash": "P-5/changed_after_the_run",
        "record-answers": "P-4/answers_differ",
        "record-manifest": "P-5/foreign_file",
        "attested": "P-5/changed_after_the_run",
        "record-progress": "P-5/foreign_file",
        # What any result has to keep.
        "perf-validity": "B-3/not_valid",
        "perf-audit-settings": "B-3/audit_settings",
        "perf-cut-short": "B-3/cut_short",
        "accuracy-errors": "P-2/loadgen_errors",
        "accuracy-answers": "P-4/answers_missing",
        "accuracy-token-counts": "P-4/token_counts",
        "accuracy-target": "C-3/accuracy_gate_fail",
        "accuracy-count": "C-3/accuracy_gate_fail",
        "accuracy-no-target": "C-1/no_reference_scores",
        "accuracy-scored-again": None,  # C-1 tells
        "record-model": "P-7/other_model",
        "one-system": None,  # the conditions of every two legs are compared instead
        "plausible-repeats": "H-5/cached_answers",
        "plausible-first-token": "H-5/no_time_for_prompt",
        "plausible-first-tokens-held": "H-5/first_tokens_held",
        "plausible-shared-answers": "H-5/canned_answers",
        "plausible-padding": "C-4/padded_outputs",
        "plausible-reference-texts": "H-5/reference_texts",
        "plausible-scores": "H-5/reference_texts",
        # What only a result that claims to be official is asked for.
        **dict.fromkeys((rule.id for rule in RULES.values() if rule.kind == "official"), "H-6/not_official"),
    },
)
