"""A client of a server that was late itself is flagged, by the limits of its leg."""

from typing import Any

import pytest

from runs.record.observed import late_client

LIMITS = {"scenario": "Server", "ttft_latency": 2_000_000_000, "tpot_latency": 100_000_000}


def _observed(sent_ms: float, told_ms: float, tokens: int = 1280) -> dict[str, Any]:
    late = {"issue_to_wire": {"p99_ms": sent_ms}, "read_to_loadgen": {"p99_ms": told_ms}}
    return {"engine": {"answers": 10, "tokens": tokens, **late}}


@pytest.mark.parametrize(
    ("observed", "limits", "flagged"),
    [
        (_observed(60.0, 39.0), LIMITS, []),
        (_observed(60.0, 41.0), LIMITS, ["TTFT"]),
        (_observed(0.0, 700.0), LIMITS, ["TTFT", "TPOT"]),
        (_observed(0.0, 20.0, tokens=20), LIMITS, ["TPOT"]),
        (_observed(500.0, 500.0), {**LIMITS, "scenario": "Offline"}, []),
        ({"engine": {"replicas": [_observed(10.0, 1.0)["engine"], _observed(99.0, 1.0)["engine"]]}}, LIMITS, []),
        (
            {
                "engine": {
                    "replicas": [_observed(10.0, 1.0)["engine"], _observed(99.0, 1.0)["engine"]],
                    "read_to_loadgen": {"p99_ms": 2.0},
                }
            },
            LIMITS,
            ["TTFT"],
        ),
        ({}, LIMITS, []),
        ({"engine": {"answers": 0, "issue_to_wire": {"count": 0}}}, LIMITS, []),
    ],
)
def test_more_than_a_twentieth_of_a_limit_is_flagged(
    observed: dict[str, Any], limits: dict[str, Any], flagged: list[str]
) -> None:
    found = list(late_client(observed, limits))
    assert len(found) == len(flagged)
    assert all(f"of the {name} limit" in sentence for name, sentence in zip(flagged, found, strict=True))
