"""A claim about a result, which is compared with the raw files; its numbers raise no verdict."""

from collections.abc import Iterable, Iterator
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
    """One lever of a bundle and the file of its verdict, relative to the claim's file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    lever: str
    verdict_file: Path


class Claim(BaseModel):
    """A claim; a field that is null or left out is ignored.

    Attributes:
        levers: names of the engine options, or environment variables, that make the candidate what it is.
        lever_class: A for kernels and their choice, B for serving and algorithm.
        conditions: "identical" if only the levers are claimed to differ.
        ref, cand: claimed numbers by the names of the verdict's `metrics`.
        delta_pct: the claimed gain of the headline metric.
        baseline: the headline metric of the baseline that was signed off earlier.
        isolated_speedup: the factor of a microbenchmark.
        headline: what the claim is about.
        phase: the part of a request's time that is claimed to have changed.
        reported_metrics: all metrics that are reported with the claim.
        patch_verdicts: of a bundle, one for each lever.
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


# Fields that are compared with the legs: without --cand, in a profile; and those that are not, with --cand.
_ONE_SIDE, _PROFILE = {"short_name", "ref", "cand"}, {"short_name", "ref", "cand", "levers", "phase"}
_NOT_COMPARED = {"patch": {"phase", "patch_verdicts"}, "bundle": {"phase"}}


def not_looked_at(claim: Claim, scope: Scope, *, compared: bool) -> Iterator[Finding]:
    """G-2: claimed fields that this sign-off does not check."""
    known = Claim.model_fields.keys() - _NOT_COMPARED.get(scope, ()) if compared else _ONE_SIDE
    known = _PROFILE if scope == "profile" else known
    given = [name for name, value in claim if any(one is not None for one in _values(value))]
    if unchecked := sorted(name for name in given if name not in known):
        text = f"{', '.join(unchecked)} of the claim is not checked by this sign-off of a {scope}"
        yield warn("G-2/claim_vs_raw", text, fields=unchecked)


def _values(field: object) -> Iterable[object]:
    return field.values() if isinstance(field, dict) else field if isinstance(field, list) else [field]


@checks("G-2", ("claim_vs_raw", "warning", "claimed numbers are those of the raw files"))
def claimed_numbers(metrics: dict[str, dict[str, float]], claim: Claim, band_pct: float) -> Iterator[Finding]:
    """G-2: compare every number of the claim with the derived one, which counts."""
    for side, claimed in (("ref", claim.ref), ("cand", claim.cand)):
        for name, value in claimed.items():
            known = metrics[side].get(name)
            if value is None:
                continue
            if known is None:
                yield warn(
                    "G-2/claim_vs_raw", f"{side} {name} {value:g} is claimed, and cannot be derived from the legs"
                )
            elif abs(value - known) > band_pct / 100 * abs(known):
                text = f"{side} {name} is claimed to be {value:.6g}, the raw files give {known:.6g}"
                yield warn("G-2/claim_vs_raw", text, claimed=value, raw=known)
