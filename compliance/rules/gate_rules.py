"""Criteria of the gate on declared techniques (docs/mechanisms.md). A finding is an error where evidence refutes the
declaration, and a warning where it only lacks."""

from compliance.rules.rule import Rule, catalogue

_DECLARE = "correct the declaration, or run the legs again with the technique that it names"

GATE_RULES: dict[str, Rule] = catalogue(
    "gate",
    (
        ("gate/pair_registered", "warning", "[ours]", "technique and variant are in the registry", _DECLARE),
        ("gate/status_known", "warning", "[ours]", "both statuses are of their list", _DECLARE),
        ("gate/quality_evaluated", "warning", "[ours]", "a supported compression has a registered evaluation",
         "evaluate the quality of the technique, and name the evaluation"),
        ("gate/draft_model_declared", "warning", "[ours]", "speculative decoding names its draft model", _DECLARE),
        ("gate/mechanism_misdeclared", "error", "[ours]", "the engine's own record agrees with the declaration",
         _DECLARE),
        ("gate/completed_evaluation_passes", "error", "[ours]", "a completed evaluation passes when derived again",
         "give the accuracy leg as it ran, or run it again"),
        ("gate/eligible_in_division", "error", "[rules] closed and open division", "the division allows the technique",
         "choose the open division, or run without the technique"),
        ("gate/run_verified", "error", "[ours]", "the files are a finished run that agrees with itself",
         "run the leg again"),
        ("gate/engine_record_missing", "warning", "[ours]", "the engine's record says what was in force",
         "run the leg again with an engine that tells"),
    ),
)  # fmt: skip
