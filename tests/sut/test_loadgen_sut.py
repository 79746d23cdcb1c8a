"""LoadGen's side of the system under test: each sample is completed once, and no call follows a failure."""

import hashlib
import sys
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from runs.errors import ExecutionError
from sut import loadgen_sut
from sut.admission import Admission
from sut.engine import EngineLimits, Request
from sut.feed import MIN_AHEAD, Feed
from sut.loadgen_sut import MAX_QUERIES, MAX_RESPONSES, int32_ids
from tests.support.engines.fakes import HANDLE, PROMPTS, Clock, FakeLoadgen, FakeSample, FakeStage


def test_queries_reach_the_engine_in_order(stage: FakeStage) -> None:
    requests = stage.issue(2, 0) + stage.issue(3)
    assert [request.prompt_ids for request in requests] == [PROMPTS[2], PROMPTS[0], PROMPTS[3]]
    assert [request.seq for request in requests] == [0, 1, 2]
    assert [request.sample_index for request in requests] == [2, 0, 3]
    assert [request.response_id for request in requests] == [HANDLE, HANDLE + 8, HANDLE + 16]
    assert requests[0].issue_ns == requests[1].issue_ns <= requests[2].issue_ns
    assert (stage.sut.issued, stage.sut.completed, stage.sut.outstanding) == (3, 0, 3)
    assert stage.loadgen.calls == []


def test_queries_are_not_processed_on_the_thread_of_loadgen() -> None:
    stage = FakeStage()
    stage.sut.issue_queries([FakeSample(HANDLE, 1)])
    assert stage.sut.outstanding == 1  # counted at once, so that a loop that hangs is detected as a stall
    assert stage.engine.requests == []
    stage.turn()
    assert len(stage.engine.requests) == 1
    stage.loop.close()


def test_first_token_and_completion_are_reported_once(stage: FakeStage) -> None:
    (request,) = stage.issue(0)
    stage.sut.first_token(request, 7)
    stage.sut.complete(request, [7, 8, 128_255], "stop", 3)
    assert stage.loadgen.calls == [("first", HANDLE, [7], 1), ("done", HANDLE, [7, 8, 128_255], 3)]
    assert stage.sut.outstanding == 0
    assert stage.sut.cached_tokens == 3
    assert stage.failures == []
    ((complete_ns, (recorded, ids, reason)),) = stage.request_log.outcomes
    assert recorded is request
    assert (list(ids), reason) == ([7, 8, 128_255], "stop")
    assert request.issue_ns <= request.first_token_ns <= complete_ns
    # The hash of requests.jsonl is that of the bytes for LoadGen.
    assert hashlib.sha256(ids).digest() == hashlib.sha256(b"\7\0\0\0\10\0\0\0\xff\xf4\1\0").digest()


def test_offline_reports_no_first_token() -> None:
    stage = FakeStage(report_first_token=False)
    (request,) = stage.issue(0)
    stage.sut.first_token(request, 7)
    stage.sut.complete(request, [7, 8], "length", 0)
    assert [kind for kind, *_ in stage.loadgen.calls] == ["done"]
    stage.loop.close()


def test_completions_are_reported_in_any_order(stage: FakeStage) -> None:
    requests = stage.issue(0, 1, 2, 3)
    for request in reversed(requests):
        stage.sut.first_token(request, 1)
        stage.sut.complete(request, [request.sample_index, 5], "stop", 0)
        stage.turn()
    done = [(handle, ids) for kind, handle, ids, _ in stage.loadgen.calls if kind == "done"]
    assert done == [(HANDLE + 8 * place, [place, 5]) for place in (3, 2, 1, 0)]
    assert stage.sut.outstanding == 0


