"""Rules of the independent sign-off: the id is its check (docs/signoff.md) and the kind of finding.

What a finding is worth may be less than its rule: the text of the check says when. `note` rules only tell.
"""

from collections.abc import Iterator

from compliance.rules.rule import Rule, Worth, catalogue

_FIXES = {
    "P": "give the leg's own files, all of them as it left them; or run it again",
    "B": "run the legs again, one at a time on an idle machine, under the same conditions",
    "C": "run the accuracy leg again with the model as it is, and look at the answers",
    "G": "correct the claim, or run reference and candidate again with one change between them",
    "H": "run performance and accuracy again with one system, as it is",
    "M": "correct the claim, or run the legs again with --enable-log-trace",
}

# (check, [(kind of finding, severity, summary)])
_ROWS: tuple[tuple[str, tuple[tuple[str, Worth, str], ...]], ...] = (
    ("P-1", (
        ("missing_raw", "error", "every raw file is there"),
        ("damaged_raw", "error", "every raw file can be read"),
        ("null_metric", "error", "every number is there"),
    )),
    ("P-2", (
        ("joined_logs", "error", "a log is one log, written once by one process"),
        ("patched_loadgen", "error", "LoadGen was built from unchanged sources"),
        ("forged_log", "error", "a log names LoadGen's version and the hashes of its sources"),
        ("foreign_sut", "error", "the system is one that was built through LoadGen's Python interface"),
        ("loadgen_errors", "error", "LoadGen logged no error"),
    )),
    ("P-3", (("reported_vs_raw_mismatch", "error", "reported numbers follow from the raw files"),)),
    ("P-4", (
        ("answers_differ", "error", "the logged answers are those of the record"),
        ("answers_missing", "error", "every sample has one answer"),
        ("token_counts", "error", "each answer has as many ids as were counted"),
        ("record_incomplete", "error", "the record has every request"),
        ("tokens_changed", "error", "one answer has one length, one sample one prompt"),
        ("impossible_times", "error", "the times of a request are in an order that can be"),
        ("record_made_to_fit", "error", "times were read from a clock, not computed"),
        ("coarse_stamps", "warning", "stamps have the digits of the clock"),
        ("stamps_differ", "error", "our stamps lie inside LoadGen's, and near them"),
        ("stamps_far_apart", "warning", "no single stamp lies far from LoadGen's"),
        ("record_contradicts_loadgen", "error", "no statistic of the record exceeds LoadGen's"),
        ("heartbeat_differs", "error", "the last heartbeat counted the same requests"),
        ("other_limit", "error", "an answer that was cut at the limit is as long as the limit"),
        ("silent_replica", "error", "every replica answered queries"),
    )),
    ("P-5", (
        ("changed_after_the_run", "error", "the files are those that the leg left"),
        ("foreign_file", "error", "all files are of one leg"),
        ("clock", "error", "all clocks tell of one time"),
        ("same_process", "error", "each leg is a process of its own"),
    )),
    ("P-6", (
        ("not_loadgens_queries", "error", "the queries are those that the seeds give"),
        ("not_loadgens_schedule", "error", "the queries came when the seed has them due"),
        ("replayed", "note", "the queries were replayed from the seeds"),
    )),
    ("P-7", (
        ("no_engine_start", "error", "the engine printed its configuration"),
        ("engine_contradicts_record", "error", "the recorded configuration is the engine's own"),
        ("settings_contradict_record", "error", "LoadGen logged the settings that it was given"),
        ("other_model", "error", "the engine loaded the model of the record"),
        ("mechanism_misdeclared", "error", "the declared technique is the one in force"),
        ("replicas_differ", "error", "every replica is the engine of the record"),
        ("more_than_the_batch", "error", "no more requests are answered at a time than the engine computes"),
    )),
    ("B-1", (
        ("too_few_repeats", "error", "a baseline has two repeats"),
        ("noisy_baseline", "warning", "repeats lie within three noise bands"),
        ("steady", "note", "repeats lie within the noise band"),
        ("spread", "note", "repeats lie within three noise bands"),
    )),
    ("B-2", (
        ("warmup_outlier", "warning", "the first repeat is like the others"),
        ("outlier", "warning", "each repeat is like the others"),
    )),
    ("B-3", (
        ("not_valid", "error", "LoadGen calls each leg VALID"),
        ("audit_settings", "error", "a leg is a normal run"),
        ("cut_short", "error", "a leg is not cut short"),
        ("other_conditions", "error", "repeats ran under the same conditions"),
        ("other_harness", "warning", "one version of the harness made all legs"),
    )),
    ("B-4", (
        ("contended", "error", "nothing else used the machine"),
        ("contention_not_recorded", "note", "foreign CPU time is on record"),
        ("foreign_cpu", "note", "foreign CPU time"),
        ("issue_delay", "note", "how late LoadGen issued"),
    )),
    ("B-6", (("baseline_imperfect", "warning", "repeats are steady after measuring again"),)),
    ("C-1", (
        ("unverifiable_noncoherent_reference", "error", "the reference's answers make sense"),
        ("ids_outside_vocabulary", "error", "every id is one of the model's"),
        ("not_text", "error", "the answers are text"),
        ("coherence_not_seen", "warning", "the reference has an accuracy leg"),
        ("no_reference_scores", "note", "there are reference scores"),
        ("not_scored_again", "error", "the answers were scored again"),
        ("text_not_seen", "note", "the tokenizer is at hand"),
        ("vocabulary_not_seen", "note", "the model is at hand"),
    )),
    ("C-2", (("byte_parity_pass", "note", "the answers are the reference's, byte by byte"),)),
    ("C-3", (
        ("accuracy_gate_fail", "error", "the candidate's own scores pass"),
        ("accuracy_gate_pass", "note", "the candidate's own scores pass"),
        ("diverges_needs_accuracy_probe", "error", "a candidate with other answers has an accuracy leg"),
    )),
    ("C-4", (("padded_outputs", "error", "outputs have as many ids as their text needs"),)),
    ("G-1", (
        ("confounded", "error", "reference and candidate differ in options alone"),
        ("several_levers", "error", "a patch changes one lever"),
        ("second_knob", "error", "nothing differs beside the lever"),
        ("unproven_side_effect", "error", "a side effect is shown to be without effect"),
        ("side_effect_not_told", "warning", "a claim tells of side effects"),
        ("inert_side_effect", "note", "a side effect without effect"),
        ("handicapped_reference", "warning", "the reference was not slowed"),
    )),
    ("G-2", (("claim_vs_raw", "warning", "claimed numbers are those of the raw files"),)),
    ("G-3", (
        ("baseline_drift", "error", "the reference is still the baseline that was signed off"),
        ("no_drift", "note", "the reference is the baseline that was signed off"),
        ("no_earlier_baseline", "note", "a baseline was given that was measured before"),
    )),
    ("G-4", (
        ("missing_raw", "error", "both sides have a performance leg"),
        ("too_few_repeats", "error", "both sides have two repeats"),
        ("no_real_gain", "error", "the gain is more than the noise band"),
        ("overlap", "error", "the worst candidate is better than the best reference"),
        ("real_gain", "note", "the gain is real"),
    )),
    ("G-5", (
        ("no_op", "error", "the lever is in force in the candidate alone"),
        ("engaged", "note", "the lever is in force in the candidate alone"),
    )),
    ("G-6", (
        ("hidden_regression", "warning", "no other metric got much worse"),
        ("cherry_picked", "error", "not only the better number is told"),
    )),
    ("G-8", (
        ("unknown_lever", "error", "the class of the lever is known"),
        ("not_a_kernel_gain", "warning", "a faster kernel is claimed for kernels alone"),
        ("needs_quality_gate", "note", "the lever also needs the gate on quality"),
    )),
    ("G-9", (
        ("missing_patch_verdict", "error", "each lever of a bundle has a verdict that holds"),
        ("unexplained_delta", "warning", "the levers explain the whole gain"),
        ("explained", "note", "the levers explain the whole gain"),
    )),
    ("G-10", (("crashed", "error", "leg and engine lived to their end"),)),
    ("G-11", (
        ("isolated_only", "error", "a gain in isolation is one end to end"),
        ("isolated_headline", "warning", "the headline is end to end"),
    )),
    ("G-12", (
        ("missing_raw", "error", "the tree holds the logs of its legs"),
        ("foreign_file", "error", "the tree's logs are those of the legs"),
        ("tree_of_these_legs", "note", "the tree's logs are those of the legs"),
    )),
    ("H-1", (
        ("missing_raw", "error", "there is a leg of each mode"),
        ("other_path", "error", "both modes ran alike"),
        ("other_answers", "error", "both modes gave the same answers"),
        ("output_consistency", "note", "both modes gave the same answers"),
    )),
    ("H-2", (
        ("not_representative", "error", "every loaded sample was issued, equally often"),
        ("other_prompts", "error", "prompts are as long as in the data set"),
        ("prompts_not_compared", "note", "the data set is at hand"),
    )),
    ("H-3", (("other_model_or_data", "error", "both modes ran one model on one data set"),)),
    ("H-4", (("same_run_twice", "error", "two legs are two runs"),)),
    ("H-5", (
        ("cached_answers", "error", "repeated samples cost as much as new ones"),
        ("no_time_for_prompt", "error", "the first token takes as long as one step of the model"),
        ("first_tokens_held", "error", "first tokens are told when they are there"),
        ("replica_too_fast", "error", "no replica is faster than the others by more than its devices explain"),
        ("canned_answers", "error", "different samples have different answers"),
        ("reference_texts", "error", "the answers are the model's own"),
        ("other_answers", "error", "repetitions have the answer of the first time"),
        ("caching_audit_absent", "warning", "something shows that an answer costs as much the second time"),
        ("caching_audit_failed", "error", "the audit of output caching passes"),
        ("caching_audit_forged", "error", "the audit of output caching can be judged again, and is of this system"),
        ("caching_audited", "note", "the audit of output caching passes"),
        ("caching_not_seen", "note", "there are repetitions enough to see a cache"),
        ("repetitions_cost", "note", "repetitions cost as much as new samples"),
    )),
    ("H-6", (
        ("not_official", "error", "a leg that claims to be official keeps the official rules"),
        ("prefix_caching", "error", "no prompt comes from a cache"),
    )),
    ("H-7", (
        ("other_length", "error", "outputs are as long as in the accuracy leg"),
        ("output_length", "note", "outputs are as long as in the accuracy leg"),
    )),
    ("H-8", (("faster_than_accuracy", "error", "performance is no faster than accuracy at the same load"),)),
    ("H-9", (
        ("several_systems", "error", "all legs of a bundle are of one system"),
        ("far_apart", "error", "the legs of a bundle are of one time"),
    )),
    ("M-1", (
        ("unattributed", "warning", "a request's time can be taken apart"),
        ("phases", "note", "where a request's time goes"),
    )),
    ("M-2", (
        ("phase_not_shown", "warning", "there are phases to compare"),
        ("wrong_phase", "warning", "the claimed phase became shorter"),
        ("phase_confirmed", "note", "the claimed phase became shorter"),
    )),
)  # fmt: skip


def _rows() -> Iterator[tuple[str, Worth, str, str, str]]:
    for check, kinds in _ROWS:
        for slug, severity, summary in kinds:
            yield f"{check}/{slug}", severity, "[ours]", summary, _FIXES[check[0]]


SIGNOFF_RULES: dict[str, Rule] = catalogue("signoff", _rows())
