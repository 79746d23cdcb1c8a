"""LoadGen's side of the system under test: every sample is answered once, and nothing after a failure."""

import asyncio
import hashlib
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from runs.errors import ExecutionError
from sut.admission import Admission
from sut.engine import Request
from sut.loadgen_sut import MOST_ANSWERS, LoadgenSut, int32_ids
from tests.sut.fakes import FakeEngine, FakeLoadgen, FakeRecorder, Sample

PROMPTS = [[10, 11], [20], [30, 31, 32], [40]]
HANDLE = 0x7F00_0000_1000  # LoadGen's handles are pointers: they need 64 bits


class Stage:
    """A system under test between a fake LoadGen and a fake engine; the event loop turns when the test says so."""

    def __init__(self, *, report_first_token: bool = True, admission_tokens: int | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        self.loadgen = FakeLoadgen()
        self.engine = FakeEngine()
        self.recorder = FakeRecorder()
        self.failures: list[BaseException] = []
        self.sut = LoadgenSut(
            self.loadgen,
            self.loop,
            self.engine,
            PROMPTS.__getitem__,
            self.recorder,  # type: ignore[arg-type]  # the one method that is used
            report_first_token=report_first_token,
            on_failure=self.failures.append,
            admission=Admission(self.engine.submit, policy="fcfs", prefill_tokens=admission_tokens, ttft_limit_ns=10**9)
            if admission_tokens
            else None,
        )

    def issue(self, *indices: int) -> list[Request]:
        """Issue samples as LoadGen does, on a thread of its own; the requests that reached the engine."""
        before = len(self.engine.requests)
        samples = [Sample(HANDLE + 8 * (self.sut.issued + place), index) for place, index in enumerate(indices)]
        thread = threading.Thread(target=self.sut.issue_queries, args=(samples,))
        thread.start()
        thread.join()
        self.turn()
        return self.engine.requests[before:]

    def turn(self) -> None:
        self.loop.run_until_complete(asyncio.sleep(0))


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.loop.close()


def test_a_query_reaches_the_engine_in_order(stage: Stage) -> None:
    requests = stage.issue(2, 0) + stage.issue(3)
    assert [request.prompt_ids for request in requests] == [PROMPTS[2], PROMPTS[0], PROMPTS[3]]
    assert [request.seq for request in requests] == [0, 1, 2]
    assert [request.sample_index for request in requests] == [2, 0, 3]
    assert [request.response_id for request in requests] == [HANDLE, HANDLE + 8, HANDLE + 16]
    assert requests[0].issue_ns == requests[1].issue_ns <= requests[2].issue_ns
    assert (stage.sut.issued, stage.sut.completed, stage.sut.outstanding) == (3, 0, 3)
    assert stage.loadgen.calls == []


def test_nothing_happens_on_loadgens_thread() -> None:
    stage = Stage()
    stage.sut.issue_queries([Sample(HANDLE, 1)])
    assert stage.sut.outstanding == 1  # counted at once: a loop that hangs is seen as a stall
    assert stage.engine.requests == []
    stage.turn()
    assert len(stage.engine.requests) == 1
    stage.loop.close()


def test_first_token_once_then_completion_once(stage: Stage) -> None:
    (request,) = stage.issue(0)
    stage.sut.first_token(request, 7)
    stage.sut.complete(request, [7, 8, 128_255], "stop", 3)
    assert stage.loadgen.calls == [("first", HANDLE, [7], 1), ("done", HANDLE, [7, 8, 128_255], 3)]
    assert stage.sut.outstanding == 0
    assert stage.sut.cached_tokens == 3
    assert stage.failures == []
    ((complete_ns, (recorded, ids, reason)),) = stage.recorder.outcomes
    assert recorded is request
    assert (list(ids), reason) == ([7, 8, 128_255], "stop")
    assert request.issue_ns <= request.first_token_ns <= complete_ns
    # The hash of requests.jsonl is that of the bytes that LoadGen was given.
    assert hashlib.sha256(ids).digest() == hashlib.sha256(b"\7\0\0\0\10\0\0\0\xff\xf4\1\0").digest()


def test_offline_wants_no_first_token() -> None:
    stage = Stage(report_first_token=False)
    (request,) = stage.issue(0)
    stage.sut.first_token(request, 7)
    stage.sut.complete(request, [7, 8], "length", 0)
    assert [kind for kind, *_ in stage.loadgen.calls] == ["done"]
    stage.loop.close()


def test_completions_in_any_order(stage: Stage) -> None:
    requests = stage.issue(0, 1, 2, 3)
    for request in reversed(requests):
        stage.sut.first_token(request, 1)
        stage.sut.complete(request, [request.sample_index, 5], "stop", 0)
        stage.turn()
    done = [(handle, ids) for kind, handle, ids, _ in stage.loadgen.calls if kind == "done"]
    assert done == [(HANDLE + 8 * place, [place, 5]) for place in (3, 2, 1, 0)]
    assert stage.sut.outstanding == 0


def test_answers_that_come_together_are_one_call(stage: Stage) -> None:
    requests = stage.issue(0, 1, 2, 3)
    for request in requests[:3]:
        stage.sut.complete(request, [request.sample_index, 5], "stop", 0)
        assert stage.loadgen.calls == []
    stage.turn()
    assert stage.loadgen.batches == [3]
    assert [handle for _, handle, _, _ in stage.loadgen.calls] == [HANDLE, HANDLE + 8, HANDLE + 16]
    assert len({complete_ns for complete_ns, _ in stage.recorder.outcomes}) == 1
    assert stage.sut.completed == 3
    stage.sut.complete(requests[3], [1, 2], "stop", 0)  # the last one open has nobody to wait for
    assert stage.loadgen.batches == [3, 1]
    assert stage.sut.outstanding == 0


def test_a_call_takes_a_bounded_number_of_answers(stage: Stage) -> None:
    requests = stage.issue(*[0] * (2 * MOST_ANSWERS + 5))
    for request in requests[:-1]:
        stage.sut.complete(request, [1, 2], "stop", 0)
    assert stage.loadgen.batches == [MOST_ANSWERS] * 2
    stage.turn()
    assert stage.loadgen.batches == [MOST_ANSWERS] * 2 + [4]
    assert stage.failures == []


def test_a_first_token_waits_for_nothing(stage: Stage) -> None:
    requests = stage.issue(0, 1, 2)
    stage.sut.complete(requests[0], [1, 2], "stop", 0)
    stage.sut.first_token(requests[1], 9)
    assert [(kind, handle) for kind, handle, _, _ in stage.loadgen.calls] == [("first", HANDLE + 8)]


def test_it_is_recorded_before_loadgen_hears_of_it(stage: Stage) -> None:
    (request,) = stage.issue(0)
    seen: list[tuple[int, int]] = []

    class Loadgen(FakeLoadgen):
        def QuerySamplesComplete(self, responses: list[Any]) -> None:
            seen.append((stage.sut.completed, len(stage.recorder.outcomes)))

    stage.sut._samples_complete = Loadgen().QuerySamplesComplete
    stage.sut.complete(request, [1, 2], "stop", 0)
    assert seen == [(1, 1)]


@pytest.mark.parametrize("ids", [[0], [1, -1, 2**31 - 1], list(range(128))])
def test_int32_ids(ids: list[int]) -> None:
    assert int32_ids(ids).tolist() == ids
    assert int32_ids(ids).tobytes() == b"".join(one.to_bytes(4, sys.byteorder, signed=True) for one in ids)


def test_a_token_id_that_is_no_int32_is_a_failure(stage: Stage) -> None:
    (request,) = stage.issue(0)
    stage.sut.complete(request, [1, 2**31], "stop", 0)
    assert stage.loadgen.calls == []
    assert len(stage.failures) == 1


def test_a_handle_may_come_again_after_its_completion(stage: Stage) -> None:
    for _ in range(3):
        stage.sut.issue_queries([Sample(HANDLE, 0)])
        stage.turn()
        stage.sut.complete(stage.engine.requests[-1], [1, 2], "stop", 0)
    assert stage.failures == []
    assert stage.sut.completed == 3


def test_empty_output_is_a_failure(stage: Stage) -> None:
    requests = stage.issue(1, 2)
    stage.sut.complete(requests[0], [], "stop", 0)
    assert stage.loadgen.calls == []
    assert isinstance(stage.failures[0], ExecutionError)
    assert "no tokens for sample 1" in str(stage.failures[0])


def test_a_second_answer_is_a_failure(stage: Stage) -> None:
    requests = stage.issue(3, 2)
    for _ in range(2):
        stage.sut.complete(requests[0], [1, 2], "stop", 0)
        stage.turn()
    assert len(stage.loadgen.calls) == 1
    assert "answered sample 3 (query 0) twice" in str(stage.failures[0])
    assert len(stage.recorder.outcomes) == 1


def test_a_second_answer_before_loadgen_has_the_first(stage: Stage) -> None:
    requests = stage.issue(3, 2)
    stage.sut.complete(requests[0], [1, 2], "stop", 0)
    stage.sut.complete(requests[0], [1, 2], "stop", 0)
    stage.turn()
    assert stage.loadgen.calls == []  # nothing goes to LoadGen after a failure, not even what was good
    assert "answered sample 3 (query 0) twice" in str(stage.failures[0])


def test_a_stale_answer_is_not_taken_for_a_later_query_with_the_same_handle(stage: Stage) -> None:
    for _ in range(2):
        stage.sut.issue_queries([Sample(HANDLE, 1)])
        stage.turn()
        stage.sut.complete(stage.engine.requests[0], [1, 2], "stop", 0)
    assert stage.sut.completed == 1
    assert "answered sample 1 (query 0) twice" in str(stage.failures[0])


@pytest.mark.parametrize("answered", [False, True])
def test_a_second_first_token_is_a_failure(stage: Stage, answered: bool) -> None:
    request, _ = stage.issue(3, 2)
    if answered:
        stage.sut.complete(request, [1, 2], "stop", 0)
    else:
        stage.sut.first_token(request, 1)
    stage.sut.first_token(request, 1)
    assert [kind for kind, *_ in stage.loadgen.calls] == ([] if answered else ["first"])
    assert "first token of sample 3 (query 0)" in str(stage.failures[0])


def test_a_request_that_failed_in_the_engine(stage: Stage) -> None:
    (request,) = stage.issue(0)
    error = ExecutionError("out of memory")
    stage.sut.failed(request, error)
    assert stage.failures == [error]


@pytest.mark.parametrize("error", [RuntimeError("no"), MemoryError(), KeyboardInterrupt(), SystemExit(3)])
def test_submit_raises(stage: Stage, error: BaseException) -> None:
    stage.engine.error = error
    assert stage.issue(0, 1) == []
    assert stage.failures == [error]


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt()])
def test_loadgen_itself_raises(stage: Stage, error: BaseException) -> None:
    requests = stage.issue(0, 1)
    stage.loadgen.error = error
    stage.sut.first_token(requests[0], 1)
    stage.sut.complete(requests[1], [1, 2], "stop", 0)
    assert stage.failures == [error]


