"""Claims about a result, and checks that compare a claim with the raw files. A claim never improves a details.

M: a claim may name the phase of a request that became shorter: wait (until LoadGen issues the request), prefill (until
its first token, including the engine's queue) or decode (until its last token).
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from compliance.judge.verdict import Finding, stated
from compliance.signoff.baseline import change_pct
from compliance.signoff.evidence import Evidence, Sides, checks
from compliance.signoff.signoff_verdict import SignOffDetails, SignOffScope
from runs.errors import InputError
from runs.files.reading import first_problem, json_object, read_whole
from runs.numbers.timeline import timeline

OptionClass = Literal["A", "B"]
RequestPhase = Literal["wait", "prefill", "decode"]


class PatchVerdict(BaseModel):
    """A changed option of a bundle, and the file with its details. The path is relative to the file of the claim."""

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
    phase: RequestPhase | None = None
    reported_metrics: list[str] | None = None
    patch_verdicts: list[PatchVerdict] = Field(default_factory=list)


def read_claim(path: Path) -> Claim:
    """Read a claim.

    Raises:
        InputError: If the file is unreadable, not JSON, or has an unknown field or a noise band.
    """
    fix = "correct the file; docs/signoff-rules.md lists its fields"
    content = json_object(read_whole(path, "give a readable JSON file", option="--claim"), path, fix)
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
            f"--claim {path}: {first_problem(error)}", "correct the field; docs/signoff-rules.md lists the fields"
        ) from error
    verdicts = [
        verdict.model_copy(update={"verdict_file": path.parent / verdict.verdict_file})
        for verdict in claim.patch_verdicts
    ]
    return claim.model_copy(update={"patch_verdicts": verdicts})


# Fields that a scope reads: always, only with --cand, and only in a comparison (which needs --cand).
_ALWAYS, _WITH_CANDIDATE = frozenset({"short_name", "ref"}), frozenset({"cand"})
_GAIN = _WITH_CANDIDATE | {
    *("levers", "lever_class", "conditions", "delta_pct", "baseline"),
    *("isolated_speedup", "headline", "reported_metrics"),
}
_COMPARED: dict[SignOffScope, frozenset[str]] = {
    "profile": _WITH_CANDIDATE, "patch": _GAIN, "bundle": _GAIN | {"patch_verdicts"}
}  # fmt: skip


def fields_read(scope: SignOffScope, *, with_candidate: bool) -> frozenset[str]:
    """Return the names of the fields of a claim that the sign-off of a scope reads."""
    more = _COMPARED.get(scope, frozenset[str]()) if with_candidate else frozenset[str]()
    return _ALWAYS | more | ({"phase"} if scope == "profile" else set())


@checks("G-2", ("unused_field", "note", "fields of the claim that the scope does not read"))
def unused_fields(sides: Sides) -> Iterator[Finding]:
    """Report the fields of the claim that this sign-off does not read (G-2)."""
    scope, with_candidate = sides.details.scope, bool(sides.details.cand)
    stated_fields = [
        name for name, value in sides.claim if any(stated_value is not None for stated_value in _values(value))
    ]
    if unused := sorted({*stated_fields} - fields_read(scope, with_candidate=with_candidate)):
        side = "" if with_candidate else " without --cand"
        text = f"the sign-off of scope {scope}{side} does not read these fields of the claim: {', '.join(unused)}"
        yield stated("G-2/unused_field", text, fields=unused)


def _values(field: object) -> Iterable[object]:
    return field.values() if isinstance(field, dict) else field if isinstance(field, list) else [field]


def claimed_numbers(comparison: Sides) -> Iterator[Finding]:
    """Compare every claimed number with the recomputed number (G-2). The recomputed number counts."""
    details = comparison.details
    sides = (
        (("ref", comparison.claim.ref), ("cand", comparison.claim.cand))
        if details.cand
        else (("ref", comparison.claim.ref),)
    )
    improved_side = sides[-1][0]  # a better candidate or a worse reference overstates the gain
    for side, claimed in sides:
        for name, value in claimed.items():
            measured = details.metrics[side].get(name)
            if value is None:
                continue
            if measured is None:
                yield stated("G-2/claim_vs_raw", f"claimed {side} {name} {value:g} cannot be recomputed from the runs")
            elif abs(value - measured) > details.noise_band_pct / 100 * abs(measured):
                text = f"claimed {side} {name} {value:.6g}, recomputed from the raw files {measured:.6g}"
                overstates = (change_pct(name, measured, value) > 0) == (side == improved_side)
                is_headline = details.measured_headline.startswith(f"{name} ")
                yield claim_differs(details, text, value, measured, is_overstated=overstates and is_headline)


@checks(
    "G-2",
    ("claim_vs_raw", "warning", "claimed numbers, compared with the raw files"),
    ("overstated", "warning", "claimed headline, compared with the raw files"),
)
def claim_differs(details: SignOffDetails, text: str, claimed: float, raw: float, *, is_overstated: bool) -> Finding:
    """Return a finding on a claimed number that differs. For an overstated claim, state the number that replaces it."""
    if not is_overstated:
        return stated("G-2/claim_vs_raw", text, claimed=claimed, raw=raw)
    text += f"; corrected headline: {details.measured_headline}"
    return stated("G-2/overstated", text, claimed=claimed, raw=raw, corrected_headline=details.measured_headline)


# The claimed phase ----------------------------------------------------------------------------------------------------


ATTRIBUTED_SHARE = 0.95  # minimum share of requests with all three phases
PHASES = ("wait", "prefill", "decode")


def _phases(runs: list[Evidence]) -> tuple[dict[str, float], int, int]:
    """Return the mean time of each phase in ms, the number of requests, and the number of requests with all phases."""
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
        complete = (parts_ns >= -1_000_000).all(axis=0)
        attributed += int(complete.sum())
        sums += parts_ns[:, complete].sum(axis=1)
    return dict(zip(PHASES, (sums / max(attributed, 1) / 1e6).tolist(), strict=True)), requests, attributed


@checks(
    "M-1",
    ("unattributed", "warning", "share of requests with all three phases"),
    ("phases", "note", "time of a request in each phase"),
)
def attribution(sides: Sides) -> Iterator[Finding]:
    """Report the phases of both sides (M-1), and check the phase that the claim names (M-2)."""
    phases_of: list[dict[str, float]] = []
    for name, runs in (("reference", sides.before), ("candidate", sides.after)):
        phases, requests, attributed = _phases(runs)
        phases_of += [phases] if attributed else []
        if not requests:
            text = f"phases of the {name} cannot be computed"
            yield from (stated("M-1/unattributed", text, run.dir.root) for run in runs[:1])
            continue
        share, total_ms = attributed / requests, sum(phases.values())
        if share < ATTRIBUTED_SHARE:
            text = f"share of the {name}'s requests with a first token: {share:.1%}, required: {ATTRIBUTED_SHARE:.0%}"
            yield stated("M-1/unattributed", text, runs[0].dir.requests, attributed_share=share)
            continue
        shares = ", ".join(f"{phase} {value / total_ms if total_ms > 0 else 0:.1%}" for phase, value in phases.items())
        text = (
            f"{name}: {shares} of {total_ms:.3f} ms per request; longest phase: {max(phases, key=phases.__getitem__)}"
        )
        numbers: dict[str, Any] = {**phases, "requests": requests, "attributed": attributed}
        yield stated("M-1/phases", text, runs[0].dir.requests, **numbers)
    if sides.claim.phase is not None:
        yield _credited(phases_of, sides.claim.phase, sides.details.noise_band_pct)


@checks(
    "M-2",
    ("phase_not_shown", "warning", "missing phases of reference or candidate"),
    ("wrong_phase", "warning", "claimed phase, compared with the phase that became shorter"),
    ("phase_confirmed", "note", "claimed phase, compared with the phase that became shorter"),
)
def _credited(phases_of: list[dict[str, float]], claimed: str, band_pct: float) -> Finding:
    """Check that the claimed phase is the one that became shorter (M-2)."""
    if len(phases_of) < 2:
        return stated("M-2/phase_not_shown", f"claimed phase {claimed}: reference or candidate has no times of phases")
    ref, cand = phases_of
    gains_ms = {name: ref[name] - cand[name] for name in PHASES}
    largest = max(gains_ms, key=gains_ms.__getitem__)
    shown = ", ".join(f"{name} {ref[name]:.3f} to {cand[name]:.3f} ms" for name in PHASES)
    if gains_ms[claimed] <= band_pct / 100 * sum(ref.values()) or largest != claimed:
        credited, required = f"the claimed phase is {claimed}", f"the gain came from {largest}: {shown}"
        numbers: dict[str, Any] = {f"{name}_gain_ms": gain for name, gain in gains_ms.items()}
        return stated("M-2/wrong_phase", "", found=credited, required=required, **numbers)
    return stated("M-2/phase_confirmed", f"{claimed} became shorter: {shown}")
