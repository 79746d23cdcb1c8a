"""From records to what a picture shows."""

import numpy as np
import pytest

from compliance.report.series import BINS, CDF_POINTS, cdf, time_series
from runs.record.requests_log import NO_TIME, Digests, RequestTable


def table(count: int, *, offline: bool = False) -> RequestTable:
    """Queries one ms apart, first token after 10 ms, 11 tokens in all, one each ms."""
    seq = np.arange(count, dtype=np.int64)
    issue = 10**18 + seq * 1_000_000
    return RequestTable(
        seq=seq,
        sample_index=seq,
        prompt_tokens=np.full(count, 100, np.int64) + seq % 7,
        output_tokens=np.full(count, 11, np.int64),
        issue_ns=issue,
        first_token_ns=np.full(count, NO_TIME, np.int64) if offline else issue + 10_000_000,
        complete_ns=issue + 20_000_000,
        finish_reason=["stop"] * (count - 1) + ["length"],
        output_sha256=Digests(bytes(32 * count)),
    )


def test_what_is_drawn_is_bounded_whatever_the_number_of_queries() -> None:
    requests = table(300_000)
    over_time = time_series(requests, lateness_ns=requests.seq, late=requests.seq % 1000 == 0)
    assert len(cdf(requests.complete_ns - requests.issue_ns)[1]) <= CDF_POINTS
    assert len(over_time.tokens_per_second) == BINS
    assert over_time.lateness_ms is not None
    assert len(over_time.lateness_ms) == BINS
    assert over_time.late is not None
    assert over_time.late.sum() == 300


def test_distribution_holds_the_percentiles() -> None:
    values = np.random.default_rng(1).permutation(np.arange(1, 10_001)) * 1_000_000
    values_ms, shares = cdf(values)
    assert (values_ms[0], values_ms[-1], shares[-1]) == (1, 10_000, 1)
    assert np.interp(0.99, shares, values_ms) == pytest.approx(9_900, rel=0.001)
    assert (np.diff(shares) > 0).all()


def test_tokens_are_neither_lost_nor_made() -> None:
    for requests in (table(50), table(50, offline=True), table(1)):
        over_time = time_series(requests)
        made = (over_time.tokens_per_second * np.diff(over_time.edges_s)).sum()
        assert made == pytest.approx(requests.output_tokens.sum(), rel=1e-6)


def test_tokens_are_spread_over_the_time_of_an_answer() -> None:
    over_time = time_series(table(1))  # 20 ms; first token after 10 ms, then one each ms
    middle = over_time.edges_s[:-1]
    assert (over_time.tokens_per_second[middle < 0.0099] == 0).all()
    assert over_time.tokens_per_second[middle > 0.0101] == pytest.approx(1000)


def test_queries_open() -> None:
    over_time = time_series(table(100))
    assert over_time.waiting is not None
    assert over_time.waiting.max() == pytest.approx(10, abs=1)
    assert over_time.computing.max() == pytest.approx(10, abs=1)
    assert over_time.computing[-1] == 0
    offline = time_series(table(100, offline=True))
    assert offline.waiting is None
    assert offline.computing.max() == pytest.approx(20, abs=1)
