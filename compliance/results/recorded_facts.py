"""Contradictions between the manifest of a run and its other files: facts that this harness cannot have written."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from compliance.accuracy.accuracy_files import read_scores_record
from compliance.judge.rule import OURS, RERUN, decides
from compliance.judge.verdict import Finding
from compliance.results.log_clock import CLOCK_S, TEST_DATE, ZONES, local_test_date
from compliance.results.log_contradictions import contradicted
from compliance.results.run_evidence import MODE_NAMES, RunEvidence
from runs.attestation.attestation import read_attestation
from runs.errors import HarnessError
from runs.loadgen.summary_log import Contradiction
from runs.numbers.result import read_result
from runs.record.fingerprint import flat_facts
from runs.record.layout import RunDir
from runs.record.manifest import Manifest
from runs.record.observed import Contention
from runs.record.progress import PHASES

CPU_S = 0.03  # tolerance for CPU times, of which the manifest has two digits after the point
BOUND_THREADS = "VLLM_CPU_OMP_THREADS_BIND"  # variable with which vLLM binds the threads of the process to cores

STAGES_NS = 1_000_000_000  # tolerance for the sum of the stages, each of which is rounded to 0.1 s
AUDIT_CONFIG = "Audit Config"  # in a warning of LoadGen if it read an audit.config
TIMES_SHARE = 0.05  # tolerance for sums of times that two processes measured
SCORE = 1e-4  # tolerance for a score, of which accuracy.txt has four digits after the point
# Fields of result.json that LoadGen's logs decide.
_OF_LOGS = {"verdict", "loadgen_verdict", "duration_ns", "in_force", "reported"}

Contradictions = Iterator[Contradiction]


def _process(run: RunEvidence, manifest: Manifest) -> Contradictions:
    """Compare the process IDs in engine.log with the processes of the run."""
    run_processes = {manifest.pid, *(replica.pid for replica in manifest.replicas)}
    is_kept = manifest.plan.replicas is not None and manifest.plan.replicas.kept is not None
    unknown_processes = sorted(run.engine_log.processes - run_processes)
    if unknown_processes and not is_kept and not manifest.plan.engine_record.is_server:
        yield Contradiction(
            f"{run.dir.engine_log.name} is from process {unknown_processes[0]}", ("pid",), f"pid is {manifest.pid}"
        )


def _loadgen_process(run: RunEvidence, manifest: Manifest) -> Contradictions:
    """Compare the process that wrote LoadGen's log with the process of the run."""
    process = next(iter(run.detail.processes), None)
    if len(run.detail.processes) == 1 and process is not None and process != manifest.pid:
        yield Contradiction(f"process {process} wrote {run.dir.detail.name}", ("pid",), f"pid is {manifest.pid}")


def _plan(run: RunEvidence, manifest: Manifest) -> Contradictions:
    """Compare the plan of the run with LoadGen's log."""
    detail, plan = run.detail, manifest.plan
    is_audited = any(AUDIT_CONFIG in str(record.value) for record in detail.warnings)
    version, _, _ = str(detail.get("loadgen_version")).partition(" @")
    pairs: tuple[tuple[str, object, object], ...] = (
        ("plan.loadgen_scenario", plan.loadgen_scenario, detail.scenario),
        ("plan.mode", plan.mode, MODE_NAMES.get(detail.mode, detail.mode)),
        ("plan.sample_count", plan.sample_count, detail.get("qsl_reported_total_count")),
        ("plan.audit", plan.audit, is_audited),
        ("observed.loadgen.version", manifest.observed.loadgen.version, version),
    )
    for key, stated, logged in pairs:
        if stated != logged:
            yield Contradiction(f"{key} is {stated}", (key,), f"LoadGen's log gives {logged}")


def _options(run: RunEvidence, manifest: Manifest) -> Contradictions:
    """Compare the configuration that the engine printed with the configuration in the manifest."""
    configuration = manifest.engine.configuration
    for name, printed in run.engine_log.configuration.items():
        if name in configuration and str(configuration[name]) != str(printed):
            keys = (f"engine.configuration.{name}",)
            yield Contradiction(f"the engine printed {name} = {printed}", keys, f"{keys[0]} is {configuration[name]}")


