"""The lines of user.conf, compared with LoadGen's log."""

from runs.loadgen.conf_in_log import mismatches
from runs.loadgen.conf_lines import stored_lines
from runs.loadgen.detail_log import read_detail
from tests.support.runs.loadgen_runs import LoadgenRuns

KEY = "llama3_1-8b"


def test_a_logged_value_that_differs_is_reported_in_units_of_user_conf(loadgen_runs: LoadgenRuns) -> None:
    detail = read_detail(loadgen_runs["server"].detail)
    lines = stored_lines("*.Server.ttft_latency = 100\n*.Server.tpot_latency = 10000\n")
    (mismatch,) = mismatches(lines, [KEY], detail, {"target_qps"})
    assert (mismatch.key, mismatch.configured, mismatch.logged) == ("ttft_latency", 100.0, 60000.0)


def test_values_are_compared_as_loadgen_reads_them(loadgen_runs: LoadgenRuns) -> None:
    detail = read_detail(loadgen_runs["server"].detail)
    text = "*.Server.ttft_latency = 0xEA60\n*.*.use_token_latencies = 1.0\n*.*.sample_concatenate_permutation = 2\n"
    unequal = mismatches(stored_lines(text), [KEY], detail, {"target_qps"})
    assert [value.key for value in unequal] == ["sample_concatenate_permutation"]  # LoadGen takes 2 for off
