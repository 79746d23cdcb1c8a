"""Sign-off of a scope: collect the evidence, run its checks, give the verdict. The only module that callers need."""

import contextlib
import signal
import threading
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType

from compliance.evidence.accuracy import ScoreSources, with_scorer
from compliance.finding import Finding, UnknownRuleError, fail, warn
from compliance.signoff.anchored import Trust, anchored, chained
from compliance.signoff.attribution import attribution
from compliance.signoff.baseline import NOISE_BAND_PCT, baseline, medians, performance_legs, same_conditions, spread
from compliance.signoff.bundle import far_apart, foreign_legs, one_harness, one_system, tree_logs
from compliance.signoff.claim import Claim, claimed_numbers, not_looked_at
from compliance.signoff.coherence import coherent, correctness, one_model
from compliance.signoff.evidence import Evidence, checks, load, require_directory
from compliance.signoff.gain import (
    SignedPatch,
    claimed_gain,
    decomposition,
    drift,
    headline_integrity,
    isolated,
    measure,
    real_delta,
)
from compliance.signoff.harness import harness, one_system_in_both_modes
from compliance.signoff.levers import same_conditions as compare_conditions
from compliance.signoff.provenance import between_legs, leg_proofs
from compliance.signoff.signoff_verdict import Policy, Scope, SignOff
from runs.errors import ExecutionError, HarnessError, InputError
from runs.reading import read_object

MOST_PATCH_LEGS = 64  # that a patch verdict of a bundle may name: each is judged again
MOST_DIRECTORIES = 400  # of one sign-off, where each leg is held against each other; a campaign has some dozens
SIGN_OFF_LIMIT_S = 900.0  # of one sign-off, which takes seconds; what hangs ends as degraded
AGAIN_S = 1.0  # after which the limit is told again to what goes on


