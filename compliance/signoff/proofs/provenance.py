"""P: is everything there, unchanged, and from this one run? Missing or null evidence is a FAIL, never a pass."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from compliance.evidence.told_twice import contradicted
from compliance.finding import Finding, fail, find_rule, warn
from compliance.mechanisms.engine_facts import facts_of_run, misdeclared
from compliance.signoff.evidence import Evidence
from compliance.signoff.leg_conditions import in_words
from compliance.signoff.proofs.clocks import clocks, zone_of
from compliance.signoff.proofs.contention import contention
from compliance.signoff.proofs.record_facts import facts_of_process, facts_of_requests
from compliance.signoff.proofs.twins import twins
from runs.loadgen.written import unchanged_sources
from runs.record.conditions import differences
from runs.record.engine_log import ALWAYS_PRINTED
from runs.record.manifest import Manifest

SUT_NAMES = ("PySUT", "PyFastSUT")  # what LoadGen calls a system that was built through its Python interface

MISMATCHES_SHOWN = 4  # of one rule on a leg
# Of the rules on a leg: C-1 has its own word on answers that nobody scored, and scores without a target only tell.
_OF_C1, _TOLD_ONLY = "accuracy-scored-again", "accuracy-no-target"
_OF_A_START = ("cpu", "cores_logical", "memory_bytes")  # of the host, what stays as it is until it starts anew
_ANY_MACHINE = ("localhost", "")  # names that tell no machine from another


def provenance(evidence: Evidence) -> Iterator[Finding]:
    """All P checks of one leg but the stamps (stamps.py) and the replay (issued_queries.py)."""
    yield from _present(evidence)
    yield from _one_log(evidence)
    yield from _rederived(evidence)
    manifest = evidence.manifest
    if manifest is not None:
        yield from _engine(evidence, manifest)
        yield from contradicted(facts_of_process(evidence, manifest))
        if evidence.requests is not None and len(evidence.requests):
            yield from contradicted(facts_of_requests(evidence, manifest, evidence.requests))
            yield from clocks(evidence, manifest, evidence.requests)


def _present(evidence: Evidence) -> Iterator[Finding]:
    """P-1. The logs of another harness lack our own record: such a result cannot be verified."""
    run, manifest = evidence.run, evidence.manifest
    needed = [run.manifest, run.requests, run.trace, run.accuracy_log, run.engine_log, run.user_conf, run.progress]
    needed += [] if evidence.is_performance else [run.accuracy_text, run.accuracy_json]
    if missing := [path.name for path in needed if not path.is_file()]:
        text = f"unverifiable, for want of {', '.join(missing)}"
        yield fail("P-1/missing_raw", text, run.root, missing=missing)
    if manifest is None:
        return
    traced = evidence.trace is not None
    if traced != manifest.resolved.trace and run.trace.is_file() and evidence.is_performance:
        asked = "on" if manifest.resolved.trace else "off"
        text = f"the trace was {asked}, but the file {'has samples' if traced else 'is empty'}"
        yield fail("P-5/foreign_file" if traced else "P-1/missing_raw", text, run.trace)


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
    elif unchanged is None and evidence.manifest is not None and evidence.manifest.current:
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


def _engine(evidence: Evidence, manifest: Manifest) -> Iterator[Finding]:
    """An engine was started, lived to the end, cached no prompt, and is of the declared technique."""
    run, log = evidence.run, evidence.engine_log
    if manifest.resolved.engine_record.prints_configuration and run.engine_log.is_file() and not log.configuration:
        yield fail("P-7/no_engine_start", "the engine printed no configuration: none was started", run.engine_log)
        if not run.engine_log.stat().st_size:
            yield fail("P-1/missing_raw", "the engine's log is empty", run.engine_log)
    if log.configuration:
        printed = {name: name in log.configuration for name in ALWAYS_PRINTED} | {
            "model": log.model is not None,
            "the size of its KV cache": log.kv_cache_tokens is not None,
            "times": bool(log.first_and_last),
            "ids of its processes": bool(log.main_pids),
        }
        if absent := [name for name, found in printed.items() if not found]:
            text = f"the engine's log lacks {', '.join(absent)}, which vLLM prints in its own form of a log"
            yield fail("P-7/no_engine_start", text, run.engine_log, line=log.configuration_line)
    if log.dead_line is not None:
        yield fail("G-10/crashed", "the engine died or ran out of memory", run.engine_log, line=log.dead_line)
    for sentence in misdeclared(manifest.mechanism, facts_of_run(run, manifest)):
        yield fail("gate/mechanism_misdeclared", sentence, run.manifest)
    of_replicas = sum(record.get("cached_prompt_tokens") or 0 for record in manifest.replicas)
    cached = max(manifest.observed.get("cached_prompt_tokens") or 0, of_replicas)
    if manifest.engine.get("prefix_caching") is True or cached:
        text = f"prefix caching was on, {cached} prompt tokens came from a cache"
        yield fail("H-6/prefix_caching", text, run.manifest, cached_prompt_tokens=cached)


def between_legs(legs: list[Evidence]) -> Iterator[Finding]:
    """P-4, P-5, H-4 and B-4 across legs: each its own process and files, one at a time on a host, of one story."""
    for place, one in enumerate(legs):
        for other in legs[place + 1 :]:
            yield from _pair(one, other)
    yield from contention(legs)
    yield from _lengths([one for one in legs if one.part is not None])


def _lengths(legs: list[Evidence]) -> Iterator[Finding]:
    """The same answer, by its SHA-256, and the same prompt have one length wherever they occur."""
    known: dict[tuple[str, object], tuple[int, Evidence]] = {}
    for evidence in legs:
        table, manifest = evidence.requests, evidence.manifest
        if table is None:
            continue
        data = manifest.resolved.dataset_sha256 if manifest is not None else ""
        for kind, keys, values in (
            ("answer", table.output_sha256, table.output_tokens),
            (f"sample of {data}", table.sample_index.tolist(), table.prompt_tokens),
        ):
            for key, value, seq in zip(keys, values.tolist(), table.seq.tolist(), strict=True):
                before, other = known.setdefault((kind, key), (value, evidence))
                if before != value:
                    text = (
                        f"{kind.split()[0]} {str(key)[:12]} has {before} tokens in {other.run.root}, and {value} here"
                    )
                    yield fail("P-4/tokens_changed", text, evidence.run.requests, seq=seq)
                    break


def _pair(one: Evidence, other: Evidence) -> Iterator[Finding]:
    roots = one.run.root, other.run.root
    yield from twins(one, other)
    first, second = one.manifest, other.manifest
    if first is None or second is None:
        return
    if first.host.get("hostname") == second.host.get("hostname") and zone_of(one) != zone_of(other):
        hours = (zone_of(one) - zone_of(other)) / 3600
        text = f"by their stamps the legs ran in time zones {hours:+g} h apart, on one host (a change to summer time?)"
        yield warn("P-5/clock", text, *roots, hours=hours)
    if (first.pid, first.start_time_ns) == (second.pid, second.start_time_ns):
        yield fail("P-5/same_process", f"two legs of one process {first.pid}", *roots)
    if first.host.get("boot_id") and first.host.get("boot_id") == second.host.get("boot_id"):
        machines = [{name: m.host.get(name) for name in _OF_A_START} for m in (first, second)]
        if found := differences(*machines):
            yield warn("P-5/foreign_file", f"one start of a machine, told in two ways: {in_words(found)}", *roots)
    spans = [(m.start_time_ns or 0, m.end_time_ns or 0) for m in (first, second)]
    overlap_ns = min(end for _, end in spans) - max(start for start, _ in spans)
    if not (one.is_performance or other.is_performance):
        overlap_ns = 0  # no time of an accuracy leg counts
    if overlap_ns > 0 and (certain := one_machine(first, second)) is not False:
        text = f"the legs ran at the same time on {first.host.get('hostname')}, for {overlap_ns / 1e9:.1f} s"
        make = fail if certain else warn
        yield make("B-4/contended", text, *roots, overlap_s=overlap_ns / 1e9)


def one_machine(first: Manifest, second: Manifest) -> bool | None:
    """Did two legs run on one machine? None where its name, which any machine may have, is all that tells."""
    boots = first.host.get("boot_id"), second.host.get("boot_id")
    names = first.host.get("hostname"), second.host.get("hostname")
    if all(boots):
        return boots[0] == boots[1]  # a machine that was started anew ran nothing of both at the same time
    if names[0] != names[1]:
        return False
    return None if str(names[0]).partition(".")[0] in _ANY_MACHINE else True
