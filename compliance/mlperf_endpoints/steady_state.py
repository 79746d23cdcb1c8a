"""The client's steady-state block, compared with the window that its events have, and the steady state in words."""

from collections.abc import Iterator

from compliance.judge.rule import OURS, decides
from compliance.judge.verdict import Finding, NotApplied, compared
from compliance.mlperf_endpoints.endpoints_evidence import EndpointsEvidence
from compliance.mlperf_endpoints.steady_window import SteadyState
from compliance.mlperf_endpoints.summary_comparison import reported_differences
from runs.mlperf_endpoints.layout import EVENTS, SUMMARY


def _no_block(case: EndpointsEvidence) -> str:
    has_block = case.run.summary is not None and case.run.summary.steady_state is not None
    return "" if has_block else f"{SUMMARY} has no steady-state block"


@decides(
    "contradiction",
    ("endpoints-steady-state", "error", OURS, "the client's steady-state window that differs from the events",
     "restore the file that the client wrote"),
    needs=("load",),
    applies=_no_block,
)  # fmt: skip
def check_steady_state(case: EndpointsEvidence) -> Iterator[Finding | NotApplied]:
    """Compare the client's steady-state block with the window that the events have."""
    summary, steady = case.run.summary, case.steady_state
    assert summary is not None  # see `applies`
    if steady is None:
        yield NotApplied("the tokens or the size of the dataset are unknown", what="endpoints-steady-state")
        return
    wrong = list(reported_differences(summary.steady_state, steady.reported))
    value = "; ".join(f"{name}: {value}, recomputed: {wanted}" for name, value, wanted in wrong) or "equal"
    yield compared("endpoints-steady-state", not wrong, value, "equal", case.run.path(SUMMARY), case.run.path(EVENTS))


def steady_state_line(steady: SteadyState) -> str:
    """Return the steady state in words."""
    text, window = f"steady state: {steady.status}, {steady.verdict}", steady.window
    if window is None:
        return text
    first, last = steady.cropped + window.start, steady.cropped + window.end - 1
    return (
        f"{text}, super-passes {first} to {last} of {steady.super_passes}, {window.duration_s:.2f} s: TPS "
        f"{window.system_tps:.6g}, per user {window.per_user_tps:.6g}"
    )
