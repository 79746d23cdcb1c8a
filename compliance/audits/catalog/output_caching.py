"""The audit output_caching: it compares the rate of repeated samples with the rate of new samples.

It has three kinds of runs, in turn on one engine: a reference of samples that are new to the engine; the same number of
queries that repeat one sample; and a few samples in changing order, for caches that skip immediate repetitions.
caching_steps.py decides the next run and the outcome.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from compliance.audits.base import (
    EARLIER_VERSION,
    PERFORMANCE_MODE,
    AuditResult,
    AuditTest,
    NoVerdictError,
    RunSpec,
    requested_count,
)
from compliance.audits.caching_steps import (
    MAX_CHANCE_OF_FAIL,
    MAX_RUNS,
    REFERENCE,
    CachingOutcome,
    CachingRun,
    Measurement,
    Plan,
    next_step,
)
from compliance.audits.options import AuditOptions, AuditRequest, Logs, PositionsOrAuto, Share, audit_field
from compliance.audits.pace import TTFT_THRESHOLD, Pace
from compliance.judge.rule import AUDIT_AGAIN, OURS, decides
from compliance.judge.verdict import Finding, compared
from runs.benchmark import Scenario
from runs.errors import ExecutionError, InputError, SetupError
from runs.record.engines.server_facts import prompt_reuse
from runs.wording import counted

if TYPE_CHECKING:
    from compliance.audits.run_artifacts import RunArtifacts

DEFAULT_SAMPLES = 64
# Minimum number of samples N for a small dataset. Otherwise N is a part of the dataset, so that new samples remain.
MIN_DEFAULT_SAMPLES = 16
REFERENCES_OF_A_SERVER = 5  # number of reference runs that the dataset should suffice for, because FAIL may need them
DEFAULT_THRESHOLD = 0.10
SCENARIOS: tuple[Scenario, ...] = ("Offline", "SingleStream")
_LABEL = re.compile(r"(reference|few|repeat-(\d{1,6}))-n(\d{1,9})-round(\d{1,3})")
_AGAIN = "run the audit again"
_MEASURED: WeakKeyDictionary["RunArtifacts", Measurement] = WeakKeyDictionary()


class CachingOptions(AuditOptions):
    samples: int | None = audit_field(
        None,
        "Number of unique samples in the first reference run. If that run is too short, the next run has more samples. "
        "Default: 64, or half of a small dataset.",
        "N",
        ge=1,
    )
    audit_samples: int | None = audit_field(
        None, "Queries in each run that repeats one sample. Default: the number in the reference run.", "N", ge=1
    )
    sample_index: PositionsOrAuto = audit_field(
        (),
        "Samples to repeat, as positions in the list of samples that the first reference run loads, separated by "
        "commas; the fastest run decides. auto: the sample whose lengths are nearest to the means of this run. "
        "Default: auto.",
        "I[,J...]|auto",
    )
    threshold: Share | None = audit_field(
        None,
        "Maximum gain in rate of a run that repeats one sample, as a share. Default: 0.1.",
        "X",
    )


CachingRequest = AuditRequest[CachingOptions]


class OutputCaching(AuditTest[CachingOptions]):
    name = "output_caching"
    summary = "Compare the rate of repeated samples with the rate of unique samples (Offline, SingleStream)."
    options = CachingOptions
    keeps_engine = True

    def validate(self, request: CachingRequest) -> None:
        if request.scenario not in SCENARIOS:
            raise SetupError(
                f"--test {self.name} --scenario {request.scenario}: in the Server scenario, the arrival rate "
                "determines the samples/s, so that a cache has no effect on them",
                "audit the same system with --scenario Offline or SingleStream",
            )
        plan = _plan(request)
        if not plan.starts_engine and 2 * plan.samples > plan.rows:
            raise SetupError(
                f"{self.name}: the dataset is too small: {plan.rows} rows, required: at least {2 * plan.samples}, "
                f"because the {plan.samples} samples of each reference run must be new to the server",
                f"use --samples {max(1, plan.rows // REFERENCES_OF_A_SERVER)}, or a larger dataset",
            )
        request.check_positions(request.options.sample_index, plan.samples)

    def run_counts(self, request: CachingRequest) -> tuple[int, int]:
        return _plan(request).min_runs, MAX_RUNS

    def recover(self, request: CachingRequest, logs: Logs, details: Mapping[str, Any]) -> CachingRequest:
        if REFERENCE in logs:  # Labels of earlier versions contained no number of samples.
            raise NoVerdictError(f"{self.name}: {EARLIER_VERSION}", _AGAIN)
        runs = {label: match for label in logs if (match := _LABEL.fullmatch(label))}
        sizes = [int(match[3]) for match in runs.values() if match[1] == REFERENCE]
        if not sizes:
            raise InputError(f"the reference run is missing (runs: {', '.join(logs) or 'none'})", _AGAIN)
        counts = {label: requested_count(logs[label]) for label, match in runs.items() if match[1] != REFERENCE}
        requested = {count for label, count in counts.items() if count != int(runs[label][3])}
        threshold = details.get("threshold")
        options = CachingOptions(
            test=self.name,
            samples=min(sizes),
            audit_samples=min(requested, default=None),
            sample_index=() if details.get("sample_index_chosen") is True else _indices(runs.values()),
            threshold=threshold if isinstance(threshold, float) and 0 < threshold < DEFAULT_THRESHOLD else None,
        )
        loadable = details.get("loadable_samples")
        loaded = loadable if type(loadable) is int else request.loaded_count
        return request.model_copy(update={"options": options, "loaded_count": loaded})

    def runs(self, request: CachingRequest) -> list[RunSpec]:
        return self.more_runs(request, [])

    def more_runs(self, request: CachingRequest, finished: Sequence["RunArtifacts"]) -> list[RunSpec]:
        if len(finished) > 1 and _broken_evidence(finished):
            return []
        measured = [_measured(run) for run in finished]
        step = next_step(_plan(request), measured)
        if not isinstance(step, CachingRun):
            return []
        return [_spec(request, step)]

    def verify(self, request: CachingRequest, runs: list["RunArtifacts"]) -> AuditResult:
        self.need(runs, 1)
        plan = _plan(request)
        measured = [_measured(run) for run in runs]
        if measured[0].run.kind != REFERENCE or len({run.spec.label for run in runs}) != len(runs):
            labels = [run.spec.label for run in runs]
            raise ExecutionError(f"{self.name}: {labels} must start with the reference run, each once", AUDIT_AGAIN)
        new, issued = _count_new(measured, runs)
        outcome = next_step(plan, measured)
        checks = [_completeness(run, plan.threshold) for run in runs]
        checks += [*(outcome.findings if isinstance(outcome, CachingOutcome) else ()), *_broken_evidence(runs)]
        failed = [check for check in checks if not check.passed]
        if not failed:
            _check_decided(outcome)
        self.need(runs, 2)
        checks += [check for run in runs for check in _direct_evidence(run) if check.passed]
        references, tests, notes = measured[:1], measured[-1:], ""
        if isinstance(outcome, CachingOutcome) and outcome.tests:
            references, tests = list(outcome.references), list(outcome.tests)
            notes = "".join(f"; left out: {note}" for note in outcome.notes)
        by_run = dict(zip((measurement.run for measurement in measured), runs, strict=True))
        audits, firsts = ([by_run[measurement.run] for measurement in group] for group in (tests, references))
        before, after = (
            median(measurement.pace.samples_per_second for measurement in group) for group in (references, tests)
        )
        kind, size = tests[0].run.kind, tests[0].run.samples
        scores = f"{kind}: {after:.6g} samples/s, {REFERENCE}: {before:.6g} samples/s"
        used = f"N = {size}" + (f", raised from {plan.samples}" if size != plan.samples else "")
        seconds = median(reference.pace.seconds for reference in references)
        used += f"; {counted(len(references), 'reference run')} of {seconds:.3g} s; {counted(len(runs), 'run')}"
        used += f"; {new:,} of {issued:,} reference samples were new to the engine"
        text, reason = _test_line(failed, f"{scores}; {used}")
        head = f"Verifying performance.\nreference score = {before}\ntest score = {after}\n{text}\n"
        rule = _rule(request.scenario, plan.threshold)
        return self.result(
            checks,
            runs,
            reason=reason + notes,
            rule=rule,
            text=self.text_of(head, f"{rule}\nsamples: {used}{notes}", runs, checks),
            details={
                "threshold": plan.threshold,
                "ref_qps": before,
                "audit_qps": after,
                "unit": "samples/s",
                "ref_completed": min(run.completed for run in firsts),
                "ref_requested": firsts[0].requested,
                "audit_completed": min(run.completed for run in audits),
                "audit_requested": audits[0].requested,
                "decided_by": audits[-1].spec.label,
                "samples": size,
                "first_samples": plan.samples,
                "loadable_samples": plan.rows,
                "sample_index_chosen": not plan.indices,
                "reference_s": seconds,
                "reference_samples": issued,
                "new_reference_samples": new,
                "engines": measured[-1].run.engine,
            },
        )


def _test_line(failed: Sequence[Finding], measured: str) -> tuple[str, str]:
    """Return the line of verify_performance.txt with the verdict, and the reason of the verdict."""
    if not failed:
        return "TEST PASS", measured
    violated = f"{failed[0].text}: {failed[0].found}"
    return f"TEST FAIL: {violated}, required {failed[0].required}", f"{violated} ({measured})"


def _plan(request: CachingRequest) -> Plan:
    options = request.options
    references = 2 if request.starts_engine else REFERENCES_OF_A_SERVER
    default = min(DEFAULT_SAMPLES, max(MIN_DEFAULT_SAMPLES, request.loaded_count // references))
    return Plan(
        samples=request.sample_count(options.samples, default),
        rows=request.loaded_count,
        threshold=DEFAULT_THRESHOLD if options.threshold is None else options.threshold,
        queries=options.audit_samples,
        indices=options.sample_index,
        starts_engine=request.starts_engine,
    )


def _check_decided(outcome: CachingRun | CachingOutcome) -> None:
    """Raise an error if no further run can decide, or a run is missing."""
    name = OutputCaching.name
    if isinstance(outcome, CachingRun):
        raise ExecutionError(f"{name}: the run {_label(outcome)} is missing", _AGAIN)
    if outcome.verdict == "NONE":
        raise NoVerdictError(f"{name}: no verdict: {outcome.reason}", outcome.fix)


def _count_new(measured: Sequence[Measurement], runs: Sequence["RunArtifacts"]) -> tuple[int, int]:
    """Return how many samples of all reference runs were new to their engine, and how many there were.

    The request logs show the samples, and the manifests show the engines.

    Raises:
        ExecutionError: If an earlier run on the same engine issued a sample of a reference run.
    """
    issued_to: dict[object, set[int]] = {}
    new = issued = 0
    for measurement, run in zip(measured, runs, strict=True):
        earlier, rows = issued_to.setdefault(_engine_of(measurement, run), set()), set(measurement.pace.issued)
        if measurement.run.kind == REFERENCE:
            if repeated := rows & earlier:
                text = f"audit run {run.spec.label}: earlier runs issued {len(repeated)} of its {len(rows)} samples"
                raise ExecutionError(f"{text} to the same engine", _AGAIN)
            new, issued = new + len(rows - earlier), issued + len(rows)
        earlier |= rows
    return new, issued


def _engine_of(measured: Measurement, run: "RunArtifacts") -> object:
    """Return what identifies the engine of a run: the time at which it started, if the harness kept it."""
    if run.manifest is None:
        return measured.run.engine
    plan = run.manifest.plan
    if plan.replicas is not None and plan.replicas.kept is not None:
        return plan.replicas.kept.start_time_ns
    return run.spec.label if plan.starts_engine else None


def _label(run: CachingRun) -> str:
    return f"{run.kind}-n{run.samples}-round{run.number}"


def _run(spec: RunSpec) -> CachingRun:
    """Return the run of the procedure that a planned run is.

    Raises:
        ExecutionError: If the label belongs to no run of this audit.
    """
    if not (match := _LABEL.fullmatch(spec.label)):
        raise ExecutionError(f"{OutputCaching.name}: {spec.label} is not a run of this audit", _AGAIN)
    queries = spec.settings["min_query_count"]
    return CachingRun(match[1], int(match[3]), queries, int(match[4]), spec.rows or (), spec.engine)


def _indices(runs: Iterable[re.Match[str]]) -> tuple[int, ...]:
    """Return the positions of the repeated samples, in the order of the runs that repeat them."""
    return tuple(dict.fromkeys(int(match[2]) for match in runs if match[2]))


def _measured(run: "RunArtifacts") -> Measurement:
    """Return the measurement of a finished run."""
    if run not in _MEASURED:
        _check_issued(run)
        rows = _rows_of(run)
        loaded = tuple(rows[index] for index in run.detail.loaded_qsl_set)
        _MEASURED[run] = Measurement(_run(run.spec), pace_of(run), loaded)
    return _MEASURED[run]


def pace_of(run: "RunArtifacts") -> Pace:
    """Return the pace of a run: the rates and latencies from LoadGen's log, and the lengths from the request log.

    Raises:
        ExecutionError: If the run has no sample, no latency, or a rate of 0.
    """
    table, numbers, rows = run.request_table, run.numbers, _rows_of(run)
    latency = numbers.latency_ns
    rate = numbers.samples_per_second_without_overhead or numbers.samples_per_second
    if len(table) == 0 or latency is None or latency.mean <= 0 or not rate or not 0 < rate < float("inf"):
        raise ExecutionError(
            f"audit run {run.spec.label}: {len(table)} samples at {rate} samples/s allow no comparison",
            "run the audit again with more --samples",
        )
    issued = [rows[index] for index in table.sample_index.tolist()]
    outputs: dict[int, list[int]] = {}
    for row, tokens in zip(issued, table.output_tokens.tolist(), strict=True):
        outputs.setdefault(row, []).append(tokens)
    prompts = dict(zip(issued, table.prompt_tokens.tolist(), strict=True))
    offline = run.detail.scenario == "Offline"
    return Pace(
        label=run.spec.label,
        scenario=run.detail.scenario,
        samples_per_second=rate,
        mean_latency_ns=latency.mean,
        mean_ttft_ns=None if offline or numbers.ttft_ns is None else numbers.ttft_ns.mean,
        lengths={row: (prompts[row], fmean(tokens)) for row, tokens in outputs.items()},
        issued=issued,
    )


def _rows_of(run: "RunArtifacts") -> Sequence[int]:
    """Return the row of the dataset of each sample index."""
    return run.spec.rows or range(run.detail.integer("qsl_reported_total_count"))


def _spec(request: CachingRequest, run: CachingRun) -> RunSpec:
    """Return the plan of a run that loads some rows of the dataset and issues only these.

    A minimum duration of 0 makes the counts exact: 1.1 × target_qps × min_duration of Offline is 0, and SingleStream
    ends at min_query_count.
    """
    _, _, index = run.kind.partition("-")
    settings = {
        "mode": PERFORMANCE_MODE,
        "performance_issue_unique": int(run.kind == REFERENCE),
        "performance_issue_same": int(bool(index)),
        "performance_issue_same_index": int(index or 0),
        "performance_sample_count_override": len(run.rows),
        "sample_concatenate_permutation": 0,
        "min_query_count": run.queries,
        "min_duration": 0,
        "max_duration": 0,
        "max_query_count": 0,
    }
    return RunSpec(
        _label(run),
        settings=settings,
        scenario=request.scenario,
        requested=run.queries,
        rows=run.rows,
        engine=run.engine,
    )


def _check_issued(run: "RunArtifacts") -> None:
    """Check in the request log that LoadGen issued the samples that this kind of run requires."""
    table, effective = run.request_table, run.spec.in_force
    samples = set(table.sample_index.tolist())
    count = len(samples)
    if effective["performance_issue_same"]:
        right = samples == {run.detail.loaded_qsl_set[effective["performance_issue_same_index"]]}
    elif effective["performance_issue_unique"]:
        right = count == len(table)
    else:
        right = count <= effective["performance_sample_count"]
    if not right or len(table) == 0:
        raise ExecutionError(
            f"audit run {run.spec.label}: {len(table)} queries with {count} distinct samples contradict audit.config",
            f"see the effective_* values in {run.dir.detail}, then run the audit again",
        )


@decides(
    "audit",
    ("caching-answered", "error", OURS, "number of completed samples", AUDIT_AGAIN),
)  # fmt: skip
def _completeness(run: "RunArtifacts", threshold: float) -> Finding:
    needed = run.requested * (1 - threshold)
    return compared(
        "caching-answered",
        run.completed >= needed,
        str(run.completed),
        f"at least {needed:g} of {run.requested}",
        run.dir.detail,
        text=f"{run.spec.label}: completed samples",
    )


@decides(
    "audit",
    ("caching-engine", "error", "[rules] no caching of queries", "prefix caching of the engine",
     "turn prefix caching off in the engine, and run the audit again"),
    ("caching-tokens", "error", "[rules] no caching of queries", "prompt tokens from a cache",
     "turn prefix caching off in the engine, and run the audit again"),
)  # fmt: skip
def _direct_evidence(run: "RunArtifacts") -> Iterator[Finding]:
    """Check the engine's own reports about caching. A cheating engine may hide its cache in them."""
    if run.manifest is None:
        return
    label, path, reuse = run.spec.label, run.dir.manifest, prompt_reuse(run.manifest)
    state = "on" if reuse.is_on else "off"
    yield compared("caching-engine", not reuse.is_on, state, "off", path, text=f"{label}: prefix caching in the engine")
    text = f"{label}: prompt tokens from a cache"
    yield compared("caching-tokens", not reuse.tokens, f"{reuse.tokens:,}", "0", path, text=text)


def _broken_evidence(runs: Sequence["RunArtifacts"]) -> list[Finding]:
    return [check for run in runs for check in _direct_evidence(run) if not check.passed]


def _rule(scenario: Scenario, threshold: float) -> str:
    rates = "1 / mean latency" if scenario == "Offline" else "1 / mean end-to-end latency, and 1 / mean TTFT"
    return (
        f"the rates ({rates}) with repeated samples must stay below (1 + threshold) × the rates with samples that are "
        f"new to the engine, threshold {threshold:g} (TTFT: {TTFT_THRESHOLD:g}); the limit falls if the repeated "
        "samples are longer than the mean, and rises if they are shorter, by at most half of the threshold; repeated "
        "responses must be as long as in the reference runs; the runs are repeated until a rank test of all pairs of "
        f"runs decides, with a chance of at most {MAX_CHANCE_OF_FAIL:.1%} that a rate at the limit fails; the engine "
        "must report no cached prompt tokens"
    )
