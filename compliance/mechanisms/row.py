"""One row a result: its conditions, its numbers derived from the files, its declaration, and what the evidence says.

Rows are what the gate judges and the result store keeps. A row is plain data; `EVIDENCE` in it is what was found in the
run's files when the row was made, and a gate that is given the run directory looks there again.
"""

import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from compliance.audits.rejudge import judged_again, request_beside
from compliance.evidence.accuracy import ScoreSources
from compliance.mechanisms.declaration import FIELD_NAMES, SUPPORT_STATUS, Declaration, declare, known_status
from compliance.mechanisms.eligibility import eligibility
from compliance.mechanisms.engine_facts import EngineFacts, declared_settings, facts_of_run, misdeclared
from compliance.mechanisms.quality import QualityEvidence, quality_evidence
from compliance.mechanisms.technique_registry import Registries
from compliance.mechanisms.validation import RECORD, validate
from compliance.verify.find_results import ResultLegs, find_results
from compliance.verify.result_verdict import Verification, verify_result
from runs.errors import HarnessError, InputError, StalledError
from runs.files import sha256_of
from runs.numbers.numbers import Numbers
from runs.numbers.result import Result, result_of
from runs.reading import MIB, json_value, read_whole
from runs.record.layout import ResultDir, RunDir
from runs.record.leg import ACCURACY, PERFORMANCE, FinishedLeg
from runs.record.manifest import Manifest, read_manifest
from runs.store.store_schema import COLUMNS

CERTIFICATION = "loadgen_run_verified"  # the only one there is: a LoadGen run whose files agree; nothing is live
EVIDENCE = "evidence"
_IDENTITY = uuid.UUID("6f1c1f0e-2f0b-5c38-9a57-2d1f6f0d9b11")  # the name space of run ids
AUDITED = "audits"
MAX_ROWS_BYTES = 64 * MIB  # a row has some kilobytes, and takes as many in memory where it is shorter
MOST_ROWS = 100_000
MOST_PARTS = 500_000  # objects and lists in rows: each takes 60 bytes, and 3 in the file
# What a run's files decide, whatever the answers are scored with.
_SHOWN = ["kv_cache_dtype", "quantization", "draft_model", "speculative"]  # by the engine's record
_FROM_FILES = ["timestamp", "official", "status", "certification", "manifest_sha256", *_SHOWN] + [
    column.name
    for column in COLUMNS
    if column.role in ("condition", "number") and column.name not in ("accuracy_passed", "audits")
]


@dataclass(frozen=True)
class RowEvidence:
    """What the files of a run say of its declaration."""

    engine: EngineFacts
    misdeclared: tuple[str, ...]
    quality: QualityEvidence
    broken: str | None = None  # why the files are no finished run that agrees with itself

    def as_json(self) -> dict[str, Any]:
        return {
            "in_force": [
                {"mechanism": mechanism, "mechanism_variant": variant, "shown_by": said}
                for (mechanism, variant), said in self.engine.in_force.items()
            ],
            "gaps": list(self.engine.gaps),
            "broken": self.broken,
            "misdeclared": list(self.misdeclared),
            "quality": self.quality.as_json(),
        }


@dataclass(frozen=True)
class JudgedRow:
    """A row and what it rests on. `evidence` is None for a row without files."""

    row: dict[str, Any]
    evidence: RowEvidence | None
    source: str  # where it is from, for people


def rows_of_runs(
    paths: list[Path],
    declaration: Declaration,
    registries: Registries | None,
    load_error: str | None = None,
    sources: ScoreSources | None = None,
) -> list[JudgedRow]:
    """A row for each result in `paths`: run directories or results' directories as `verify` takes them, or campaigns.

    What `declaration` leaves open, each run's own record declares.

    Raises:
        InputError: a path holds no run.
    """
    return [
        _row(result, declaration, registries, load_error, sources or ScoreSources()) for result in find_results(paths)
    ]


