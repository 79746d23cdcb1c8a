"""Generated comparisons of two systems, A and B."""

from typing import Any

from runs.ab.ab_record import AbBlock, AbChange, AbLoad, AbRecord, AbSystem, AbVerdict
from runs.bench.bench_record import BenchRun


def change_of(quantity: str, change: float, verdict: AbVerdict, half: float = 0.005) -> AbChange:
    return AbChange(
        load=0, system=1, quantity=quantity, unit="ms", is_main=True, base=10, value=10 * (1 + change), change=change,
        low=change - half, high=change + half, values=[change], times_s=[0], trimmed=[], verdict=verdict,
    )  # fmt: skip


def record_of(
    *changes: AbChange, limit: float | None = 0.03, saturated: tuple[int, ...] = (), **fields: Any
) -> AbRecord:
    run = BenchRun(number=1, kind="server", scenario="Server", verdict="measured", queries=100)
    block = AbBlock(number=1, load=0, pair=0, systems=[0, 1], run=run, seconds=20, saturated=list(saturated))
    return AbRecord(
        status="complete", command=["ab"], method="interleaved", precision=0.02, max_time_s=60, fail_if_slower=limit,
        systems=[AbSystem(name="A", target="a"), AbSystem(name="B", target="b")], seed=1, conditions={},
        loads=[AbLoad(kind="server", qps=8)], blocks=[block], changes=list(changes), **fields,
    )  # fmt: skip
