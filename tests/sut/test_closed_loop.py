"""The closed loop: the number of open queries never exceeds its limit, and is refilled at once."""

import pytest

from sut.dummy.dummy_engine import DummyEngine
from sut.feed import ClosedLoop
from tests.support.engines.fakes import PROMPTS, FakeStage
from tests.support.official import SAMPLING
from tests.support.runs.records import most_open
from tests.support.simulated import virtual_time as virtual

QUERIES = 70  # more than one slice of the loop


@pytest.mark.parametrize("limit", [1, 3, 40])
def test_a_closed_loop_of_n_equals_an_engine_with_n_slots(limit: int) -> None:
    def completions(slots: int, admission: ClosedLoop | None) -> list[int]:
        order = [place % len(PROMPTS) for place in range(QUERIES)]
        answered = virtual.issue_all(
            lambda _: DummyEngine(SAMPLING, slots=slots),
            PROMPTS,
            "Offline",
            order,
            admission=(lambda _: admission) if admission else None,
        )
        return [response.complete_ns for response in answered]

    assert completions(0, ClosedLoop(limit)) == pytest.approx(completions(limit, None), abs=10)


def test_a_query_is_open_until_its_response_is_logged() -> None:
    limit, total = 2, 40
    ticks = iter(range(1, 10_000))
    stage = FakeStage(report_first_token=False, admission=ClosedLoop(limit, lambda: next(ticks)))
    stage.sut.clock_ns = lambda: next(ticks)
    stage.issue(*[0] * total)
    for place in range(0, total, 2):
        first, second = stage.engine.requests[place : place + 2]
        stage.sut.first_token(first, 7)  # plans a slice, before the responses below are logged
        stage.sut.complete(first, [7, 8], "stop", 0)
        stage.sut.complete(second, [7, 8], "stop", 0)
        stage.slices()
        assert len(stage.engine.requests) == min(total, place + 4)
    assert stage.failures == []
    assert {kind for kind, *_ in stage.loadgen.calls} == {"done"}
    done = {request.seq: (request.submit_ns, ns) for ns, (request, _, _) in stage.request_log.outcomes}
    assert most_open(*zip(*done.values(), strict=True)) == limit
    assert stage.engine.requests[0].first_token_ns > stage.engine.requests[0].submit_ns > 0
    stage.loop.close()
