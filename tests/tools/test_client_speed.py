"""The client's speed is measured with streams that the client accepts; how fast it is, no test judges."""

import pytest

from sut.endpoint.dialects import TENSORRT_LLM, VLLM
from tools.bench.support import client_speed


def test_a_client_is_measured_with_the_events_of_the_servers_dialect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_speed, "MOST_ANSWERS", 10)
    assert client_speed.measure_client(VLLM).events == 2
    assert client_speed.measure_client(TENSORRT_LLM).events == 128
