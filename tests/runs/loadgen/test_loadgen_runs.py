"""Real LoadGen runs: each one is parsed, replayed and recomputed without a disagreement."""

from collections.abc import Callable

import numpy as np
import pytest

from runs.loadgen.accuracy_log import read_accuracy_log
from runs.loadgen.detail_log import read_detail
from runs.loadgen.replay import LARGEST_LIBRARY, REPLAYABLE, expected_order
from runs.loadgen.schedule import poisson_offsets_ns, shuffled_library
from runs.loadgen.trace_log import read_trace
from runs.numbers.derive_result import derive_result
from runs.numbers.log_comparison import compare_log
from runs.numbers.rederive import derive_numbers
from runs.record.finished_run import FinishedRun
from runs.record.layout import RunDir
from runs.record.requests_log import read_request_table
from tests.runs.conftest import server_queries
from tests.support.files.editing import edit_detail
from tests.support.runs.loadgen_runs import ACCURACY, ALL, INVALID, ORDERS, VALID, LoadgenRuns


@pytest.mark.parametrize("name", VALID)
def test_valid_runs_equal_their_recomputed_numbers(loadgen_runs: LoadgenRuns, name: str) -> None:
    run = loadgen_runs[name]
    result = derive_result(FinishedRun(run))
    assert result.disagreements == []
    assert (result.verdict, result.reasons) == ("VALID", [])
    assert result.derived_from == ("requests" if name.endswith("no-trace") else "trace")
    assert result.counts.samples == result.counts.samples_expected
    assert result.reported is not None
    assert result.derived is not None
    if result.derived_from == "trace":
        assert result.derived.latency_ns == result.reported.latency_ns
        assert result.derived.tpot_ns == result.reported.tpot_ns


@pytest.mark.parametrize("name", [name for name in VALID if not name.endswith("no-trace")])
def test_runs_without_trace_equal_their_recomputed_numbers(loadgen_runs: LoadgenRuns, name: str) -> None:
    run = loadgen_runs[name]
    detail = read_detail(run.detail)
    derived = derive_numbers(detail, read_request_table(run.requests), None)
    assert derived.source == "requests"
    assert compare_log(derived, detail) == []


@pytest.mark.parametrize("name", INVALID)
def test_invalid_runs_state_their_reason(loadgen_runs: LoadgenRuns, name: str) -> None:
    result = derive_result(FinishedRun(loadgen_runs[name]))
    assert result.verdict == "INVALID"
    assert result.disagreements == []
    assert any(INVALID[name][1] in reason for reason in result.reasons), result.reasons


@pytest.mark.parametrize("name", ACCURACY)
def test_accuracy_runs_are_complete(loadgen_runs: LoadgenRuns, name: str) -> None:
    run = loadgen_runs[name]
    result = derive_result(FinishedRun(run))
    assert (result.verdict, result.reasons, result.disagreements) == ("DONE", [], [])
    assert result.counts.samples == result.counts.samples_expected == 100
    tokens = {entry.seq_id: entry.token_count for entry in read_accuracy_log(run.accuracy_log)}
    requests = read_request_table(run.requests)
    assert [tokens[seq] for seq in requests.seq.tolist()] == requests.output_tokens.tolist()


@pytest.mark.parametrize("name", ALL)
def test_the_replay_equals_loaded_samples_and_order(loadgen_runs: LoadgenRuns, name: str) -> None:
    run = loadgen_runs[name]
    detail, requests, trace = read_detail(run.detail), read_request_table(run.requests), read_trace(run.trace)
    expected = expected_order(detail, len(requests))
    assert expected.tolist() == requests.sample_index.tolist()
    if trace is not None:
        assert trace.sample_index.tolist() == expected.tolist()
    if name in ORDERS:
        assert derive_result(FinishedRun(run)).disagreements == []


@pytest.mark.parametrize("name", [name for name, spec in ALL.items() if spec.scenario == "Server" and spec.trace])
def test_the_replay_equals_the_schedule_to_the_nanosecond(loadgen_runs: LoadgenRuns, name: str) -> None:
    run = loadgen_runs[name]
    detail, trace = read_detail(run.detail), read_trace(run.trace)
    qps = detail.number("effective_target_qps")
    offsets_ns = poisson_offsets_ns(detail.seeds.schedule_rng_seed, qps, len(trace))
    assert np.array_equal(offsets_ns, trace.scheduled_ns - trace.scheduled_ns[0])
    if detail.effective("sample_concatenate_permutation"):
        assert len(trace) == server_queries(
            detail.seeds.schedule_rng_seed,
            qps,
            detail.integer("effective_min_duration_ms"),
            detail.integer("effective_min_query_count"),
            len(detail.loaded_qsl_set),
        )


def test_the_replay_loads_part_of_the_library(loadgen_runs: LoadgenRuns) -> None:
    detail = read_detail(loadgen_runs["offline-part-of-library"].detail)
    assert len(detail.loaded_qsl_set) == 30
    assert detail.loaded_qsl_set == shuffled_library(detail.seeds.qsl_rng_seed, 30).tolist()


@pytest.mark.parametrize(
    "values",
    [
        {"result_query_count": REPLAYABLE + 1},
        {"qsl_reported_total_count": LARGEST_LIBRARY + 1, "effective_performance_sample_count": LARGEST_LIBRARY + 1},
    ],
)
def test_damaged_counts_are_not_replayed(copied_run: Callable[[str], RunDir], values: dict[str, int]) -> None:
    run = copied_run("server")
    detail = read_detail(run.detail)
    assert expected_order(detail, detail.integer("result_query_count")) is not None
    for key, value in values.items():
        edit_detail(run, key, value)
    detail = read_detail(run.detail)
    assert expected_order(detail, detail.integer("result_query_count")) is None
