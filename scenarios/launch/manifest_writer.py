"""The manifest of one run. It is written before the start, and closed at every end of the run."""

import os
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console

from compliance.judge.rule import check_of
from compliance.judge.verdict import Finding, Policy, judge
from compliance.results import accuracy, logged_responses, performance
from compliance.results.run_evidence import RunEvidence
from compliance.techniques.engine_facts import facts_of_run, misdeclared
from qsl.model_files import file_hashes
from qsl.tokenizers import load_tokenizer
from runs.benchmark import Target
from runs.errors import Ending, ExecutionError, ExitCode, HarnessError, Interrupted, error_record
from runs.extensions import ENGINE_GROUP, find_extension
from runs.files.reading import MAX_WEIGHTS_BYTES
from runs.files.writing import remove_temporary, sha256_of, write_atomic, write_json
from runs.harness import harness_facts
from runs.loadgen.accuracy_log import read_accuracy_log
from runs.loadgen.conf_lines import encode_conf
from runs.loadgen.detail_log import DetailLog
from runs.machine.accelerators import accelerators
from runs.machine.environment import host_facts, loadgen_facts, software_versions
from runs.numbers.result import RunNumbers, write_result
from runs.processes.interrupts import wait_for_result as wait_for
from runs.record.engines.engine_records import BUILT_IN_ENGINES
from runs.record.engines.server_facts import prompt_reuse
from runs.record.engines.server_notes import late_client, late_ends
from runs.record.manifest import Manifest, ManifestStatus, read_manifest, write_manifest
from runs.record.new_run import taken
from runs.record.observed import EnginePackage, Harness, Host, Loadgen, Model, Observed
from runs.record.official_inputs import model_reasons
from runs.wording import shortened_list
from scenarios.console import say
from scenarios.launch.loadgen_settings import check_engaged
from scenarios.launch.plan import PreparedRun
from sut.request_writer import rescue_partial

if TYPE_CHECKING:
    from compliance.accuracy.accuracy_verdict import AccuracyVerdict
    from compliance.accuracy.scores import OnProgress


@dataclass
class RunOutcome:
    """The result of a finished run."""

    exit_code: ExitCode
    result: RunNumbers
    accuracy: "AccuracyVerdict | None"


class _FilesDisagree(ExecutionError):
    """LoadGen's files and the request log disagree, so the run has no result."""

    def __init__(self, run: RunEvidence, contradictions: Iterable[Finding]) -> None:
        sentences = shortened_list([finding.sentence for finding in contradictions], 3)
        super().__init__(f"LoadGen's files and the request log disagree: {sentences}", f"see {run.dir.result}")
        self.result = run.result


def open_manifest(run: PreparedRun) -> None:
    """Create the run directory and write the files that are known before the start."""
    run_dir = run.run_dir
    manifest = Manifest(
        official=not run.unofficial_reasons,
        unofficial_reasons=run.unofficial_reasons,
        notes=run.notes,
        asked=run.asked,
        plan=run.plan,
        observed=Observed(
            harness=Harness(**harness_facts()),
            software=software_versions(),
            loadgen=Loadgen(**loadgen_facts()),
            engine_package=_package(run.plan.engine),
            host=Host(**host_facts()),
            accelerators=[{**row, "host": node.name} for node in run.plan.nodes for row in node.accelerator]
            if run.plan.nodes
            else accelerators(),
            model=Model(
                name=run.model.name if run.model else run.plan.model_path,
                folder=str(run.model.folder) if run.model else None,
                revision=run.model.revision if run.model else None,
                weights=run.weights,
            ),
        ),
        parent_pid=os.getpid(),
        start_time_ns=time.time_ns(),
    )
    with taken(run_dir):
        if not run.plan.trial:  # In a trial, the run's process writes user.conf.
            write_atomic(run_dir.user_conf, encode_conf(run.user_conf))
        if run.audit_config is not None:
            write_atomic(run_dir.audit_config, encode_conf(run.audit_config))
        if run.quality_results is not None:
            write_atomic(run_dir.quality_results, run.quality_results)
        write_manifest(run_dir.manifest, manifest)


def _package(engine: str) -> EnginePackage | None:
    """Return the package of an engine; None for an engine of the harness."""
    if engine in BUILT_IN_ENGINES:
        return None
    origin = find_extension(ENGINE_GROUP, engine)
    return EnginePackage(name=origin.package, version=origin.version)


def start_hashing(run: PreparedRun) -> "Future[dict[str, str]]":
    """Hash the model's files in a thread while the engine starts, because hashing 16 GB takes long."""
    hashing: Future[dict[str, str]] = Future()

    def work() -> None:
        try:
            hashing.set_result(file_hashes(run.model.folder) if run.model else {})
        except OSError as error:
            hashing.set_exception(ExecutionError(f"model files cannot be hashed: {error}"))

    threading.Thread(target=work, name="hashing", daemon=True).start()
    return hashing


def _refuse_other_weights(run: PreparedRun, manifest: Manifest) -> None:
    """Mark a run with unpublished weights as not eligible; their hashes are known only after the start."""
    if run.weights is None:
        return
    reasons = model_reasons(run.benchmark.model, run.weights.shape, run.weights, manifest.model.sha256)
    manifest.unofficial_reasons += [reason for reason in reasons if reason not in manifest.unofficial_reasons]
    manifest.official = not manifest.unofficial_reasons


def _prompts_computed(run: RunEvidence) -> None:
    assert run.manifest is not None
    cached = prompt_reuse(run.manifest).tokens
    if cached and not run.manifest.plan.engine_options.get("enable_prefix_caching"):
        raise ExecutionError(
            f"the engine read {cached:,} prompt tokens from a cache of earlier queries, although prefix caching is off",
            "turn off the engine's cache of earlier queries, or use an engine version without this cache",
        )


