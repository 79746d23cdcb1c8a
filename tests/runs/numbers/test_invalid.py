"""Why a run is not valid: the advice is one that can be followed."""

from pathlib import Path

import pytest

from runs.loadgen.detail_log import read_detail
from runs.numbers.invalid import Settings, invalid_reasons
from runs.numbers.numbers import reported_numbers
from runs.record.layout import RunDir
from tests.signoff.forge.faults import set_detail
from tests.support.signoff_fixtures import FrozenLegs


@pytest.mark.parametrize(
    ("mean_ns", "advice"),
    [
        (5_000_000, "set SingleStream target_latency = 4 in user.conf (or less; the measured mean is 5 ms)"),
        (400_000, "set SingleStream min_query_count = 1100 in user.conf (or more; the measured mean is 0.4 ms)"),
    ],
    ids=["slow", "faster than a millisecond"],
)
def test_a_single_stream_run_that_was_too_short(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, mean_ns: int, advice: str
) -> None:
    run = RunDir(FrozenLegs(tmp_path_factory).copy(tmp_path / "leg", "ss-1"))
    set_detail(run, "result_min_duration_met", False)
    set_detail(run, "effective_min_duration_ms", 400)
    detail = read_detail(run.detail)
    reported = reported_numbers(detail)
    assert reported.latency_ns is not None
    latency_ns = reported.latency_ns.model_copy(update={"mean": mean_ns})
    reported = reported.model_copy(update={"latency_ns": latency_ns})
    (reason,) = invalid_reasons(detail, reported, None)
    assert advice in reason


@pytest.mark.parametrize(
    ("asked", "key", "text"),
    [
        (None, "target_qps", "Server target_qps = 2 in user.conf"),
        ({"scenario": "Server"}, "target_qps", "--target-qps 2"),
        ({"user_conf": "my.conf"}, "min_query_count", "`*.Server.min_query_count = 2` in my.conf"),
        ({}, "min_duration", "`*.Server.min_duration = 2` in a copy of configs/embedded.conf, named by --user-conf"),
        (
            {"dataset_path": "d"},
            "min_duration",
            "`*.Server.min_duration = 2` in a copy of user.conf, named by --user-conf",
        ),
    ],
)
def test_advice_names_what_the_user_has(asked: dict[str, str] | None, key: str, text: str) -> None:
    assert Settings("Server", asked).to(key, "2") == text
