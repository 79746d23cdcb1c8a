"""The sizes of all measurements."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurements. The defaults are those of `make peers`, about an hour on two idle cores."""

    repeats: int = 3  # repetitions of each short measurement
    # (a) and (d)
    offline_samples: int = 832
    compute_share: int = 8  # model C, which is slower, gets 1/8 of T's Offline samples
    single_stream_queries: int = 64
    # (b)
    null_latency_pairs: int = 5
    null_searches: int = 2  # searches for the highest rate
    null_seconds: float = 2.0  # duration of a Server run with a null engine
    null_rates: tuple[float, float] = (5_000.0, 160_000.0)  # lowest and highest queries/s tried
    # (c)
    server_seconds: float = 20.0
    rate_shares: tuple[float, float, float] = (0.6, 1.05, 0.05)  # tried shares of the Offline rate: from, to, step
    # (m)
    http_rate_shares: tuple[float, float, float] = (0.7, 0.95, 0.05)
    # (e)
    scored_samples: int = 13_368  # number of samples of the benchmark
    # (i)
    rows: int = 13_368
    real_samples: int = 307_464  # 1.1 × 600 s × 450 samples/s, about what eight H100s do, in whole datasets
    real_seconds: float = 215.0
    memory_seconds: float = 60.0
    short_runs: tuple[int, int] = (832, 3_000)
    # (t)
    truth_rates: tuple[float, ...] = (50.0, 100.0, 200.0, 500.0, 800.0)  # requests/s
    truth_seconds: float = 6.0  # duration of the load at each rate
    truth_limit_s: float = 120.0  # time limit of a client's run


SMALLEST = Sizes(
    repeats=1,
    null_latency_pairs=1,
    null_searches=1,
    offline_samples=64,
    single_stream_queries=64,
    null_seconds=0.2,
    null_rates=(500.0, 1_000.0),
    server_seconds=1.0,
    rate_shares=(0.3, 0.6, 0.3),
    http_rate_shares=(0.3, 0.6, 0.3),
    scored_samples=64,
    rows=64,
    real_samples=2_048,
    real_seconds=4.0,
    memory_seconds=1.0,
    short_runs=(64, 128),
    truth_rates=(20.0, 40.0),
    truth_seconds=1.0,
)