def test_responses_of_one_turn_are_reported_in_one_call(stage: FakeStage) -> None:
    requests = stage.issue(0, 1, 2, 3)
    for request in requests[:3]:
        stage.sut.complete(request, [request.sample_index, 5], "stop", 0)
        assert stage.loadgen.calls == []
    stage.turn()
    assert stage.loadgen.batches == [3]
    assert [handle for _, handle, _, _ in stage.loadgen.calls] == [HANDLE, HANDLE + 8, HANDLE + 16]
    assert len({complete_ns for complete_ns, _ in stage.request_log.outcomes}) == 1
    assert stage.sut.completed == 3
    stage.sut.complete(requests[3], [1, 2], "stop", 0)  # the last open query has no other to wait for
    assert stage.loadgen.batches == [3, 1]
    assert stage.sut.outstanding == 0


def test_the_number_of_responses_in_a_call_is_limited(stage: FakeStage) -> None:
    requests = stage.issue(*[0] * (2 * MAX_RESPONSES + 5))
    for request in requests[:-1]:
        stage.sut.complete(request, [1, 2], "stop", 0)
    assert stage.loadgen.batches == [MAX_RESPONSES] * 2
    stage.turn()
    assert stage.loadgen.batches == [MAX_RESPONSES] * 2 + [4]
    assert stage.failures == []


def test_a_response_is_recorded_before_it_is_reported(stage: FakeStage) -> None:
    (request,) = stage.issue(0)
    seen: list[tuple[int, int]] = []

    class Loadgen(FakeLoadgen):
        def QuerySamplesComplete(self, responses: list[Any]) -> None:
            seen.append((stage.sut.completed, len(stage.request_log.outcomes)))

    stage.sut._samples_complete = Loadgen().QuerySamplesComplete
    stage.sut.complete(request, [1, 2], "stop", 0)
    assert seen == [(1, 1)]


@pytest.mark.parametrize("ids", [[0], [1, -1, 2**31 - 1], list(range(128))])
def test_ids_are_converted_to_int32(ids: list[int]) -> None:
    assert int32_ids(ids).tolist() == ids
    assert int32_ids(ids).tobytes() == b"".join(token_id.to_bytes(4, sys.byteorder, signed=True) for token_id in ids)


def test_a_stale_response_for_a_reused_handle_is_a_failure(stage: FakeStage) -> None:
    for answered in (0, 1, 1):
        stage.sut.issue_queries([FakeSample(HANDLE, 1)])
        stage.turn()
        stage.sut.complete(stage.engine.requests[answered], [1, 2], "stop", 0)
    assert stage.sut.completed == len(stage.loadgen.calls) == len(stage.request_log.outcomes) == 2
    assert "two responses to sample 1 (query 1)" in str(stage.failures[0])


