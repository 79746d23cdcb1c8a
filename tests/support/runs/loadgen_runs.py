"""Recorded LoadGen runs around the null SUT."""

from dataclasses import replace
from pathlib import Path

from runs.record.layout import RunDir
from tests.support.engines.null_sut import NullRunSpec, start
from tests.support.once import make_and_keep
from tests.support.runs.recorded import NULL, recorded

EDGE = "llama3_1-8b-edge"
INTERACTIVE = "llama3_1-8b-interactive"


def _offline(**more: object) -> dict[str, object]:
    return {"min_duration": 500, "min_query_count": 100, **more}


def _server(**more: object) -> dict[str, object]:
    return {"min_duration": 1000, "target_qps": 500, **more}


def _roomy(**more: object) -> dict[str, object]:
    """Return limits that each busy host meets."""
    return _server(ttft_latency=60_000, tpot_latency=10_000, **more)


def _single(**more: object) -> dict[str, object]:
    return {"min_duration": 500, "target_latency": 4, **more}


# Performance runs that LoadGen calls VALID
VALID: dict[str, NullRunSpec] = {
    "offline": NullRunSpec("", user_conf=_offline(target_qps=300), latency_s=0.6, trace=True),
    "offline-no-trace": NullRunSpec("", user_conf=_offline(target_qps=300), latency_s=0.6),
    "offline-part-of-library": NullRunSpec(
        "",
        key=EDGE,
        user_conf=_offline(performance_sample_count_override=30),
        total_count=101,
        latency_s=0.6,
        trace=True,
    ),
    "server": NullRunSpec("", "Server", user_conf=_roomy(), trace=True),
    # Long enough to be judged from requests.jsonl alone, if one late query more or less does not matter.
    "server-no-trace": NullRunSpec("", "Server", user_conf=_roomy(target_qps=1500)),
    "interactive": NullRunSpec("", "Server", key=INTERACTIVE, user_conf=_roomy(), trace=True),
    "single-stream": NullRunSpec("", "SingleStream", key=EDGE, user_conf=_single(), trace=True),
    "single-stream-no-trace": NullRunSpec("", "SingleStream", key=EDGE, user_conf=_single()),
}
# Performance runs that LoadGen calls INVALID, and a word of the expected reason
INVALID: dict[str, tuple[NullRunSpec, str]] = {
    "offline-too-short": (NullRunSpec("", user_conf={"min_query_count": 100}, latency_s=0.2, trace=True), "1.1 ×"),
    "server-too-few": (NullRunSpec("", "Server", user_conf=_server(target_qps=100)), "459"),
    "interactive-late-first-token": (
        NullRunSpec(
            "", "Server", key=INTERACTIVE, user_conf=_server(), first_token_s=0.6, latency_s=0.61, tokens=(8, 128)
        ),
        "p99 TTFT",
    ),
    "interactive-slow-tokens": (
        NullRunSpec("", "Server", key=INTERACTIVE, user_conf=_server(), latency_s=0.1, tokens=(2, 8), trace=True),
        "p99 TPOT",
    ),
    "single-stream-too-few": (
        NullRunSpec(
            "", "SingleStream", key=EDGE, user_conf=_single(target_latency=100, min_query_count=10), total_count=20
        ),
        "at least 64 queries",
    ),
    "server-one-token": (NullRunSpec("", "Server", user_conf=_server(), tokens=(1, 3), trace=True), "error records"),
}
ACCURACY: dict[str, NullRunSpec] = {
    "offline-accuracy": NullRunSpec("", mode="AccuracyOnly", trace=True),
    "server-accuracy": NullRunSpec("", "Server", mode="AccuracyOnly", user_conf={"target_qps": 300}),
    "single-stream-accuracy-in-sets": NullRunSpec(
        "",
        "SingleStream",
        key=EDGE,
        mode="AccuracyOnly",
        user_conf={"performance_sample_count_override": 30},
        performance_count=30,
    ),
}
# Settings that change the order of issue
ORDERS: dict[str, NullRunSpec] = {
    "server-in-any-order": NullRunSpec("", "Server", user_conf=_server(sample_concatenate_permutation=0), trace=True),
    "server-same": NullRunSpec(
        "",
        "Server",
        user_conf=_server(),
        audit_conf={"performance_issue_same": 1, "performance_issue_same_index": 3},
        trace=True,
    ),
    "server-coalesced": NullRunSpec(
        "", "Server", user_conf=_server(target_qps=3000, coalesce_queries=1, min_duration=300), trace=True
    ),
    "server-many": NullRunSpec("", "Server", user_conf=_server(min_query_count=730), trace=True),
    "single-stream-unique": NullRunSpec(
        "",
        "SingleStream",
        key=EDGE,
        user_conf=_single(),
        audit_conf={"performance_issue_unique": 1, "sample_concatenate_permutation": 0, "min_query_count": 64},
        trace=True,
    ),
    "offline-not-permuted": NullRunSpec(
        "", user_conf=_offline(min_query_count=250, sample_concatenate_permutation=0), latency_s=0.6, trace=True
    ),
}
# Too large to be recorded. Above 65,535 samples, std::shuffle uses another algorithm.
HUGE = NullRunSpec(
    "", user_conf=_offline(performance_sample_count_override=0), total_count=70_000, latency_s=0.6, trace=True
)
ALL: dict[str, NullRunSpec] = {**VALID, **{name: spec for name, (spec, _) in INVALID.items()}, **ACCURACY, **ORDERS}


class LoadgenRuns:
    """The runs by name."""

    def __getitem__(self, name: str) -> RunDir:
        if name == "offline-huge-library":
            return RunDir(make_and_keep(f"loadgen-{name}", _make_huge) / name)
        assert name in ALL
        return RunDir(recorded() / NULL / name)


def _make_huge(folder: Path) -> None:
    start(replace(HUGE, outdir=str(folder / "offline-huge-library")))
