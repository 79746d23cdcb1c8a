"""Contradictions between the manifest of a run and its other files: facts that this harness cannot have written."""

from collections.abc import Callable, Iterator
from pathlib import Path

from compliance.accuracy.accuracy_files import read_scores_record
from compliance.judge.rule import OURS, RERUN, decides
from compliance.judge.verdict import Finding
from compliance.results.log_arithmetic import contradicted
from compliance.results.run_evidence import RunEvidence
from runs.attestation.attestation import read_attestation
from runs.errors import HarnessError
from runs.loadgen.summary_log import Contradiction
from runs.numbers.result import read_result
from runs.record.fingerprint import flat_facts
from runs.record.layout import RunDir
from runs.record.manifest import Manifest
from runs.record.observed import Contention

CPU_S = 0.03  # tolerance for CPU times, of which the manifest has two digits after the point
BOUND_THREADS = "VLLM_CPU_OMP_THREADS_BIND"  # variable with which vLLM binds the threads of the process to cores

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
    (lambda run: run.engine_log, (_process, _options, _cache)),
    (lambda run: run.requests, (_requests,)),
    (lambda run: run.seal, (_commit,)),
    (lambda run: run.manifest, (_cpu_times, _warm_up)),
    (lambda run: run.result, (_result,)),
    (lambda run: run.accuracy_json, (_scores,)),
)


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
