"""Early stopping, compared with known counts and with exact arithmetic."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.loadgen.early_stopping import estimate_percentile, judge_latencies, late_queries_allowed, min_queries


@pytest.mark.parametrize(("late", "queries"), [(0, 459), (1, 662), (2, 838), (5, 1307), (10, 2010), (100, 12571)])
def test_minimum_query_counts_equal_published_values(late: int, queries: int) -> None:
    assert min_queries(late, 0.99) == queries


@pytest.mark.parametrize(
    ("queries", "percentile", "allowed"),
    [
        (13_368, 0.99, 107),
        (26_736, 0.99, 229),
        (5_000, 0.9, 450),
        (10_000, 0.9, 930),
        (458, 0.99, -1),
        (459, 0.99, 0),
        (0, 0.99, -1),
    ],
)
def test_allowed_late_queries_equal_published_values(queries: int, percentile: float, allowed: int) -> None:
    assert late_queries_allowed(queries, percentile) == allowed


def exact_cdf(late: int, queries: int, percentile: Fraction) -> Fraction:
    """Return P(X <= late) of Binomial(queries, 1 - percentile), without rounding."""
    q = 1 - percentile
    return sum((comb(queries, k) * q**k * percentile ** (queries - k) for k in range(late + 1)), Fraction(0))


@given(late=st.integers(0, 12), percentile=st.sampled_from([Fraction(9, 10), Fraction(97, 100), Fraction(99, 100)]))
def test_minimum_query_counts_are_exact(late: int, percentile: Fraction) -> None:
    queries = min_queries(late, float(percentile))
    assert exact_cdf(late, queries, percentile) < Fraction(1, 100) <= exact_cdf(late, queries - 1, percentile)


@pytest.mark.parametrize(("late", "met"), [(107, True), (108, False)])
def test_one_late_query_above_the_allowance_fails(late: int, met: bool) -> None:
    values_ns = np.full(13_368, 2_000_000_000, dtype=np.int64)  # a latency at the limit is in time
    values_ns[:late] += 1
    verdict = judge_latencies(values_ns, 2_000_000_000, 0.99)
    assert (verdict.met, verdict.late, verdict.allowed) == (met, late, 107)
    assert (verdict.queries_needed <= 13_368) == met
    assert str(verdict) == f"late queries: {late} of 13,368, allowed: 107"


def test_a_run_with_too_few_queries_states_the_needed_number() -> None:
    verdict = judge_latencies(np.zeros(100, dtype=np.int64), 1, 0.99)
    assert not verdict.met
    assert "459 are needed" in str(verdict)


def test_the_single_stream_estimate_excludes_the_slowest_queries() -> None:
    values_ns = np.arange(5_000, dtype=np.int64)
    assert estimate_percentile(values_ns, 0.9) == 5_000 - 450
    assert estimate_percentile(values_ns[:64], 0.9) == 63
    assert estimate_percentile(values_ns[:63], 0.9) is None
    assert estimate_percentile(values_ns[:661], 0.99) is None
