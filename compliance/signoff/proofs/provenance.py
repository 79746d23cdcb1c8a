"""P: is everything there, unchanged, and from this one run? Missing or null evidence is a FAIL, never a pass."""

import contextlib
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from compliance.finding import Finding, fail, note, warn
from compliance.mechanisms.engine_facts import facts_of_run, misdeclared
from compliance.signoff.evidence import Evidence
from compliance.signoff.limits import WINDOW_EARLY_S, WINDOW_LATE_S, ZONE_MOST_S, ZONE_STEP_S
from compliance.signoff.policy import SIGN_OFF, TOLD_ONLY
from compliance.signoff.proofs.contention import contention
from compliance.signoff.proofs.twins import twins
from runs.loadgen.detail_log import SUMMER_TIME_CHANGES_S
from runs.reading import open_record
from runs.record.manifest import Manifest
from runs.record.requests_log import RequestTable

SUT_NAMES = ("PySUT", "PyFastSUT")  # what LoadGen calls a system that was built through its Python interface

MISMATCHES_SHOWN = 4
WHOLE_SECOND = 1.5  # logs print whole seconds
_MISMATCH = "P-3/reported_vs_raw_mismatch"
_ANY_MACHINE = ("localhost", "")  # names that tell no machine from another
_TRACE_PID = re.compile(rb'"ph":"X","pid":(\d+),')


def provenance(evidence: Evidence) -> Iterator[Finding]:
    """All P checks of one leg but the stamps (stamps.py) and the replay (schedule.py)."""
    yield from _present(evidence)
    yield from _one_log(evidence)
    yield from _rederived(evidence)
    manifest = evidence.manifest
    if manifest is not None:
        yield from _process(evidence, manifest)
        yield from _engine(evidence, manifest)
        if evidence.requests is not None and len(evidence.requests):
            yield from _window(evidence, manifest, evidence.requests)


def _present(evidence: Evidence) -> Iterator[Finding]:
    """P-1. The logs of another harness lack our own record: such a result cannot be verified."""
    run, manifest = evidence.run, evidence.manifest
    own = [] if evidence.is_performance else [run.accuracy_text, run.accuracy_json]
    needed = [
        *own,
        run.manifest,
        run.requests,
        run.trace,
        run.accuracy_log,
        run.engine_log,
        run.user_conf,
        run.progress,
    ]
    if missing := [path.name for path in needed if not path.is_file()]:
        text = f"unverifiable, for want of {', '.join(missing)}"
        yield fail("P-1/missing_raw", text, run.root, missing=missing)
    if manifest is None:
        return
    if (
        manifest.resolved.engine_record.prints_configuration
        and run.engine_log.is_file()
        and not run.engine_log.stat().st_size
    ):
        yield fail("P-1/missing_raw", "the engine's log is empty", run.engine_log)
    traced = evidence.trace is not None
    if traced != manifest.resolved.trace and run.trace.is_file() and evidence.is_performance:
        asked = "on" if manifest.resolved.trace else "off"
        text = f"the trace was {asked}, but the file {'has samples' if traced else 'is empty'}"
        yield fail("P-1/missing_raw" if not traced else "foreign_file", text, run.trace)
    for key, value in evidence.detail.values.items():
        absent = value is None or (isinstance(value, float) and not math.isfinite(value))
        if absent and key.startswith("result_"):
            yield fail("P-1/null_metric", f"{key} is {value}", run.detail, key=key)


