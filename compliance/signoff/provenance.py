"""Checks P: the raw files of each run are complete, unchanged and from one run.

B-4: other processes used the cores during a run, or more so on one side of a comparison. This makes a result worse, so
it is a warning. H-9 and B-3: all runs have one system and one version of the harness, and are close in time.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import mean
from typing import Any

from compliance.judge.rule import check_of, decides, find_rule
from compliance.judge.verdict import Finding, Policy, Severity, judge, stated
from compliance.results.same_system import BUNDLE, HARNESS, MAX_DAYS_APART, Question, too_far_apart, unlike
from compliance.signoff import requests
from compliance.signoff.evidence import Evidence, checks, damage_finding
from compliance.techniques.engine_facts import facts_of_run, misdeclared
from runs.loadgen.loadgen_sources import source_change, unchanged_sources
from runs.record.engines.server_facts import prompt_reuse
from runs.record.fingerprint import (
    CHANGED_OPTION,
    FREE_MEMORY,
    MEASURED,
    Differences,
    describe_differences,
    differences,
    run_fingerprint,
)
from runs.record.finished_run import FinishedRun
from runs.record.manifest import Manifest
from runs.record.observed import FOREIGN_SHARE, Contention, NotRecorded
from runs.wording import counted, shortened_list

# Maximum difference between two sides in the CPU share of other processes; half of the share that a run allows.
FOREIGN_DIFFERENCE = 0.05
MIN_WINDOW_S = 1.0  # Linux counts CPU time in steps of 10 ms, too coarse for shorter windows
SUT_NAMES = ("PySUT", "PyFastSUT")  # names that LoadGen gives to SUTs that use its Python interface

MISMATCHES_SHOWN = 4  # maximum number of shown findings of a rule on a run, and of differences between systems
_DECIDED_HERE = frozenset({"accuracy-scored-again", "log-sources"})  # checks C-1 and P-2 report them
_NOTED_ONLY = "accuracy-no-target"
_ANY_MACHINE = ("localhost", "")  # host names that identify no machine


def run_proofs(evidence: Evidence) -> list[Finding]:
    """Check that a run is complete, unchanged and from one run, and has the queries that LoadGen issued."""
    return judge(evidence, PROOFS).findings


@decides("signoff", also=("P-1/missing_raw", "P-1/damaged_raw"))
def _readable(evidence: Evidence) -> list[Finding]:
    """Report raw files that cannot be read (P-1)."""
    _ = evidence.part
    return evidence.reasons


@decides("signoff", also=("P-1/null_metric",))
def _no_nulls(evidence: Evidence) -> Iterator[Finding]:
    """Report results of LoadGen that are null, because they cannot be verified (P-1)."""
    for name, value in evidence.detail.values.items():
        if value is None and name.startswith("result_"):
            yield stated(
                "P-1/null_metric", f"{name} is null, so it cannot be verified", evidence.dir.detail, metric=name
            )


@decides("signoff", needs=("files",), also=("P-1/missing_raw",))
def _present(evidence: Evidence) -> Iterator[Finding]:
    """Report missing raw files (P-1). Files that only this harness writes may be missing in runs of other harnesses."""
    run = evidence.dir
    needed = [run.manifest, run.requests, run.trace, run.accuracy_log, run.engine_log, run.user_conf]
    needed += [] if evidence.is_performance else [run.accuracy_text, run.accuracy_json]
    if missing := [path.name for path in needed if not path.is_file()]:
        text = f"missing files: {', '.join(missing)}, required: none"
        yield stated("P-1/missing_raw", text, run.root, missing=missing)


@checks(
    "P-2",
    ("joined_logs", "error", "log records from multiple runs"),
    ("patched_loadgen", "error", "sources of LoadGen"),
    ("forged_log", "error", "LoadGen's version and the hashes of its sources in the log"),
    ("foreign_sut", "error", "name of the SUT in the log"),
    needs=("files",),
)
def _one_log(evidence: Evidence) -> Iterator[Finding]:
    """Check that the log is from one run of an unchanged LoadGen (P-2)."""
    detail, run = evidence.detail, evidence.dir
    if detail.repeated:
        key, line = next(iter(detail.repeated.items()))
        text = f"log records that occur twice: {len(detail.repeated)}, first {key}; the log contains records of"
        text += " multiple runs"
        yield stated("P-2/joined_logs", text, run.detail, line=line, repeated=list(detail.repeated)[:10])
    if not detail.get("loadgen_file_sha1") or not isinstance(detail.get("loadgen_version"), str):
        yield stated("P-2/forged_log", "LoadGen's version or the hashes of its sources are missing", run.detail)
    if change := source_change(detail):
        yield stated("P-2/patched_loadgen", change, run.detail)
    elif unchanged_sources(detail) is None and evidence.manifest is not None:
        version = str(detail.get("loadgen_version"))[:40]
        text = f"the hashes in the log were not checked: unknown LoadGen version {version}"
        yield stated("P-2/patched_loadgen", text, run.detail, severity="warning")
    if detail.get("sut_name") not in SUT_NAMES and not detail.is_network:
        name = str(detail.get("sut_name"))[:40]
        yield stated("P-2/foreign_sut", f"name of the SUT: {name!r}, required: {' or '.join(SUT_NAMES)}", run.detail)
    if evidence.summary.joined:
        yield stated("P-2/joined_logs", "the summary file contains multiple summaries", run.summary)


@decides("signoff", needs=("files",))
def _rederived(evidence: Evidence) -> Iterator[Finding]:
    """Report the findings of `main.py verify`. Official rules count only if the manifest claims to meet them."""
    part, reported = evidence.part, Counter[str]()
    assert part is not None
    official = part.details.claims_official and evidence.manifest is not None
    to_ask = [finding for finding in part.findings if finding.severity == "warning"]
    for finding in (*part.contradictions, *part.violated, *to_ask):
        ignored = finding.kind == "official" and not official and finding.rule != _NOTED_ONLY
        if ignored or finding.rule in _DECIDED_HERE:
            continue
        reported[finding.rule] += 1
        if reported[finding.rule] <= MISMATCHES_SHOWN or finding.kind != "contradiction":
            severity = "note" if finding.rule == _NOTED_ONLY else finding.severity
            yield replace(finding, severity=severity, files=finding.files or (evidence.dir.root,))
    for rule, count in reported.items():
        if count > MISMATCHES_SHOWN and find_rule(rule).kind == "contradiction":
            yield stated(
                rule,
                f"{count - MISMATCHES_SHOWN} more findings of this rule on the run",
                evidence.dir.root,
                severity="error",
            )


@checks("P-7", ("no_engine_start", "error", "configuration printed by the engine"), needs=("files", "manifest"))
@checks("H-6", ("prefix_caching", "error", "prompt tokens from a cache"))
def _engine(evidence: Evidence) -> Iterator[Finding]:
    """Check that the engine started, did not crash, cached no prompt, and ran with the declared technique."""
    run, log, manifest = evidence.dir, evidence.engine_log, evidence.record
    if manifest.plan.engine_record.prints_configuration and run.engine_log.is_file() and not log.configuration:
        yield stated("P-7/no_engine_start", "engine configuration missing, so the engine did not start", run.engine_log)
        if not run.engine_log.stat().st_size:
            yield stated("P-1/missing_raw", "engine.log is empty", run.engine_log)
    if log.dead_line is not None:
        yield stated("G-10/crashed", "the engine died or ran out of memory", run.engine_log, line=log.dead_line)
    for finding in misdeclared(manifest.mechanism, facts_of_run(evidence)):
        yield replace(finding, files=(run.manifest,))
    reuse = prompt_reuse(manifest)
    if reuse.is_on or reuse.tokens:
        text = f"prefix caching was on; prompt tokens from a cache: {reuse.tokens}"
        yield stated("H-6/prefix_caching", text, run.manifest, cached_prompt_tokens=reuse.tokens)


RUN_CHECKS = (*map(check_of, (_no_nulls, _readable, _present, _one_log, _rederived, _engine)), *requests.CHECKS)
PROOFS = Policy(checks={"performance": RUN_CHECKS, "accuracy": RUN_CHECKS}, damage=damage_finding)


def between_runs(runs: list[Evidence]) -> Iterator[Finding]:
    """Check that each run has its own process and files, and that no two runs overlapped (P-5, H-4, B-4)."""
    for place, run in enumerate(runs):
        for later in runs[place + 1 :]:
            yield from _pair(run, later)
    yield from contention(runs)


@checks("H-4", ("same_run_twice", "error", "runs that are given twice"))
@checks("P-5", ("same_process", "error", "runs that share a process"))
def _pair(earlier_run: Evidence, later_run: Evidence) -> Iterator[Finding]:
    roots = earlier_run.dir.root, later_run.dir.root
    names = (earlier_run.dir.detail.name, earlier_run.dir.requests.name)
    if alike := [
        name for name in names if name in earlier_run.hashes and earlier_run.hashes[name] == later_run.hashes.get(name)
    ]:
        yield stated("H-4/same_run_twice", f"two runs have identical {' and '.join(alike)}", *roots)
    first, second = earlier_run.manifest, later_run.manifest
    if first is None or second is None:
        return
    if (first.pid, first.start_time_ns) == (second.pid, second.start_time_ns):
        yield stated("P-5/same_process", f"two runs come from process {first.pid}", *roots)
    spans = [(m.start_time_ns or 0, m.end_time_ns or 0) for m in (first, second)]
    overlap_ns = min(end for _, end in spans) - max(start for start, _ in spans)
    if not (earlier_run.is_performance or later_run.is_performance):
        overlap_ns = 0  # the times of accuracy runs are not compared
    if overlap_ns > 0 and (certain := one_machine(first, second)) is not False:
        text = f"the runs overlap by {overlap_ns / 1e9:.1f} s on {first.observed.host.hostname}"
        severity: Severity = "error" if certain else "warning"
        yield stated("B-4/contended", text, *roots, overlap_s=overlap_ns / 1e9, severity=severity)


def one_machine(first: Manifest, second: Manifest) -> bool | None:
    """Return True if two runs come from one machine; None if this is unknown, such as for the host name localhost."""
    boots = first.observed.host.boot_id, second.observed.host.boot_id
    names = first.observed.host.hostname, second.observed.host.hostname
    if all(boots):
        return boots[0] == boots[1]  # runs before and after a restart of the machine cannot overlap
    if names[0] != names[1]:
        return False
    return None if names[0].partition(".")[0] in _ANY_MACHINE else True


@checks(
    "B-4",
    ("contended", "error", "use of the cores by other processes"),
    ("contention_not_recorded", "note", "missing CPU time of other processes"),
    ("foreign_cpu", "note", "CPU time of other processes"),
)
def contention(runs: Sequence[Evidence]) -> Iterator[Finding]:
    """Check the CPU time of other processes during performance runs. For accuracy runs, only write a note.

    The share of each run is compared with the limit. If the runs of a scenario have multiple configurations, as in a
    patch, their shares are also compared with each other.
    """
    # benchmark and scenario → configuration → CPU share of other processes in each run
    shares_of: dict[tuple[str, str], dict[str, list[tuple[float, Evidence]]]] = {}
    unknown: list[tuple[Evidence, str]] = []
    for evidence in runs:
        manifest = evidence.manifest
        if manifest is None:
            continue
        measured = manifest.observed.contention
        if not isinstance(measured, Contention):
            why = measured.not_recorded if isinstance(measured, NotRecorded) else "the run did not finish"
            # Only Linux has a boot ID and counts the CPU time of other processes.
            if evidence.is_performance and manifest.observed.host.boot_id:
                text = f"the CPU time of other processes is missing in the manifest, although Linux counts it: {why}"
                yield stated("B-4/contention_not_recorded", text, evidence.dir.manifest, severity="warning")
            else:
                unknown.append((evidence, why))
        elif measured.window_s < MIN_WINDOW_S:
            unknown.append((evidence, f"the measured time of {measured.window_s:.2f} s is too short"))
        else:
            text = f"use of the {measured.usable_cores} usable cores: by other processes {measured.foreign_share:.1%}"
            text += f", by the run {measured.own_cpu_s / measured.window_s / measured.usable_cores:.1%}"
            numbers = {**measured.model_dump(), "foreign_share": measured.foreign_share}
            yield stated("B-4/foreign_cpu", text, evidence.dir.manifest, **numbers)
            if evidence.is_performance:
                sides = shares_of.setdefault((evidence.benchmark.loadgen_key, evidence.scenario), {})
                conditions = repr(sorted((name, str(value)) for name, value in MEASURED.of(evidence.facts).items()))
                sides.setdefault(conditions, []).append((measured.foreign_share, evidence))
    if unknown:
        first, why = unknown[0]
        text = f"unknown CPU time of other processes: {counted(len(unknown), 'run')}, first {first.dir.root} ({why})"
        yield stated("B-4/contention_not_recorded", text, first.dir.manifest, runs=len(unknown))
    for configurations in shares_of.values():
        means = [(mean(share for share, _ in runs), runs[0][1].dir.root) for runs in configurations.values()]
        (quiet, low), (busy, high) = min(means), max(means)
        if len(means) > 1 and busy - quiet > FOREIGN_DIFFERENCE:
            text = f"other processes used {busy:.1%} of the usable cores during {high}, but {quiet:.1%} during {low},"
            text += f" required: at most {FOREIGN_DIFFERENCE:.0%} apart"
            shares: dict[str, Any] = {"foreign_shares": [quiet, busy], "limit_difference": FOREIGN_DIFFERENCE}
            yield stated("B-4/contended", text, low, high, **shares, severity="warning")
        for share, evidence in itertools.chain(*configurations.values()):
            if share > FOREIGN_SHARE:
                text = f"other processes used {share:.1%} of the usable cores while LoadGen ran, required: at most"
                text += f" {FOREIGN_SHARE:.0%}"
                limits: dict[str, Any] = {"foreign_share": share, "limit_share": FOREIGN_SHARE}
                yield stated("B-4/contended", text, evidence.dir.manifest, **limits, severity="warning")


# Runs together --------------------------------------------------------------------------------------------------------


def one_system(runs: Iterable[Evidence], *questions: Question) -> Iterator[Finding]:
    """Yield a finding for each run of a different system; a warning if only the free memory at its start differs."""
    for question, first, run, unequal in unlike(runs, *questions):
        severity: Severity = "warning" if unequal.keys() <= FREE_MEMORY else "error"
        text = f"{question.text}: {difference_text(unequal)}"
        yield stated(question.rule, text, first.dir.root, run.dir.root, keys=sorted(unequal), severity=severity)


def difference_text(unequal: Differences) -> str:
    """Return the differences between two runs as text."""
    return shortened_list(describe_differences(unequal, "in the first", "in the second"), MISMATCHES_SHOWN)


@checks("H-9", ("several_systems", "error", "differences in system between the runs of a bundle"))
def one_bundle(runs: Sequence[Evidence]) -> Iterator[Finding]:
    """Check that all runs come from one system and are close in time (H-9)."""
    yield from one_system((run for run in runs if run.manifest is not None), *BUNDLE)
    yield from far_apart(runs)


@checks("B-3", ("other_harness", "warning", "versions of the harness"))
def one_harness(runs: Sequence[Evidence]) -> Iterator[Finding]:
    """Check that runs outside a bundle used one commit of the harness, because it affects measurements (B-3)."""
    made = (run for run in runs if run.manifest is not None)
    for finding in one_system(made, HARNESS):  # outside a bundle, uncommitted changes cause only a warning
        yield replace(finding, severity="warning")
        return


@checks("H-9", ("far_apart", "error", "time between the first and the last run"))
def far_apart(runs: Sequence[Evidence], severity: Severity = "error") -> Iterator[Finding]:
    """Check that all runs are within half a year (H-9). The severity is `warning` for runs outside a bundle."""
    starts = ((run.manifest.start_time_ns or 0, run) for run in runs if run.manifest is not None)
    if apart := too_far_apart(starts):
        days, early, late = apart
        text = f"time between the first and the last run: {days} days, required: at most {MAX_DAYS_APART}"
        yield stated("H-9/far_apart", text, early.dir.root, late.dir.root, severity=severity, days=days)


def foreign_runs(runs: Sequence[FinishedRun], bundle: Sequence[Evidence]) -> str:
    """Return the difference between the performance runs of a patch verdict and those of the bundle; empty if none.

    Raises:
        HarnessError: If a run cannot be read.
    """
    performance = [evidence for evidence in bundle if evidence.is_performance]
    for facts in (run_fingerprint(run) for run in runs if run.is_performance):
        unequal = [differences(evidence.facts, facts, CHANGED_OPTION) for evidence in performance]
        if unequal and all(unequal):
            return difference_text(min(unequal, key=len))
    return ""
