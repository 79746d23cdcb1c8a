"""The exit codes and sentences of comparisons."""

import numpy as np
import pytest

from runs.ab.ab_record import AbChange, AbRecord
from runs.ab.ab_text import limits_line, sentences, table
from runs.ab.block_queries import SystemQueries
from runs.ab.changes import is_settled
from runs.bench.bench_record import Limits
from runs.errors import ExitCode
from tests.support.runs.ab_records import change_of, record_of

SLOWER = change_of("TPOT mean", 0.05, "slower")
SLIGHTLY = change_of("TPOT mean", 0.02, "slower")
EQUAL = change_of("TTFT mean", 0.001, "equal")
UNDECIDED = change_of("TTFT mean", 0.02, "undecided", 0.05)
SLIGHT = change_of("TPOT mean", 0.006, "slower")
TAIL = change_of("TPOT p99", 0.3, "slower", 0.1).model_copy(update={"is_main": False})
KNOWN_TAILS = [
    change_of(f"{latency} p99", 0.02, "equal", 0.1).model_copy(update={"is_main": False, "precision": 0.15})
    for latency in ("TTFT", "TPOT")
]
LIKE_THE_MEAN = change_of("TPOT p90", 0.05, "slower").model_copy(update={"is_main": False})


@pytest.mark.parametrize(
    ("record", "code"),
    [
        (record_of(SLOWER, EQUAL), ExitCode.NEGATIVE),
        (record_of(SLOWER, EQUAL, limit=None), ExitCode.OK),
        (record_of(SLIGHTLY, EQUAL), ExitCode.OK),
        (record_of(change_of("TPOT mean", -0.05, "faster"), EQUAL), ExitCode.OK),
        (record_of(UNDECIDED), ExitCode.REFUSED),
        (record_of(UNDECIDED, limit=None), ExitCode.OK),
        (record_of(SLOWER, withheld=["late"]), ExitCode.REFUSED),
        (record_of(EQUAL, saturated=(1,)), ExitCode.NEGATIVE),
        (record_of(EQUAL, saturated=(0, 1)), ExitCode.REFUSED),
    ],
)
def test_the_exit_code_follows_from_the_verdicts(record: AbRecord, code: ExitCode) -> None:
    assert record.exit_code == code


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (
            record_of(SLOWER, EQUAL),
            ["B has a longer TPOT (+5.0%); the other means are equal within 2%; TTFT p99 and TPOT p99 are unknown: "
             "about 1,000 queries of each system are needed."],
        ),
        (
            record_of(EQUAL),
            ["B: all means are equal within 2%; TTFT p99 is unknown: about 1,000 queries of each system are needed."],
        ),
        (
            record_of(change_of("TPOT mean", 0.001, "equal"), EQUAL, *KNOWN_TAILS),
            ["B: all means are equal within 2%; a change of TTFT p99 above 12% or of TPOT p99 above "
             "12% would have been found."],
        ),
        (
            record_of(change_of("TPOT mean", 0.001, "equal"), EQUAL, KNOWN_TAILS[0], TAIL),
            ["B has a longer TPOT p99 (+30.0%); all means are equal within 2%; a change of TTFT p99 above 12% would "
             "have been found."],
        ),
        (record_of(SLIGHT, TAIL), ["B has a longer TPOT (+0.6%) and a longer TPOT p99 (+30.0%)."]),
        (record_of(SLOWER, LIKE_THE_MEAN, KNOWN_TAILS[1]), ["B has a longer TPOT (+5.0%); a change of TPOT p99 above "
         "12% would have been found."]),
        (
            record_of(SLOWER, UNDECIDED, *KNOWN_TAILS),
            ["B has a longer TPOT (+5.0%); TTFT mean is undecided; a change of TTFT p99 above 12% or of "
             "TPOT p99 above 12% would have been found."],
        ),
        (record_of(saturated=(1,)), ["B is slower: saturated at 8 queries/s."]),
        (record_of(saturated=(0,)), ["B is faster: A is saturated at 8 queries/s, and B is not."]),
        (record_of(SLOWER, withheld=["the client was late"]), ["no statement: the client was late"]),
    ],
)  # fmt: skip
def test_the_sentence_names_what_differs(record: AbRecord, expected: list[str]) -> None:
    assert sentences(record) == expected


def test_slow_queries_in_bursts_leave_a_tail_unknown() -> None:
    unbounded = TAIL.model_copy(update={"verdict": "undecided", "low": None, "high": None, "values": []})
    record = record_of(change_of("TPOT mean", 0.001, "equal"), unbounded)
    (block,) = record.blocks
    many = block.run.model_copy(update={"queries": 4000})
    record = record.model_copy(update={"blocks": [block.model_copy(update={"run": many})]})
    assert sentences(record) == ["B: all means are equal within 2%; TPOT p99 is unknown: slow queries came in bursts."]
    assert [*table(record, 0, 1)][2].split()[-2:] == ["unbounded", "undecided"]


def test_a_changed_tail_without_an_upper_end_is_known() -> None:
    record = record_of(change_of("TPOT mean", 0.001, "equal"), TAIL.model_copy(update={"high": None}))
    assert sentences(record) == ["B has a longer TPOT p99 (+30.0%); all means are equal within 2%."]
    assert [*table(record, 0, 1)][2].split()[-4:] == ["+20.0%", "or", "more", "slower"]


@pytest.mark.parametrize(
    ("changes", "first_tail_s", "settled"),
    [
        ([EQUAL], 400, False),
        ([EQUAL], 700, True),  # the time does not suffice for a tail
        ([EQUAL, KNOWN_TAILS[0]], 400, True),
        ([EQUAL, SLOWER], 400, True),
        ([EQUAL, SLIGHT], 400, False),
        ([EQUAL, SLIGHT, TAIL], 400, True),
    ],
)
def test_a_comparison_waits_for_a_tail_that_its_time_allows(
    changes: list[AbChange], first_tail_s: float, settled: bool
) -> None:
    assert is_settled(changes, 2, 0.02, first_tail_s=first_tail_s, max_time_s=600) is settled


def test_the_share_of_queries_within_the_limits_is_stated_for_each_system() -> None:
    record = record_of(EQUAL, limits=Limits(ttft=500, tpot=50))
    (block,) = record.blocks
    measured = record.model_copy(update={"blocks": [block.model_copy(update={"within": [50, 45]})] * 2})
    assert limits_line(measured, 0) == (
        "within TTFT 500 ms, TPOT 50 ms: 100.0% of the queries of A, 90.0% of the queries of B"
    )
    assert limits_line(record, 0) == ""
    without_first_tokens = record.model_copy(update={"blocks": [block.model_copy(update={"within": [None, None]})]})
    assert limits_line(without_first_tokens, 0) == ""


def test_queries_within_all_limits_are_counted() -> None:
    times_s = np.array([0.1, 0.2, 0.3])
    queries = SystemQueries(np.zeros(3), times_s + 1, times_s, times_s / 10, np.full(3, 8.0))
    assert queries.within(Limits(ttft=250, tpot=15)) == 1
    assert queries.within(Limits(e2el=1200)) == 2
    assert SystemQueries(np.zeros(3), times_s, None, None, np.full(3, 8.0)).within(Limits(ttft=250)) is None


def test_a_row_states_values_change_interval_and_verdict() -> None:
    row = [*table(record_of(SLOWER), 0, 1)][1]
    assert row.split() == ["TPOT", "mean", "10", "10.5", "ms", "+5.0%", "+4.5%", "to", "+5.5%", "slower"]