def _cache(run: RunEvidence, manifest: Manifest) -> Contradictions:
    """Compare the hit rate of the prefix cache with the configuration."""
    hit_rate = run.engine_log.cache_hit_rate
    if hit_rate and manifest.engine.configuration.get("enable_prefix_caching") is False:
        key = "engine.configuration.enable_prefix_caching"
        yield Contradiction(f"the engine printed a prefix cache hit rate of {hit_rate:g}%", (key,), f"{key} is false")


def _cpu_times(run: RunEvidence, manifest: Manifest) -> Contradictions:
    """Compare the CPU times of the run with each other and with the host."""
    contention, host = manifest.observed.contention, manifest.observed.host
    if not isinstance(contention, Contention):
        return
    rest_s = max(0.0, contention.busy_cpu_s - contention.own_cpu_s)
    if abs(contention.foreign_cpu_s - rest_s) > CPU_S:
        key = "observed.contention.foreign_cpu_s"
        yield Contradiction(f"{key} is {contention.foreign_cpu_s:g}", (key,), f"busy_cpu_s - own_cpu_s is {rest_s:g}")
    binds_threads = BOUND_THREADS in (manifest.engine.configuration.get("environment") or {})
    if contention.usable_cores != host.cores_usable and not binds_threads:
        keys = ("observed.contention.usable_cores", "observed.host.cores_usable")
        yield Contradiction(f"{keys[0]} is {contention.usable_cores}", keys, f"{keys[1]} is {host.cores_usable}")


def _measured_time(run: RunEvidence, manifest: Manifest) -> Contradictions:
    """Compare the time over which CPU times were measured with the times of the requests."""
    contention, requests = manifest.observed.contention, run.requests
    if not isinstance(contention, Contention) or requests is None or not len(requests):
        return
    took_s = requests.span_s
    key = "observed.contention.window_s"
    if contention.window_s < took_s - CLOCK_S:
        yield Contradiction(f"{key} is {contention.window_s:.3f}", (key,), f"the requests took {took_s:.3f} s")


def _engine_times(run: RunEvidence, manifest: Manifest) -> Contradictions:
    """Compare the times of the queries in the engine, and reused tokens, with the request log."""
    requests, times = run.requests, manifest.observed.query_times
    if requests is None or not len(requests):
        return
    if times is not None and not manifest.plan.is_warm:
        inside_s = times.queued_s + times.prefill_s + times.decode_s
        latency_s = float((requests.complete_ns - requests.issue_ns).sum()) / 1e9
        if inside_s > (1 + TIMES_SHARE) * latency_s:
            key = "observed.engines.query_times"
            yield Contradiction(
                f"{key} adds up to {inside_s:.3f} s", (key,), f"all latencies add up to {latency_s:.3f} s"
            )
        if times.queries > len(requests):
            key = "observed.engines.query_times.queries"
            yield Contradiction(f"{key} is {times.queries}", (key,), f"the run had {len(requests)} queries")
    cached, prompt_tokens = manifest.observed.cached_prompt_tokens, int(requests.prompt_tokens.sum())
    if cached is not None and cached > prompt_tokens:
        key = "observed.cached_prompt_tokens"
        yield Contradiction(f"{key} is {cached}", (key,), f"all prompts have {prompt_tokens} tokens")


def _loop_lag(_: RunEvidence, manifest: Manifest) -> Contradictions:
    """Compare the delays of the event loop with each other."""
    lag = manifest.observed.loop_lag
    if lag is not None and lag.p99_ms > lag.worst_ms:
        key = "observed.loop_lag.p99_ms"
        yield Contradiction(f"{key} is {lag.p99_ms:g}", (key,), f"worst_ms is {lag.worst_ms:g}")


