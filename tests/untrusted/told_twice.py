"""Told twice: what one file has of another, or of itself."""

import re
from collections.abc import Mapping

from runs.record.layout import RunDir
from tests.honest.pair import Pair
from tests.signoff.forge.faults import set_detail, set_manifest
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

_LONGEST = ("resolved.longest_prompt_tokens", "dataset.longest_prompt_tokens")
_COMPRESSED = {"mechanism": "kv_compression", "mechanism_variant": "h2o"}

values(
    {
        "nothing-was-asked-for": {"asked": {}},
        "another-scenario-was-asked-for": {"asked.scenario": "Offline"},
        "other-sampling-was-asked-for": {"asked.sampling_arg": {"temperature": 1.0}},
        "sampling-that-nobody-asked-for": {"resolved.sampling.temperature": 1.0, "resolved.sampling.top_k": 50},
        "another-engine-was-asked-for": {"asked.engine": "vllm"},
        "another-benchmark-was-asked-for": {"asked.lg_model_name": "llama3_1-8b-edge"},
        "another-model-was-asked-for": {"asked.model_path": "meta-llama/Llama-3.1-8B-Instruct"},
        "another-rate-was-asked-for": {"asked.target_qps": 9999.0},
        "a-technique-that-nobody-asked-for": {"mechanism.mechanism": "kv_compression"},
        "data-set-in-another-place": {"dataset.path": "/data/cnn_eval.json"},
        "longest-prompt-of-another-data-set": dict.fromkeys(_LONGEST, 4000),
        "model-by-another-name": {"model.name": "meta-llama/Llama-3.1-8B-Instruct"},
        "model-in-another-folder": {"model.folder": "/data/Llama-3.1-8B-Instruct"},
        "model-of-a-revision": {"model.revision": "0e9e39f249a16976918f6564b8830bc894c89659"},
        "software-of-another-loadgen": {"software.mlcommons-loadgen": "9.9"},
        "engine-asked-for-other-options": {"engine.asked.tpot_ms": 99.0},
        "queries-timed-by-another-engine": {"observed.engine": {"query_times": {"queries": 5}}},
        "settings-of-tokens-inferred": {"loadgen_settings.infer_token_latencies": True},
        "settings-of-other-seeds": {"loadgen_settings.test05": True},
        "warm-up-that-was-not": {"resolved.warmup_prompts": 4000},
        "graphs-that-nothing-made": {"resolved.compiles": True},
        "variables-of-another-engine": {"engine.configuration.environment": {"MY_CACHE": "1"}},
        "lag-longer-than-the-leg": {"observed.loop_lag.worst_ms": 1e9},
        "start-of-years": {"observed.start_stages": {"loading weights": 1e9}},
        "cores-busier-than-they-are": {
            f"observed.contention.{name}_cpu_s": seconds
            for name, seconds in (("busy", 1e5), ("own", 1e5), ("foreign", 0.0))
        },
    },
    "manifest.json",
    BOTH,
)
values(
    {"a-trace-that-nobody-asked-for": {"resolved.trace": False, "asked.enable_log_trace": None}},
    "manifest.json",
    BOTH,
    "Server --enable-log-trace",
    by="mlperf_log_trace.json",
)
values(
    {
        "settings-of-another-mode": {"loadgen_settings.mode": "SubmissionRun"},
        "settings-with-another-limit": {"loadgen_settings.ttft_latency": 10**12},
        "settings-with-one-of-its-own": {"loadgen_settings.server_magic": 1},
    },
    "manifest.json",
    BOTH,
    by="mlperf_log_detail.txt",
)
values(
    {
        "answers-shorter-than-was-asked-for": {
            "asked.sampling_arg": {"min_tokens": 100},
            "resolved.sampling.min_tokens": 100,
        },
    },
    "manifest.json",
    BOTH,
    by="requests.jsonl",
)
values(
    {
        "technique-of-one-leg": dict.fromkeys(("mechanism", "asked.mechanism"), _COMPRESSED),
        "harness-of-one-leg": {"harness.version": "9.9.9"},
        "engine-versions-of-one-leg": {"engine.versions": {"dummy": "2"}},
    },
    "manifest.json",
    PERFORMANCE,
    by="",
)
values(
    {
        "heartbeat-that-expected-others": {"expected": 10**6},
        "heartbeat-that-expected-nothing": {"expected": None},
        "heartbeat-with-another-limit": {"ttft_limit_ms": 1e9},
        "heartbeat-without-limits": {"ttft_limit_ms": None, "tpot_limit_ms": None},
        "heartbeat-of-a-shorter-run": {"min_duration_s": 0.001},
        "heartbeat-of-a-start": {"stage": "loading weights"},
        "heartbeat-of-another-lag": {"loop_lag.worst_ms": 1e6},
        "heartbeat-of-an-hour": {"elapsed_s": 3600.0},
        "heartbeat-before-the-answers": {"time_ns": 1},
        "heartbeat-with-a-rate-of-its-own": {"samples_per_second": 9e5},
    },
    "progress.json",
    PERFORMANCE,
)
values(
    {
        "result-with-reasons": {"reasons": ["the machine was slow"]},
        "result-of-another-lag": {"loop_lag.worst_ms": 1e6},
        "result-without-lag": {"loop_lag": None},
        "result-with-numbers-in-words": {"counts.samples": "640"},
    },
    "result.json",
    PERFORMANCE,
)
values(
    {
        "scores-that-passed": {"passed": True},
        "scores-with-a-target": {"target": {"rouge1": 1.0}},
        "scores-with-a-check": {"checks": [{"name": "rouge1", "measured": 1, "low": 1, "high": None, "passed": True}]},
        "scores-by-another-metric": {"metric": "accuracy"},
        "scores-with-a-field-of-their-own": {"reviewed": True},
        "scores-with-one-left-out": {"scores.rouge1": ...},
        "scores-emptied": {"scores": {}},
    },
    "accuracy.json",
    ACCURACY,
    "Offline",
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
        "conf-with-a-mode": (r"\Z", "*.*.mode = 2\n"),
        "conf-with-tokens-inferred": (r"\Z", "*.*.infer_token_latencies = 1\n"),
    },
    "user.conf",
)
_texts({"accuracy-text-with-a-verdict": (r"\Z", "accuracy: 99.99 TEST PASS\n")}, "accuracy.txt", "Offline")
_texts(
    {
        "summary-with-warnings": ("No warnings", "12 warnings"),
        "summary-with-a-better-number": (r"\Z", "Completed tokens per second (peak) : 99999\n"),
        "summary-without-parameters": (r"(?s)Test Parameters Used.*(?=\nNo warnings)", ""),
        "summary-without-conditions": (r"  Min queries satisfied ?: \w+\n", ""),
    },
    "mlperf_log_summary.txt",
)
of_both("answers-that-were-given-up", lambda run: each_record(run, lambda one: one | {"finish_reason": "abort"}))