def _one_log(evidence: Evidence) -> Iterator[Finding]:
    """P-2: LoadGen's own log, of one unpatched LoadGen, written once."""
    detail, run = evidence.detail, evidence.run
    if detail.repeated:
        key, line = next(iter(detail.repeated.items()))
        text = f"{len(detail.repeated)} records stand there twice, first {key}: logs were joined"
        yield fail("P-2/joined_logs", text, run.detail, line=line, repeated=list(detail.repeated)[:10])
    if len(detail.pids) > 1:
        text = f"written by several processes: {sorted(detail.pids)}"
        yield fail("P-2/joined_logs", text, run.detail, pids=sorted(detail.pids))
    if detail.get("loadgen_git_status_message"):
        yield fail("P-2/patched_loadgen", "LoadGen was built from changed sources", run.detail)
    if not detail.get("loadgen_file_sha1") or not isinstance(detail.get("loadgen_version"), str):
        yield fail("P-2/forged_log", "LoadGen's version or the hashes of its sources are missing", run.detail)
    if detail.get("sut_name") not in SUT_NAMES and not detail.is_network:
        said = str(detail.get("sut_name"))[:40]
        yield fail("P-2/foreign_sut", f"the system calls itself {said!r}, not {SUT_NAMES[0]}", run.detail)
    if detail.error_count:
        first = detail.errors[0]
        text = f"{detail.error_count} error records, first: {first}"
        yield fail("P-2/loadgen_errors", text, run.detail, line=first.line_number, errors=detail.error_count)
    if evidence.summary.joined:
        yield fail("P-2/joined_logs", "the summary holds several summaries", run.summary)


def _rederived(evidence: Evidence) -> Iterator[Finding]:
    """P-3, P-5 and what else `compliance.verify` finds: contradictions, and rules that any result has to keep."""
    part = evidence.part
    if part is None:
        return
    mismatches = 0
    to_ask = [check for check in part.checks if check.severity == "warning"]
    for finding in (*part.contradictions, *part.broken, *to_ask):
        rule = SIGN_OFF.rule_for(finding)
        if rule is None or (
            finding.kind == "official" and not (part.claims_official and evidence.manifest is not None)
        ):
            continue
        mismatches += rule == _MISMATCH
        if rule != _MISMATCH or mismatches <= MISMATCHES_SHOWN:
            make = note if finding.rule in TOLD_ONLY else warn if finding in to_ask else fail
            yield make(rule, finding.sentence, *(finding.files or [evidence.run.root]), **finding.numbers)
    if mismatches > MISMATCHES_SHOWN:
        more = mismatches - MISMATCHES_SHOWN
        yield fail("P-3/reported_vs_raw_mismatch", f"and {more} more numbers of this leg", evidence.run.root)


def _process(evidence: Evidence, manifest: Manifest) -> Iterator[Finding]:
    """P-5: LoadGen, the engine and our own record ran in one process, and the record names it."""
    run = evidence.run
    known = {
        run.detail.name: evidence.detail.pids,
        run.engine_log.name: evidence.engine_log.main_pids,
        run.trace.name: _trace_pids(evidence),
    }
    replicas = {record.get("pid") for record in manifest.replicas}
    for name, pids in known.items():
        ours = replicas if replicas and name == run.engine_log.name else {manifest.pid}
        if pids and pids != ours:
            text = f"{name} was written by process {sorted(pids)}, the leg was process {manifest.pid}"
            yield fail("P-5/foreign_file", text, run.root / name, pids=sorted(pids), manifest_pid=manifest.pid)
    version = str(evidence.detail.get("loadgen_version", ""))
    expected = str(manifest.loadgen.get("version") or "")
    if not expected or version.split()[:1] != [expected]:
        text = f"the log is of LoadGen {version}, the leg ran LoadGen {expected or 'of no version'}"
        yield fail("P-5/foreign_file", text, run.detail)
    table = evidence.requests
    if table is None:
        return
    count, tokens = manifest.observed.get("samples_completed"), evidence.progress.get("output_tokens")
    if count is not None and count != len(table):
        text = f"samples_completed of manifest.json is {count}, requests.jsonl has {len(table)} lines"
        yield fail("P-4/record_incomplete", text, run.requests, said=count, lines=len(table))
    if tokens is not None and tokens != int(table.output_tokens.sum()):
        text = f"output_tokens of progress.json is {tokens}, the lines of requests.jsonl add up to"
        yield fail("P-4/tokens_changed", f"{text} {int(table.output_tokens.sum())}", run.requests)


def _trace_pids(evidence: Evidence) -> set[int]:
    if not evidence.run.trace.is_file():
        return set()
    with open_record(evidence.run.trace, "give the leg's own trace") as lines:  # which was read before, by line
        return {int(pid) for line in lines for pid in _TRACE_PID.findall(line)}


