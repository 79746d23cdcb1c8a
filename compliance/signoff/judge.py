"""The sign-off of a scope: the checks in their order, and the verdict on the runs."""

import math
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from compliance.judge.rule import Check, UnknownRuleError, check_of
from compliance.judge.verdict import Finding, judge, stated
from compliance.results.find_results import find_results
from compliance.results.scoring import ScoreSources, with_scorer
from compliance.signoff import changed_options
from compliance.signoff import gain as gain_checks
from compliance.signoff import harness as harness_checks
from compliance.signoff.anchored import Trust, anchored, chained
from compliance.signoff.baseline import (
    NOISY_BANDS,
    baseline,
    headline_of,
    judge_spread,
    measured_headline,
    medians,
    same_conditions,
    spread,
)
from compliance.signoff.changed_options import class_of, judge_changed_options
from compliance.signoff.claim import Claim, attribution, claim_differs, claimed_numbers, unused_fields
from compliance.signoff.coherence import coherent, correctness, one_model
from compliance.signoff.evidence import Evidence, Sides, SignOffRequest, Unread, checks, load
from compliance.signoff.gain import gain
from compliance.signoff.harness import harness, one_system_in_both_modes
from compliance.signoff.provenance import (
    PROOFS,
    between_runs,
    contention,
    far_apart,
    foreign_runs,
    one_bundle,
    one_harness,
)
from compliance.signoff.signoff_verdict import (
    NOISE_BAND_PCT,
    OnFailure,
    SignOff,
    SignOffDetails,
    SignOffScope,
    headline,
)
from compliance.sources import function_for
from runs.errors import ExecutionError, HarnessError, InputError
from runs.files.reading import read_object
from runs.processes.time_limit import OutOfTime, within
from runs.record.finished_run import FinishedRun

MAX_PATCH_RUNS = 64  # maximum number of runs of a patch verdict, each of which is re-evaluated
SIGN_OFF_LIMIT_S = 900.0  # time limit of a sign-off, which usually takes seconds


def sign_off(
    scope: SignOffScope,
    ref: Sequence[Path],
    cand: Sequence[Path] = (),
    claim: Claim | None = None,
    *,
    noise_band_pct: float = NOISE_BAND_PCT,
    policy: OnFailure | None = None,
    sources: ScoreSources | None = None,
    trust: Trust | None = None,
    read: Sequence[FinishedRun] = (),
    limit_s: float = SIGN_OFF_LIMIT_S,
) -> SignOff:
    """Return the verdict on a scope. Only raw files decide it.

    Args:
        ref: directories of the performance and accuracy runs of the reference, or of MLPerf Endpoints runs.
        cand: directories of the candidate's runs; a patch needs at least one.
        claim: the claim about the result.
        noise_band_pct: noise band of all checks, in percent.
        policy: "closed" if a failure of the sign-off itself blocks; default: closed for a bundle, else open.
        sources: model and dataset for scoring; each run's manifest names those that are not given. A scorer does not
            score responses twice.
        trust: the reviewer's ledger, authorities and key.
        read: runs in `ref` and `cand` that were read before; their files are not read again.
        limit_s: time limit; later the sign-off ends without a verdict.
    """
    claim, judge_runs = claim or Claim(), function_for("signoff", (*ref, *cand), {"--scope": scope})
    details = SignOffDetails(
        scope,
        noise_band_pct,
        policy or ("closed" if scope == "bundle" else "open"),
        short_name=claim.short_name or Path(ref[0]).resolve().name,
        ref=[str(path) for path in ref],
        cand=[str(path) for path in cand],
    )
    verdict: SignOff = SignOff(details=details)

    def work() -> SignOff:
        with with_scorer(sources) as (scored_with, _):
            request = SignOffRequest(ref, cand, claim, scored_with, trust or Trust(), read)
            judged: SignOff = judge_runs(details, request)
            return judged

    try:
        return within(limit_s, work)
    except UnknownRuleError as error:
        verdict.error = error
    except HarnessError as error:
        verdict.findings.append(stated("P-1/damaged_raw", error.message))
    except OutOfTime:  # the checking thread may still write into the details
        return SignOff(details=replace(details), error=ExecutionError(f"no verdict within {limit_s:g} s"))
    except Exception as error:  # a failure of the sign-off itself does not count against the runs
        place = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
        verdict.error = ExecutionError(what)
    return verdict


