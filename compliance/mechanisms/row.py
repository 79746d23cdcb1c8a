"""A row for each result: its conditions, its numbers derived from the files, its declaration and the evidence for it.

Rows are what the gate judges and the result store keeps. A row is plain data; `evidence` in it is what was found in the
run's files when the row was made, and a gate that is given the run directory looks there again.
"""

import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from compliance.audits.audit_registry import judged_again, request_beside
from compliance.evidence.accuracy import ScoreSources
from compliance.mechanisms.declaration import FIELD_NAMES, SUPPORT_STATUS, Declaration, declare
from compliance.mechanisms.engine_facts import EngineFacts, declared_settings, facts_of_run, misdeclared
from compliance.mechanisms.quality import QualityEvidence, quality_evidence
from compliance.mechanisms.technique_registry import RECORD, Registries, eligibility, validate
from compliance.verify.find_results import ResultLegs, find_results
from compliance.verify.result_verdict import Verification, verify_result
from runs.errors import HarnessError, InputError, StalledError
from runs.files import sha256_of
from runs.numbers.result import result_of
from runs.reading import MIB, json_value, read_whole
from runs.record.layout import ResultDir, RunDir
from runs.record.leg import ACCURACY, PERFORMANCE, FinishedLeg
from runs.record.manifest import Manifest, read_manifest
from runs.store import COLUMNS

CERTIFICATION = "loadgen_run_verified"  # the only one there is: a LoadGen run whose files agree; nothing is live
AUDITED = "audits"
_IDENTITY = uuid.UUID("6f1c1f0e-2f0b-5c38-9a57-2d1f6f0d9b11")  # the name space of run ids
MAX_ROWS_BYTES = 64 * MIB  # a row has some kilobytes, and takes as many in memory where it is shorter
MOST_ROWS = 100_000
MOST_PARTS = 500_000  # objects and lists in rows: each takes 60 bytes, and 3 in the file
# Columns that a run's files decide, whatever the answers are scored with.
_FROM_FILES = [
    *("timestamp", "official", "status", "certification", "manifest_sha256"),
    *("kv_cache_dtype", "quantization", "draft_model", "speculative"),  # by the engine's record
    *(column.name for column in COLUMNS if column.role in ("condition", "number")),
]
_BY_SCORING = ("accuracy_passed", AUDITED)  # numbers that depend on it


@dataclass(frozen=True)
class RowEvidence:
    """What the files of a run say of its declaration."""

    engine: EngineFacts
    quality: QualityEvidence
    broken: str | None = None  # why the files are no finished run that agrees with itself

    def as_json(self, declared: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "in_force": [
                {"mechanism": mechanism, "mechanism_variant": variant, "shown_by": place}
                for (mechanism, variant), place in self.engine.in_force.items()
            ],
            "gaps": list(self.engine.gaps),
            "broken": self.broken,
            "misdeclared": misdeclared(declared, self.engine),
            "quality": self.quality.as_json(),
        }


@dataclass(frozen=True)
class JudgedRow:
    """A row and what it rests on. `evidence` is None for a row without files."""

    row: dict[str, Any]
    evidence: RowEvidence | None
    source: str  # where it is from, for people


def rows_of_runs(
    paths: list[Path], declaration: Declaration, registries: Registries, sources: ScoreSources | None = None
) -> list[JudgedRow]:
    """A row for each result in `paths`: run directories or results' directories as `verify` takes them, or campaigns.

    What `declaration` leaves open, each run's own record declares.

    Raises:
        InputError: a path holds no run.
    """
    return [_row(result, declaration, registries, sources or ScoreSources()) for result in find_results(paths)]


def _row(result: ResultLegs, declaration: Declaration, registries: Registries, sources: ScoreSources) -> JudgedRow:
    verdict = verify_result(result, sources=sources)
    main = result.leg(PERFORMANCE) or result.leg(ACCURACY)
    run = main.run if main else RunDir(result.directories[0])
    manifest = main.manifest if main else _manifest_of(run)
    engine = _engine_facts(result, run, manifest)
    quality = quality_evidence(result, verdict)
    declaration = declaration.over(manifest.mechanism if manifest is not None else {})
    values = declaration.values
    validation = validate(values, registries)
    validation["issues"] += declaration.issues
    lossy = {mechanism for mechanism, _ in engine.in_force}
    row: dict[str, Any] = {
        "run_id": _run_id(run),
        "run_directory": str(result.home.resolve()),
        **_status(result, verdict, manifest),
        **_conditions(manifest, main),
        **engine.columns(),
        **_numbers(main),
        **quality.columns(),
        AUDITED: _audits(result.home, main),
        **values,
        "quality_delta_summary": values["quality_delta_summary"] or quality.delta,
        SUPPORT_STATUS: declaration.support_status,
        "mechanism_eval_registered": validation["mechanism_eval_registered"],
        "quality_eval_registered": validation["quality_eval_registered"],
        RECORD: validation,
        "mlperf_eligibility": eligibility(values["mechanism"], quality.passed, lossy, recorded=not engine.gaps),
    }
    evidence = RowEvidence(engine, quality, None if row["certification"] else row["error_message"])
    row["evidence"] = evidence.as_json(values)
    return JudgedRow(row, evidence, row["run_directory"])


