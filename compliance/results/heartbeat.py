"""Contradictions between the last heartbeat of a complete run, progress.json, and its request log.

No number is computed from progress.json, but people read it. So a contradiction is a warning.
"""

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from compliance.judge.rule import OURS, decides
from compliance.judge.verdict import Finding
from compliance.results.log_clock import CLOCK_S
from compliance.results.log_contradictions import contradicted
from compliance.results.run_evidence import RunEvidence
from runs.loadgen.summary_log import Contradiction
from runs.record.manifest import Manifest
from runs.record.progress import LOWEST_PERCENTILE_NS, PERCENTILE_STEP, Progress, read_progress
from runs.record.requests_log import NO_TIME, RequestTable

ROUNDING = 1e-6  # relative tolerance for numbers in progress.json


def _counts(progress: Progress, manifest: Manifest, requests: RequestTable) -> Iterator[Contradiction]:
    """Compare the identity and the counts with the manifest and the request log."""
    expected: dict[str, int | str | None] = {
        "pid": manifest.pid,
        "scenario": manifest.plan.scenario,
        "mode": manifest.plan.mode,
        "issued": len(requests),
        "completed": len(requests),
        "output_tokens": int(requests.output_tokens.sum()),
    }
    for name, value in expected.items():
        if (stated := getattr(progress, name)) != value:
            yield Contradiction(f"{name} is {stated}", (name,), f"the run has {value}")


def _rates(progress: Progress, _: Manifest, requests: RequestTable) -> Iterator[Contradiction]:
    """Compare the time with the request log, and the rates with the counts and the time."""
    took_s = requests.span_s
    if progress.elapsed_s < took_s - CLOCK_S:
        yield Contradiction(
            f"elapsed_s is {progress.elapsed_s:.3f}", ("elapsed_s",), f"the requests took {took_s:.3f} s"
        )
    for name, count in (("samples_per_second", progress.completed), ("tokens_per_second", progress.output_tokens)):
        stated, computed = getattr(progress, name), count / max(progress.elapsed_s, 1e-9)
        if not np.isclose(stated, computed, rtol=ROUNDING):
            yield Contradiction(f"{name} is {stated:.6g}", (name,), f"the counts and the time give {computed:.6g}")


def _percentiles(progress: Progress, _: Manifest, requests: RequestTable) -> Iterator[Contradiction]:
    """Compare the latencies with the request log."""
    begin_ns = requests.issue_ns if requests.submit_ns is None else requests.submit_ns
    ttft_ns = (requests.first_token_ns - begin_ns)[requests.first_token_ns != NO_TIME].astype(np.float64)
    tpot_ns = requests.tpot_ns()
    for name, values_ns, share in (
        ("ttft_p50_ms", ttft_ns, 0.5),
        ("ttft_p99_ms", ttft_ns, 0.99),
        ("tpot_p50_ms", tpot_ns, 0.5),
        ("tpot_p99_ms", tpot_ns, 0.99),
    ):
        stated_ms = getattr(progress, name)
        if stated_ms is not None and len(values_ns):
            value_ms = max(_at_share(values_ns, share), LOWEST_PERCENTILE_NS) / 1e6
            if not (1 - ROUNDING) * stated_ms <= value_ms <= (1 + ROUNDING) * PERCENTILE_STEP * stated_ms:
                yield Contradiction(f"{name} is {stated_ms:.4g}", (name,), f"the request log gives {value_ms:.4g}")


def _at_share(values_ns: NDArray[np.float64], share: float) -> float:
    return float(np.sort(values_ns)[min(int(len(values_ns) * share), len(values_ns) - 1)])


@decides(
    "contradiction",
    ("record-progress", "warning", OURS, "last heartbeat in progress.json, compared with the request log",
     "use the numbers of LoadGen's logs, and restore progress.json as it was when the run ended"),
    needs=("log", "manifest", "record"),
)  # fmt: skip
def last_heartbeat(run: RunEvidence) -> Iterator[Finding]:
    """Compare the last heartbeat of a complete run with its manifest and request log."""
    progress, manifest, requests = read_progress(run.dir.progress), run.manifest, run.requests
    if progress is None or progress.phase != "done" or manifest is None or requests is None or not len(requests):
        return
    comparisons = (compare(progress, manifest, requests) for compare in (_counts, _rates, _percentiles))
    for contradiction in itertools.chain.from_iterable(comparisons):
        yield contradicted("record-progress", contradiction, run.dir.progress, run.dir.requests)