FAILURES: dict[str, tuple[Callable[[FakeStage, Request], object], str]] = {
    "an id that is no int32": (lambda stage, request: stage.sut.complete(request, [1, 2**31], "stop", 0), ""),
    "no tokens": (
        lambda stage, request: stage.sut.complete(request, [], "stop", 0),
        "no tokens for sample 3 (query 0)\n  fix: read engine.log, and check the stop",
    ),
    "a second answer before LoadGen has the first": (
        lambda stage, request: [stage.sut.complete(request, [1, 2], "stop", 0) for _ in range(2)],
        "two responses to sample 3 (query 0)",
    ),
    "a first token behind the answer": (
        lambda stage, request: [stage.sut.complete(request, [1, 2], "stop", 0), stage.sut.first_token(request, 1)],
        "first token of sample 3 (query 0)",
    ),
    "a failure in the engine": (
        lambda stage, request: stage.sut.failed(request, ExecutionError("no memory")),
        "no memory",
    ),
    "a sample that is none": (lambda stage, _: stage.sut.issue_queries([None]), "'NoneType' object has no attribute"),
    "an unknown sample": (lambda stage, _: stage.issue(99), "list index out of range"),
    "LoadGen raises": (
        lambda stage, request: [
            setattr(stage.loadgen, "error", KeyboardInterrupt("no")),
            stage.sut.first_token(request, 1),
        ],
        "no",
    ),
    "the recorder raises": (
        lambda stage, request: [
            setattr(stage.request_log, "error", OSError("disk")),
            stage.sut.complete(request, [1], "stop", 0),
            stage.turn(),
        ],
        "disk",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_reported_once_and_ends_all_calls(stage: FakeStage, name: str) -> None:
    act, reported = FAILURES[name]
    request, _ = stage.issue(3, 2)
    act(stage, request)
    stage.turn()
    assert stage.loadgen.calls == []
    assert len(stage.failures) == 1
    assert reported in str(stage.failures[0])


def test_a_first_token_is_reported_at_once_and_once(stage: FakeStage) -> None:
    requests = stage.issue(0, 1, 2)
    stage.sut.complete(requests[0], [1, 2], "stop", 0)
    for _ in range(2):
        stage.sut.first_token(requests[1], 9)
    assert [(kind, handle) for kind, handle, _, _ in stage.loadgen.calls] == [("first", HANDLE + 8)]
    assert "first token of sample 1 (query 1)" in str(stage.failures[0])


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt()])
def test_no_response_is_reported_after_a_failed_submit(stage: FakeStage, error: BaseException) -> None:
    requests = stage.issue(0, 1)
    stage.engine.error = error
    assert stage.issue(2, 3) == []
    stage.engine.error = None
    stage.sut.first_token(requests[0], 1)
    stage.sut.complete(requests[0], [1, 2], "stop", 0)
    stage.sut.failed(requests[1], ExecutionError("second"))
    assert stage.issue(3) == []
    assert stage.loadgen.calls == []
    assert stage.request_log.outcomes == []
    assert stage.failures == [error]


def test_issue_queries_raises_no_exception(stage: FakeStage) -> None:
    class NoSamples(list[Any]):
        def __len__(self) -> int:
            raise RuntimeError("no length")

    stage.sut.issue_queries(NoSamples())
    assert "no length" in str(stage.failures[0])
    stage.sut.issue_queries([None])
    stage.turn()
    assert len(stage.failures) == 1
    stage.sut.flush_queries()


def test_a_closed_event_loop_is_reported_as_failure() -> None:
    stage = FakeStage()
    stage.loop.close()
    stage.sut.issue_queries([FakeSample(HANDLE, 0)])
    assert "closed" in str(stage.failures[0])


def test_admission_delays_a_query_until_the_previous_first_token() -> None:
    stage = FakeStage(admission=Admission(policy="fcfs", prefill_tokens=3, ttft_limit_ns=10**9))
    assert stage.issue(0, 1, 2) == stage.engine.requests[:2]
    stage.sut.first_token(stage.engine.requests[0], 7)
    stage.slices()
    assert len(stage.engine.requests) == 2  # 1 token in prefill, 3 waiting, 3 allowed
    stage.sut.complete(stage.engine.requests[1], [5, 6], "stop", 0)  # an output of one piece
    stage.slices()
    assert [request.sample_index for request in stage.engine.requests] == [0, 1, 2]
    assert stage.failures == []
    stage.loop.close()


def test_queries_beyond_the_engine_limit_wait_outside() -> None:
    computed, issued = 64, 1_000
    stage = FakeStage(admission=Feed(EngineLimits(queries=computed)))
    requests = stage.issue(*[0] * issued)
    assert len(requests) == computed + max(computed, MIN_AHEAD)
    assert (stage.sut.issued, stage.sut.outstanding) == (issued, issued)
    for place in range(issued):
        stage.sut.complete(stage.engine.requests[place], [1, 2], "stop", 0)
        stage.slices()
        assert len(stage.engine.requests) == min(issued, 2 * computed + place + 1)
    assert [request.seq for request in stage.engine.requests] == list(range(issued))
    assert [handle for _, handle, _, _ in stage.loadgen.calls] == [HANDLE + 8 * place for place in range(issued)]
    assert stage.failures == []
    stage.loop.close()


