"""P: is everything there, unchanged, and from this one run? Missing or null evidence is a FAIL, never a pass.

B-4 on CPU time: did others use the cores while a leg's clock ran, and more so on one side of a comparison? A result's
times are what they are, so contention is no FAIL.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import mean

from compliance.finding import Finding, fail, find_rule, note, warn
from compliance.mechanisms.engine_facts import facts_of_run, misdeclared
from compliance.signoff.evidence import Evidence, checks
from compliance.signoff.requests import late_issues, replay, request_checks
from runs.loadgen.detail_log import unchanged_sources
from runs.record.fingerprint import MEASURED
from runs.record.manifest import Manifest
from runs.record.observed import FOREIGN_SHARE, Contention, NotRecorded
from runs.wording import counted

# Half of what others may use beside a leg, more on one side of a comparison than on the other, is a difference that is
# not the lever's.
FOREIGN_DIFFERENCE = 0.05
LEAST_WINDOW_S = 1.0  # the system counts in steps of 10 ms, for each core and each process: shorter windows say nothing
SUT_NAMES = ("PySUT", "PyFastSUT")  # what LoadGen calls a system that was built through its Python interface

MISMATCHES_SHOWN = 4  # of one rule on a leg
# Of the rules on a leg: C-1 has its own word on answers that nobody scored, and scores without a target only tell.
_OF_C1, _TOLD_ONLY = "accuracy-scored-again", "accuracy-no-target"
_ANY_MACHINE = ("localhost", "")  # names that tell no machine from another
Repeats = list[tuple[Evidence, float]]  # of one configuration, with the share of the cores that others used meanwhile


def leg_proofs(evidence: Evidence) -> Iterator[Finding]:
    """All proofs on one leg by itself: is it whole, unchanged, one run, and of the queries that LoadGen issued?"""
    part, manifest = evidence.part, evidence.manifest
    yield from evidence.reasons
    if part is None:
        return
    yield from _present(evidence)
    yield from _one_log(evidence)
    yield from _rederived(evidence)
    if manifest is not None:
        yield from _engine(evidence, manifest)
    if manifest is not None or evidence.trace is not None:
        yield from replay(evidence)
    yield from request_checks(evidence)
    yield from late_issues(evidence)


def _present(evidence: Evidence) -> Iterator[Finding]:
    """P-1. The logs of another harness lack our own record: such a result cannot be verified."""
    run = evidence.run
    needed = [run.manifest, run.requests, run.trace, run.accuracy_log, run.engine_log, run.user_conf]
    needed += [] if evidence.is_performance else [run.accuracy_text, run.accuracy_json]
    if missing := [path.name for path in needed if not path.is_file()]:
        text = f"unverifiable, for want of {', '.join(missing)}"
        yield fail("P-1/missing_raw", text, run.root, missing=missing)


@checks(
    "P-2",
    ("joined_logs", "error", "a log is one log, written once by one process"),
    ("patched_loadgen", "error", "LoadGen was built from unchanged sources"),
    ("forged_log", "error", "a log names LoadGen's version and the hashes of its sources"),
    ("foreign_sut", "error", "the system is one that was built through LoadGen's Python interface"),
)
def _one_log(evidence: Evidence) -> Iterator[Finding]:
    """P-2: LoadGen's own log, of one unpatched LoadGen, written once."""
    detail, run = evidence.detail, evidence.run
    if detail.repeated:
        key, line = next(iter(detail.repeated.items()))
        text = f"{len(detail.repeated)} records stand there twice, first {key}: logs were joined"
        yield fail("P-2/joined_logs", text, run.detail, line=line, repeated=list(detail.repeated)[:10])
    if detail.get("loadgen_git_status_message"):
        yield fail("P-2/patched_loadgen", "LoadGen was built from changed sources", run.detail)
    if not detail.get("loadgen_file_sha1") or not isinstance(detail.get("loadgen_version"), str):
        yield fail("P-2/forged_log", "LoadGen's version or the hashes of its sources are missing", run.detail)
    unchanged = unchanged_sources(detail)
    if unchanged is False:
        text = f"LoadGen {detail.get('loadgen_version')} has other sources than those that the log names"
        yield fail("P-2/patched_loadgen", text, run.detail)
    elif unchanged is None and evidence.manifest is not None:
        text = f"the sources of LoadGen {str(detail.get('loadgen_version'))[:40]} are not known: they were not compared"
        yield warn("P-2/patched_loadgen", text, run.detail)
    if detail.get("sut_name") not in SUT_NAMES and not detail.is_network:
        said = str(detail.get("sut_name"))[:40]
        yield fail("P-2/foreign_sut", f"the system calls itself {said!r}, not {SUT_NAMES[0]}", run.detail)
    if evidence.summary.joined:
        yield fail("P-2/joined_logs", "the summary holds several summaries", run.summary)