def _engine(evidence: Evidence, manifest: Manifest) -> Iterator[Finding]:
    """P-7: the configuration that the record gives is the one that the engine printed, and the declared technique's."""
    run, log = evidence.run, evidence.engine_log
    if manifest.resolved.engine_record.prints_configuration and run.engine_log.is_file() and not log.configuration:
        yield fail("P-7/no_engine_start", "the engine printed no configuration: none was started", run.engine_log)
    printed_at = log.configuration_line
    configuration = manifest.engine.get("configuration") or {}
    for name, value in log.configuration.items():
        said = configuration.get(name, "not recorded")
        if said != value:
            text = f"{name} is {said} in manifest.json, the engine printed {value}"
            yield fail(
                "P-7/engine_contradicts_record",
                text,
                run.engine_log,
                line=printed_at,
                name=name,
                manifest=said,
                log=value,
            )
    in_force = manifest.engine.get("in_force") or {}
    for name, asked in manifest.resolved.engine_options.items():
        value = in_force.get(name, configuration.get(name, asked))
        # "auto" leaves the choice to the engine, and what its configuration does not show is told as a sentence.
        if isinstance(asked, int | float) and isinstance(value, int | float | None) and asked != value:
            text = f"{name} was to be {asked}, and by the record {value} was in force: such a leg does not start"
            yield fail("P-7/engine_contradicts_record", text, run.manifest, name=name, asked=asked, in_force=value)
    if log.model is not None and log.model != manifest.resolved.model_path:
        text = f"the engine loaded {log.model}, manifest.json names {manifest.resolved.model_path}"
        yield fail("P-7/other_model", text, run.engine_log, line=printed_at)
    if log.dead_line is not None:
        yield fail("G-10/crashed", "the engine died or ran out of memory", run.engine_log, line=log.dead_line)
    for sentence in misdeclared(manifest.mechanism, facts_of_run(run, manifest)):
        yield fail("P-7/mechanism_misdeclared", sentence, run.manifest)
    of_replicas = sum(record.get("cached_prompt_tokens") or 0 for record in manifest.replicas)
    cached = max(manifest.observed.get("cached_prompt_tokens") or 0, of_replicas)
    if manifest.engine.get("prefix_caching") is True or cached:
        text = f"prefix caching was on, {cached} prompt tokens came from a cache"
        yield fail("H-6/prefix_caching", text, run.manifest, cached_prompt_tokens=cached)


def _window(evidence: Evidence, manifest: Manifest, table: RequestTable) -> Iterator[Finding]:
    """P-5: the record's first and last stamp lie in LoadGen's own window, and that in the leg's."""
    first_ns, last_ns = int(table.issue_ns.min()), int(table.complete_ns.max())
    if not (manifest.start_time_ns or 0) <= first_ns <= last_ns <= (manifest.end_time_ns or 0):
        text = (
            f"requests from {_clock(first_ns)} to {_clock(last_ns)}, the leg ran from "
            f"{_clock(manifest.start_time_ns or 0)} to {_clock(manifest.end_time_ns or 0)}"
        )
        yield fail("P-5/clock", text, evidence.run.requests, first_ns=first_ns, last_ns=last_ns)
    begin_s, end_s = (_power_s(evidence, key) for key in ("power_begin", "power_end"))
    if begin_s is None or end_s is None:
        yield fail("P-1/missing_raw", "power_begin or power_end is missing", evidence.run.detail)
        return
    before_s = first_ns / 1e9 - begin_s
    zone_s = zone_of(evidence)
    yield from _others_clocks(evidence, manifest, zone_s)
    gaps_s: dict[str, Any] = {
        "first issue after power_begin": before_s - zone_s,
        "power_end after last completion": 0.0,
    }
    end_zone_s = _zone_s(last_ns / 1e9, end_s)  # another one, where the clock was changed meanwhile
    if end_zone_s - zone_s not in SUMMER_TIME_CHANGES_S:
        end_zone_s = zone_s
    gaps_s["power_end after last completion"] = end_s + end_zone_s - last_ns / 1e9
    wrong = {name: gap for name, gap in gaps_s.items() if not -WINDOW_EARLY_S <= gap <= WINDOW_LATE_S}
    if abs(zone_s) > ZONE_MOST_S or wrong:
        name, gap = next(iter(wrong.items()), ("time zone", float(zone_s)))
        text = f"the clocks of requests.jsonl and LoadGen differ: {name} by {gap:.3f} s"
        yield fail("P-5/clock", text, evidence.run.requests, **{key: round(gap, 4) for key, gap in gaps_s.items()})


