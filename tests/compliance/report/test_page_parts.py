"""Parts of pages: remarks with their runs, and settings with units."""

from typing import Any

import pytest

from compliance.report.remarks import grouped_remarks
from compliance.report.settings import setting_row, setting_rows


def test_a_repeated_remark_is_shown_once_with_its_runs() -> None:
    remarks = grouped_remarks([("a", "late"), ("b", "slow"), ("c", "late"), ("a", "late")])
    assert [(remark.text, remark.places_text) for remark in remarks] == [("late", "2 runs: a; c"), ("slow", "b")]


def test_a_remark_on_many_runs_names_the_first_runs() -> None:
    (remark,) = grouped_remarks((f"run {number}", "late") for number in range(20))
    assert remark.places_text == "20 runs: run 0; run 1; run 2; run 3; run 4; run 5; and 14 more"


@pytest.mark.parametrize(
    ("name", "value", "row"),
    [
        ("ttft_limit_ns", 3_600_000_000_000, ("ttft limit", "unlimited")),
        ("ttft_limit_ns", 2_000_000_000, ("ttft limit", "2,000 ms")),
        ("requested_server_ttft_latency_ns", 3_600_000_000_000, ("requested server ttft latency", "unlimited")),
        ("min_duration_ms", 600_000, ("min duration", "10 min")),
        ("max_duration_ms", 0, ("max duration", "0 ms")),
        ("kv_cache_bytes", 3 << 30, ("kv cache", "3 GiB")),
        ("max_num_seqs", 256, ("max num seqs", "256")),
        ("enable_prefix_caching", False, ("enable prefix caching", "no")),
        ("seed", 3066443479025735752, ("seed", "3066443479025735752")),
        ("versions", {"vllm": "0.32", "torch": "2.13"}, ("versions", "vllm 0.32, torch 2.13")),
    ],
)
def test_a_setting_has_words_and_a_unit(name: str, value: Any, row: tuple[str, str]) -> None:
    assert setting_row(name, value) == row


def test_settings_without_a_value_are_left_out() -> None:
    assert [row.name for row in setting_rows([("a", None), ("b", 0), ("c", ""), ("d", False)])] == ["b", "d"]