def judge_sides(details: SignOffDetails, request: SignOffRequest) -> SignOff:
    """Return the verdict on the runs of both sides."""
    (reference, reasons), (candidate, more) = (
        load(paths, request.sources, request.read) for paths in (request.ref, request.cand)
    )
    unread = [*map(Unread, (*reasons, *more))]
    sides = Sides(details, reference, candidate, request.claim, request.sources, request.trust, unread)
    return judge(sides, POLICY)


def _measured(sides: Sides) -> Iterator[Finding]:
    """Fill the hashes and the recomputed metrics of the details, which the checks on all runs compare."""
    details = sides.details
    details.log_sha256 = {str(evidence.dir.root): evidence.hashes for evidence in sides.runs}
    details.metrics = {"ref": medians(sides.before), "cand": medians(sides.after)}
    if details.metrics["ref"]:
        details.measured_headline = measured_headline(headline_of(sides.before[0]), details.metrics)
    yield from ()


def _each_result(sides: Sides) -> Iterator[Finding]:
    """Apply the checks H to each result of a bundle."""
    groups: dict[tuple[str, str], list[Evidence]] = {}
    for evidence in sides.cand or sides.ref:
        groups.setdefault((evidence.benchmark.loadgen_key, evidence.scenario), []).append(evidence)
    for group in groups.values():
        yield from harness(group)


def _both_modes(sides: Sides) -> Iterator[Finding]:
    modes = (*one_system_in_both_modes(sides.ref), *one_system_in_both_modes(sides.cand))
    return (finding for finding in modes if finding.severity != "note")


@checks("G-4", ("missing_raw", "error", "missing performance run of reference or candidate"))
def _both_sides(sides: Sides) -> Iterator[Finding]:
    sides.details.compared = not sides.absent("both")
    if not sides.details.compared:
        yield stated("G-4/missing_raw", "the reference or the candidate has no performance run")


def _same_conditions(sides: Sides) -> Iterator[Finding]:
    for side in (sides.before, sides.after):
        yield from same_conditions(side)
    if len(sides.before) > 1:
        yield from spread(sides.before, sides.details.noise_band_pct)


@checks(
    "G-9",
    ("missing_patch_verdict", "error", "changed options without a passing patch verdict"),
    ("unexplained_delta", "warning", "gain of the bundle, compared with its changed options"),
    ("explained", "note", "gain of the bundle, compared with its changed options"),
)
def decomposition(sides: Sides) -> Iterator[Finding]:
    """Check that each changed option of a bundle has a patch verdict, and that the verdicts explain the gain (G-9)."""
    details, files = sides.details, {verdict.lever: verdict.verdict_file for verdict in sides.claim.patch_verdicts}
    product = of_class_a = 1.0
    for lever in details.levers:
        if lever not in files:
            yield stated("G-9/missing_patch_verdict", f"the claim names no patch verdict for {lever}", lever=lever)
            continue
        try:
            patch = _patch_again(lever, files[lever], sides)
        except HarnessError as error:
            yield stated("G-9/missing_patch_verdict", error.message, files[lever], lever=lever)
            continue
        gain_pct = patch.details.e2e_delta_pct or 0.0
        kind = class_of(lever)
        part = {"lever": lever, "class": kind, "delta_pct": gain_pct, "verdict": patch.outcome}
        details.lever_decomposition.append(part)
        product *= 1 + gain_pct / 100
        of_class_a *= 1 + gain_pct / 100 if kind == "A" else 1
    gained_pct, explained_pct = details.e2e_delta_pct, (product - 1) * 100
    if gained_pct is None or len(details.lever_decomposition) < len(details.levers):
        return
    # Gains multiply. So the share of class A is the ratio of the logarithms of the gains.
    share = math.log(of_class_a) / math.log(product) if product != 1 else 0.0
    details.class_a = {"delta_pct": (of_class_a - 1) * 100, "share": share}
    text = f"gain of all changed options: {explained_pct:+.2f}%; gain of the bundle: {gained_pct:+.2f}%; class A"
    text += f" alone: {details.class_a['delta_pct']:+.2f}%, {share:.0%} of the gain of all changed options"
    if abs(explained_pct - gained_pct) > NOISY_BANDS * details.noise_band_pct:
        yield stated("G-9/unexplained_delta", text, explained_pct=explained_pct, delta_pct=gained_pct)
    else:
        yield stated("G-9/explained", text, explained_pct=explained_pct)


