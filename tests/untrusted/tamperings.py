"""All tamperings of a result, by subject."""

import re
import shutil
from collections.abc import Callable, Mapping

import orjson

from runs.loadgen.detail_log import read_detail
from runs.record.layout import RunDir
from tests.honest.pair import Pair
from tests.signoff.forge.faults import set_detail, set_manifest, set_summary, take
from tests.signoff.forge.rebuilt_faults import rebuild
from tests.signoff.forge.record_faults import each_record
from tests.untrusted.tampering import (
    ACCURACY,
    BOTH,
    PERFORMANCE,
    Json,
    each_line,
    edit,
    of_both,
    put,
    tampering,
    values,
)

# Left out, empty, or of another kind: what is not there must not switch its check off.

WEIGHTS = {
    "files": 4, "tensors": 291, "parameters": 8030261248, "dtypes": {"BF16": 8030261248}, "precision": "bfloat16",
    "quantized": False, "sparse": False, "shape": {"hidden_size": 4096}, "headers_sha256": "ab" * 32,
}  # fmt: skip


@tampering()
def error_as_a_number(pair: Pair) -> None:
    """An error record whose flag is 1, not true."""

    def change(one: Json) -> Json:
        wrong = one["key"] == "power_begin"
        return one | {"metadata": one["metadata"] | {"is_error": 1}} if wrong else one

    each_line(pair.performance.detail, change)


values(
    {
        "engine-nobody-knows": {"plan.engine": "my-engine"},
        "replicas-that-were-not": {"replicas": [{"pid": 4242}]},
        "unofficial-for-a-blank": {"unofficial_reasons": [" "]},
        "a-commit-in-words": {"observed.harness.git_commit": "unknown"},
        "model-of-an-engine-without-one": {
            "observed.model.weights": WEIGHTS,
            "observed.model.sha256": {"model.safetensors": "ab" * 32},
        },
        "engine-without-configuration": {"engine.configuration": {}},
        "warm-up-below-nothing": {"engine.warm_up": {"prompts": -1}},
        "patience-below-nothing": {"plan.stall_timeout_s": -1.0},
        "an-error-of-a-finished-leg": {"error": {"message": "x"}},
    },
    "manifest.json",
    BOTH,
)


# A record with wrong contents, and files that two readers would read in two ways.

_COMPRESSED = {"mechanism": "kv_compression", "mechanism_variant": "h2o"}

values(
    {
        "longest-prompt-of-another-data-set": {"plan.longest_prompt_tokens": 4000},
    },
    "manifest.json",
    BOTH,
)
values(
    {
        "answers-shorter-than-was-asked-for": {
            "asked.sampling_arg": {"min_tokens": 100},
            "plan.sampling.min_tokens": 100,
        },
    },
    "manifest.json",
    BOTH,
    by="requests.jsonl",
)
values(
    {
        "technique-of-one-leg": {"asked.mechanism": _COMPRESSED},
        "harness-of-one-leg": {"observed.harness.version": "9.9.9"},
        "engine-versions-of-one-leg": {"engine.versions": {"dummy": "2"}},
    },
    "manifest.json",
    PERFORMANCE,
    by="",
)


def _texts(table: Mapping[str, tuple[str, str]], file: str, scenario: str = "Server") -> None:
    """Another text in a file of both legs: what is found by a pattern, replaced."""
    for name, (found, new) in table.items():

        def change(run: RunDir, found: str = found, new: str = new) -> None:
            path = run.root / file
            if path.is_file():
                path.write_text(re.sub(found, new, path.read_text(), count=1))

        of_both(name, change, scenario, by=file)


_texts(
    {
        "conf-without-minimum-duration": (r"\*\.Server\.min_duration.*\n", ""),
        "conf-with-fewer-queries": (r"\Z", "*.Server.min_query_count = 1\n"),
        "conf-with-coalescing": (r"\Z", "*.Server.coalesce_queries = 1\n"),
        "conf-with-asynchronous-queries": (r"\Z", "*.Server.max_async_queries = 1\n"),
        "conf-with-another-percentile": (r"\Z", "*.Server.target_latency_percentile = 50\n"),
        "conf-with-answers-logged": (r"\Z", "*.*.accuracy_log_sampling_target = 100\n"),
    },
    "user.conf",
)
of_both("answers-that-were-given-up", lambda run: each_record(run, lambda one: one | {"finish_reason": "abort"}))