def test_recorder_raises(stage: Stage) -> None:
    (request,) = stage.issue(0)
    stage.recorder.error = OSError("disk")
    stage.sut.complete(request, [1, 2], "stop", 0)
    assert stage.failures == [stage.recorder.error]


def test_no_call_of_loadgen_after_a_failure(stage: Stage) -> None:
    requests = stage.issue(0, 1, 2)
    stage.sut.fail(ExecutionError("first"))
    stage.sut.first_token(requests[0], 1)
    stage.sut.complete(requests[0], [1, 2], "stop", 0)
    stage.sut.complete(requests[0], [1, 2], "stop", 0)
    stage.sut.failed(requests[1], ExecutionError("second"))
    assert stage.issue(3) == []
    assert stage.loadgen.calls == []
    assert stage.recorder.outcomes == []
    assert [str(failure) for failure in stage.failures] == ["first"]


def test_exceptions_never_leave_issue_queries(stage: Stage) -> None:
    class NoSamples(list[Any]):
        def __len__(self) -> int:
            raise RuntimeError("no length")

    stage.sut.issue_queries(NoSamples())
    assert "no length" in str(stage.failures[0])
    stage.sut.issue_queries([None])
    stage.turn()
    assert len(stage.failures) == 1
    stage.sut.flush_queries()