def _replicas(_: RunEvidence, manifest: Manifest) -> Contradictions:
    """Compare the replicas that ran with the planned replicas."""
    planned = len(manifest.plan.replicas.places) if manifest.plan.replicas is not None else 0
    numbers = [record.replica for record in manifest.replicas]
    if sorted(numbers) != list(range(planned)):
        yield Contradiction(f"replicas are {numbers}", ("replicas",), f"{planned} were planned")


def _requests(run: RunEvidence, manifest: Manifest) -> Contradictions:
    """Compare the columns of the request log with the plan."""
    requests, plan = run.requests, manifest.plan
    if requests is None or not len(requests):
        return
    if requests.submit_ns is not None and plan.concurrency is None:
        yield Contradiction(
            f"{run.dir.requests.name} has submit_ns",
            ("plan.concurrency",),
            "plan.concurrency is not set: no closed loop",
        )
    if requests.submit_ns is None and plan.concurrency is not None:
        key = "plan.concurrency"
        yield Contradiction(f"{key} is {plan.concurrency}", (key,), f"{run.dir.requests.name} has no submit_ns")
    if requests.replica is None and plan.replicas is not None and len(plan.replicas.places) > 1:
        key = "plan.replicas"
        yield Contradiction(f"{key} has {len(plan.replicas.places)}", (key,), f"{run.dir.requests.name} has no replica")
    if (longest := int(requests.prompt_tokens.max())) > plan.longest_prompt_tokens:
        key = "plan.longest_prompt_tokens"
        yield Contradiction(f"{key} is {plan.longest_prompt_tokens}", (key,), f"a request has {longest}")
    if requests.replica is not None:
        count = len(plan.replicas.places) if plan.replicas is not None else 1
        if (highest := int(requests.replica.max())) >= count:
            keys = ("plan.replicas",)
            yield Contradiction(f"{run.dir.requests.name} has replica {highest}", keys, f"the plan has {count}")


def _warm_up(run: RunEvidence, manifest: Manifest) -> Contradictions:
    """Compare the number of warm-up prompts with the plan."""
    warm_up, plan = manifest.engine.warm_up, manifest.plan
    if warm_up is not None and not plan.is_warm and warm_up.prompts < plan.warmup_prompts:
        keys = ("engine.warm_up.prompts", "plan.warmup_prompts")
        yield Contradiction(f"{keys[0]} is {warm_up.prompts}", keys, f"at least {plan.warmup_prompts} were planned")


def _result(run: RunEvidence, _: Manifest) -> Contradictions:
    """Compare result.json with LoadGen's logs."""
    if not run.is_performance or not run.dir.result.is_file():
        return
    try:
        result = read_result(run.dir.result)
    except HarnessError as error:
        yield Contradiction(error.message, ())
        return
    stored, computed = (flat_facts("", part.model_dump(include=_OF_LOGS)) for part in (result, run.result))
    for name in sorted({*stored, *computed}):
        if stored.get(name) != computed.get(name):
            yield Contradiction(f"{name} is {stored.get(name)}", (name,), f"LoadGen's logs give {computed.get(name)}")


def _scores(run: RunEvidence, _: Manifest) -> Contradictions:
    """Compare accuracy.json with the scores of the responses."""
    if run.is_performance or not run.dir.accuracy_json.is_file():
        return
    computed = run.scores.scores
    for name, value in read_scores_record(run.dir).scores.items():
        if name in computed and abs(value - computed[name]) > SCORE:
            yield Contradiction(f"{name} is {value:.10g}", (name,), f"the responses give {computed[name]:.10g}")


def _test_began(run: RunEvidence, manifest: Manifest) -> Contradictions:
    """Compare the date in LoadGen's log, which has no time zone, with the start of the run."""
    began = local_test_date(run.detail)
    if began is not None:
        started = datetime.fromtimestamp(manifest.start_time_ns / 1e9, UTC)
        if abs(began - started) > ZONES:
            yield Contradiction(
                f"{TEST_DATE} is {began:%Y-%m-%d %H:%M}",
                ("start_time_ns",),
                f"the run started at {started:%Y-%m-%d %H:%M}",
            )


