"""A claim about a result, and its comparison with the raw files. Claimed numbers never improve a verdict.

M: a claim may name the phase of a request that became shorter: wait (until LoadGen issues the request), prefill (until
its first token, including the engine's queue) or decode (until its last token).
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from compliance.judge.finding import Finding, note, warn
from compliance.signoff.evidence import Evidence, Sides, checks
from runs.errors import InputError
from runs.files.reading import first_problem, json_object, read_whole
from runs.numbers.timeline import timeline

OptionClass = Literal["A", "B"]
Phase = Literal["wait", "prefill", "decode"]


class PatchVerdict(BaseModel):
    """One changed option of a bundle and the file of its verdict, relative to the claim's file."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    lever: str
    verdict_file: Path


class Claim(BaseModel):
    """A claim. A field that is null or missing is ignored.

    Attributes:
        levers: names of the engine options or environment variables that the candidate changes.
        lever_class: class of the changed options: A for kernels and their choice, B for serving and algorithm.
        conditions: "identical" if the claim is that only the changed options differ.
        ref, cand: claimed numbers of each side, by the names in the verdict's `metrics`.
        delta_pct: the claimed gain of the headline metric.
        baseline: the headline metric of the baseline that was signed off earlier.
        isolated_speedup: the speedup in a microbenchmark.
        headline: the kind of gain that the claim reports.
        phase: the phase of a request that became shorter.
        reported_metrics: all metrics that the claim reports.
        patch_verdicts: verdicts on each changed option of a bundle.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    short_name: str | None = None
    levers: list[str] = Field(default_factory=list)
    lever_class: OptionClass | None = None
    conditions: Literal["identical"] | None = None
    ref: dict[str, FiniteFloat | None] = Field(default_factory=dict)
    cand: dict[str, FiniteFloat | None] = Field(default_factory=dict)
    delta_pct: FiniteFloat | None = None
    baseline: FiniteFloat | None = None
    isolated_speedup: FiniteFloat | None = None
    headline: Literal["end_to_end", "isolated"] | None = None
    phase: Phase | None = None
    reported_metrics: list[str] | None = None
    patch_verdicts: list[PatchVerdict] = Field(default_factory=list)


def read_claim(path: Path) -> Claim:
    """Read a claim.

    Raises:
        InputError: If the file is unreadable, not JSON, or has an unknown field or a noise band.
    """
    fix = "correct the file; docs/signoff.md lists its fields"
    content = json_object(read_whole(path, "name a readable JSON file", option="--claim"), path, fix)
    if band := next((key for key in content if "noise" in key), None):
        raise InputError(
            f"--claim {path}: {band}: a claim cannot set the noise band",
            "remove the field; --noise-band sets the noise band for all checks",
        )
    content = {key: value for key, value in content.items() if value is not None}
    try:
        claim = Claim.model_validate(content)
    except ValidationError as error:
        raise InputError(
            f"--claim {path}: {first_problem(error)}", "correct the field; docs/signoff.md lists the fields"
        ) from error
    verdicts = [one.model_copy(update={"verdict_file": path.parent / one.verdict_file}) for one in claim.patch_verdicts]
    return claim.model_copy(update={"patch_verdicts": verdicts})


# Fields that are compared with the runs without --cand and in a profile; fields that are not compared with --cand.
_ONE_SIDE, _PROFILE = {"short_name", "ref", "cand"}, {"short_name", "ref", "cand", "levers", "phase"}
_NOT_COMPARED = {"patch": {"phase", "patch_verdicts"}, "bundle": {"phase"}}


def not_looked_at(of: Sides) -> Iterator[Finding]:
    """Report claimed fields that this sign-off does not check (G-2)."""
    claim, scope, compared = of.claim, of.verdict.scope, bool(of.verdict.cand)
    known = Claim.model_fields.keys() - _NOT_COMPARED.get(scope, ()) if compared else _ONE_SIDE
    known = _PROFILE if scope == "profile" else known
    given = [name for name, value in claim if any(one is not None for one in _values(value))]
    if unchecked := sorted(name for name in given if name not in known):
        text = f"the sign-off of a {scope} does not check these fields of the claim: {', '.join(unchecked)}"
        yield warn("G-2/claim_vs_raw", text, fields=unchecked)


def _values(field: object) -> Iterable[object]:
    return field.values() if isinstance(field, dict) else field if isinstance(field, list) else [field]


@checks("G-2", ("claim_vs_raw", "warning", "claimed numbers, compared with the raw files"))
def claimed_numbers(of: Sides) -> Iterator[Finding]:
    """Compare every number of the claim with the recomputed number, which counts (G-2)."""
    for side, claimed in (("ref", of.claim.ref), ("cand", of.claim.cand)):
        for name, value in claimed.items():
            known = of.verdict.metrics[side].get(name)
            if value is None:
                continue
            if known is None:
                yield warn("G-2/claim_vs_raw", f"claimed {side} {name} {value:g} cannot be recomputed from the runs")
            elif abs(value - known) > of.verdict.noise_band_pct / 100 * abs(known):
                text = f"claimed {side} {name} {value:.6g}, recomputed from the raw files {known:.6g}"
                yield warn("G-2/claim_vs_raw", text, claimed=value, raw=known)


# The claimed phase ----------------------------------------------------------------------------------------------------


ATTRIBUTED_SHARE = 0.95  # minimum share of requests with all three phases
PHASES = ("wait", "prefill", "decode")


def _phases(runs: list[Evidence]) -> tuple[dict[str, float], int, int]:
    """Return the mean time of each phase in ms, the number of requests, and the number with all phases."""
    sums = np.zeros(3)
    requests = attributed = 0
    for evidence in runs:
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
    ("unattributed", "warning", "share of requests with all three phases"),
    ("phases", "note", "time of a request in each phase"),
)
def attribution(of: Sides) -> Iterator[Finding]:
    """Report the phases of both sides (M-1), and check the phase that the claim names (M-2)."""
    known: list[dict[str, float]] = []
    for name, runs in (("reference", of.before), ("candidate", of.after)):
        phases, requests, attributed = _phases(runs)
        known += [phases] if attributed else []
        if not requests:
            text = f"phases of the {name} cannot be computed"
            yield from (warn("M-1/unattributed", text, run.dir.root) for run in runs[:1])
            continue
        share, whole = attributed / requests, sum(phases.values())
        if share < ATTRIBUTED_SHARE:
            text = f"share of the {name}'s requests with a first token: {share:.1%}, required: {ATTRIBUTED_SHARE:.0%}"
            yield warn("M-1/unattributed", text, runs[0].dir.requests, attributed_share=share)
            continue
        shares = ", ".join(f"{phase} {value / whole if whole > 0 else 0:.1%}" for phase, value in phases.items())
        text = f"{name}: {shares} of {whole:.3f} ms per request; longest phase: {max(phases, key=phases.__getitem__)}"
        yield note("M-1/phases", text, runs[0].dir.requests, **phases, requests=requests, attributed=attributed)
    if of.claim.phase is not None:
        yield _credited(known, of.claim.phase, of.verdict.noise_band_pct)


@checks(
    "M-2",
    ("phase_not_shown", "warning", "missing phases of a side"),
    ("wrong_phase", "warning", "claimed phase, compared with the phase that became shorter"),
    ("phase_confirmed", "note", "claimed phase, compared with the phase that became shorter"),
)
def _credited(known: list[dict[str, float]], claimed: str, band_pct: float) -> Finding:
    """Check that the claimed phase is the one that became shorter (M-2)."""
    if len(known) < 2:
        return warn("M-2/phase_not_shown", f"the claimed phase {claimed} cannot be checked: a side has no phases")
    ref, cand = known
    gains_ms = {name: ref[name] - cand[name] for name in PHASES}
    largest = max(gains_ms, key=gains_ms.__getitem__)
    shown = ", ".join(f"{name} {ref[name]:.3f} to {cand[name]:.3f} ms" for name in PHASES)
    if gains_ms[claimed] <= band_pct / 100 * sum(ref.values()) or largest != claimed:
        text = f"the claimed phase is {claimed}, but the gain came from {largest}: {shown}"
        return warn("M-2/wrong_phase", text, **{f"{name}_gain_ms": gain for name, gain in gains_ms.items()})
    return note("M-2/phase_confirmed", f"{claimed} became shorter: {shown}")
