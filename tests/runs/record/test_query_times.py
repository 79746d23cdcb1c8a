"""vLLM's own times of a leg's queries, as the manifest has them."""

from typing import Any

import pytest

from runs.record.observed import EngineSeen, Observed, QueryTimes
from tests.support.records import observed

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