@tampering(by="mlperf_log_summary.txt")
def a_warning_in_one_log(pair: Pair) -> None:
    def change(one: Json) -> Json:
        warned = one["key"] == "generic_message"
        return one | {"metadata": one["metadata"] | {"is_warning": True}} if warned else one

    each_line(pair.performance.detail, change)


@tampering(by="mlperf_log_summary.txt")
def summary_without_the_permutation(pair: Pair) -> None:
    """Which LoadGen tells of performance legs."""
    summary = pair.performance.summary
    summary.write_text(re.sub(r"(?s)WARNING: sample_conc.*?value\n", "", summary.read_text()))


@tampering(by="mlperf_log_detail.txt")
def sources_of_another_loadgen(pair: Pair) -> None:
    for run in pair.legs:
        set_detail(run, "loadgen_file_sha1", {"/loadgen.cc": "0" * 40})


@tampering(by="manifest.json")
def a_leg_that_started_itself(pair: Pair) -> None:
    for run in pair.legs:
        edit(run.manifest, lambda content: content.update(parent_pid=content["pid"]))


@tampering()
def a_changed_harness_in_one_leg(pair: Pair) -> None:
    edit(pair.performance.manifest, lambda content: put(content, "harness.git_changed", None))


@tampering(by="requests.jsonl")
def an_answer_hashed_by_nothing(pair: Pair) -> None:
    each_record(pair.performance, lambda one: one | {"output_sha256": "z" * 64} if one["seq"] == 5 else one)


@tampering()
def exit_code_of_an_invalid_leg(pair: Pair) -> None:
    set_manifest(pair.performance, "exit_code", 1)


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


@tampering(covered=False)
def another_count_in_the_result(pair: Pair) -> None:
    edit(pair.performance.result, lambda content: content["counts"].update(queries=9999))


@tampering(covered=False)
def other_tokens_in_the_result_of_the_answers(pair: Pair) -> None:
    edit(pair.accuracy.result, lambda content: content["tokens"].update(output_total=10**9))


@tampering("Offline", covered=False)
def scores_raised_in_the_record_alone(pair: Pair) -> None:
    edit(pair.accuracy.accuracy_json, lambda content: content["scores"].update(rouge1=44.0))


@tampering("Offline", covered=False)
def record_of_the_scores_gone(pair: Pair) -> None:
    pair.accuracy.accuracy_json.unlink()
