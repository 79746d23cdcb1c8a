"""The audit output_caching: it compares the rate of repeated samples with the rate of new samples.

It has three kinds of runs, back to back on one engine: a reference of unique samples; the same number of queries that
repeat one sample; and a few samples in changing order, for caches that skip immediate repetitions. caching_steps.py
decides the next run and the outcome.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from compliance.audits.base import PERFORMANCE_MODE, AuditResult, AuditTest, NoVerdictError, RunSpec, requested_count
from compliance.audits.caching_steps import (
    FEW,
    FEW_SAMPLES,
    MAX_RUNS,
    MIN_REFERENCE_S,
    REFERENCE,
    Measurement,
    Outcome,
    Plan,
    Run,
    next_step,
)
from compliance.audits.options import AuditOptions, AuditRequest, Logs, PositionsOrAuto, Share, audit_field
from compliance.audits.pace import Pace, steady_latency_ns
from compliance.judge.check import decides
from compliance.judge.finding import Finding, compared
from compliance.judge.rule import AUDIT_AGAIN, OURS
from runs.benchmark import Scenario
from runs.errors import ExecutionError, InputError, SetupError
from runs.record.engines.server_facts import prompt_reuse
from runs.wording import counted

if TYPE_CHECKING:
    from compliance.audits.run_artifacts import RunArtifacts

DEFAULT_SAMPLES = 64
# Minimum number of samples N for a small dataset. Half of the dataset is used, so that new samples remain for later.
MIN_DEFAULT_SAMPLES = 16
DEFAULT_THRESHOLD = {"Offline": 0.10, "SingleStream": 0.20}
_LABEL = re.compile(r"(reference|few|repeat-(\d{1,6}))-n(\d{1,9})-round(\d{1,3})")
# Run labels of earlier versions of the harness. These had names instead of repetition numbers, and a fixed N.
_EARLIER_LABEL = re.compile(r"(reference|few|repeat-(\d{1,6}))(|-again|-third)")
_EARLIER_ROUNDS = {"": 1, "-again": 2, "-third": 3}
EARLIER_MIN_REFERENCE_S = 0.05
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
        "Samples to repeat, as positions in the list of loaded samples, separated by commas; the fastest run decides. "
        "auto: the sample whose lengths are nearest to the means of the reference run. Default: auto.",
        "I[,J...]|auto",
    )
    threshold: Share | None = audit_field(
        None,
        "Maximum gain in rate of a run that repeats one sample, as a share. Default: 0.1 in Offline, 0.2 in "
        "SingleStream.",
        "X",
    )


Request = AuditRequest[CachingOptions]


class EarlierRequest(Request):
    """The request of an audit that an earlier version of the harness made."""

    runs: tuple[str, ...]  # labels of the audit runs


class OutputCaching(AuditTest[CachingOptions]):
    name = "output_caching"
    summary = "Compare the rate of repeated samples with the rate of unique samples (Offline, SingleStream)."
    options = CachingOptions
    keeps_engine = True

    def validate(self, request: Request) -> None:
        if request.scenario not in DEFAULT_THRESHOLD:
            raise SetupError(
                f"--test {self.name} --scenario {request.scenario}: in the Server scenario, the arrival rate "
                "determines the samples/s, so that a cache has no effect on them",
                "audit the same system with --scenario Offline or SingleStream",
            )
        request.check_positions(request.options.sample_index, _plan(request).samples)

    def run_counts(self, request: Request) -> tuple[int, int]:
        return _plan(request).min_runs, MAX_RUNS

    def recover(self, request: Request, logs: Logs, details: Mapping[str, Any]) -> Request:
        earlier = REFERENCE in logs
        found = {label: (_EARLIER_LABEL if earlier else _LABEL).fullmatch(label) for label in logs}
        runs = {label: match for label, match in found.items() if match}
        references = [logs[label] for label, match in runs.items() if match[1] == REFERENCE]
        if not references:
            raise InputError(f"the reference run is missing (runs: {', '.join(logs) or 'none'})", "run the audit again")
        counts = {label: requested_count(logs[label]) for label, match in runs.items() if match[1] != REFERENCE}
        other = {count for label, count in counts.items() if earlier or count != int(runs[label][3])}
        default, threshold = DEFAULT_THRESHOLD.get(request.scenario), details.get("threshold")
        options = CachingOptions(
            test=self.name,
            samples=min(log.integer("effective_performance_sample_count") for log in references),
            audit_samples=min(other, default=None),
            sample_index=() if details.get("sample_index_chosen") is True else _indices(runs.values()),
            threshold=threshold if isinstance(threshold, float) and default and 0 < threshold < default else None,
        )
        loadable = details.get("loadable_samples")
        loaded = loadable if type(loadable) is int else request.loaded_count
        request = request.model_copy(update={"options": options, "loaded_count": loaded})
        return EarlierRequest(**dict(request), runs=tuple(runs)) if earlier else request

    def runs(self, request: Request) -> list[RunSpec]:
        if isinstance(request, EarlierRequest):
            labels = sorted(request.runs, key=lambda label: label != REFERENCE)
            return [_spec(request, _run(label, request), label) for label in labels]
        return self.more_runs(request, [])

    def more_runs(self, request: Request, finished: Sequence["RunArtifacts"]) -> list[RunSpec]:
        if isinstance(request, EarlierRequest) or (len(finished) > 1 and _broken_evidence(finished)):
            return []
        step = next_step(_plan(request), [_measured(run, request) for run in finished])
        return [_spec(request, step, _label(step))] if isinstance(step, Run) else []

    def verify(self, request: Request, runs: list["RunArtifacts"]) -> AuditResult:
        self.need(runs, 1)
        plan = _plan(request)
        measured = [_measured(run, request) for run in runs]
        if measured[0].run.kind != REFERENCE or len({run.spec.label for run in runs}) != len(runs):
            labels = [run.spec.label for run in runs]
            raise ExecutionError(f"{self.name}: {labels} must start with the reference run, each once", AUDIT_AGAIN)
        outcome = next_step(plan, measured)
        checks = [_completeness(run, plan.threshold) for run in runs]
        checks += [*(outcome.findings if isinstance(outcome, Outcome) else ()), *_broken_evidence(runs)]
        failed = [check for check in checks if not check.passed]
        if not failed:
            _check_decided(request, measured, outcome)
        self.need(runs, 2)
        checks += [check for run in runs for check in _direct_evidence(run) if check.passed]
        by_run = dict(zip((one.run for one in measured), runs, strict=True))
        pair = (outcome.reference, outcome.test) if isinstance(outcome, Outcome) else (None, None)
        reference, test = pair[0] or measured[0], pair[1] or measured[-1]
        audit, first = by_run[test.run], by_run[reference.run]
        before, after = reference.pace.samples_per_second, test.pace.samples_per_second
        scores = f"{audit.spec.label}: {after:.6g} samples/s, {first.spec.label}: {before:.6g} samples/s"
        used = f"N = {test.run.samples}"
        if test.run.samples != plan.samples:
            used += f", raised from {plan.samples}"
        used += f"; the reference run took {reference.pace.seconds:.3g} s; {counted(len(runs), 'run')}"
        if failed:
            violated = f"{failed[0].text}: {failed[0].found}"
            text, reason = f"TEST FAIL: {violated}, required {failed[0].required}", f"{violated} ({scores}; {used})"
        else:
            text, reason = "TEST PASS", f"{scores}; {used}"
        head = f"Verifying performance.\nreference score = {before}\ntest score = {after}\n{text}\n"
        rule = _rule(request.scenario, plan.threshold)
        return self.result(
            checks,
            runs,
            reason=reason,
            rule=rule,
            text=self.text_of(head, rule, runs, checks),
            details={
                "threshold": plan.threshold,
                "ref_qps": before,
                "audit_qps": after,
                "unit": "samples/s",
                "ref_completed": first.completed,
                "ref_requested": first.requested,
                "audit_completed": audit.completed,
                "audit_requested": audit.requested,
                "decided_by": audit.spec.label,
                "samples": test.run.samples,
                "first_samples": plan.samples,
                "loadable_samples": plan.max_samples,
                "sample_index_chosen": not plan.indices,
                "reference_s": reference.pace.seconds,
            },
        )


def _plan(request: Request) -> Plan:
    options = request.options
    default = min(DEFAULT_SAMPLES, max(MIN_DEFAULT_SAMPLES, request.loaded_count // 2))
    return Plan(
        samples=request.sample_count(options.samples, default),
        max_samples=request.loaded_count,
        threshold=DEFAULT_THRESHOLD[request.scenario] if options.threshold is None else options.threshold,
        queries=options.audit_samples,
        indices=options.sample_index,
        min_reference_s=EARLIER_MIN_REFERENCE_S if isinstance(request, EarlierRequest) else MIN_REFERENCE_S,
    )


def _check_decided(request: Request, measured: Sequence[Measurement], outcome: Run | Outcome) -> None:
    """Raise an error if the runs are too few or too short for a verdict.

    Raises:
        NoVerdictError: If no further run can decide, or an earlier version made the audit.
        ExecutionError: If a run is missing.
    """
    name, again = OutputCaching.name, "run the audit again"
    if isinstance(outcome, Outcome):
        if outcome.verdict == "NONE":
            at_limit = max(one.run.samples for one in measured) >= request.loaded_count
            fix = "audit with a larger dataset or a slower model" if at_limit else f"{again} on an idle machine"
            raise NoVerdictError(f"{name}: no verdict: {outcome.reason}", fix)
    elif isinstance(request, EarlierRequest) and outcome.number > 1:
        text = f"{name}: no verdict: an earlier version made this audit without the run {_label(outcome)}"
        raise NoVerdictError(text, again)
    else:
        raise ExecutionError(f"{name}: the run {_label(outcome)} is missing", again)


def _label(run: Run) -> str:
    return f"{run.kind}-n{run.samples}-round{run.number}"


def _run(label: str, request: Request) -> Run:
    """Return the run with a label.

    Raises:
        ExecutionError: If the audit has no run with this label.
    """
    if isinstance(request, EarlierRequest) and (match := _EARLIER_LABEL.fullmatch(label)):
        samples, number = _plan(request).samples, _EARLIER_ROUNDS[match[3]]
    elif match := _LABEL.fullmatch(label):
        samples, number = int(match[3]), int(match[4])
    else:
        raise ExecutionError(f"{OutputCaching.name}: {label} is not a run of this audit", "run the audit again")
    return Run(
        match[1], samples, samples if match[1] == REFERENCE else request.options.audit_samples or samples, number
    )


def _indices(runs: Iterable[re.Match[str]]) -> tuple[int, ...]:
    """Return the positions of the repeated samples, in the order of the runs that repeat them."""
    return tuple(dict.fromkeys(int(match[2]) for match in runs if match[2]))


def _measured(run: "RunArtifacts", request: Request) -> Measurement:
    """Return the measurement of a finished run."""
    if run not in _MEASURED:
        _check_issued(run)
        planned = _run(run.spec.label, request)
        typical = nearest_mean(run) if planned.kind == REFERENCE else 0
        _MEASURED[run] = Measurement(planned, pace_of(run), typical)
    return _MEASURED[run]


def pace_of(run: "RunArtifacts") -> Pace:
    """Return the pace of a run: the rates and latencies from LoadGen's log, and the lengths from the request log.

    Raises:
        ExecutionError: If the run has no sample, no latency, or a rate of 0.
    """
    table, numbers = run.request_table, run.numbers
    latency = numbers.latency_ns
    rate = numbers.samples_per_second_without_overhead or numbers.samples_per_second
    if len(table) == 0 or latency is None or latency.mean <= 0 or not rate or not 0 < rate < float("inf"):
        raise ExecutionError(
            f"audit run {run.spec.label}: {len(table)} samples at {rate} samples/s allow no comparison",
            "run the audit again with more --samples",
        )
    outputs: dict[int, list[int]] = {}
    for index, tokens in zip(table.sample_index.tolist(), table.output_tokens.tolist(), strict=True):
        outputs.setdefault(index, []).append(tokens)
    prompts = dict(zip(table.sample_index.tolist(), table.prompt_tokens.tolist(), strict=True))
    offline = run.detail.scenario == "Offline"
    return Pace(
        label=run.spec.label,
        scenario=run.detail.scenario,
        samples_per_second=rate,
        mean_latency_ns=latency.mean,
        steady_latency_ns=steady_latency_ns(run.detail.scenario, latency.mean, table.complete_ns - table.issue_ns),
        median_ttft_ns=None if offline or numbers.ttft_ns is None else numbers.ttft_ns.p50,
        lengths={index: (prompts[index], fmean(tokens)) for index, tokens in outputs.items()},
        issued=table.sample_index.tolist(),
    )


def nearest_mean(reference: "RunArtifacts") -> int:
    """Return the position in LoadGen's loaded set of the sample whose lengths are nearest to the means of the run.

    The distance is the larger of the relative differences of prompt and output tokens.
    """
    table = reference.request_table
    if len(table) == 0:
        raise ExecutionError("the reference run completed no sample", f"read {reference.dir.engine_log}")
    prompt = abs(table.prompt_tokens / table.prompt_tokens.mean() - 1)
    output = abs(table.output_tokens / table.output_tokens.mean() - 1)
    chosen = int(table.sample_index[prompt.clip(min=output).argmin()])
    loaded = reference.detail.loaded_qsl_set
    if chosen not in loaded:
        raise ExecutionError(f"sample {chosen} was completed but not loaded", f"see {reference.dir.detail}")
    return loaded.index(chosen)


def _spec(request: Request, run: Run, label: str) -> RunSpec:
    """Return the plan of a run that loads the first samples of the dataset and issues only these.

    A minimum duration of 0 makes the counts exact: 1.1 × target_qps × min_duration of Offline is 0, and SingleStream
    ends at min_query_count.
    """
    _, _, index = run.kind.partition("-")
    settings = {
        "mode": PERFORMANCE_MODE,
        "performance_issue_unique": int(run.kind == REFERENCE),
        "performance_issue_same": int(bool(index)),
        "performance_issue_same_index": int(index or 0),
        "performance_sample_count_override": FEW_SAMPLES if run.kind == FEW else run.samples,
        "sample_concatenate_permutation": 0,
        "min_query_count": run.queries,
        "min_duration": 0,
        "max_duration": 0,
        "max_query_count": 0,
    }
    return RunSpec(label, settings=settings, scenario=request.scenario, requested=run.queries)


def _check_issued(run: "RunArtifacts") -> None:
    """Check in the request log that LoadGen issued the samples that this kind of run requires."""
    table, effective = run.request_table, run.spec.in_force
    samples = set(table.sample_index.tolist())
    found = len(samples)
    if effective["performance_issue_same"]:
        right = samples == {run.detail.loaded_qsl_set[effective["performance_issue_same_index"]]}
    elif effective["performance_issue_unique"]:
        right = found == len(table)
    else:
        right = found <= effective["performance_sample_count"]
    if not right or len(table) == 0:
        raise ExecutionError(
            f"audit run {run.spec.label}: {len(table)} queries with {found} distinct samples contradict audit.config",
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
    found = "on" if reuse.is_on else "off"
    yield compared("caching-engine", not reuse.is_on, found, "off", path, text=f"{label}: prefix caching in the engine")
    text = f"{label}: prompt tokens from a cache"
    yield compared("caching-tokens", not reuse.tokens, f"{reuse.tokens:,}", "0", path, text=text)


def _broken_evidence(runs: Sequence["RunArtifacts"]) -> list[Finding]:
    return [check for run in runs for check in _direct_evidence(run) if not check.passed]


def _rule(scenario: Scenario, threshold: float) -> str:
    offline = "1 / mean latency, and samples/s"
    first = offline if scenario == "Offline" else "1 / mean end-to-end latency, and 1 / median TTFT"
    return (
        f"the rates ({first}) with repeated samples must stay below (1 + threshold) × the rates with unique samples, "
        f"threshold {threshold:g} (TTFT: 0.5); the limit is raised if the repeated samples are shorter than the mean, "
        "and by the time that other processes may have added to the reference run; repeated responses must be as long "
        f"as in the reference run; N is raised until the reference run takes {MIN_REFERENCE_S:g} s; the audit fails if "
        "a rate exceeds the limits from all reference runs, in 2 repetitions if it is at least twice the limit, "
        "otherwise in 5; the engine must report no cached prompt tokens"
    )