def zone_of(evidence: Evidence) -> int:
    """How far LoadGen's local time is behind UTC, in s, by the first request."""
    begin_s = _power_s(evidence, "power_begin")
    if begin_s is None or evidence.requests is None or not len(evidence.requests):
        return 0
    return _zone_s(float(evidence.requests.issue_ns.min()) / 1e9, begin_s)


def _zone_s(utc_s: float, local_s: float) -> int:
    return round((utc_s - local_s) / ZONE_STEP_S) * ZONE_STEP_S


def _others_clocks(evidence: Evidence, manifest: Manifest, zone_s: int) -> Iterator[Finding]:
    """The heartbeat and the engine's log were written while the leg ran."""
    run = evidence.run
    stamps_s: list[tuple[Path, list[float]]] = []  # of each stamp the moments that it can mean
    beat_ns = evidence.progress.get("time_ns")
    if isinstance(beat_ns, int):
        stamps_s.append((run.progress, [beat_ns / 1e9]))
    start_s, end_s = (manifest.start_time_ns or 0) / 1e9, (manifest.end_time_ns or 0) / 1e9
    year = datetime.fromtimestamp(start_s, UTC).year
    stamps_s += [(run.engine_log, moments_of(stamp, year, zone_s)) for stamp in evidence.engine_log.first_and_last]
    for path, moments_s in stamps_s:
        if moments_s and not any(start_s - WHOLE_SECOND <= moment_s <= end_s + WHOLE_SECOND for moment_s in moments_s):
            moment_s = min(moments_s, key=lambda moment_s: abs(moment_s - start_s))
            text = f"written at {moment_s:.1f}, the leg ran from {start_s:.1f} to {end_s:.1f}"
            yield fail("P-5/clock", text, path, moment_s=moment_s)
            return


def moments_of(stamp: tuple[str, str, str], year: int, zone_s: int) -> list[float]:
    """What a stamp of the engine's log can mean, in s: it has no year (a leg may run over New Year, or be in another
    one by its own clock), and the clock may have been changed while the leg ran."""
    month, day, clock = stamp
    found = []
    for one in (year - 1, year, year + 1):
        with contextlib.suppress(ValueError):
            moment = datetime.strptime(f"{one}-{month}-{day} {clock}+0000", "%Y-%m-%d %H:%M:%S%z")
            found += [moment.timestamp() + zone_s + change_s for change_s in SUMMER_TIME_CHANGES_S]
    return found


def _power_s(evidence: Evidence, key: str) -> float | None:
    """A time stamp of the log, in s, as if it were UTC."""
    try:
        moment = datetime.strptime(f"{evidence.detail.get(key)}+0000", "%m-%d-%Y %H:%M:%S.%f%z")
    except ValueError:
        return None
    return moment.timestamp()


def _clock(time_ns: int) -> str:
    return f"{time_ns / 1e9:.3f}"


def between_legs(legs: list[Evidence]) -> Iterator[Finding]:
    """P-5, H-4 and B-4 across legs: each its own process and files, one at a time on a host."""
    for place, one in enumerate(legs):
        for other in legs[place + 1 :]:
            yield from _pair(one, other)
    yield from contention(legs)


def _pair(one: Evidence, other: Evidence) -> Iterator[Finding]:
    roots = one.run.root, other.run.root
    alike = [name for name in (one.run.detail.name, one.run.requests.name) if _same_file(one, other, name)]
    if alike:
        yield fail("H-4/same_run_twice", f"two legs have the same {' and '.join(alike)}", *roots)
        return
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


def _same_file(one: Evidence, other: Evidence, name: str) -> bool:
    digest = one.hashes.get(name)
    return digest is not None and digest == other.hashes.get(name)
