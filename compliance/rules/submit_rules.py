"""Rules of `submit`: what may enter a tree, beside the rules that `verify` and the sign-off hold each leg to."""

from compliance.rules.rule import Rule, catalogue

_RULES = "[rules] closed division"

SUBMIT_RULES: dict[str, Rule] = catalogue(
    "submit",
    (
        ("submit/leg-missing", "error", "[submission] layout", "each result has both legs", "run the missing leg"),
        ("submit/not-ours", "error", "[ours]", "a record tells how each leg was run", "give a run of this harness"),
        ("submit/no-verdict", "error", "[ours]", "the files of a leg are whole and agree", "run the leg again"),
        ("submit/not-official", "error", _RULES, "legs are official ones", "run it as an official one"),
        ("submit/seeds", "error", "[rules] seeds of the round", "the seeds are the round's", "choose the round"),
        ("submit/audit-missing", "error", "[rules] audits", "the audits of the benchmark are there", "run the audit"),
        ("submit/audit", "error", "[rules] audits", "audits pass when judged again", "run the audit again"),
        ("submit/one-configuration", "error", _RULES, "the legs of a result ran in one configuration",
         "run the legs again in one configuration"),
        ("submit/network", "error", "[rules] Network Division", "LoadGen reached the system as the division has it",
         "run the legs with --network-sut, or choose the division"),
        ("submit/prompt-reuse", "error", "[rules] caching", "prompts are seen not to be reused",
         "run the audit output_caching against the server"),
        ("submit/scenario-set", "error", "[checker] performance_check.scenarios_check",
         "a closed set of scenarios is complete", "run the missing scenario"),
        ("submit/one-system", "error", "[submission] systems", "all results are of one system",
         "submit results of one system"),
        ("submit/one-model", "error", _RULES, "all scenarios of a benchmark ran one model on one data set",
         "run all scenarios of a benchmark with one model and data set"),
        ("submit/calibration", "error", _RULES, "a document tells how the weights were quantised",
         "give it with --documentation"),
        ("submit/sign-off", "error", "[ours]", "the legs sign off together", "run what the sign-off names again"),
    ),
)  # fmt: skip
