"""M: the phases of a request's time, and whether a claim names the phase that changed.

The phases: wait (until LoadGen issues the request), prefill (until its first token, with the time in the engine's
queue, which is not recorded) and decode (until its last).
"""

from collections.abc import Iterator

import numpy as np

from compliance.finding import Finding, note, warn
from compliance.signoff.claim import Claim
from compliance.signoff.evidence import Evidence, checks
from runs.numbers.timeline import timeline

ATTRIBUTED_SHARE = 0.95  # of the requests must have all three phases
PHASES = ("wait", "prefill", "decode")


def _phases(legs: list[Evidence]) -> tuple[dict[str, float], int, int]:
    """Mean time of a request in each phase, in ms; the number of requests, and of those with all phases."""
    sums = np.zeros(3)
    requests = attributed = 0
    for evidence in legs:
        if evidence.requests is None or not evidence.details.get("derived"):
            continue
        times = timeline(evidence.detail, evidence.requests, evidence.trace)
        requests += len(times)
        if times.ttft_ns is None:
            continue
        wait_ns = times.issued_ns - times.scheduled_ns
        parts_ns = np.stack((wait_ns, times.ttft_ns - wait_ns, times.latency_ns - times.ttft_ns))
        whole = (parts_ns >= -1_000_000).all(axis=0)
        attributed += int(whole.sum())
        sums += parts_ns[:, whole].sum(axis=1)
    return dict(zip(PHASES, (sums / max(attributed, 1) / 1e6).tolist(), strict=True)), requests, attributed


@checks(
    "M-1",
    ("unattributed", "warning", "requests have all three phases"),
    ("phases", "note", "the phases of a request's time"),
)
def attribution(ref: list[Evidence], cand: list[Evidence], claim: Claim, band_pct: float) -> Iterator[Finding]:
    """The phases of both sides, then M-2 if the claim names a phase."""
    known: list[dict[str, float]] = []
    for name, legs in (("reference", ref), ("candidate", cand)):
        phases, requests, attributed = _phases(legs)
        known += [phases] if attributed else []
        if not requests:
            text = f"the {name} has no times of phases"
            yield from (warn("M-1/unattributed", text, leg.run.root) for leg in legs[:1])
            continue
        share, whole = attributed / requests, sum(phases.values())
        if share < ATTRIBUTED_SHARE:
            text = f"{share:.1%} of the {name}'s requests have a first token; the others have no phases"
            yield warn("M-1/unattributed", text, legs[0].run.requests, attributed_share=share)
            continue
        shares = ", ".join(f"{phase} {value / whole if whole > 0 else 0:.1%}" for phase, value in phases.items())
        text = f"{name}: {shares} of {whole:.3f} ms a request; {max(phases, key=phases.__getitem__)} dominates"
        yield note("M-1/phases", text, legs[0].run.requests, **phases, requests=requests, attributed=attributed)
    if claim.phase is not None:
        yield _credited(known, claim.phase, band_pct)


@checks(
    "M-2",
    ("phase_not_shown", "warning", "there are phases to compare"),
    ("wrong_phase", "warning", "the claimed phase became shorter"),
    ("phase_confirmed", "note", "the claimed phase became shorter"),
)
def _credited(known: list[dict[str, float]], claimed: str, band_pct: float) -> Finding:
    """M-2: the phase that the claim names is the one that became shorter."""
    if len(known) < 2:
        return warn("M-2/phase_not_shown", f"the claim credits {claimed}, and there are no phases to compare")
    ref, cand = known
    gains_ms = {name: ref[name] - cand[name] for name in PHASES}
    largest = max(gains_ms, key=gains_ms.__getitem__)
    shown = ", ".join(f"{name} {ref[name]:.3f} to {cand[name]:.3f} ms" for name in PHASES)
    if gains_ms[claimed] <= band_pct / 100 * sum(ref.values()) or largest != claimed:
        text = f"the claim credits {claimed}, the gain came from {largest}: {shown}"
        return warn("M-2/wrong_phase", text, **{f"{name}_gain_ms": gain for name, gain in gains_ms.items()})
    return note("M-2/phase_confirmed", f"{claimed} became shorter: {shown}")
