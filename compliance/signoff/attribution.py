"""M: where a request's time goes, and whether a claim names the part that really changed.

A request waits until LoadGen has issued it, then for its first token (in the engine's queue and in prefill), then for
the others. The engine's own queue has no stamp in the record: it is counted with the prefill.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from compliance.finding import Finding, note, warn
from compliance.signoff.claim import Claim
from compliance.signoff.evidence import Evidence, checks

ATTRIBUTED_SHARE = 0.95  # of the requests: the parts of their time can be told apart


@dataclass(frozen=True)
class Phases:
    """Mean time a request spends in each part, in ms, and how many requests could be taken apart."""

    wait: float
    prefill: float
    decode: float
    requests: int
    attributed: int

    @property
    def total(self) -> float:
        return self.wait + self.prefill + self.decode

    def share(self, name: str) -> float:
        """Of the whole, 0 to 1."""
        value: float = getattr(self, name)
        return value / self.total if self.total > 0 else 0.0

    @property
    def dominant(self) -> str:
        return max(PHASES, key=self.share)


PHASES = ("wait", "prefill", "decode")


def phases_of(legs: list[Evidence]) -> Phases | None:
    """The phases over all requests of some performance legs; None without any times."""
    sums = np.zeros(3)
    requests = attributed = 0
    for evidence in legs:
        if evidence.requests is None or not evidence.details.get("derived"):
            continue
        times = evidence.times
        requests += len(times)
        if times.ttft_ns is None:
            continue
        wait_ns = times.issued_ns - times.scheduled_ns
        parts_ns = np.stack((wait_ns, times.ttft_ns - wait_ns, times.latency_ns - times.ttft_ns))
        whole = (parts_ns >= -1_000_000).all(axis=0)
        attributed += int(whole.sum())
        sums += parts_ns[:, whole].sum(axis=1)
    if not requests:
        return None
    wait, prefill, decode = (sums / max(attributed, 1) / 1e6).tolist()
    return Phases(wait, prefill, decode, requests, attributed)


@checks(
    "M-1",
    ("unattributed", "warning", "a request's time can be taken apart"),
    ("phases", "note", "where a request's time goes"),
)
def attribution(ref: list[Evidence], cand: list[Evidence], claim: Claim, band_pct: float) -> Iterator[Finding]:
    """All of M."""
    for name, legs in (("reference", ref), ("candidate", cand)):
        phases = phases_of(legs)
        if phases is None:
            if legs:
                yield warn("M-1/unattributed", f"the {name}'s times cannot be taken apart", legs[0].run.root)
            continue
        share = phases.attributed / phases.requests
        if share < ATTRIBUTED_SHARE:
            text = f"{share:.1%} of the {name}'s requests have a first token; prefill and decode cannot be told apart"
            yield warn("M-1/unattributed", text, legs[0].run.requests, attributed_share=share)
            continue
        shares = ", ".join(f"{phase} {phases.share(phase):.1%}" for phase in PHASES)
        text = f"{name}: {shares} of {phases.total:.3f} ms a request; {phases.dominant} dominates"
        yield note("M-1/phases", text, legs[0].run.requests, **asdict(phases))
    yield from _credited(phases_of(ref), phases_of(cand), claim, band_pct)


@checks(
    "M-2",
    ("phase_not_shown", "warning", "there are phases to compare"),
    ("wrong_phase", "warning", "the claimed phase became shorter"),
    ("phase_confirmed", "note", "the claimed phase became shorter"),
)
def _credited(ref: Phases | None, cand: Phases | None, claim: Claim, band_pct: float) -> Iterator[Finding]:
    """M-2: the phase that the claim names is the one that became shorter."""
    if claim.phase is None:
        return
    if ref is None or cand is None or not ref.attributed or not cand.attributed:
        text = f"the claim credits {claim.phase}, and there are no phases to compare"
        yield warn("M-2/phase_not_shown", text)
        return
    gains_ms = {name: getattr(ref, name) - getattr(cand, name) for name in PHASES}
    largest = max(gains_ms, key=lambda name: gains_ms[name])
    band_ms = band_pct / 100 * ref.total
    shown = ", ".join(f"{name} {getattr(ref, name):.3f} to {getattr(cand, name):.3f} ms" for name in PHASES)
    if gains_ms[claim.phase] <= band_ms or largest != claim.phase:
        text = f"the claim credits {claim.phase}, the gain came from {largest}: {shown}"
        yield warn("M-2/wrong_phase", text, **{f"{name}_gain_ms": gain for name, gain in gains_ms.items()})
    else:
        yield note("M-2/phase_confirmed", f"{claim.phase} became shorter: {shown}")
