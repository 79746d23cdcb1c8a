"""Left out, null, empty, of another type: what is not there must not switch its check off."""

import orjson

from runs.files import write_json
from tests.honest.pair import Pair
from tests.signoff.forge.faults import cover, set_detail, set_manifest
from tests.signoff.forge.rebuilt_faults import beat
from tests.signoff.forge.record_faults import each_record
from tests.untrusted.tampering import (
    BOTH,
    PERFORMANCE,
    TAMPERINGS,
    Change,
    Json,
    Tampering,
    each_line,
    faster,
    heartbeat,
    tampering,
    values,
)

WEIGHTS = {
    "files": 4, "tensors": 291, "parameters": 8030261248, "dtypes": {"BF16": 8030261248}, "precision": "bfloat16",
    "quantized": False, "sparse": False, "shape": {"hidden_size": 4096}, "headers_sha256": "ab" * 32,
}  # fmt: skip


@tampering(covered=False)
def heartbeat_of_another_phase(pair: Pair) -> None:
    faster(pair.performance)
    cover(pair.performance)
    heartbeat(pair.performance, phase="closing")


@tampering(covered=False)
def heartbeat_without_percentiles(pair: Pair) -> None:
    faster(pair.performance)
    cover(pair.performance)
    heartbeat(pair.performance, ttft_p99_ms=None, tpot_p99_ms=None)


@tampering(covered=False)
def heartbeat_without_rates(pair: Pair) -> None:
    faster(pair.performance)
    cover(pair.performance)
    heartbeat(pair.performance, ttft_p99_ms=None, tpot_p99_ms=None, samples_per_second=0.0, elapsed_s=0.0)


@tampering(covered=False)
def heartbeat_that_is_no_json(pair: Pair) -> None:
    faster(pair.performance)
    cover(pair.performance)
    pair.performance.progress.write_text("running")


@tampering(covered=False)
def heartbeat_gone(pair: Pair) -> None:
    faster(pair.performance)
    cover(pair.performance)
    pair.performance.progress.unlink()


def _no_pid(record: Json) -> Json:
    record["metadata"].pop("pid", None)
    return record


@tampering()
def log_without_processes(pair: Pair) -> None:
    each_line(pair.performance.detail, _no_pid)


@tampering()
def log_with_processes_in_words(pair: Pair) -> None:
    each_line(pair.performance.detail, lambda one: one | {"metadata": one["metadata"] | {"pid": "1"}})


@tampering()
def half_of_the_log_without_processes(pair: Pair) -> None:
    count = [0]

    def change(record: Json) -> Json:
        count[0] += 1
        return _no_pid(record) if count[0] % 2 else record

    each_line(pair.performance.detail, change)


@tampering()
def log_with_a_clock_that_stands(pair: Pair) -> None:
    each_line(pair.performance.detail, lambda one: one | {"time_ms": 0.0})


@tampering()
def error_as_a_number(pair: Pair) -> None:
    """An error record whose flag is 1, not true."""

    def change(one: Json) -> Json:
        wrong = one["key"] == "power_begin"
        return one | {"metadata": one["metadata"] | {"is_error": 1}} if wrong else one

    each_line(pair.performance.detail, change)


@tampering(covered=False)
def hashes_left_out(pair: Pair) -> None:
    faster(pair.performance)
    beat(pair.performance)
    set_manifest(pair.performance, "observed.log_sha256", {})


@tampering(covered=False)
def one_hash_left_out(pair: Pair) -> None:
    cover(pair.performance)
    content = orjson.loads(pair.performance.manifest.read_bytes())
    del content["observed"]["log_sha256"]["mlperf_log_detail.txt"]
    write_json(pair.performance.manifest, content)


