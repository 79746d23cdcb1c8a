"""What is measured while a leg runs: the engines' own times, and how late the client of a server was."""

from typing import Any

import pytest

from runs.record.observed import EngineSeen, LatenessSummary, Observed, QueryTimes, ServerClient, late_client
from tests.support.records import observed

LIMITS = {"TTFT": 2_000_000_000, "TPOT": 100_000_000}


def seen(sent_ms: list[float], told_ms: float | None, tokens: int = 1280) -> Observed:
    """Clients that sent so late, each with ten answers, and were read so late."""
    clients = [
        ServerClient.model_construct(answers=10, tokens=tokens, issue_to_wire=LatenessSummary(count=10, p99_ms=one))
        for one in sent_ms
    ]
    found = Observed.model_validate(observed())
    found.engines = [EngineSeen.model_construct(client=one, query_times=None) for one in clients]
    found.read_to_loadgen = None if told_ms is None else LatenessSummary(count=10, p99_ms=told_ms)
    return found


@pytest.mark.parametrize(
    ("found", "limits", "flagged"),
    [
        (seen([60.0], 39.0), LIMITS, []),
        (seen([60.0], 41.0), LIMITS, ["TTFT"]),
        (seen([0.0], 700.0), LIMITS, ["TTFT", "TPOT"]),
        (seen([0.0], 20.0, tokens=20), LIMITS, ["TPOT"]),
        (seen([500.0], 500.0), {}, []),
        (seen([10.0, 99.0], None), LIMITS, []),
        (seen([10.0, 99.0], 2.0), LIMITS, ["TTFT"]),
        (seen([], None), LIMITS, []),
    ],
)
def test_more_than_a_twentieth_of_a_limit_is_flagged(
    found: Observed, limits: dict[str, Any], flagged: list[str]
) -> None:
    said = list(late_client(found, limits))
    assert len(said) == len(flagged)
    assert all(f"of the {name} limit" in sentence for name, sentence in zip(flagged, said, strict=True))


ONE = {"queries": 2, "queued_s": 0.5, "prefill_s": 1.0, "decode_s": 3.5}


@pytest.mark.parametrize(
    ("engines", "found"),
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
def test_all_engines_of_a_leg_together(engines: list[dict[str, Any]], found: QueryTimes | None) -> None:
    assert Observed.model_validate(observed(engines=engines)).query_times == found


@pytest.mark.parametrize("wrong", [[], 1, {"decode_s": -1.0}, {"decode_s": "1"}, {**ONE, "more": 1}])
def test_a_damaged_record_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="query_times"):
        EngineSeen.model_validate({"query_times": wrong})