def _rederived(evidence: Evidence) -> Iterator[Finding]:
    """What `compliance.verify` finds: contradictions, and rules that any result, or an official one, has to keep."""
    part, told = evidence.part, Counter[str]()
    if part is None:
        return
    official = part.claims_official and evidence.manifest is not None
    to_ask = [check for check in part.checks if check.severity == "warning"]
    for finding in (*part.contradictions, *part.broken, *to_ask):
        if finding.rule == _OF_C1 or (finding.kind == "official" and not official):
            continue
        told[finding.rule] += 1
        if told[finding.rule] <= MISMATCHES_SHOWN or finding.kind != "contradiction":
            severity = "note" if finding.rule == _TOLD_ONLY else finding.severity
            yield replace(finding, severity=severity, files=finding.files or (evidence.run.root,))
    for rule, count in told.items():
        if count > MISMATCHES_SHOWN and find_rule(rule).kind == "contradiction":
            yield fail(rule, f"and {count - MISMATCHES_SHOWN} more of this leg", evidence.run.root)


@checks("P-7", ("no_engine_start", "error", "the engine printed its configuration"))
@checks("H-6", ("prefix_caching", "error", "no prompt comes from a cache"))
def _engine(evidence: Evidence, manifest: Manifest) -> Iterator[Finding]:
    """An engine was started, lived to the end, cached no prompt, and is of the declared technique."""
    run, log = evidence.run, evidence.engine_log
    if manifest.plan.engine_record.prints_configuration and run.engine_log.is_file() and not log.configuration:
        yield fail("P-7/no_engine_start", "the engine printed no configuration: none was started", run.engine_log)
        if not run.engine_log.stat().st_size:
            yield fail("P-1/missing_raw", "the engine's log is empty", run.engine_log)
    if log.dead_line is not None:
        yield fail("G-10/crashed", "the engine died or ran out of memory", run.engine_log, line=log.dead_line)
    for sentence in misdeclared(manifest.mechanism, facts_of_run(run, manifest)):
        yield fail("gate/mechanism_misdeclared", sentence, run.manifest)
    cached = manifest.observed.cached_prompt_tokens or 0
    if manifest.engine.prefix_caching or cached:
        text = f"prefix caching was on, {cached} prompt tokens came from a cache"
        yield fail("H-6/prefix_caching", text, run.manifest, cached_prompt_tokens=cached)


def between_legs(legs: list[Evidence]) -> Iterator[Finding]:
    """P-5, H-4 and B-4 across legs: each its own process and files, and one at a time on a host."""
    for place, one in enumerate(legs):
        for other in legs[place + 1 :]:
            yield from _pair(one, other)
    yield from contention(legs)


@checks("H-4", ("same_run_twice", "error", "two legs are two runs"))
@checks("P-5", ("same_process", "error", "each leg is a process of its own"))
def _pair(one: Evidence, other: Evidence) -> Iterator[Finding]:
    roots = one.run.root, other.run.root
    names = (one.run.detail.name, one.run.requests.name)
    if alike := [name for name in names if name in one.hashes and one.hashes[name] == other.hashes.get(name)]:
        yield fail("H-4/same_run_twice", f"two legs have the same {' and '.join(alike)}", *roots)
    first, second = one.manifest, other.manifest
    if first is None or second is None:
        return
    if (first.pid, first.start_time_ns) == (second.pid, second.start_time_ns):
        yield fail("P-5/same_process", f"two legs of one process {first.pid}", *roots)
    spans = [(m.start_time_ns or 0, m.end_time_ns or 0) for m in (first, second)]
    overlap_ns = min(end for _, end in spans) - max(start for start, _ in spans)
    if not (one.is_performance or other.is_performance):
        overlap_ns = 0  # no time of an accuracy leg counts
    if overlap_ns > 0 and (certain := one_machine(first, second)) is not False:
        text = f"the legs ran at the same time on {first.observed.host.hostname}, for {overlap_ns / 1e9:.1f} s"
        make = fail if certain else warn
        yield make("B-4/contended", text, *roots, overlap_s=overlap_ns / 1e9)


