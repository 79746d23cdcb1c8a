"""P: is everything there, unchanged, and from this one run? Missing or null evidence is a FAIL, never a pass."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from compliance.finding import Finding, fail, find_rule, warn
from compliance.mechanisms.engine_facts import facts_of_run, misdeclared
from compliance.signoff.evidence import Evidence, checks
from compliance.signoff.proofs.contention import contention
from runs.loadgen.detail_log import unchanged_sources
from runs.record.manifest import Manifest

SUT_NAMES = ("PySUT", "PyFastSUT")  # what LoadGen calls a system that was built through its Python interface

MISMATCHES_SHOWN = 4  # of one rule on a leg
# Of the rules on a leg: C-1 has its own word on answers that nobody scored, and scores without a target only tell.
_OF_C1, _TOLD_ONLY = "accuracy-scored-again", "accuracy-no-target"
_ANY_MACHINE = ("localhost", "")  # names that tell no machine from another


def provenance(evidence: Evidence) -> Iterator[Finding]:
    """All P checks of one leg but those of its requests (request_checks.py) and the replay (issued_queries.py)."""
    yield from _present(evidence)
    yield from _one_log(evidence)
    yield from _rederived(evidence)
    manifest = evidence.manifest
    if manifest is not None:
        yield from _engine(evidence, manifest)


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
