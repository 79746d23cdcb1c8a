"""The server that a client's speed is measured against."""

import asyncio

import pytest

from sut.endpoint import client_speed
from sut.endpoint.dialects import TensorRtLlm, VllmCompletions
from tests.sut.endpoint.legs import PROMPTS, answers, engine_for


@pytest.mark.parametrize("events", [2, 3, 8])
def test_an_answer_comes_in_so_many_events(events: int) -> None:
    async def leg(url: str) -> None:
        engine = engine_for(url)
        await engine.start()
        told = await answers(engine, PROMPTS)
        assert all(events[-1][0] == "done" for events in told)
        assert (await engine.observed()).engines[0]["client"]["chunks"] == events * len(PROMPTS)
        await engine.stop()

    with client_speed.instant_server(events) as url:
        asyncio.run(leg(url))


def test_a_client_is_measured_with_the_events_of_the_servers_dialect(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BURST_ANSWERS", "PACED_ANSWERS"):
        monkeypatch.setattr(client_speed, name, 10)
    assert client_speed.measure_client(VllmCompletions).events == 2
    assert client_speed.measure_client(TensorRtLlm).events == 128