@tampering(by="mlperf_log_detail.txt")
def sources_of_another_loadgen(pair: Pair) -> None:
    for run in pair.legs:
        set_detail(run, "loadgen_file_sha1", {"/loadgen.cc": "0" * 40})


@tampering()
def a_changed_harness_in_one_leg(pair: Pair) -> None:
    edit(pair.performance.manifest, lambda content: put(content, "observed.harness.git_changed", None))


@tampering(by="requests.jsonl")
def an_answer_hashed_by_nothing(pair: Pair) -> None:
    each_record(pair.performance, lambda one: one | {"output_sha256": "z" * 64} if one["seq"] == 5 else one)


@tampering()
def one_first_token_left_out(pair: Pair) -> None:
    """Which left the statistics of all others uncompared."""
    each_record(pair.performance, lambda one: one | {"first_token_ns": None} if one["seq"] == 5 else one)


@tampering()
def a_value_twice_in_the_log(pair: Pair) -> None:
    text = pair.performance.detail.read_text()
    pair.performance.detail.write_text(re.sub(r'("key": ?"result_validity", ?)', r'\1"value": "INVALID", ', text))


@tampering("Offline")
def a_key_twice_among_the_answers(pair: Pair) -> None:
    log = pair.accuracy.accuracy_log
    log.write_bytes(log.read_bytes().replace(b'"qsl_idx"', b'"qsl_idx" : 1, "qsl_idx"', 1))


@tampering()
def a_second_summary_behind_the_first(pair: Pair) -> None:
    pair.performance.summary.write_text(pair.performance.summary.read_text() * 2)


@tampering("Offline", covered=False)
def record_of_the_scores_gone(pair: Pair) -> None:
    pair.accuracy.accuracy_json.unlink()


# Files of other legs, scores that nobody scored, and forgeries that agree over several files.


@tampering()
def legs_exchanged(pair: Pair) -> None:
    """The accuracy leg's record beside the performance leg's logs."""
    take(pair.performance, pair.accuracy, "manifest.json", "requests.jsonl", "progress.json")


@tampering()
def user_conf_of_another_rate(pair: Pair) -> None:
    """The configuration that is submitted is not the one that LoadGen ran with."""
    text = pair.performance.user_conf.read_text()
    pair.performance.user_conf.write_text(text.replace("*.Server.target_qps = 400", "*.Server.target_qps = 4000"))


@tampering()
def user_conf_of_a_shorter_run(pair: Pair) -> None:
    text = pair.performance.user_conf.read_text()
    pair.performance.user_conf.write_text(text.replace("*.Server.min_duration = 1500", "*.Server.min_duration = 15"))


@tampering()
def user_conf_emptied(pair: Pair) -> None:
    pair.performance.user_conf.write_text("")


@tampering(covered=False, sealed=False)
def seal_of_the_other_leg(pair: Pair) -> None:
    shutil.copy(pair.accuracy.seal, pair.performance.seal)


# Scores ---------------------------------------------------------------------------------------------------------------


def _raised(run: RunDir) -> None:
    run.accuracy_text.write_text(run.accuracy_text.read_text().replace("'rouge1': ", "'rouge1': 4"))
    if run.accuracy_json.is_file():
        run.accuracy_json.unlink()


@tampering("Offline")
def scores_raised_and_the_data_set_gone(pair: Pair) -> None:
    for run in pair.legs:
        set_manifest(run, "plan.dataset_path", "/data/cnn_eval.json")
        set_manifest(run, "plan.dataset_sha256", "0" * 64)
    _raised(pair.accuracy)


@tampering("Offline")
def scores_raised_and_the_model_gone(pair: Pair) -> None:
    for run in pair.legs:
        set_manifest(run, "plan.model_path", "/data/model")
    _raised(pair.accuracy)


