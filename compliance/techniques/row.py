"""The row of a result for the result store and the gate. runs/store_columns.py states where each column is taken from.

The gate checks rows, and the result store keeps them. `evidence` comes from the run's files at the time when the row
was written; the gate reads the files again if the run directory exists.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compliance.audits.state import audit_state, result_homes
from compliance.results.details import ResultVerdict, is_misplaced, lacks_support
from compliance.results.result import Result
from compliance.results.scoring import ScoreSources, with_scorer
from compliance.sources import VerdictRequest, find
from compliance.techniques.declaration import (
    QUALITY_BASELINE,
    QUALITY_RESULTS,
    SUPPORT_STATUS,
    Declaration,
    declaration_of,
)
from compliance.techniques.declaration_rules import VALIDATION, validate
from compliance.techniques.engine_facts import EngineFacts, facts_of_plan, facts_of_run, misdeclared
from compliance.techniques.quality_evidence import SCORES_UNKNOWN, QualityEvidence, decisive, quality_evidence
from compliance.techniques.technique_registry import Registries
from runs.errors import HarnessError, InputError, SetupError, StalledError
from runs.files.writing import sha256_of
from runs.mlperf_endpoints.layout import CONFIG, EVENTS, SUMMARY
from runs.numbers.derive_result import derive_result
from runs.record.fingerprint import Facts, fingerprint, run_fingerprint
from runs.record.finished_run import PERFORMANCE, FinishedRun
from runs.record.layout import RunDir
from runs.record.manifest import Manifest, RunPlan
from runs.record.observed import Weights
from runs.rounds import Round
from runs.store import sorted_json
from runs.store_columns import COLUMNS, ColumnSource, columns_of

if TYPE_CHECKING:  # Only directories of the MLPerf Endpoints client need this code.
    from compliance.mlperf_endpoints.endpoints_evidence import EndpointsEvidence
    from compliance.mlperf_endpoints.verdict import FolderVerdict

CERTIFICATION = "loadgen_run_verified"  # certification of a LoadGen run with files that agree
_RUN_IDS = uuid.UUID("6f1c1f0e-2f0b-5c38-9a57-2d1f6f0d9b11")  # namespace of the UUIDs of runs
Columns = dict[str, Any]  # values by the names of their columns


@dataclass(frozen=True)
class TechniqueRow:
    """A row, and the evidence from the files of its run. `engine` and `quality` are None if the row has no files."""

    row: dict[str, Any]
    source: str  # origin of the row: a file and the number of the row, or a run directory
    file: Path  # file with the declaration
    engine: EngineFacts | None = None
    quality: QualityEvidence | None = None
    # Name, found value and required value, if the run did not finish or its files disagree; otherwise None.
    invalid: tuple[str, str, str] | None = None


def rows_of_runs(
    paths: list[Path],
    declaration: Declaration,
    registries: Registries,
    sources: ScoreSources | None = None,
    in_round: Round | None = None,
) -> list[TechniqueRow]:
    """Return a row for each result in `paths`. Fields that `declaration` does not set come from the manifests.

    Args:
        paths: run directories, result directories, campaigns, or run directories of the MLPerf Endpoints client.
        in_round: round whose seeds, limits and sample counts apply; None for those of the round that the seeds name.

    Raises:
        InputError: If a path contains no run.
    """
    rows: dict[tuple[Path, str | None], TechniqueRow] = {}
    with with_scorer(sources) as (scores, _):
        for case in find("gate", paths, VerdictRequest(scores, round=in_round)):
            row = _ROW_OF[case.subject.kind](case.subject, case.judge(), declaration, registries)
            key = _result_home(case.home.resolve()), row.row["scenario"]
            rows[key] = _with_repeat(rows[key], row) if key in rows else row
    return list(rows.values())


def _result_home(home: Path) -> Path:
    """Return the directory of a result; the repeated runs performance/run_1, performance/run_2, … have one."""
    return home.parent.parent if home.parent.name == "performance" and home.name.startswith("run_") else home


def _with_repeat(first: TechniqueRow, repeat: TechniqueRow) -> TechniqueRow:
    """Return the row of a result with a further performance run. The numbers stay those of the first run.

    The row is valid only if each run is valid, and certified only if each run is certified.
    """
    row = first.row | {
        "valid": min(
            (technique_row.row["valid"] for technique_row in (first, repeat)),
            key=lambda valid: (valid is not None, valid),
        ),
        "certification": first.row["certification"] and repeat.row["certification"],
        "error_message": first.row["error_message"] or repeat.row["error_message"],
        "evidence": first.row["evidence"] | {"repeats": first.row["evidence"].get("repeats", 1) + 1},
    }
    return replace(first, row=row, invalid=first.invalid or repeat.invalid)


def _row_of_client_run(
    subject: "EndpointsEvidence", verdict: "FolderVerdict", declaration: Declaration, registries: Registries
) -> TechniqueRow:
    """Return the row of a run directory of the MLPerf Endpoints client. The server is unknown there."""
    path, run, hashes = subject.run.root, verdict.details.run, verdict.details.hashes()["sha256"]
    if run is None or run.config is None or not (first := hashes.get(EVENTS) or hashes.get(SUMMARY)):
        raise verdict.error or InputError(f"{path}: no measured run found", f"restore {CONFIG} and {EVENTS}")
    pattern, params = run.config.settings.load_pattern, run.config.model_params
    model_params, measured = run.raw_config.get("model_params") or {}, verdict.details.measured
    sampling = {name: model_params.get(name) for name in ("temperature", "top_p", "max_new_tokens")}
    is_measured = verdict.outcome != "ERROR"
    columns: dict[ColumnSource, Columns] = {
        "result": {"run_id": str(uuid.uuid5(_RUN_IDS, first)), "run_directory": str(path.resolve())},
        "verdict": {
            "status": "success" if is_measured else None if isinstance(verdict.error, SetupError) else "failed",
            "valid": int(verdict.outcome != "FAIL") if is_measured else None,
            "error_message": "; ".join(verdict.reasons) or None,
        },
        "conditions": {
            "scenario": pattern.text,
            "model": Path(params.name).name,
            "sampling": sorted_json(sampling) if any(value is not None for value in sampling.values()) else None,
            "target_qps": pattern.target_qps,
        },
        "numbers": measured
        | {
            "numbers_from": EVENTS,
            "samples": verdict.details.numbers.get("tracked_samples_completed"),
            "throughput_tok_s": measured.get("tokens_per_second"),
        },
    }
    gaps = (f"{path} does not contain the engine's configuration",)
    engine = replace(facts_of_run(FinishedRun(RunDir(path), foreign=True)), gaps=gaps)
    return _row_with_declaration(columns, path / CONFIG, engine, QualityEvidence(), declaration, registries)


def _row_of_result(
    result: Result, verdict: ResultVerdict, declaration: Declaration, registries: Registries
) -> TechniqueRow:
    in_round = result.requested_round
    main = result.performance or result.accuracy
    run = main or _unread_run(RunDir(result.directories[0]))
    run_dir, manifest = run.dir, run.manifest
    # The ID is computed from the detail log, because each run has its own, or else from the manifest.
    identity = run_dir.detail if run_dir.detail.is_file() else run_dir.manifest
    if not identity.is_file():
        raise InputError(
            f"{run_dir.root}: neither LoadGen's detail log nor manifest.json found", "give a run directory"
        )
    columns: dict[ColumnSource, Columns] = {
        "result": {
            "run_id": str(uuid.uuid5(_RUN_IDS, sha256_of(identity))),
            "run_directory": str(result.home.resolve()),
            "round": in_round and in_round.name,
        },
        "verdict": _status(result, verdict, manifest),
        "conditions": _conditions(manifest, main),
        "numbers": _numbers(main),
        "audits": {"audits": _audits(result, main)},
    }
    return _row_of_files(columns, result, verdict, run, declaration, registries)


# Functions that make the row of a subject, by its kind.
_ROW_OF: dict[str, Callable[..., TechniqueRow]] = {
    "result": _row_of_result,
    "client run": _row_of_client_run,
    "audit alone": _row_of_client_run,
}


def row_to_submit(result: Result, verdict: ResultVerdict, run: FinishedRun, registries: Registries) -> TechniqueRow:
    """Return the row of a result without its numbers. `verdict` is the verdict of verify on the result."""
    columns = _columns_of_finished_run(str(result.home.resolve()))
    return _row_of_files(columns, result, verdict, run, declaration_of(), registries)


def _unread_run(run_dir: RunDir) -> FinishedRun:
    """Return a run that `verify` cannot read. Its manifest may be unreadable too; then it counts as missing."""
    run = FinishedRun(run_dir)
    try:
        _ = run.manifest
    except HarnessError:
        return FinishedRun(run_dir, foreign=True)
    return run


def row_of_plan(
    declared: Mapping[str, Any], plan: RunPlan, weights: Weights | None, evaluation: str, registries: Registries
) -> TechniqueRow:
    """Return the row of a result before its runs start. Its accuracy run is assumed to pass.

    Args:
        evaluation: ID of the evaluation by the accuracy run.
    """
    columns, engine = _columns_of_finished_run("the plan"), facts_of_plan(plan, weights)
    quality = QualityEvidence("accuracy", evaluation=evaluation)
    return _row_with_declaration(columns, Path("plan"), engine, quality, declaration_of(declared), registries)


def _columns_of_finished_run(directory: str) -> dict[ColumnSource, Columns]:
    """Return the columns of a row for the gate, which knows that the run is finished and that its files agree."""
    return {"result": {"run_directory": directory}, "verdict": {"certification": CERTIFICATION}}


def _row_of_files(
    columns: dict[ColumnSource, Columns],
    result: Result,
    verdict: ResultVerdict,
    run: FinishedRun,
    declaration: Declaration,
    registries: Registries,
) -> TechniqueRow:
    engine, run_dir, manifest = facts_of_run(run), run.dir, run.manifest
    for other_run in result.parts:  # add the techniques that only the accuracy run shows
        if other_run.dir.root != run_dir.root:
            facts = facts_of_run(other_run)
            contradictions = tuple(dict.fromkeys(engine.contradictions + facts.contradictions))
            engine = replace(engine, in_force=facts.in_force | engine.in_force, contradictions=contradictions)
    if manifest is not None:
        recorded = manifest.mechanism
        if recorded.get(QUALITY_RESULTS) and run_dir.quality_results.is_file():
            recorded[QUALITY_RESULTS] = str(run_dir.quality_results.resolve())
        declaration = declaration.over(recorded)
    file = run_dir.root if manifest is None else run_dir.manifest
    return _row_with_declaration(columns, file, engine, quality_evidence(result, verdict), declaration, registries)


def _row_with_declaration(
    columns: dict[ColumnSource, Columns],
    file: Path,
    engine: EngineFacts,
    quality: QualityEvidence,
    declaration: Declaration,
    registries: Registries,
) -> TechniqueRow:
    """Return the row with the columns of its run, its engine, its accuracy run and its declaration."""
    values = declaration.values
    validation = validate({**values, SUPPORT_STATUS: declaration.support_status}, registries)
    validation["issues"] += declaration.issues
    if values["mechanism"] is None:
        validation["mechanism_eval_registered"] = None
    declared_columns = {
        **values,
        **{name: declaration.fields.get(name) for name in (QUALITY_RESULTS, QUALITY_BASELINE)},
        SUPPORT_STATUS: declaration.support_status,
        "mechanism_eval_registered": validation["mechanism_eval_registered"],
        "quality_eval_registered": validation["quality_eval_registered"],
    }
    row = columns_of(
        {**columns, "engine": engine.columns, "accuracy": quality.columns, "declaration": declared_columns}
    )
    row[VALIDATION] = validation
    if values["quality_delta_summary"] is None and values["quality_eval_id"] in (None, quality.evaluation):
        row["quality_delta_summary"] = quality.delta
    why = None if row["certification"] else row["error_message"]
    invalid = why and ("files of the run", why, "files of a finished run that agree")
    sentences = [finding.sentence for finding in misdeclared(values, engine)]
    row["evidence"] = {"gaps": engine.gaps, "misdeclared": sentences, "quality": asdict(quality)}
    return TechniqueRow(row, row["run_directory"], file, engine, quality, invalid)


def _status(result: Result, verdict: ResultVerdict, manifest: Manifest | None) -> Columns:
    """Return the values of the columns `status` (success, failed or timeout) and `valid` (1 or 0).

    `status` is None if no verdict is possible. `valid` is None if files contradict each other or an input is missing.
    """
    error = result.error or verdict.error
    if error is None:
        failed = [*verdict.violated, *(finding for part in verdict.parts for finding in decisive(part))]
        mixed = verdict.contradictions or any(is_misplaced(part) for part in verdict.parts)
        valid: int | None = int(verdict.outcome == "PASS")
        if failed and all(finding.rule in SCORES_UNKNOWN for finding in failed):  # only the accuracy is unknown
            valid = None if result.performance is None else 1
        return {
            "status": "success",
            "valid": None if verdict.contradictions else valid,
            "error_message": "; ".join(verdict.reasons) or None,
            "certification": None if mixed else CERTIFICATION,
        }
    stalled = manifest is not None and (manifest.error or {}).get("cause") == StalledError.cause
    status = "timeout" if stalled else None if lacks_support(verdict) else "failed"
    return {"status": status, "valid": None, "error_message": error.message, "certification": None}


# Facts on the prefix caching of a server: reported by the server, or else declared by its operator.
_SERVER_CACHING = ("resolved.told_by_the_server.prefix_caching", "resolved.declared.enable_prefix_caching")


def _conditions(manifest: Manifest | None, run: FinishedRun | None) -> Columns:
    """Return the columns with the conditions of a result (system, model, settings), without the technique."""
    facts = run_fingerprint(run) if run is not None else fingerprint(manifest) if manifest is not None else {}
    conditions = {column.name: _first_known(facts, column.facts) for column in COLUMNS if column.facts}
    if manifest is not None:
        plan, gpus, model = manifest.plan, facts["accelerators.name"], dict(manifest.model.sha256)
        if plan.engine_record.is_server:  # only its operator declares the hardware and the weights of a server
            gpus, weights = (facts.get(f"resolved.declared.{name}") or None for name in ("accelerators", "weights"))
            model = {**model, "weights": weights} if weights else {}
            conditions["enable_prefix_caching"] = _first_known(facts, _SERVER_CACHING)
        conditions |= {
            "timestamp": datetime.fromtimestamp(manifest.start_time_ns // 10**9, UTC).isoformat(),
            "gpu_type": None if gpus is None or None in gpus else " + ".join(sorted(set(gpus))) or "cpu",
            "gpu_count": None if gpus is None else len(gpus),
            "model": Path(plan.model_path).name,
            "model_sha256": uuid.uuid5(_RUN_IDS, sorted_json(model)).hex if model else None,
            "engine_version": facts.get(f"versions.{plan.engine}"),
            "engine_options": sorted_json(plan.engine_options),
            "sampling": sorted_json(plan.sampling.model_dump()),
            "official": manifest.official,
        }
    if run is not None:
        conditions["target_qps"] = run.detail.number("effective_target_qps")
        conditions["manifest_sha256"] = sha256_of(run.dir.manifest) if run.manifest else None
    return conditions


def _first_known(facts: Facts, keys: Sequence[str]) -> Any:
    return next((facts[key] for key in keys if facts.get(key) is not None), None)


def _numbers(run: FinishedRun | None) -> Columns:
    """Return the numbers of a performance run: recomputed from the request log, or else LoadGen's numbers."""
    if run is None or run.mode != PERFORMANCE:
        return {}
    try:
        result = derive_result(run, scenario=run.scenario)
    except HarnessError:  # the verdict already reports this error
        return {}
    numbers = result.derived or result.reported
    if numbers is None:
        return {}
    flat = numbers.flat("p50", "p99")
    return flat | {
        "numbers_from": result.derived_from or "loadgen",
        "throughput_tok_s": flat.pop("tokens_per_second", None),
        "duration_s": None if result.duration_ns is None else result.duration_ns / 1e9,
        "samples": result.counts.samples,
        "output_tokens_mean": result.output_tokens_mean,
    }


def _audits(result: Result, run: FinishedRun | None) -> str | None:
    """Re-evaluate each audit in the result's directory. Return the outcomes as JSON, such as {"TEST06": "PASS"}."""
    outcomes: dict[str, str] = {}
    homes = result_homes(*(part.dir.root for part in result.parts), named=result.home)
    for path in (path for home in homes for path in sorted(home.root.glob("audit/*/audit_*.json"))):
        name = path.stem.removeprefix("audit_")
        state = audit_state(path.parent, name, run) if run is not None and name not in outcomes else None
        if run is None or state is None:
            outcomes.setdefault(name, "unreadable")
        elif not state.differs_from(run):  # the directory may contain audits of other runs
            outcomes[name] = state.outcome if state.outcome in ("PASS", "FAIL") else "unreadable"
    return sorted_json(outcomes) if outcomes else None
