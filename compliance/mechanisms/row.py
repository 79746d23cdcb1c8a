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
from compliance.mechanisms.engine_facts import EngineFacts, facts_of_run, misdeclared
from compliance.mechanisms.technique_registry import RECORD, Registries, eligibility, validate
from compliance.verify.find_results import ResultLegs, find_results
from compliance.verify.result_verdict import Verification, verify_result
from runs.errors import HarnessError, InputError, StalledError
from runs.files import sha256_of
from runs.numbers.result import result_of
from runs.reading import MIB, json_value, read_whole
from runs.record.fingerprint import LOSSY, describe, differences, fingerprint, leg_fingerprint, value_text
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
_SCORES = ("rouge1", "rouge2", "rougeL", "rougeLsum", "gen_len", "gen_num")


@dataclass(frozen=True)
class QualityEvidence:
    """An accuracy leg, judged. `passed` is None where there is no leg; `failures` say what speaks against it.
    `evaluation` is its name in the registry."""

    passed: bool | None
    failures: tuple[str, ...] = ()
    directory: str | None = None
    accuracy_log_sha256: str | None = None
    accuracy_text_sha256: str | None = None
    scores: dict[str, float] | None = None
    delta: str | None = None  # scores against the reference's, in per cent
    evaluation: str | None = None

    def as_json(self) -> dict[str, Any]:
        names = ("passed", "directory", "accuracy_log_sha256", "accuracy_text_sha256", "delta")
        return {**{name: getattr(self, name) for name in names}, "failures": list(self.failures)}

    def columns(self) -> dict[str, Any]:
        """The scores as they stand in a row."""
        passed = None if self.passed is None else int(self.passed)
        return {**{name: (self.scores or {}).get(name) for name in _SCORES}, "accuracy_passed": passed}


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


def quality_evidence(result: ResultLegs, verdict: Verification) -> QualityEvidence:
    """Judge the accuracy leg of a result.

    Args:
        verdict: what `verify_result` found in them; its scores come from the answers, not from accuracy.txt alone.
    """
    leg, part = result.leg(ACCURACY), next((part for part in verdict.parts if part.mode == "accuracy"), None)
    if leg is None:
        return QualityEvidence(None)
    if part is None:
        why = verdict.error.message if verdict.error else "it could not be judged"
        return QualityEvidence(False, (why,), str(leg.run.root), evaluation=leg.benchmark.quality_eval)
    failures = [*(found.sentence for found in part.contradictions), *part.failures(verdict.official_asked)]
    if part.details.get("scores_from") != leg.run.accuracy_log.name:
        failures.append("the answers were not scored again: the scores are only claimed")
    performance = result.leg(PERFORMANCE)
    if performance is not None:
        failures += [check.sentence for check in verdict.of("error")]
        found = differences(leg_fingerprint(performance), leg_fingerprint(leg), LOSSY)
        failures += describe(found, "in the performance leg", "in the accuracy leg")  # accuracy of another system
    scores, target = part.details.get("scores"), part.details.get("target")
    return QualityEvidence(
        not failures,
        tuple(failures),
        str(leg.run.root),
        sha256_of(leg.run.accuracy_log) if leg.run.accuracy_log.is_file() else None,
        sha256_of(leg.run.accuracy_text) if leg.run.accuracy_text.is_file() else None,
        scores,
        _delta(scores, target) if scores and target else None,
        leg.benchmark.quality_eval,
    )


def _delta(scores: dict[str, float], target: dict[str, float]) -> str:
    return ", ".join(
        f"{name} {100 * (scores[name] / reference - 1):+.2f} %"
        for name, reference in target.items()
        if name != "gen_num"
    )


# Columns by the first fact that is known of these (runs/record/fingerprint.py).
_COLUMNS: dict[str, tuple[str, ...]] = {
    "scenario": ("scenario",),
    "lg_model_name": ("benchmark", "loadgen_key"),
    "hostname": ("host.hostname",),
    "cpu": ("host.cpu",),
    "cores_usable": ("host.cores_usable",),
    "dataset_sha256": ("dataset_sha256",),
    "sample_count": ("sample_count",),
    **{
        column: (f"resolved.{name}", f"resolved.declared.{name}", f"engine_options.{name}")
        for column, name in (("tp", "tensor_parallel_size"), ("dtype", "dtype"), ("max_model_len", "max_model_len"))
    },
    **{name: (f"resolved.{name}", f"resolved.declared.{name}") for name in ("max_num_seqs", "enable_prefix_caching")},
    "harness_commit": ("harness.git_commit",),
    "loadgen_version": ("loadgen.version",),
    **{name: (f"loadgen.{name}",) for name in ("min_duration_ms", "min_query_count", "performance_sample_count")},
}


def _conditions(manifest: Manifest | None, leg: FinishedLeg | None) -> dict[str, Any]:
    """What the numbers depend on beside the technique."""
    facts = leg_fingerprint(leg) if leg is not None else fingerprint(manifest) if manifest is not None else {}
    conditions: dict[str, Any] = {
        column: next((facts[key] for key in keys if facts.get(key) is not None), None)
        for column, keys in _COLUMNS.items()
    }
    if manifest is not None:
        plan, gpus = manifest.plan, [str(name or "unknown") for name in facts["accelerators.name"]]
        conditions |= {
            "timestamp": _time(manifest.start_time_ns),
            "gpu_type": " + ".join(sorted(set(gpus))) or "cpu",
            "gpu_count": len(gpus),
            "model": Path(plan.model_path).name,
            "model_sha256": _one_hash(manifest.model.sha256),
            "engine_version": facts.get(f"versions.{plan.engine}"),
            "engine_options": _sorted_json(plan.engine_options),
            "sampling": _sorted_json(plan.sampling),
            "official": manifest.official,
        }
    if leg is not None:
        conditions["target_qps"] = leg.detail.number("effective_target_qps")
        conditions["manifest_sha256"] = sha256_of(leg.run.manifest) if leg.manifest else None
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
    by_files, evidence = same.row, same.evidence
    told = {name: row[name] for name in _FROM_FILES if name not in _BY_SCORING and row.get(name) is not None}
    different = differences(told, {name: by_files.get(name) for name in told})
    if evidence.broken is None:
        texts = (
            f"{name} is {value_text(one, 80)} in the row, {value_text(other, 80)} by the files of its run"
            for name, (one, other) in different.items()
        )
        evidence = replace(evidence, broken=next(texts, None))
    own = (RECORD, *_BY_SCORING, "valid", *FIELD_NAMES)  # in FIELD_NAMES what the row leaves open, its run declares
    return JudgedRow({**by_files, **row, **{name: by_files[name] for name in own}}, evidence, source)