def test_a_turn_of_the_loop_submits_a_limited_number_of_queries(stage: FakeStage) -> None:
    """Other callbacks have their turn between the queries of LoadGen: here the engine's own work on the slice."""
    turns: list[int] = []

    def submit(request: Request) -> None:
        stage.engine.requests.append(request)
        stage.loop.call_soon(lambda: turns.append(len(stage.engine.requests)))

    stage.sut._submit = submit
    issued = 5 * MAX_QUERIES
    stage.issue(*[0] * issued)
    stage.turn()
    assert len(turns) == issued
    # When the engine looks at a query, only the slice of the query has been submitted.
    assert all(handed - place <= MAX_QUERIES for place, handed in enumerate(turns))


def test_a_slow_submission_ends_the_slice(stage: FakeStage) -> None:
    clock = Clock(1000.0)

    def take_long(_: Request) -> None:
        clock.now += 0.004

    with pytest.MonkeyPatch.context() as patch:
        now = SimpleNamespace(monotonic=clock, time_ns=lambda: round(clock.now * 1e9))
        patch.setattr(loadgen_sut, "time", now)
        stage.sut._submit = take_long
        stage.sut.issue_queries([FakeSample(HANDLE + 8 * place, 0) for place in range(10)])
        handed_over = []
        while not handed_over or stage.sut._slice_planned:
            stage.turn()
            handed_over.append(stage.sut._next_seq)
    assert handed_over == [3, 6, 9, 10]  # 10 ms per slice
    assert stage.sut.handing_over_s == pytest.approx(0.040)


class InterruptedQueue(deque[Any]):
    """The queue between the threads. It lets the other side act in the middle of an operation."""

    def __init__(self) -> None:
        super().__init__()
        self.before_append: Callable[[], None] = lambda: None
        self.after_empty: Callable[[], None] = lambda: None

    def append(self, item: Any) -> None:
        act, self.before_append = self.before_append, lambda: None
        act()
        super().append(item)

    def __len__(self) -> int:
        length = super().__len__()
        if not length:
            act, self.after_empty = self.after_empty, lambda: None
            act()
        return length


def test_queries_that_arrive_together_wake_the_loop_once(stage: FakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[Callable[[], None]] = []
    wake = stage.loop.call_soon_threadsafe

    def counted(call: Callable[[], None]) -> Any:
        woken.append(call)
        return wake(call)

    monkeypatch.setattr(stage.loop, "call_soon_threadsafe", counted)
    for place in range(5):
        stage.sut.issue_queries([FakeSample(HANDLE + 8 * place, 0)])
    stage.turn()
    assert (len(stage.engine.requests), len(woken)) == (5, 1)
    stage.sut.issue_queries([FakeSample(HANDLE + 40, 0)])
    stage.turn()
    assert (len(stage.engine.requests), len(woken)) == (6, 2)


def test_a_query_that_arrives_after_the_last_look_is_submitted(stage: FakeStage) -> None:
    stage.sut._arrived = arrived = InterruptedQueue()
    arrived.after_empty = lambda: stage.sut.issue_queries([FakeSample(HANDLE + 8, 1)])
    stage.sut.issue_queries([FakeSample(HANDLE, 0)])
    stage.turn()
    stage.turn()
    assert [request.sample_index for request in stage.engine.requests] == [0, 1]


def test_a_query_appended_during_a_look_is_submitted(stage: FakeStage) -> None:
    stage.sut._arrived = arrived = InterruptedQueue()
    stage.sut.issue_queries([FakeSample(HANDLE, 0)])  # the loop is woken, and has not begun to look
    arrived.before_append = stage.turn
    stage.sut.issue_queries([FakeSample(HANDLE + 8, 1)])
    stage.turn()
    assert [request.sample_index for request in stage.engine.requests] == [0, 1]