def _patch_again(lever: str, path: Path, sides: Sides) -> SignOff:
    """Repeat the sign-off of a changed option, with the runs that the file of its verdict names.

    Raises:
        HarnessError: If the file or its runs are missing, are of another system, or do not pass.
    """
    record = read_object(path, "")
    try:
        ref, cand = ([Path(path) for path in record[side]] for side in ("ref", "cand"))
        levers, scope = list(record["levers"]), record["audit_scope"]
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: required for a patch verdict: the keys ref, cand, levers and audit_scope") from error
    if scope != "patch" or lever not in levers:
        raise InputError(f"{path}: verdict on the {scope} of {levers}, required: patch of {lever}")
    if not ref or not cand:
        raise InputError(f"{path}: ref and cand must each name a directory")
    runs = [run for result in find_results([*ref, *cand][: MAX_PATCH_RUNS + 1]) for run in result.runs]
    if (count := max(len(runs), len(ref) + len(cand))) > MAX_PATCH_RUNS:
        raise InputError(f"{path}: names {count} runs, allowed: at most {MAX_PATCH_RUNS}")
    if different := foreign_runs(runs, sides.ref):
        raise InputError(f"{path}: the system of its runs differs from the bundle: {different}")
    band_pct = sides.details.noise_band_pct
    again = sign_off("patch", ref, cand, Claim(levers=[lever]), noise_band_pct=band_pct, sources=sides.sources)
    if again.outcome not in ("PASS", "FLAG") or again.details.e2e_delta_pct is None:
        raise InputError(f"{path}: re-evaluated: {headline(again)}")
    return again


# The checks, in the order of their findings. The findings on each run come before them.
CLAIMED = (check_of(claimed_numbers, claim_differs), check_of(unused_fields))
_TOGETHER = (
    check_of(
        lambda sides: [finding for run in sides.runs for finding in anchored(run.dir, run.manifest, sides.trust)],
        anchored,
    ),
    check_of(lambda sides: between_runs(sides.runs), contention),
    check_of(lambda sides: chained(run.dir for run in sides.runs), chained),
    check_of(lambda sides: one_model([run for run in sides.runs if run.part is not None]), one_model),
    *CLAIMED,
)
_ALONE = (
    check_of(lambda sides: one_harness(sides.runs), one_harness),
    check_of(lambda sides: far_apart(sides.runs, "warning"), far_apart),
    *_TOGETHER,
)
_WHOLE = partial(check_of, needs=("files",))  # missing files are reported by other checks
_SCOPES: dict[SignOffScope, tuple[Check, ...]] = {
    "baseline": (*_ALONE, _WHOLE(baseline, same_conditions, judge_spread)),
    "profile": (*_ALONE, _WHOLE(attribution)),
    "harness": (*_ALONE, _WHOLE(lambda sides: harness(sides.ref), harness_checks)),
    "patch": (*_ALONE, _WHOLE(_both_modes, harness_checks)),
    "bundle": (
        *_TOGETHER,
        _WHOLE(lambda sides: one_bundle(sides.cand or sides.ref), one_bundle),
        _WHOLE(_each_result, harness_checks),
    ),
}
_PAIRS = partial(check_of, needs=("files", "both"))
_PATCH = (
    _WHOLE(_both_sides),
    _PAIRS(_same_conditions, same_conditions, judge_spread),
    _PAIRS(
        lambda sides: judge_changed_options(sides.details, sides.before[0], sides.after[0], sides.claim),
        changed_options,
    ),
    _PAIRS(correctness, coherent),
    _PAIRS(gain, gain_checks),
)
# Additional checks of a sign-off with a candidate.
_COMPARISONS: dict[SignOffScope, tuple[Check, ...]] = {"patch": _PATCH, "bundle": (*_PATCH, _PAIRS(decomposition))}
_FIRST = (Check(_measured, ()),)
POLICY = replace(
    PROOFS,
    checks={
        **PROOFS.checks,
        "unread": (Check(lambda unread: [unread.finding], ()),),
        **{scope: (*_FIRST, *checks) for scope, checks in _SCOPES.items()},
        **{
            f"{scope} with candidate": (*_FIRST, *checks, *_COMPARISONS.get(scope, ()))
            for scope, checks in _SCOPES.items()
        },
    },
    details=dict.fromkeys(
        (*_SCOPES, *(f"{scope} with candidate" for scope in _SCOPES)), lambda sides, _: sides.details
    ),
)
