"""LoadGen's own results made a little better, in both of its logs, and times made shorter in all files but one."""

import re
from collections.abc import Callable

from runs.loadgen.detail_log import read_detail
from runs.record.layout import RunDir
from tests.honest.pair import Pair
from tests.signoff.forge.faults import set_detail
from tests.untrusted.tampering import edit, of_both, put, tampering

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