def one_machine(first: Manifest, second: Manifest) -> bool | None:
    """Did two legs run on one machine? None where its name, which any machine may have, is all that tells."""
    boots = first.observed.host.boot_id, second.observed.host.boot_id
    names = first.observed.host.hostname, second.observed.host.hostname
    if all(boots):
        return boots[0] == boots[1]  # a machine that was started anew ran nothing of both at the same time
    if names[0] != names[1]:
        return False
    return None if names[0].partition(".")[0] in _ANY_MACHINE else True


@checks(
    "B-4",
    ("contended", "error", "nothing else used the machine"),
    ("contention_not_recorded", "note", "foreign CPU time is on record"),
)
def contention(legs: Sequence[Evidence]) -> Iterator[Finding]:
    """Judge what the legs' records say of foreign CPU time.

    Legs of one configuration are judged by the share itself. Where there are several configurations of one scenario,
    as in a patch, it is the difference between them that counts: what slows all alike favours none. No time of an
    accuracy leg counts, so of those it is only told.
    """
    known: dict[tuple[str, str], dict[str, Repeats]] = {}  # by benchmark and scenario, by conditions
    unknown: list[tuple[Evidence, str]] = []
    for evidence in legs:
        if evidence.manifest is None:
            continue
        found = evidence.manifest.observed.contention
        why = found.not_recorded if isinstance(found, NotRecorded) else "the leg did not finish"
        if not isinstance(found, Contention) and evidence.is_performance and evidence.manifest.observed.host.boot_id:
            text = f"foreign CPU time is not recorded, on a system that tells it: {why}"  # as it tells the boot's id
            yield warn("B-4/contention_not_recorded", text, evidence.run.manifest)
        elif not isinstance(found, Contention):
            unknown.append((evidence, why))
        elif found.window_s < LEAST_WINDOW_S:
            unknown.append((evidence, f"a window of {found.window_s:.2f} s is too short to tell"))
        else:
            yield _told(evidence, found)
            if evidence.is_performance:
                sides = known.setdefault((evidence.benchmark.loadgen_key, evidence.scenario), {})
                conditions = repr(sorted((name, str(value)) for name, value in MEASURED.of(evidence.facts).items()))
                sides.setdefault(conditions, []).append((evidence, found.foreign_share))
    if unknown:
        first, why = unknown[0]
        text = f"foreign CPU time is not recorded for {counted(len(unknown), 'leg')}, first {first.run.root}: {why}"
        yield note("B-4/contention_not_recorded", text, first.run.manifest, legs=len(unknown))
    for one in known.values():
        yield from _alone(*one.values()) if len(one) == 1 else _compared([*one.values()])


@checks("B-4", ("foreign_cpu", "note", "foreign CPU time"))
def _told(evidence: Evidence, found: Contention) -> Finding:
    text = f"others used {found.foreign_share:.1%} of the {found.usable_cores} usable cores, the leg"
    text += f" {found.own_cpu_s / found.window_s / found.usable_cores:.1%}"
    numbers = {**found.model_dump(), "foreign_share": found.foreign_share}
    return note("B-4/foreign_cpu", text, evidence.run.manifest, **numbers)


def _alone(repeats: Repeats) -> Iterator[Finding]:
    for evidence, share in repeats:
        if share > FOREIGN_SHARE:
            text = f"others used {share:.1%} of the usable cores while LoadGen ran, more than {FOREIGN_SHARE:.0%}"
            text, numbers = f"{text}: compare these times with nothing", {"foreign_share": share}
            yield warn("B-4/contended", text, evidence.run.manifest, **numbers, limit_share=FOREIGN_SHARE)


def _compared(sides: list[Repeats]) -> Iterator[Finding]:
    shares = [mean(share for _, share in repeats) for repeats in sides]
    (low, quiet), (high, busy) = (choose(enumerate(shares), key=lambda one: one[1]) for choose in (min, max))
    if busy - quiet > FOREIGN_DIFFERENCE:
        roots = [sides[place][0][0].run.root for place in (low, high)]
        text = f"others used {busy:.1%} of the usable cores beside {roots[1]}, {quiet:.1%} beside {roots[0]}: more than"
        text += f" {FOREIGN_DIFFERENCE:.0%} apart, so what differs is not the change's doing alone"
        yield warn("B-4/contended", text, *roots, foreign_shares=[quiet, busy], limit_difference=FOREIGN_DIFFERENCE)
