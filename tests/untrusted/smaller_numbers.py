"""LoadGen's own results made a little better, in both of its logs, and times made shorter in all files but one."""

import re
from collections.abc import Callable

import numpy as np
import orjson

from runs.loadgen.detail_log import PREFIX, read_detail
from runs.loadgen.early_stopping import estimate_percentile
from runs.record.layout import RunDir
from runs.record.requests_log import read_requests
from tests.honest.pair import Pair
from tests.signoff.forge.faults import scale_reported, set_detail, set_manifest
from tests.signoff.forge.rebuilt_faults import beat, rebuild, scale_clock
from tests.signoff.forge.record_faults import stretch_requests
from tests.support.editing import loadgen_line
from tests.untrusted.several_engines import VLLM
from tests.untrusted.tampering import BOTH, PERFORMANCE, Json, each_line, edit, of_both, put, tampering, values

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


@tampering("SingleStream", by="requests.jsonl")
def a_lower_estimate_of_early_stopping(pair: Pair) -> None:
    """Which is what is submitted of a SingleStream leg: 0.3 ms lower than by our own stamps, which lie inside."""
    run = pair.performance
    estimate = read_detail(run.detail).integer("early_stopping_latency_ss")
    table = read_requests(run.requests)
    inside = estimate_percentile(np.sort(table.first_token_ns - table.issue_ns), 0.9)
    assert inside is not None
    lower = inside - 300_000
    for path in (run.detail, run.summary):
        path.write_text(path.read_text().replace(str(estimate), str(lower)))


@tampering(SLOW, by="requests.jsonl")
def less_time_per_output_token(pair: Pair) -> None:
    scale_reported(pair.performance, "result_time_(per|to)_output_token.*", 0.9)


@tampering("SingleStream", by="progress.json")
def a_fifth_faster_but_for_the_moment_of_the_heartbeat(pair: Pair) -> None:
    run = pair.performance
    stretch_requests(run, 0.8)
    rebuild(run, 1)
    scale_clock(run, 0.8)
    beat(run)


@tampering(VLLM, by="manifest.json")
def queries_that_were_longer_in_the_engine_than_with_us(pair: Pair) -> None:
    for run in pair.legs:
        completed = orjson.loads(run.manifest.read_bytes())["observed"]["samples_completed"]
        times = {"queries": completed, "queued_s": 0.5, "prefill_s": 1.0, "decode_s": 1e5}
        set_manifest(run, "observed.engine", {"query_times": times})


_PLAN = ("resolved.scenario", "asked.scenario")


def _told_as(scenario: str, key: str) -> Callable[[RunDir], None]:
    """A leg under the limits of another scenario, which LoadGen both calls Server."""

    def change(run: RunDir) -> None:
        edit(run.manifest, lambda content: [put(content, place, scenario) for place in _PLAN])
        edit(run.manifest, lambda content: put(content, "resolved.loadgen_key", key))
        edit(run.progress, lambda content: put(content, "scenario", scenario))

    return change


of_both("server-told-as-interactive", _told_as("Interactive", "llama3_1-8b-interactive"), by="user.conf")
of_both("interactive-told-as-server", _told_as("Server", "llama3_1-8b"), "Interactive", by="user.conf")


@tampering("Offline", by="mlperf_log_accuracy.json")
def answers_without_token_counts(pair: Pair) -> None:
    log = pair.accuracy.accuracy_log
    log.write_text(re.sub(r', ?"token_count" ?: ?\d+', "", log.read_text()))


@tampering(by="mlperf_log_detail.txt")
def a_result_that_loadgen_does_not_write(pair: Pair) -> None:
    log = pair.performance.detail
    lines = log.read_bytes().splitlines(keepends=True)
    record = orjson.loads(lines[-1].removeprefix(PREFIX)) | {"key": "result_reviewed", "value": "VALID"}
    log.write_bytes(b"".join([*lines[:-1], loadgen_line(record), lines[-1]]))


def _without_build(one: Json) -> Json | None:
    return None if one["key"].startswith("loadgen_build_date") else one


of_both("a-loadgen-of-no-date", lambda run: each_line(run.detail, _without_build), by="mlperf_log_detail.txt")
values(
    {"more-stolen-than-used": {"observed.contention.stolen_cpu_s": 500.0}},
    "manifest.json",
    PERFORMANCE,
    "SingleStream --dummy-tpot-ms 0.5",
)
_ONE_DEVICE = {"devices": ["0"], "cores": [], "variables": {"CUDA_VISIBLE_DEVICES": "0"}}
values(
    {
        "replicas-on-one-device": {
            f"resolved.replicas.places.{number}.{name}": value
            for number in (0, 1)
            for name, value in _ONE_DEVICE.items()
        }
        | {f"replicas.{number}.{name}": _ONE_DEVICE[name] for number in (0, 1) for name in ("devices", "cores")}
    },
    "manifest.json",
    BOTH,
    "Server --replicas 2",
)
