"""vLLM's own times of a leg's queries, as the manifest has them."""

from typing import Any

import pytest

from runs.record.observed import QueryTimes, query_times_of

ONE = {"queries": 2, "queued_s": 0.5, "prefill_s": 1.0, "decode_s": 3.5}


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        (None, None),
        ({"answers": 3}, None),
        ({"replicas": [{"answers": 3}]}, None),
        ({"query_times": ONE}, QueryTimes(**ONE)),
        (
            {"replicas": [{"query_times": ONE}, {}, {"query_times": ONE}]},
            QueryTimes(queries=4, queued_s=1.0, prefill_s=2.0, decode_s=7.0),
        ),
    ],
)
def test_all_engines_of_a_leg_together(seen: dict[str, Any] | None, found: QueryTimes | None) -> None:
    assert query_times_of(seen) == found


@pytest.mark.parametrize("wrong", [[], 1, {"decode_s": -1.0}, {"decode_s": "1"}, {**ONE, "more": 1}])
def test_a_damaged_record_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="query_times"):
        query_times_of({"replicas": [{"query_times": wrong}]})