def test_a_sample_that_is_none(stage: Stage) -> None:
    stage.sut.issue_queries([None])
    stage.turn()
    assert "'NoneType' object has no attribute" in str(stage.failures[0])


def test_unknown_sample(stage: Stage) -> None:
    assert stage.issue(99) == []
    assert isinstance(stage.failures[0], IndexError)


def test_a_closed_loop_is_a_failure_not_an_exception() -> None:
    stage = Stage()
    stage.loop.close()
    stage.sut.issue_queries([Sample(HANDLE, 0)])
    assert "closed" in str(stage.failures[0])


def test_admission_holds_a_query_until_the_one_before_it_showed_a_token() -> None:
    stage = Stage(admission_tokens=3)
    assert stage.issue(0, 1, 2) == stage.engine.requests[:2]
    stage.sut.first_token(stage.engine.requests[0], 7)
    stage.turn()
    assert len(stage.engine.requests) == 2  # 1 token in prefill, 3 waiting, 3 allowed
    stage.sut.complete(stage.engine.requests[1], [5, 6], "stop", 0)  # an output of one piece
    assert [request.sample_index for request in stage.engine.requests] == [0, 1, 2]
    assert stage.failures == []
    stage.loop.close()


# The wake-up -----------------------------------------------------------------------------------------------------