def _engine_facts(result: ResultLegs, run: RunDir, manifest: Manifest | None) -> EngineFacts:
    """Of the performance leg, with whatever an accuracy leg beside it shows in addition."""
    facts = facts_of_run(run, manifest)
    for leg in result.legs:
        if leg.run.root != run.root:
            other = facts_of_run(leg.run, leg.manifest)
            in_force = {**other.in_force, **facts.in_force}
            facts = replace(facts, in_force=in_force, contradictions=facts.contradictions + other.contradictions)
    return facts


def _manifest_of(run: RunDir) -> Manifest | None:
    """The manifest of a leg that did not finish."""
    try:
        return read_manifest(run.manifest) if run.manifest.is_file() else None
    except HarnessError:
        return None


def _run_id(run: RunDir) -> str:
    """The same for the same run wherever it lies: LoadGen's detail log holds its times; else the manifest has them."""
    path = run.detail if run.detail.is_file() else run.manifest
    if not path.is_file():
        raise InputError(f"{run.root} holds neither a finished run nor a manifest.json", "name a run directory")
    return str(uuid.uuid5(_IDENTITY, sha256_of(path)))


def _status(result: ResultLegs, verdict: Verification, manifest: Manifest | None) -> dict[str, Any]:
    """`status` is success, failed or timeout; `valid` 1 or 0, None without a verdict."""
    error = result.error or verdict.error
    if error is None:
        certification = None if verdict.contradictions else CERTIFICATION
        message = "; ".join(verdict.reasons) or None
        valid = int(verdict.outcome == "PASS")
        return {"status": "success", "valid": valid, "error_message": message, "certification": certification}
    stalled = manifest is not None and (manifest.error or {}).get("cause") == StalledError.cause
    status = "timeout" if stalled else "failed"
    return {"status": status, "valid": None, "error_message": error.message, "certification": None}


def _conditions(manifest: Manifest | None, leg: FinishedLeg | None) -> dict[str, Any]:
    """What the numbers depend on beside the technique."""
    conditions: dict[str, Any] = {"scenario": None, "lg_model_name": None}
    if manifest is not None:
        plan = manifest.plan
        gpus = [str(gpu.get("name") or "unknown") for gpu in manifest.observed.accelerators]
        observed = manifest.engine.configuration
        configuration = {**declared_settings(observed), **observed}
        conditions |= {
            "scenario": plan.scenario,
            "lg_model_name": plan.loadgen_key,
            "timestamp": _time(manifest.start_time_ns),
            "gpu_type": " + ".join(sorted(set(gpus))) or "cpu",
            "gpu_count": len(gpus),
            **{name: getattr(manifest.observed.host, name) for name in ("hostname", "cpu", "cores_usable")},
            "model": Path(plan.model_path).name,
            "model_sha256": _one_hash(manifest.model.sha256),
            "dataset_sha256": plan.dataset_sha256,
            "sample_count": plan.sample_count,
            "engine_version": manifest.engine.versions.get(plan.engine),
            "tp": configuration.get("tensor_parallel_size") or plan.engine_options.get("tensor_parallel_size"),
            **{name: configuration.get(name) or plan.engine_options.get(name) for name in ("dtype", "max_model_len")},
            **{name: configuration.get(name) for name in ("max_num_seqs", "enable_prefix_caching")},
            "engine_options": _sorted_json(plan.engine_options),
            "sampling": _sorted_json(plan.sampling),
            "harness_commit": manifest.observed.harness.git_commit,
            "official": manifest.official,
        }
    if leg is not None:
        detail = leg.detail
        whole_numbers = ("min_duration_ms", "min_query_count", "performance_sample_count")
        conditions |= {
            "scenario": leg.scenario,
            "lg_model_name": leg.benchmark.loadgen_key,
            "loadgen_version": str(detail.get("loadgen_version", "")),
            "target_qps": detail.number("effective_target_qps"),
            **{name: detail.integer(f"effective_{name}") for name in whole_numbers},
            "manifest_sha256": sha256_of(leg.run.manifest) if leg.manifest else None,
        }
    return conditions