def _row(
    result: ResultLegs, declaration: Declaration, registries: Registries | None, load_error: str | None, sources: Any
) -> JudgedRow:
    verdict = verify_result(result, sources=sources)
    main = result.leg(PERFORMANCE) or result.leg(ACCURACY)
    manifest = main.manifest if main else _manifest_of(result)
    run = main.run if main else RunDir(result.directories[0])
    engine = _engine_facts(result, run, manifest)
    quality = quality_evidence(result, verdict)
    declaration = declaration.over(manifest.mechanism if manifest is not None else {})
    wrong = tuple(misdeclared(declaration.values, engine))
    validation = validate(declaration.values, registries, load_error)
    validation["issues"] += declaration.issues
    lossy = {mechanism for mechanism, _ in engine.in_force}
    values = declaration.values
    row: dict[str, Any] = {
        "run_id": _run_id(run),
        "timestamp": _time(manifest),
        "run_directory": str(result.home.resolve()),
        **_status(result, verdict, manifest),
        **_conditions(manifest, main),
        **engine.columns(),
        **_numbers(main, manifest),
        **_accuracy(quality),
        AUDITED: _audits(result.home, main),
        **values,
        "quality_delta_summary": values["quality_delta_summary"] or quality.delta,
        SUPPORT_STATUS: declaration.support_status,
        "mechanism_eval_registered": validation["mechanism_eval_registered"],
        "quality_eval_registered": validation["quality_eval_registered"],
        RECORD: validation,
        "mlperf_eligibility": eligibility(values["mechanism"], quality.passed, lossy, recorded=not engine.gaps),
    }
    broken = None if row["certification"] else row["error_message"]
    evidence = RowEvidence(engine, wrong, quality, broken)
    row[EVIDENCE] = evidence.as_json()
    return JudgedRow(row, evidence, row["run_directory"])


def _engine_facts(result: ResultLegs, run: RunDir, manifest: Manifest | None) -> EngineFacts:
    """Of the performance leg, with whatever an accuracy leg beside it shows in addition."""
    facts = facts_of_run(run, manifest)
    for leg in result.legs:
        if leg.run.root != run.root:
            other = facts_of_run(leg.run, leg.manifest)
            facts = replace(
                facts,
                in_force={**other.in_force, **facts.in_force},
                contradictions=facts.contradictions + other.contradictions,
            )
    return facts


def _manifest_of(result: ResultLegs) -> Manifest | None:
    """The manifest of a leg that did not finish."""
    path = RunDir(result.directories[0]).manifest
    try:
        return read_manifest(path) if path.is_file() else None
    except HarnessError:
        return None


def _run_id(run: RunDir) -> str:
    """The same for the same run wherever it lies: LoadGen's detail log holds its times; else the manifest has them."""
    path = run.detail if run.detail.is_file() else run.manifest
    if not path.is_file():
        raise InputError(f"{run.root} holds neither a finished run nor a manifest.json", "name a run directory")
    return str(uuid.uuid5(_IDENTITY, sha256_of(path)))