@tampering("Offline")
def scores_raised_and_the_log_cut(pair: Pair) -> None:
    """As the official tool cuts it, with a hash that fits what it says."""
    _raised(pair.accuracy)
    content = pair.accuracy.accuracy_log.read_bytes()
    pair.accuracy.accuracy_log.write_bytes(content[:4096] + b"\n\n...\n\n" + content[-4096:])


@tampering("Offline")
def scores_raised(pair: Pair) -> None:
    _raised(pair.accuracy)


@tampering("Offline")
def accuracy_text_with_two_scores(pair: Pair) -> None:
    text = pair.accuracy.accuracy_text
    text.write_text(text.read_text() + "{'rouge1': 44.4, 'rouge2': 22.2, 'rougeL': 28.1}\n")


# Forgeries that agree -------------------------------------------------------------------------------------------------


@tampering("Offline")
def longer_outputs(pair: Pair) -> None:
    """A tenth more tokens a second, in record, heartbeat and LoadGen's results."""
    run = pair.performance
    each_record(run, lambda one: one | {"output_tokens": min(128, one["output_tokens"] + 9)})
    rebuild(run, 1)


@tampering()
def a_higher_rate_in_log_summary_and_settings(pair: Pair) -> None:
    run = pair.performance
    for key in ("effective_target_qps", "requested_server_target_qps"):
        set_detail(run, key, 440.0)
    set_summary(run, "target_qps", "440")


@tampering()
def prompts_of_another_length(pair: Pair) -> None:
    each_record(pair.performance, lambda one: one | {"prompt_tokens": 900})


@tampering()
def half_of_the_answers_invented(pair: Pair) -> None:
    run = pair.performance
    each_record(run, lambda one: one | {"output_sha256": "ab" * 32} if one["seq"] % 2 else one)


@tampering()
def official_after_all(pair: Pair) -> None:
    for run in pair.legs:
        set_manifest(run, "official", True)
        set_manifest(run, "unofficial_reasons", [])


# Several engines behind one LoadGen, queries held back, and a vLLM by its own log.

REPLICAS, HELD_BACK, VLLM = "Server --replicas 2", "Server --admission shortest", "vllm"

values(
    {
        f"replica-{name}": {f"replicas.1.{field}": value}
        for name, field, value in (("with-other-weights", "weights_sha256", {"model.safetensors": "0" * 64}),)
    }
    | {
        "replicas-on-a-node-that-there-is-not": {"plan.replicas.places.1.node": 3},
    },
    "manifest.json",
    BOTH,
    REPLICAS,
)
values(
    {
        "order-that-there-is-not": {"plan.admission.policy": "magic", "asked.admission": "magic"},
        "order-left-out": {"plan.admission": {}},
    },
    "manifest.json",
    BOTH,
    HELD_BACK,
)
values(
    {"held-back-in-one-leg": {"plan.admission": None, "asked.admission": "off"}},
    "manifest.json",
    ACCURACY,
    HELD_BACK,
    by="",
)
_CONFIGURATION = "engine.configuration"
values(
    {
        "vllm-without-a-batch": {f"{_CONFIGURATION}.max_num_seqs": ...},
    },
    "manifest.json",
    BOTH,
    VLLM,
)


# LoadGen's own results made a little better in both of its logs, and times made shorter in all files but one.

SLOW = "Server --dummy-tpot-ms 2"
_PRINTED = {
    "result_completed_samples_per_sec": "Completed samples per second",
    "result_completed_tokens_per_second": "Completed tokens per second",
    "result_qps_with_loadgen_overhead": "QPS w/ loadgen overhead",
    "result_token_throughput_with_loadgen_overhead": "TPS w/ loadgen overhead",
}


def _raise(run: RunDir, share: float, *keys: str) -> None:
    """Rates of both logs, by so much."""
    logged = read_detail(run.detail).values
    for key in keys:
        rate = float(f"{logged[key] * share:.6g}")
        set_detail(run, key, rate)
        pattern = rf"(?m)^({re.escape(_PRINTED[key])}\s*: ).*$"
        run.summary.write_text(re.sub(pattern, rf"\g<1>{rate:.2f}", run.summary.read_text()))