def _time(time_ns: int | None) -> str | None:
    return None if time_ns is None else datetime.fromtimestamp(time_ns // 10**9, UTC).isoformat()


def _sorted_json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def _one_hash(hashes: Any) -> str | None:
    """One value for all the model's files; the same files give the same value."""
    return uuid.uuid5(_IDENTITY, _sorted_json(hashes)).hex if hashes and isinstance(hashes, dict) else None


def _numbers(leg: FinishedLeg | None) -> dict[str, Any]:
    """The performance leg's numbers: derived from our own records where there are any, else LoadGen's."""
    if leg is None or leg.mode != PERFORMANCE:
        return {}
    try:
        result = result_of(leg, scenario=leg.scenario)
    except HarnessError as error:
        return {"numbers_from": f"none: {error.message}"}
    numbers = result.derived or result.reported
    if numbers is None:
        return {}
    found: dict[str, Any] = {
        "numbers_from": result.derived_from or "loadgen",
        "samples_per_second": numbers.samples_per_second,
        "throughput_tok_s": numbers.tokens_per_second,
        "duration_s": None if result.duration_ns is None else result.duration_ns / 1e9,
        "samples": result.counts.samples,
        "output_tokens_mean": result.output_tokens_mean,
    }
    for name in ("ttft", "tpot", "latency"):
        statistics = getattr(numbers, f"{name}_ns")
        if statistics is not None:
            found |= {f"{name}_{p}_ms": getattr(statistics, p) / 1e6 for p in ("p50", "p99")}
    return found


def _audits(home: Path, leg: FinishedLeg | None) -> str | None:
    """What the audits in the result's directory come to, judged again, as JSON: {"TEST06": "PASS"}."""
    outcomes: dict[str, str] = {}
    for path in sorted(ResultDir(home).audit("*").parent.glob("*/audit_*.json")):
        name = path.stem.removeprefix("audit_")
        try:
            if leg is None:
                raise InputError("the result has no finished leg")
            result, _ = judged_again(path.parent, name, request_beside(leg))
            outcomes[name] = "PASS" if result.passed else "FAIL"
        except (HarnessError, OSError):
            outcomes[name] = "unreadable"
    return _sorted_json(outcomes) if outcomes else None


def read_rows(path: Path, registries: Registries, sources: ScoreSources | None = None) -> list[JudgedRow]:
    """Read a JSON file of one row or a list of them, as the result store exports them or another tool wrote them.

    Where a row's run directory is at hand, and still holds that run, its evidence is read again.

    Raises:
        InputError: unreadable, not JSON, not rows, or too many.
    """
    fix = "name a run directory or a JSON file of rows"
    text = read_whole(path, fix, max_bytes=MAX_ROWS_BYTES)
    if (parts := text.count(b"{") + text.count(b"[")) > MOST_PARTS:
        raise InputError(f"{path} has {parts:,} objects and lists, at most {MOST_PARTS:,} are read", fix)
    content = json_value(text, path, fix)
    rows = content if isinstance(content, list) else [content]
    if len(rows) > MOST_ROWS:
        raise InputError(f"{path} has {len(rows):,} rows, at most {MOST_ROWS:,} are judged", "give it in parts")
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise InputError(f"{path}: row {number} is {type(row).__name__}, not an object", "give a list of objects")
    runs = Counter(str(row["run_id"]) for row in rows if row.get("run_id"))
    if twice := next((run for run, count in runs.items() if count > 1), None):
        raise InputError(f"{path}: run {twice[:40]} stands there twice", "give each run one row")
    return [_with_evidence(row, f"{path}:{number}", registries, sources) for number, row in enumerate(rows, start=1)]


def _with_evidence(row: dict[str, Any], source: str, registries: Registries, sources: ScoreSources | None) -> JudgedRow:
    bare = JudgedRow(row, None, source)
    directory = row.get("run_directory")
    if not isinstance(directory, str) or not Path(directory).is_dir():
        return bare
    try:
        found = rows_of_runs([Path(directory)], declare(row), registries, sources)
    except HarnessError:
        return bare
    same = next((one for one in found if one.row["run_id"] == row.get("run_id")), None)
    if same is None or same.evidence is None:  # another run lies there now, which says nothing of the row
        return bare
    by_files = same.row
    evidence = same.evidence
    different = (
        f"{name} is {str(row[name])[:80]} in the row, {str(by_files.get(name))[:80]} by the files of its run"
        for name in _FROM_FILES
        if name not in _BY_SCORING and row.get(name) not in (None, by_files.get(name))
    )
    if evidence.broken is None:
        evidence = replace(evidence, broken=next(different, None))
    own = (RECORD, *_BY_SCORING, "valid", *FIELD_NAMES)  # in FIELD_NAMES what the row leaves open, its run declares
    return JudgedRow({**by_files, **row, **{name: by_files[name] for name in own}}, evidence, source)
