"""The server that a client's speed is measured against."""

import pytest

from sut.endpoint import client_speed
from sut.endpoint.dialects import TensorRtLlm, VllmCompletions


def test_a_client_is_measured_with_the_events_of_the_servers_dialect(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BURST_ANSWERS", "PACED_ANSWERS"):
        monkeypatch.setattr(client_speed, name, 10)
    assert client_speed.measure_client(VllmCompletions).events == 2
    assert client_speed.measure_client(TensorRtLlm).events == 128