class OutOfTime(Exception):
    """The limit was reached."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `OutOfTime` in the block after so long, and again each second while it goes on.

    Only in the main thread, where signals arrive; inside a block that has a limit, that one counts.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getitimer(signal.ITIMER_REAL)[0] > 0:
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise OutOfTime(f"no verdict within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def sign_off(
    scope: Scope,
    ref: Sequence[Path],
    cand: Sequence[Path] = (),
    claim: Claim | None = None,
    *,
    tree: Path | None = None,
    noise_band_pct: float = NOISE_BAND_PCT,
    policy: Policy | None = None,
    sources: ScoreSources | None = None,
    trust: Trust | None = None,
    limit_s: float = SIGN_OFF_LIMIT_S,
) -> SignOff:
    """Give the verdict on a scope from raw files alone; writes nothing.

    Args:
        scope: what is signed off.
        ref: directories of the reference legs, performance and accuracy.
        cand: directories of the candidate's legs; needed for a patch.
        claim: what is claimed, to be contradicted.
        tree: of a bundle, the submission tree that was built from the legs.
        noise_band_pct: the one noise band, in percent.
        policy: whether a failure of this tool blocks; by default closed for a bundle, else open.
        sources: what answers are scored with; what they leave open, each leg's manifest names. What their scorer
            has scored before is not scored again.
        trust: what statements of legs are held against.
        limit_s: after which it ends as degraded.

    Raises:
        InputError: a directory does not exist, there are too many, or the scope needs other ones.
    """
    if not ref:
        raise InputError("--ref: no directory was given", "name at least one run directory")
    if len(ref) + len(cand) > MOST_DIRECTORIES:
        raise InputError(
            f"--ref and --cand: {len(ref) + len(cand):,} directories, at most {MOST_DIRECTORIES} are judged together",
            "sign off fewer repeats at a time",
        )
    if scope == "patch" and not cand:
        raise InputError("--scope patch: no --cand was given", "name the candidate's run directories")
    if cand and scope in ("baseline", "harness"):
        raise InputError(f"--scope {scope} takes no --cand", "leave it out, or ask for --scope patch")
    if tree is not None and scope != "bundle":
        raise InputError(f"--tree has no use with --scope {scope}", "leave it out, or ask for --scope bundle")
    claim = claim or Claim()
    verdict = SignOff(
        scope,
        noise_band_pct,
        policy or ("closed" if scope == "bundle" else "open"),
        short_name=claim.short_name or Path(ref[0]).resolve().name,
        ref=[str(path) for path in ref],
        cand=[str(path) for path in cand],
    )
    for option, path in [("--ref", path) for path in ref] + [("--cand", path) for path in cand]:
        require_directory(path, option)
    if tree is not None:
        require_directory(tree, "--tree")
    try:
        with time_limit(limit_s), with_scorer(sources) as (scored_with, _):
            _judge(verdict, list(ref), list(cand), claim, tree, scored_with, trust or Trust())
    except UnknownRuleError as error:
        verdict.error = error
    except HarnessError as error:
        verdict.findings.append(fail("P-1/damaged_raw", error.message))
    except Exception as error:  # the tool's own failure is told apart from what it judges
        place = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
        verdict.error = ExecutionError(said)
    return verdict


def _judge(
    verdict: SignOff,
    ref: list[Path],
    cand: list[Path],
    claim: Claim,
    tree: Path | None,
    sources: ScoreSources,
    trust: Trust,
) -> None:
    reference, reasons = load(ref, sources)
    candidate, more = load(cand, sources)
    verdict.findings += [*reasons, *more]
    legs = reference + candidate
    for evidence in legs:
        verdict.findings += [*leg_proofs(evidence), *anchored(evidence.run, evidence.manifest, trust)]
        verdict.log_sha256[str(evidence.run.root)] = evidence.hashes
    verdict.findings += [*between_legs(legs), *chained(evidence.run for evidence in legs)]
    if verdict.scope != "bundle":
        verdict.findings += [*one_harness(legs), *far_apart(legs, warn)]
    readable = [evidence for evidence in legs if evidence.part is not None]
    verdict.findings += one_model(readable)
    verdict.metrics = {"ref": medians(performance_legs(reference)), "cand": medians(performance_legs(candidate))}
    verdict.findings += claimed_numbers(verdict.metrics, claim, verdict.noise_band_pct)
    verdict.findings += not_looked_at(claim, verdict.scope, compared=bool(cand))
    if not all(evidence.complete for evidence in legs) or not reference:
        return  # what is missing has been said; nothing can be compared
    if verdict.scope == "baseline":
        verdict.findings += baseline(reference, verdict.noise_band_pct)
    elif verdict.scope == "profile":
        sides = performance_legs(reference), performance_legs(candidate)
        verdict.findings += attribution(*sides, claim, verdict.noise_band_pct)
    elif verdict.scope == "harness":
        verdict.findings += harness(reference)
    else:
        if verdict.scope == "bundle":
            verdict.findings += one_system(candidate or reference)
            verdict.findings += _results(candidate or reference)
        if cand:
            _compare(verdict, reference, candidate, claim, sources)
        if tree is not None:
            verdict.findings += tree_logs(tree, candidate or reference)


def _results(legs: list[Evidence]) -> Iterable[Finding]:
    """The harness checks on each scenario of each benchmark by itself."""
    groups: dict[tuple[str, str], list[Evidence]] = {}
    for evidence in legs:
        groups.setdefault((evidence.benchmark.loadgen_key, evidence.scenario), []).append(evidence)
    for group in groups.values():
        yield from harness(group)


@checks("G-4", ("missing_raw", "error", "both sides have a performance leg"))
def _compare(verdict: SignOff, ref: list[Evidence], cand: list[Evidence], claim: Claim, sources: ScoreSources) -> None:
    """All G checks: reference against candidate."""
    reference, candidate = performance_legs(ref), performance_legs(cand)
    if not reference or not candidate:
        verdict.findings.append(fail("G-4/missing_raw", "a performance leg is missing on one of the two sides"))
        return
    band_pct = verdict.noise_band_pct
    for side in (reference, candidate):
        verdict.findings += same_conditions(side) if len(side) > 1 else ()
    verdict.findings += spread(reference, band_pct) if len(reference) > 1 else ()
    levers, found = compare_conditions(reference[0], candidate[0], claim, one_lever=verdict.scope == "patch")
    verdict.findings += found
    verdict.levers, verdict.lever_class = levers.levers, levers.lever_class
    verdict.lever_evidence, verdict.engagement_ok = levers.evidence, levers.engagement_ok
    verdict.same_conditions_ok = levers.same_conditions_ok
    verdict.correctness_status, found = correctness(ref, cand)
    verdict.findings += found
    if verdict.scope == "patch":  # of a bundle the harness checks have looked at the answers
        modes = [*coherent(ref), *one_system_in_both_modes(ref), *one_system_in_both_modes(cand)]
        verdict.findings += [reason for reason in modes if reason.severity != "note"]
    delta = measure(reference, candidate)
    verdict.findings += real_delta(delta, band_pct)
    verdict.findings += drift(delta, reference, claim, band_pct)
    verdict.findings += claimed_gain(delta, claim, band_pct)
    verdict.findings += headline_integrity(delta, verdict.metrics, claim, band_pct)
    verdict.findings += isolated(delta, claim)
    if verdict.scope == "bundle":
        verdict.findings += decomposition(
            delta, verdict.levers, claim, band_pct, lambda lever, path: _patch_again(lever, path, verdict, ref, sources)
        )
    verdict.e2e_delta_pct, verdict.non_overlapping = delta.pct, delta.non_overlapping
    verdict.baseline_drift_pct, verdict.headline_integrity = delta.drift_pct, delta.headline_integrity
    verdict.lever_decomposition = list(delta.decomposition)


def _patch_again(
    lever: str, path: Path, verdict: SignOff, bundle: list[Evidence], sources: ScoreSources
) -> SignedPatch | str:
    """The verdict on one lever from the legs that its file names; what the file says of them counts for nothing."""
    try:
        record = read_object(path, "")
        ref, cand = ([Path(one) for one in record[side]] for side in ("ref", "cand"))
        if record["audit_scope"] != "patch" or lever not in record["levers"]:
            return f"{path} is a verdict on {record['audit_scope']} of {record['levers']}, not on {lever}"
        if len(ref) + len(cand) > MOST_PATCH_LEGS:
            return f"{path} names {len(ref) + len(cand)} legs, at most {MOST_PATCH_LEGS} are judged again"
    except (InputError, KeyError, TypeError) as error:
        return f"{path} is no patch verdict ({type(error).__name__}: {error})"
    try:
        if different := foreign_legs([*ref, *cand], bundle):
            return f"the legs of {path} are not of this bundle's system: {different}"
        band_pct = verdict.noise_band_pct
        again = sign_off("patch", ref, cand, Claim(levers=[lever]), noise_band_pct=band_pct, sources=sources)
    except HarnessError as error:
        return f"the legs of {path} are not there to be judged again: {error.message}"
    if again.outcome not in ("PASS", "FLAG") or again.e2e_delta_pct is None:
        return f"{path}, judged again: {again.headline}"
    return SignedPatch(again.outcome, again.e2e_delta_pct)