def _time(manifest: Manifest | None) -> str | None:
    if manifest is None or manifest.start_time_ns is None:
        return None
    return datetime.fromtimestamp(manifest.start_time_ns // 10**9, UTC).isoformat()


def _status(result: ResultLegs, verdict: Verification, manifest: Manifest | None) -> dict[str, Any]:
    """`status` is success, failed or timeout; `valid` 1 or 0, None without a verdict."""
    error = result.error or verdict.error
    if error is not None:
        stalled = manifest is not None and (manifest.error or {}).get("cause") == StalledError.cause
        return {
            "status": "timeout" if stalled else "failed",
            "valid": None,
            "error_message": error.message,
            "certification": None,
        }
    return {
        "status": "success",
        "valid": int(verdict.outcome == "PASS"),
        "error_message": "; ".join(verdict.reasons) or None,
        "certification": None if verdict.contradictions else CERTIFICATION,
    }


def _conditions(manifest: Manifest | None, leg: FinishedLeg | None) -> dict[str, Any]:
    """What the numbers depend on beside the technique."""
    conditions: dict[str, Any] = {
        "scenario": leg.scenario if leg else manifest.resolved.scenario if manifest else None,
        "lg_model_name": leg.benchmark.loadgen_key if leg else manifest.resolved.loadgen_key if manifest else None,
        "loadgen_version": str(leg.detail.get("loadgen_version", "")) if leg else None,
    }
    if leg is not None:
        detail = leg.detail
        conditions |= {
            "target_qps": detail.number("effective_target_qps"),
            "min_duration_ms": detail.integer("effective_min_duration_ms"),
            "min_query_count": detail.integer("effective_min_query_count"),
            "performance_sample_count": detail.integer("effective_performance_sample_count"),
        }
    if manifest is None:
        return conditions
    plan = manifest.resolved
    names = [str(gpu.get("name") or "unknown") for gpu in manifest.accelerator]
    observed = manifest.engine.get("configuration") or {}
    configuration = {**declared_settings(observed), **observed}
    return conditions | {
        "gpu_type": " + ".join(sorted(set(names))) or "cpu",
        "gpu_count": len(names),
        "hostname": manifest.host.get("hostname"),
        "cpu": manifest.host.get("cpu"),
        "cores_usable": manifest.host.get("cores_usable"),
        "model": Path(plan.model_path).name,
        "model_sha256": _one_hash(manifest.model.get("sha256")),
        "dataset_sha256": plan.dataset_sha256,
        "sample_count": plan.sample_count,
        "engine_version": (manifest.engine.get("versions") or {}).get(plan.engine),
        "dtype": configuration.get("dtype") or plan.engine_options.get("dtype"),
        "tp": configuration.get("tensor_parallel_size") or plan.engine_options.get("tensor_parallel_size"),
        "max_model_len": configuration.get("max_model_len") or plan.engine_options.get("max_model_len"),
        "max_num_seqs": configuration.get("max_num_seqs"),
        "enable_prefix_caching": configuration.get("enable_prefix_caching"),
        "engine_options": orjson.dumps(plan.engine_options, option=orjson.OPT_SORT_KEYS).decode(),
        "sampling": orjson.dumps(plan.sampling, option=orjson.OPT_SORT_KEYS).decode(),
        "harness_commit": manifest.harness.get("git_commit"),
        "official": manifest.official,
        "manifest_sha256": None,
    }


def _one_hash(hashes: Any) -> str | None:
    """One value for all the model's files; the same files give the same value."""
    if not isinstance(hashes, dict) or not hashes:
        return None
    text = orjson.dumps(hashes, option=orjson.OPT_SORT_KEYS).decode()
    return uuid.uuid5(_IDENTITY, text).hex


def _numbers(leg: FinishedLeg | None, manifest: Manifest | None) -> dict[str, Any]:
    """The performance leg's numbers: derived from our own records where there are any, else LoadGen's."""
    found: dict[str, Any] = {"manifest_sha256": sha256_of(leg.run.manifest) if leg and leg.manifest else None}
    if leg is None or leg.mode != PERFORMANCE:
        return found
    try:
        result: Result = result_of(leg, scenario=leg.scenario)
    except HarnessError as error:
        return found | {"numbers_from": f"none: {error.message}"}
    numbers: Numbers | None = result.derived or result.reported
    if numbers is None:
        return found
    found |= {
        "numbers_from": result.derived_from or "loadgen",
        "samples_per_second": numbers.samples_per_second,
        "throughput_tok_s": numbers.tokens_per_second,
        "duration_s": None if result.duration_ns is None else result.duration_ns / 1e9,
        "samples": result.counts.samples,
        "output_tokens_mean": result.tokens.output_mean if result.tokens else None,
    }
    for name in ("ttft", "tpot", "latency"):
        statistics = getattr(numbers, f"{name}_ns")
        if statistics is not None:
            found |= {f"{name}_{p}_ms": getattr(statistics, p) / 1e6 for p in ("p50", "p99")}
    return found


def _accuracy(quality: QualityEvidence) -> dict[str, Any]:
    scores = quality.scores or {}
    names = ("rouge1", "rouge2", "rougeL", "rougeLsum", "gen_len", "gen_num")
    passed = None if quality.passed is None else int(quality.passed)
    return {**{name: scores.get(name) for name in names}, "accuracy_passed": passed}


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
    return orjson.dumps(outcomes).decode() if outcomes else None


def read_rows(
    path: Path, registries: Registries | None, load_error: str | None = None, sources: ScoreSources | None = None
) -> list[JudgedRow]:
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
    return [
        _with_evidence(row, f"{path}:{number}", registries, load_error, sources)
        for number, row in enumerate(rows, start=1)
    ]


def _with_evidence(
    row: dict[str, Any], source: str, registries: Registries | None, load_error: str | None, sources: Any
) -> JudgedRow:
    directory, run_id = row.get("run_directory"), row.get("run_id")
    if not isinstance(directory, str) or not Path(directory).is_dir():
        return JudgedRow(row, None, source)
    declared = declare(row, support_status=known_status(row.get(SUPPORT_STATUS)))
    try:
        found = rows_of_runs([Path(directory)], declared, registries, load_error, sources)
    except HarnessError:
        return JudgedRow(row, None, source)
    same = next((one for one in found if one.row["run_id"] == run_id), None)
    if same is None:  # another run has taken the place of this one: what lies there says nothing of the row
        return JudgedRow(row, None, source)
    own = (RECORD, AUDITED, "valid", "accuracy_passed", *FIELD_NAMES)  # what it leaves open, its run declares
    told = {name: same.row[name] for name in own}
    evidence = same.evidence
    if evidence is not None and evidence.broken is None and (changed := next(_changed(row, same.row), None)):
        evidence = replace(evidence, broken=changed)
    return JudgedRow({**same.row, **row, **told}, evidence, source)


def _changed(row: dict[str, Any], again: dict[str, Any]) -> Iterator[str]:
    """Numbers and conditions that are others in the row than in the files of its run."""
    for name in _FROM_FILES:
        found, wanted = row.get(name), again.get(name)
        if found is not None and found != wanted:
            yield f"{name} is {str(found)[:80]} in the row, {str(wanted)[:80]} by the files of its run"