values(
    {
        "settings-left-out": {"loadgen_settings": {}},
        "prefix-caching-null": {"engine.prefix_caching": None},
        "prefix-caching-in-words": {"engine.prefix_caching": "off"},
        "cached-tokens-left-out": {"observed.cached_prompt_tokens": ...},
        "cached-tokens-in-words": {"observed.cached_prompt_tokens": "0"},
        "no-limit-on-tokens": {"resolved.sampling.max_tokens": ...},
        "sampling-in-words": {"resolved.sampling.temperature": "greedy"},
        "no-host": {"host": {}},
        "no-software": {"software": {}},
        "engine-nobody-knows": {"resolved.engine": "my-engine"},
        "benchmark-nobody-knows": {"resolved.loadgen_key": "my-llama"},
        "no-process": {"pid": None},
        "no-loop-lag": {"observed.loop_lag": {}},
        "contention-of-nothing": {"observed.contention": {}},
        "unknown-field": {"observed.verified_by": "MLCommons"},
        "replicas-that-were-not": {"replicas": [{"pid": 4242}]},
        "start-and-end-left-out": {"start_time_ns": None},
        "unofficial-without-reasons": {"unofficial_reasons": []},
        "unofficial-for-a-blank": {"unofficial_reasons": [" "]},
        "notes-emptied": {"notes": []},
        "declaration-emptied": {"mechanism": {}},
        "a-commit-in-words": {"harness.git_commit": "unknown"},
        "software-of-python-alone": {"software": {"python": "3.11.7"}},
        "model-of-an-engine-without-one": {"model.weights": WEIGHTS, "model.sha256": {"model.safetensors": "ab" * 32}},
        "engine-asked-for-nothing": {"engine.asked": {}},
        "engine-with-nothing-in-force": {"engine.in_force": {}},
        "engine-without-configuration": {"engine.configuration": {}},
        "warm-up-left-out": {"engine.warm_up": {}},
        "warm-up-below-nothing": {"engine.warm_up": {"prompts": -1}},
        "patience-below-nothing": {"resolved.stall_timeout_s": -1.0},
        "cores-that-there-are-not": {"observed.contention.usable_cores": 4096},
        "lag-below-its-p99": {"observed.loop_lag.worst_ms": 0.0},
        "connections-rejected-by-nobody": {"observed.rejected_connections": 5},
        "an-error-of-a-finished-leg": {"error": {"message": "x"}},
        "a-setting-left-out": {"loadgen_settings.server_max_async_queries": ...},
        "older-version-of-the-record": {"schema_version": 1},
    },
    "manifest.json",
    BOTH,
)
values(
    {
        "more-issued-than-answered": {"observed.samples_issued": 10**6},
    },
    "manifest.json",
    PERFORMANCE,
    "Offline",
)


def _without(key: str) -> Change:
    return lambda pair: set_detail(pair.performance, key, "-")


for _key in (
    "requested_max_duration_ms", "effective_max_duration_ms", "effective_test_mode", "effective_scenario",
    "effective_accuracy_log_sampling_target", "requested_server_target_qps", "requested_min_duration_ms",
    "early_stopping_met", "early_stopping_ttft_result", "result_overlatency_query_count",
    "result_token_throughput_with_loadgen_overhead", "loadgen_git_status_message", "qsl_reported_performance_count",
):  # fmt: skip
    TAMPERINGS.append(
        Tampering(f"log-without-{_key.replace('_', '-')}", "Server", _without(_key), by="mlperf_log_detail.txt")
    )


def _null(key: str) -> Change:
    def change(pair: Pair) -> None:
        for run in pair.legs:
            set_detail(run, key, None)

    return change


for _key in ("effective_max_duration_ms", "effective_performance_issue_same", "effective_test_mode", "qsl_name"):
    TAMPERINGS.append(
        Tampering(f"log-with-null-{_key.replace('_', '-')}", "Server", _null(_key), by="mlperf_log_detail.txt")
    )


@tampering()
def requests_of_a_replica_that_was_not(pair: Pair) -> None:
    each_record(pair.performance, lambda one: one | {"replica": 7})


@tampering()
def requests_with_a_field_of_its_own(pair: Pair) -> None:
    each_record(pair.performance, lambda one: one | {"true_ttft_ns": 1})


@tampering(covered=False)
def a_key_twice_in_the_manifest(pair: Pair) -> None:
    """Of which one reader takes the first and another the last."""
    cover(pair.performance)
    text = pair.performance.manifest.read_text()
    pair.performance.manifest.write_text(
        text.replace('"official": false,', '"official": true,\n  "official": false,', 1)
    )


@tampering()
def a_key_twice_in_a_request(pair: Pair) -> None:
    text = pair.performance.requests.read_text()
    pair.performance.requests.write_text(text.replace('"seq":3,', '"output_tokens":128,"seq":3,', 1))
