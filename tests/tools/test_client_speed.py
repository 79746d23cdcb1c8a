"""The speed of the client, measured with streams that it accepts. No test judges the speed."""

import pytest

from tools.peers.support import client_speed


def test_the_client_speed_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_speed, "RESPONSES", 10)
    speed = client_speed.measure_client()
    assert min(speed.responses_per_s, speed.responses_per_core_s) > 0