@tampering(by="mlperf_log_detail.txt")
def completed_rates_half_a_percent_higher(pair: Pair) -> None:
    _raise(pair.performance, 1.005, "result_completed_samples_per_sec", "result_completed_tokens_per_second")


@tampering("SingleStream", by="mlperf_log_detail.txt")
def rates_of_a_single_stream_half_a_percent_higher(pair: Pair) -> None:
    keys = [key for key in _PRINTED if key in read_detail(pair.performance.detail).values]
    _raise(pair.performance, 1.005, *keys)


def _told_as(scenario: str, key: str) -> Callable[[RunDir], None]:
    """A leg under the limits of another scenario, which LoadGen both calls Server."""

    def change(run: RunDir) -> None:
        edit(run.manifest, lambda content: put(content, "asked.scenario", scenario))
        edit(run.manifest, lambda content: put(content, "plan.loadgen_key", key))
        edit(run.progress, lambda content: put(content, "scenario", scenario))

    return change


of_both("server-told-as-interactive", _told_as("Interactive", "llama3_1-8b-interactive"), by="user.conf")
of_both("interactive-told-as-server", _told_as("Server", "llama3_1-8b"), "Interactive", by="user.conf")


@tampering("Offline", by="mlperf_log_accuracy.json")
def answers_without_token_counts(pair: Pair) -> None:
    log = pair.accuracy.accuracy_log
    log.write_text(re.sub(r', ?"token_count" ?: ?\d+', "", log.read_text()))


# Logs in another form than LoadGen's, lines that it never writes, answers given to it otherwise than recorded.

_SUMMARY, _ANSWERS = "mlperf_log_summary.txt", "mlperf_log_accuracy.json"


def _summary(change: Callable[[str], str], name: str, leg: int, scenario: str = "Server") -> None:
    @tampering(scenario, by=_SUMMARY, name=name)
    def changed(pair: Pair) -> None:
        path = pair.legs[leg].summary
        path.write_text(change(path.read_text()))


_summary(lambda text: f"{text}7 warnings encountered. See detailed log.\n", "summary-of-the-answers-with-a-warning", 1)
_summary(lambda text: text.replace("400", "４００"), "summary-in-other-digits", 0)
_summary(lambda text: re.sub(r"(Min latency \(ns\)\s+: )", r"\1+", text), "summary-with-a-sign", 0)
_summary(lambda text: re.sub(r"(Max latency \(ns\)\s+: \d\d)", r"\1_", text), "summary-with-a-stroke", 0)


# What LoadGen was told of the answers ---------------------------------------------------------------------------------


def _entries(change: Callable[[Json], Json], name: str, scenario: str) -> None:
    @tampering(scenario, by=_ANSWERS, name=name)
    def changed(pair: Pair) -> None:
        log = pair.accuracy.accuracy_log
        log.write_bytes(orjson.dumps([change(entry) for entry in orjson.loads(log.read_bytes())]))


_entries(lambda one: one | {"token_data": "7A000000"}, "first-tokens-of-other-answers", "Server")
_entries(lambda one: one | {"token_data": ""}, "first-tokens-of-nothing", "SingleStream")
_entries(lambda one: one | {"token_data": one["data"]}, "first-tokens-that-are-answers", "Interactive")
_entries(lambda one: one | {"token_data": one["data"][:8]}, "first-tokens-that-nobody-asked-for", "Offline")
_entries(
    lambda one: {name: value for name, value in one.items() if name != "token_data"}, "first-tokens-left-out", "Server"
)


@tampering("Offline", by=_ANSWERS)
def more_tokens_than_ids_in_both_legs(pair: Pair) -> None:
    """Which made the rate higher in all files but the log of the answers."""
    for run in pair.legs:
        each_record(run, lambda one: one | {"output_tokens": min(one["output_tokens"] + 6, 128)})
    rebuild(pair.performance, 1)
