"""A claim about a result, which is compared with the raw files; its numbers raise no verdict.

M: a claim may name the phase of a request that became shorter: wait (until LoadGen issues the request), prefill (until
its first token, with the time in the engine's queue, which is not recorded) or decode (until its last).
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from compliance.judge.finding import Finding, note, warn
from compliance.signoff.evidence import Evidence, Sides, checks
from runs.errors import InputError
from runs.numbers.timeline import timeline
from runs.reading import first_problem, json_object, read_whole

OptionClass = Literal["A", "B"]
Phase = Literal["wait", "prefill", "decode"]


class PatchVerdict(BaseModel):
    """One changed option of a bundle and the file of its verdict, relative to the claim's file."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    lever: str
    verdict_file: Path


class Claim(BaseModel):
    """A claim; a field that is null or left out is ignored.

    Attributes:
        levers: names of the engine options, or environment variables, that make the candidate what it is.
        lever_class: A for kernels and their choice, B for serving and algorithm.
        conditions: "identical" if only the changed options are claimed to differ.
        ref, cand: claimed numbers by the names of the verdict's `metrics`.
        delta_pct: the claimed gain of the headline metric.
        baseline: the headline metric of the baseline that was signed off earlier.
        isolated_speedup: the factor of a microbenchmark.
        headline: what the claim is about.
        phase: the part of a request's time that is claimed to have changed.
        reported_metrics: all metrics that are reported with the claim.
        patch_verdicts: of a bundle, one for each changed option.
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
        InputError: unreadable, not JSON, an unknown field, or a noise band.
    """
    fix = "correct the file; docs/signoff.md has its fields"
    content = json_object(read_whole(path, "name a readable JSON file", option="--claim"), path, fix)
    if band := next((key for key in content if "noise" in key), None):
        raise InputError(
            f"--claim {path}: {band}: a claim cannot set the noise band",
            "leave it out; --noise-band sets it for all checks",
        )
    content = {key: value for key, value in content.items() if value is not None}
    try:
        claim = Claim.model_validate(content)
    except ValidationError as error:
        raise InputError(f"--claim {path}: {first_problem(error)}", "docs/signoff.md has the fields") from error
    verdicts = [one.model_copy(update={"verdict_file": path.parent / one.verdict_file}) for one in claim.patch_verdicts]
    return claim.model_copy(update={"patch_verdicts": verdicts})


# Fields that are compared with the runs: without --cand, in a profile; and those that are not, with --cand.
_ONE_SIDE, _PROFILE = {"short_name", "ref", "cand"}, {"short_name", "ref", "cand", "levers", "phase"}
_NOT_COMPARED = {"patch": {"phase", "patch_verdicts"}, "bundle": {"phase"}}


def not_looked_at(of: Sides) -> Iterator[Finding]:
    """G-2: claimed fields that this sign-off does not check."""
    claim, scope, compared = of.claim, of.verdict.scope, bool(of.verdict.cand)
    known = Claim.model_fields.keys() - _NOT_COMPARED.get(scope, ()) if compared else _ONE_SIDE
    known = _PROFILE if scope == "profile" else known
    given = [name for name, value in claim if any(one is not None for one in _values(value))]
    if unchecked := sorted(name for name in given if name not in known):
        text = f"{', '.join(unchecked)} of the claim is not checked by this sign-off of a {scope}"
        yield warn("G-2/claim_vs_raw", text, fields=unchecked)


def _values(field: object) -> Iterable[object]:
    return field.values() if isinstance(field, dict) else field if isinstance(field, list) else [field]


@checks("G-2", ("claim_vs_raw", "warning", "claimed numbers are those of the raw files"))
def claimed_numbers(of: Sides) -> Iterator[Finding]:
    """G-2: compare every number of the claim with the derived one, which counts."""
    for side, claimed in (("ref", of.claim.ref), ("cand", of.claim.cand)):
        for name, value in claimed.items():
            known = of.verdict.metrics[side].get(name)
            if value is None:
                continue
            if known is None:
                yield warn(
                    "G-2/claim_vs_raw", f"{side} {name} {value:g} is claimed, and cannot be derived from the runs"
                )
            elif abs(value - known) > of.verdict.noise_band_pct / 100 * abs(known):
                text = f"{side} {name} is claimed to be {value:.6g}, the raw files give {known:.6g}"
                yield warn("G-2/claim_vs_raw", text, claimed=value, raw=known)


# The claimed phase ----------------------------------------------------------------------------------------------------


ATTRIBUTED_SHARE = 0.95  # of the requests must have all three phases
PHASES = ("wait", "prefill", "decode")


def _phases(runs: list[Evidence]) -> tuple[dict[str, float], int, int]:
    """Mean time of a request in each phase, in ms; the number of requests, and of those with all phases."""
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
    ("unattributed", "warning", "requests have all three phases"),
    ("phases", "note", "the phases of a request's time"),
)
def attribution(of: Sides) -> Iterator[Finding]:
    """The phases of both sides, then M-2 if the claim names a phase."""
    known: list[dict[str, float]] = []
    for name, runs in (("reference", of.before), ("candidate", of.after)):
        phases, requests, attributed = _phases(runs)
        known += [phases] if attributed else []
        if not requests:
            text = f"the {name} has no times of phases"
            yield from (warn("M-1/unattributed", text, run.dir.root) for run in runs[:1])
            continue
        share, whole = attributed / requests, sum(phases.values())
        if share < ATTRIBUTED_SHARE:
            text = f"{share:.1%} of the {name}'s requests have a first token; the others have no phases"
            yield warn("M-1/unattributed", text, runs[0].dir.requests, attributed_share=share)
            continue
        shares = ", ".join(f"{phase} {value / whole if whole > 0 else 0:.1%}" for phase, value in phases.items())
        text = f"{name}: {shares} of {whole:.3f} ms a request; {max(phases, key=phases.__getitem__)} dominates"
        yield note("M-1/phases", text, runs[0].dir.requests, **phases, requests=requests, attributed=attributed)
    if of.claim.phase is not None:
        yield _credited(known, of.claim.phase, of.verdict.noise_band_pct)


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
