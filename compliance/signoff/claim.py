"""What somebody claims of a result. Read only to be contradicted: no number of a claim ever enters a verdict."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from compliance.finding import Finding, warn
from compliance.signoff.evidence import checks
from compliance.signoff.signoff_verdict import Scope
from runs.errors import InputError
from runs.reading import first_problem, json_object, read_whole

LeverClass = Literal["A", "B"]
Phase = Literal["wait", "prefill", "decode"]


class PatchVerdict(BaseModel):
    """One lever of a bundle, with the file of its own verdict; in a claim's file, relative to that."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    lever: str
    verdict_file: Path


class Claim(BaseModel):
    """A claim; every field may be null or left out, and is then not looked at.

    Attributes:
        levers: names of the engine options, or environment variables, that make the candidate what it is.
        lever_class: A for kernels and their choice, B for serving and algorithm.
        conditions: "identical" where the claim says that nothing but the levers differs.
        ref, cand: claimed numbers by the names of the verdict's `metrics`.
        delta_pct: the claimed gain of the headline metric.
        baseline: the headline metric of the baseline that was signed off before.
        isolated_speedup: the factor of a microbenchmark.
        headline: what the claim is about.
        phase: the part of a request's time that is said to have changed.
        reported_metrics: all that the claim tells of; the rest was left out.
        patch_verdicts: of a bundle, one a lever.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    short_name: str | None = None
    levers: list[str] = Field(default_factory=list)
    lever_class: LeverClass | None = None
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
        InputError: unreadable, not JSON, an unknown field; a claim may not set the noise band.
    """
    fix = "correct the file; docs/signoff.md has its fields"
    content = json_object(read_whole(path, "name a readable JSON file", option="--claim"), path, fix)
    if band := next((key for key in content if "noise" in key), None):
        raise InputError(
            f"--claim {path}: {band} is not the claim's to set", "one noise band serves all: --noise-band sets it"
        )
    content = {key: value for key, value in content.items() if value is not None}
    try:
        claim = Claim.model_validate(content)
    except ValidationError as error:
        raise InputError(f"--claim {path}: {first_problem(error)}", "docs/signoff.md has the fields") from error
    beside = [one.model_copy(update={"verdict_file": path.parent / one.verdict_file}) for one in claim.patch_verdicts]
    return claim.model_copy(update={"patch_verdicts": beside})


# What a sign-off holds of a claim against the legs: without a candidate, of a profile, and else all but this.
_OF_ONE_SIDE, _OF_A_PROFILE = {"short_name", "ref", "cand"}, {"short_name", "ref", "cand", "levers", "phase"}
_NOT_OF = {"patch": {"phase", "patch_verdicts"}, "bundle": {"phase"}}


def not_looked_at(claim: Claim, scope: Scope, *, compared: bool) -> Iterator[Finding]:
    """G-2: what is claimed and nothing here was held against is not signed off with the rest."""
    known = Claim.model_fields.keys() - _NOT_OF.get(scope, ()) if compared else _OF_ONE_SIDE
    known = _OF_A_PROFILE if scope == "profile" else known
    if told := sorted(name for name, value in claim if name not in known and _is_told(value)):
        text = f"{', '.join(told)} of the claim: a sign-off of this {scope} does not look at it"
        yield warn("G-2/claim_vs_raw", text, fields=told)


def _is_told(value: object) -> bool:
    several = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    return any(one is not None for one in several)


@checks("G-2", ("claim_vs_raw", "warning", "claimed numbers are those of the raw files"))
def claimed_numbers(metrics: dict[str, dict[str, float]], claim: Claim, band_pct: float) -> Iterator[Finding]:
    """G-2: every number of the claim against the derived one; the derived one counts."""
    for side, claimed in (("ref", claim.ref), ("cand", claim.cand)):
        for name, value in claimed.items():
            known = metrics[side].get(name)
            if value is None:
                continue
            if known is None:
                yield warn("G-2/claim_vs_raw", f"{side} {name} {value:g} is claimed; the legs have no such number")
            elif abs(value - known) > band_pct / 100 * abs(known):
                text = f"{side} {name} is claimed to be {value:.6g}, the raw files give {known:.6g}"
                yield warn("G-2/claim_vs_raw", text, claimed=value, raw=known)