class Interrupted(deque[Any]):
    """The queue between the threads; lets the other side act in the middle of an operation."""

    def __init__(self) -> None:
        super().__init__()
        self.before_append: Callable[[], None] = lambda: None
        self.after_len: Callable[[], None] = lambda: None

    def append(self, item: Any) -> None:
        act, self.before_append = self.before_append, lambda: None
        act()
        super().append(item)

    def __len__(self) -> int:
        length = super().__len__()
        act, self.after_len = self.after_len, lambda: None
        act()
        return length


def test_one_wake_up_for_all_that_arrived_before_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[Callable[[], None]] = []
    wake = stage.loop.call_soon_threadsafe

    def counted(call: Callable[[], None]) -> Any:
        woken.append(call)
        return wake(call)

    monkeypatch.setattr(stage.loop, "call_soon_threadsafe", counted)
    for place in range(5):
        stage.sut.issue_queries([Sample(HANDLE + 8 * place, 0)])
    stage.turn()
    assert (len(stage.engine.requests), len(woken)) == (5, 1)
    stage.sut.issue_queries([Sample(HANDLE + 40, 0)])
    stage.turn()
    assert (len(stage.engine.requests), len(woken)) == (6, 2)


def test_a_query_that_arrives_when_the_loop_has_just_looked(stage: Stage) -> None:
    stage.sut._arrived = arrived = Interrupted()
    arrived.after_len = lambda: stage.sut.issue_queries([Sample(HANDLE + 8, 1)])
    stage.sut.issue_queries([Sample(HANDLE, 0)])
    stage.turn()
    stage.turn()
    assert [request.sample_index for request in stage.engine.requests] == [0, 1]


def test_a_query_that_is_put_down_when_the_loop_has_just_looked(stage: Stage) -> None:
    stage.sut._arrived = arrived = Interrupted()
    stage.sut.issue_queries([Sample(HANDLE, 0)])  # the loop is told, and has not begun to look
    arrived.before_append = stage.turn
    stage.sut.issue_queries([Sample(HANDLE + 8, 1)])
    stage.turn()
    assert [request.sample_index for request in stage.engine.requests] == [0, 1]


def test_no_query_is_lost_between_many_threads() -> None:
    threads, queries_each = 8, 1_500
    stage = Stage()
    stage.sut._submit = lambda request: stage.sut.complete(request, [request.seq, 1], "stop", 0)
    running = threading.Thread(target=stage.loop.run_forever)
    running.start()
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads change places in the middle of everything

    def issue(thread: int) -> None:
        pauses = random.Random(thread)
        for place in range(queries_each):
            stage.sut.issue_queries([Sample(HANDLE + 8 * (thread * queries_each + place), 0)])
            if not pauses.randrange(10):
                time.sleep(pauses.random() * 1e-3)  # the loop falls asleep in between

    try:
        issuers = [threading.Thread(target=issue, args=(thread,)) for thread in range(threads)]
        for issuer in issuers:
            issuer.start()
        for issuer in issuers:
            issuer.join()
        end_s = time.monotonic() + 60
        while stage.sut.completed < threads * queries_each and not stage.failures and time.monotonic() < end_s:
            time.sleep(0.01)
    finally:
        sys.setswitchinterval(interval_s)
        stage.loop.call_soon_threadsafe(stage.loop.stop)
        running.join()
        stage.loop.close()
    assert stage.failures == []
    handles = [handle for _, handle, _, _ in stage.loadgen.calls]
    assert sorted(handles) == [HANDLE + 8 * place for place in range(threads * queries_each)]
    assert sorted(ids[0] for _, _, ids, _ in stage.loadgen.calls) == list(range(threads * queries_each))
    assert len(stage.recorder.outcomes) == threads * queries_each