def _engaged(run: RunEvidence) -> None:
    assert run.manifest is not None
    check_engaged(run.detail, run.manifest.plan)


# Checks at the end of every run. `verify` applies more rules.
_CONSISTENT = (_prompts_computed, performance.detail_against_summary, performance.as_derived, _engaged)
AT_THE_END = Policy(
    checks={
        "performance": tuple(map(check_of, (*_CONSISTENT, performance.validity))),
        "accuracy": (*map(check_of, _CONSISTENT), accuracy.ERRORS, *map(check_of, logged_responses.OF_EACH)),
    },
    contradictions_end=True,
    warnings_flag=False,
)


def judge_run_files(
    run: PreparedRun, hashing: "Future[dict[str, str]]", console: Console, on_scored: "OnProgress"
) -> tuple[Manifest, RunOutcome]:
    """Check the files of a finished run; return the manifest to close, and the result.

    Args:
        on_scored: Called with the number of scored responses and the number of all responses.

    Raises:
        HarnessError: If files are missing or contradict each other.
    """
    evidence, manifest = RunEvidence(run.run_dir), read_manifest(run.run_dir.manifest)
    vars(evidence)["manifest"] = manifest  # The checks read the manifest with the changes below.
    manifest.observed.model = manifest.model.model_copy(update={"sha256": wait_for(hashing)})
    _refuse_other_weights(run, manifest)
    manifest.notes += [finding.sentence for finding in misdeclared(manifest.mechanism, facts_of_run(evidence))]
    limits_ns = _limits_ns(evidence.detail)
    manifest.notes += [*late_client(manifest.observed, limits_ns), *late_ends(manifest.observed, limits_ns)]
    for sentence in manifest.notes[len(run.notes) :]:  # The earlier notes were shown before the start.
        say(console, f"  note: {sentence}")
    verdict = judge(evidence, AT_THE_END)
    verdict.counts_official = False
    if verdict.error is not None:
        raise verdict.error
    if verdict.contradictions:
        raise _FilesDisagree(evidence, verdict.contradictions)
    scored = score_run(run, on_scored) if run.plan.mode == "accuracy" else None
    verdict.findings += scored.findings if scored is not None else []
    write_result(run.run_dir, evidence.result)
    return manifest, RunOutcome(verdict.exit_code(), evidence.result, scored)


def _limits_ns(detail: DetailLog) -> dict[str, int]:
    """Return the latency limits of LoadGen's verdict. Its log lists them always, but they apply to Server only."""
    if detail.scenario != "Server":
        return {}
    return {name: detail.integer(f"requested_server_{name.lower()}_latency") for name in ("TTFT", "TPOT")}


def score_run(run: PreparedRun, on_scored: "OnProgress") -> "AccuracyVerdict":
    """Score a run, compare it with the applicable target (if any), and write accuracy.json and accuracy.txt."""
    from compliance.accuracy.accuracy_files import write_reports
    from compliance.accuracy.accuracy_verdict import judge_scores as judge_scores
    from compliance.accuracy.metrics import metric_of
    from compliance.accuracy.scores import score_accuracy_log

    entries = read_accuracy_log(run.run_dir.accuracy_log, run.benchmark.accuracy_log_bytes)
    metric = metric_of(run.benchmark)
    targets, label = target_for(run)
    scores = score_accuracy_log(
        metric,
        entries,
        run.dataset.targets,
        load_tokenizer(run.plan.model_path).batch_decode,
        expected_count=run.plan.sample_count,
        progress=on_scored,
    )
    verdict = judge_scores(metric, scores, targets, label)
    write_reports(run.run_dir, verdict)
    return verdict


def target_for(run: PreparedRun) -> tuple[Mapping[str, Target] | None, str]:
    """Return the reference scores for a run's model and dataset, and their name."""
    from compliance.accuracy.accuracy_verdict import targets_that_apply

    return targets_that_apply(
        run.benchmark, run.plan.sample_count, lambda: run.bundled, lambda: _weights_sha256(run), run.weights
    )


def _weights_sha256(run: PreparedRun) -> str | None:
    weights = run.model.folder / "model.safetensors" if run.model else None
    return sha256_of(weights, max_bytes=MAX_WEIGHTS_BYTES) if weights is not None and weights.is_file() else None


def close_failed(run: PreparedRun, error: Ending) -> None:
    """Complete the manifest of a run that failed or was interrupted. A failed write must not hide the failure."""
    run_dir = run.run_dir
    record = error_record(error)
    try:
        remove_temporary(run_dir.root)
        rescue_partial(run_dir.requests)
        manifest = read_manifest(run_dir.manifest)
        manifest.error = record
        details = error.result.model_dump(mode="json") if isinstance(error, _FilesDisagree) else {"schema_version": 1}
        write_json(run_dir.result, {**details, "verdict": "ERROR", "reasons": [error.message], "error": record})
        status: ManifestStatus = "interrupted" if isinstance(error, Interrupted) else "failed"
        close_manifest(run, manifest, status, error.exit_code)
    except (OSError, HarnessError) as second:
        error.fix = f"{error.fix}; the run directory is incomplete ({second})".removeprefix("; ")


def close_manifest(run: PreparedRun, manifest: Manifest, status: ManifestStatus, code: ExitCode) -> None:
    """Write the status, end time and exit code of the run."""
    manifest.status = status
    manifest.end_time_ns = time.time_ns()
    manifest.exit_code = int(code)
    write_manifest(run.run_dir.manifest, manifest)
