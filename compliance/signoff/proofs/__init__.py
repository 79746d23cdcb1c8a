"""Proofs on a leg, and on legs together. The rules of all of them stand here; what a finding is worth may be less."""

from compliance.finding import OURS, Row, Worth, declare

_LEG = "give the leg's own files, all of them as it left them; or run it again"
_IDLE = "run the legs again, one at a time on an idle machine, under the same conditions"
_ANSWERS = "run the accuracy leg again with the model as it is, and look at the answers"
_SYSTEM = "run performance and accuracy again with one system, as it is"


def _row(rule_id: str, severity: Worth, summary: str, fix: str = _LEG) -> Row:
    return rule_id, severity, OURS, summary, fix


declare(
    "signoff",
    (
        _row("P-2/joined_logs", "error", "a log is one log, written once by one process"),
        _row("P-2/patched_loadgen", "error", "LoadGen was built from unchanged sources"),
        _row("P-2/forged_log", "error", "a log names LoadGen's version and the hashes of its sources"),
        _row("P-2/foreign_sut", "error", "the system is one that was built through LoadGen's Python interface"),
        _row("P-4/record_incomplete", "error", "the record has every request"),
        _row("P-4/impossible_times", "error", "the times of a request are in an order that can be"),
        _row("P-4/other_limit", "error", "an answer that was cut at the limit is as long as the limit"),
        _row("P-4/silent_replica", "error", "every replica answered queries"),
        _row("P-5/same_process", "error", "each leg is a process of its own"),
        _row("P-6/not_loadgens_queries", "error", "the queries are those that the seeds give"),
        _row("P-6/not_loadgens_schedule", "error", "the queries came when the seed has them due"),
        _row("P-6/replayed", "note", "the queries were replayed from the seeds"),
        _row("P-7/no_engine_start", "error", "the engine printed its configuration"),
        _row("P-7/settings_contradict_record", "error", "LoadGen logged the settings that it was given"),
        _row("P-7/replicas_differ", "error", "every replica is the engine of the record"),
        _row("P-7/more_than_the_batch", "error", "no more requests are answered at a time than the engine computes"),
        _row("B-4/contended", "error", "nothing else used the machine", _IDLE),
        _row("B-4/contention_not_recorded", "note", "foreign CPU time is on record", _IDLE),
        _row("B-4/foreign_cpu", "note", "foreign CPU time", _IDLE),
        _row("B-4/issue_delay", "note", "how late LoadGen issued", _IDLE),
        _row("C-1/ids_outside_vocabulary", "error", "every id is one of the model's", _ANSWERS),
        _row("C-1/not_text", "error", "the answers are text", _ANSWERS),
        _row("C-1/text_not_seen", "note", "the tokenizer is at hand", _ANSWERS),
        _row("C-1/vocabulary_not_seen", "note", "the model is at hand", _ANSWERS),
        _row("H-2/other_prompts", "error", "prompts are as long as in the data set", _SYSTEM),
        _row("H-2/prompts_not_compared", "note", "the data set is at hand", _SYSTEM),
        _row("H-4/same_run_twice", "error", "two legs are two runs", _SYSTEM),
        _row(
            "H-5/replica_too_fast",
            "error",
            "no replica is faster than the others by more than its devices explain",
            _SYSTEM,
        ),
        _row("H-6/prefix_caching", "error", "no prompt comes from a cache", _SYSTEM),
    ),
)
