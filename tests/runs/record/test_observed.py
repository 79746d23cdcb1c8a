"""Measurements during a run, and the description of a run without final record."""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from runs.record.engines.server_notes import late_client, late_ends
from runs.record.liveness import unfinished
from runs.record.manifest import Manifest
from runs.record.observed import EngineSeen, LatenessSummary, Observed, QueryTimes, ServerClient
from tests.support.runs.records import observed, record

LIMITS = {"TTFT": 2_000_000_000, "TPOT": 100_000_000}


def observed_clients(sent_ms: list[float], told_ms: float | None, tokens: int = 1280) -> Observed:
    """Return clients that sent and read this late, each with ten responses."""
    clients = [
        ServerClient.model_construct(answers=10, tokens=tokens, issue_to_wire=LatenessSummary(count=10, p99_ms=p99_ms))
        for p99_ms in sent_ms
    ]
    observation = Observed.model_validate(observed())
    observation.engines = [EngineSeen.model_construct(client=client, query_times=None) for client in clients]
    observation.read_to_loadgen = None if told_ms is None else LatenessSummary(count=10, p99_ms=told_ms)
    return observation


@pytest.mark.parametrize(
    ("observation", "limits", "flagged"),
    [
        (observed_clients([60.0], 39.0), LIMITS, []),
        (observed_clients([60.0], 41.0), LIMITS, ["TTFT"]),
        (observed_clients([0.0], 700.0), LIMITS, ["TTFT", "TPOT"]),
        (observed_clients([0.0], 20.0, tokens=20), LIMITS, ["TPOT"]),
        (observed_clients([500.0], 500.0), {}, []),
        (observed_clients([10.0, 99.0], None), LIMITS, []),
        (observed_clients([10.0, 99.0], 2.0), LIMITS, ["TTFT"]),
        (observed_clients([], None), LIMITS, []),
    ],
)
def test_client_delays_above_a_twentieth_of_a_limit_are_reported(
    observation: Observed, limits: dict[str, Any], flagged: list[str]
) -> None:
    sentences = list(late_client(observation, limits))
    assert len(sentences) == len(flagged)
    assert all(f"of the {name} limit" in sentence for name, sentence in zip(flagged, sentences, strict=True))


@pytest.mark.parametrize(
    ("p50_ms", "p99_ms", "limits", "noted"),
    [
        (4.0, 99.0, LIMITS, ""),
        (6.0, 9.0, LIMITS, "6 ms (p50)"),
        (0.1, 101.0, LIMITS, "101 ms (p99)"),
        (500.0, 500.0, {}, ""),
    ],
)
def test_a_long_gap_after_the_last_token_is_noted(
    p50_ms: float, p99_ms: float, limits: dict[str, int], noted: str
) -> None:
    observation = observed_clients([0.0], None)
    gap = LatenessSummary.model_validate({"count": 10, "p50_ms": p50_ms, "p99_ms": p99_ms})
    for client in observation.clients:
        vars(client).update(server="http://host", last_token_to_end=gap, last_token_to_loadgen=None)
    notes = list(late_ends(observation, limits))
    assert len(notes) == bool(noted)
    assert not notes or noted in notes[0]


ONE = {"queries": 2, "queued_s": 0.5, "prefill_s": 1.0, "decode_s": 3.5}


@pytest.mark.parametrize(
    ("engines", "expected"),
    [
        ([], None),
        ([{}], None),
        ([{"query_times": ONE}], QueryTimes(**ONE)),
        (
            [{"query_times": ONE}, {}, {"query_times": ONE}],
            QueryTimes(queries=4, queued_s=1.0, prefill_s=2.0, decode_s=7.0),
        ),
    ],
)
def test_query_times_of_all_engines_are_summed(engines: list[dict[str, Any]], expected: QueryTimes | None) -> None:
    assert Observed.model_validate(observed(engines=engines)).query_times == expected


def manifest_with(**changes: Any) -> Manifest:
    host = {"hostname": changes.pop("hostname", platform.node())}
    return record(None, {"host": host}, **{"parent_pid": os.getpid(), "status": "running"} | changes)


@pytest.fixture
def running_process_id() -> Iterator[int]:
    """Return the ID of a process that lives as long as the test."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.communicate()


@pytest.fixture
def ended_process_id() -> int:
    """Return the ID of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_failed_run_states_its_error() -> None:
    text = unfinished(manifest_with(status="failed", error={"message": "the engine died"}))
    assert text == "the run did not finish: its manifest has the status failed (the engine died)"
    assert "status interrupted" in unfinished(manifest_with(status="interrupted"))


def test_a_running_process_is_reported_as_unfinished(running_process_id: int, ended_process_id: int) -> None:
    assert unfinished(manifest_with(pid=running_process_id, parent_pid=ended_process_id)).endswith(
        f"process {running_process_id} is running"
    )
    assert unfinished(manifest_with(status="planned", parent_pid=running_process_id)).endswith(
        f"process {running_process_id} is running"
    )


def test_a_run_whose_process_ended_is_reported(ended_process_id: int) -> None:
    text = unfinished(manifest_with(pid=ended_process_id))  # its parent is the reader, which starts no run
    assert text.startswith(
        f"the run did not end: its manifest has the status running, but its process {ended_process_id} has ended"
    )


def test_another_process_with_the_recorded_id_is_not_the_run(running_process_id: int) -> None:
    long_ago_ns = time.time_ns() - 3600 * 10**9
    assert "did not end" in unfinished(
        manifest_with(pid=running_process_id, parent_pid=running_process_id, start_time_ns=long_ago_ns)
    )


def test_processes_of_another_host_are_not_searched(running_process_id: int) -> None:
    text = unfinished(manifest_with(pid=running_process_id, hostname="elsewhere"))
    assert text == "the run did not finish: its manifest has the status running (on another machine)"