def _span(run: RunEvidence, manifest: Manifest) -> Contradictions:
    """Compare the start and the end of the run with the times of its requests and of its stages."""
    requests = run.requests
    if requests is None or not len(requests):
        return
    early_ns = manifest.start_time_ns - int(requests.issue_ns.min())
    if early_ns > CLOCK_S * 1e9:
        yield Contradiction(
            f"the first query was issued {early_ns / 1e9:.1f} s before start_time_ns", ("start_time_ns",)
        )
    end_ns = manifest.end_time_ns
    stages_ns = round(1e9 * _start_s(manifest))
    if end_ns is not None and stages_ns - (end_ns - manifest.start_time_ns) > STAGES_NS:
        took_s = (end_ns - manifest.start_time_ns) / 1e9
        key = "observed.start_stages"
        yield Contradiction(
            f"{key} adds up to {stages_ns / 1e9:.1f} s without the import", (key,), f"the run took {took_s:.1f} s"
        )
    if end_ns is not None and (late_ns := int(requests.complete_ns.max()) - end_ns) > CLOCK_S * 1e9:
        yield Contradiction(f"the last query was completed {late_ns / 1e9:.1f} s after end_time_ns", ("end_time_ns",))


def _start_s(manifest: Manifest) -> float:
    """Return the duration of the recorded stages in seconds, without the import, which begins before the run."""
    stages = manifest.observed.start_stages or {}
    return sum(duration_s for stage, duration_s in stages.items() if stage != PHASES["importing"])


def _commit(run: RunEvidence, manifest: Manifest) -> Contradictions:
    """Compare the commit of the harness with the attestation."""
    try:
        attested = read_attestation(run.dir).predicate.harness_commit
    except HarnessError:
        return  # another rule reports a damaged attestation
    recorded = manifest.observed.harness.git_commit
    if None not in (attested, recorded) and attested != recorded:
        key = "observed.harness.git_commit"
        yield Contradiction(f"{key} is {recorded}", (key,), f"the attestation has {attested}")


_FACTS_BY_FILE: tuple[
    tuple[Callable[[RunDir], Path], tuple[Callable[[RunEvidence, Manifest], Contradictions], ...]], ...
] = (
    (lambda run: run.detail, (_loadgen_process, _plan)),
    (lambda run: run.engine_log, (_process, _options, _cache)),
    (lambda run: run.requests, (_requests, _engine_times)),
    (lambda run: run.seal, (_commit,)),
    (lambda run: run.manifest, (_cpu_times, _warm_up, _loop_lag, _replicas)),
    (lambda run: run.result, (_result,)),
    (lambda run: run.accuracy_json, (_scores,)),
)
_DATES = (_test_began, _span, _measured_time)


@decides(
    "contradiction",
    ("record-dates", "warning", OURS, "start and end of the run, compared with its logs",
     "set the clock of the host; if it was right, rerun"),
    needs=("log", "manifest"),
)  # fmt: skip
def recorded_dates(run: RunEvidence) -> Iterator[Finding]:
    """Compare the start and the end in the manifest with LoadGen's log and the request log.

    The clock of an honest host may be set during a run, so a contradiction is a warning.
    """
    if (manifest := run.manifest) is not None:
        for date in _DATES:
            for contradiction in date(run, manifest):
                yield contradicted("record-dates", contradiction, run.dir.manifest)


@decides(
    "contradiction",
    ("record-facts", "error", OURS, "facts of the manifest, compared with the other files of the run", RERUN),
    needs=("log", "manifest"),
)
def recorded_facts(run: RunEvidence) -> Iterator[Finding]:
    """Compare the manifest with engine.log, the request log, the attestation and itself."""
    if (manifest := run.manifest) is None:
        return
    for path_of, facts in _FACTS_BY_FILE:
        for fact in facts:
            for contradiction in fact(run, manifest):
                yield contradicted("record-facts", contradiction, *dict.fromkeys((run.dir.manifest, path_of(run.dir))))
