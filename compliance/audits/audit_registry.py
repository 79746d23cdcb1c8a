"""Functions on the directory of an audit: write and read audit_<test>.json, and re-evaluate the audit runs."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from compliance.audits.base import EARLIER_VERSION, AuditResult, AuditTest, NoVerdictError, RunSpec
from compliance.audits.discovery import BUILT_IN_AUDITS
from compliance.audits.options import AuditOptionsT, AuditRequest
from compliance.audits.run_artifacts import RunArtifacts
from compliance.results.attestation_check import attested
from runs.errors import ExecutionError, InputError
from runs.extensions import AUDIT_GROUP, find_extension
from runs.files.reading import MAX_LOG_BYTES, read_as, read_record
from runs.files.writing import write_atomic, write_json
from runs.record.finished_run import FinishedRun
from runs.record.layout import RunDir, audit_record
from runs.record.liveness import unfinished
from runs.record.manifest import read_manifest

IDS = ("stop_ids", "bos_ids", "special_ids")  # fields with token IDs, in a request and in audit_<test>.json
_FIX = "run the audit again"


def runs_in_turn(
    test: AuditTest[AuditOptionsT], request: AuditRequest[AuditOptionsT], finish: Callable[[RunSpec], RunArtifacts]
) -> list[RunArtifacts]:
    """Return all runs that an audit plans. `finish` executes or reads each planned run."""
    finished: list[RunArtifacts] = []
    specs = test.runs(request)
    while specs:
        finished += [finish(spec) for spec in specs]
        specs = test.more_runs(request, finished)
    return finished


# The record and the other files --------------------------------------------------------------------------------------


class AuditRecord(BaseModel):
    """The content of `audit_<test>.json`. No verdict relies on it. `model_extra` has the details of the audit."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False, defer_build=True)

    schema_version: Literal[1]
    test: str
    passed: bool
    official: bool
    required: bool
    reason: Annotated[str, Field(min_length=1)]
    rule: str
    findings: list[dict[str, Any]]
    runs: list[dict[str, Any]] = Field(validation_alias=AliasChoices("runs", "legs"))  # "legs": earlier versions


def write_audit(folder: Path, result: AuditResult) -> None:
    """Write `audit_<test>.json`, then copies of logs, then the text for the official tools, each file atomically.

    The record is written first, so that a crash never leaves a text with PASS but without a record.
    """
    record = result.record()
    if result.test not in BUILT_IN_AUDITS:
        origin = find_extension(AUDIT_GROUP, result.test)
        record["package"] = {"name": origin.package, "version": origin.version}
    write_json(audit_record(folder, result.test), record)
    for name, source in result.copies.items():
        (folder / name).parent.mkdir(exist_ok=True)
        write_atomic(folder / name, source.read_bytes())
    write_atomic(folder / result.text_name, result.text)


def read_audit(folder: Path, test: str) -> AuditRecord:
    """Read audit_<test>.json from the directory of an audit.

    Raises:
        InputError: If audit_<test>.json is missing or damaged, or belongs to a different version or audit.
    """
    path = audit_record(folder, test)
    record = read_as(path, AuditRecord, _FIX, within=folder)
    if record.test != test:
        raise InputError(f"{path}: test is {record.test[:40]!r}, expected {test!r}", _FIX)
    return record


def files_that_differ(folder: Path, result: AuditResult) -> Iterator[Path]:
    """Yield the files of an audit whose content differs from what a re-evaluation of its runs writes."""
    wanted = {result.text_name: result.text.encode()}
    fix = "restore all files of the run directory as they were when the run ended"
    wanted |= {name: read_record(source, fix, max_bytes=MAX_LOG_BYTES) for name, source in result.copies.items()}
    for name, content in wanted.items():
        path = folder / name
        try:
            stored = read_record(path, "", max_bytes=len(content))
        except InputError:  # the file is missing or too large to be equal
            stored = None
        if stored != content:
            yield path


# Judged again ---------------------------------------------------------------------------------------------------------


def runs_in(folder: Path, read: Sequence[FinishedRun] = ()) -> dict[str, FinishedRun]:
    """Return all runs in an audit's directory, by label.

    Args:
        read: Runs that were read before.
    """
    read_runs = {run.dir.root: run for run in read}
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    return {
        path.name: read_runs.get(path) or FinishedRun(RunDir(path)) for path in entries if RunDir(path).detail.is_file()
    }


def request_beside(run: FinishedRun, test: AuditTest[AuditOptionsT]) -> AuditRequest[AuditOptionsT]:
    """Return an audit request with default options for the system that made a run."""
    official = run.manifest is not None and run.manifest.official
    model = run.benchmark.model if official else None  # only official models have known IDs
    return AuditRequest(
        scenario=run.scenario,
        loadgen_key=run.benchmark.loadgen_key,
        loaded_count=run.detail.integer("qsl_reported_total_count"),
        options=test.default_options,
        starts_engine=run.manifest is None or run.manifest.plan.starts_engine,
        stop_ids=tuple(model.stop_ids if model else ()),
        bos_ids=tuple(model.bos_ids if model else ()),
        special_ids=tuple(model.special_ids if model else ()),
    )


def judged_again(
    folder: Path,
    test: AuditTest[AuditOptionsT],
    request: AuditRequest[AuditOptionsT],
    read: Sequence[FinishedRun] = (),
) -> tuple[AuditResult, list[RunArtifacts]]:
    """Re-evaluate an audit from its runs. The options in audit_<test>.json can only make a rule stricter.

    Args:
        request: Request from `request_beside`.
        read: Runs of the audit that were read before; their files are not read again.

    Raises:
        HarnessError: If the record or a run is missing, damaged, changed or unplanned, or allows no verdict.
    """
    record, found_runs = read_audit(folder, test.name), runs_in(folder, read)
    logs = {label: run.detail for label, run in found_runs.items()}
    details = record.model_extra or {}
    try:
        ids = {name: {*getattr(request, name), *details.get(name, ())} for name in IDS}
        request = test.recover(type(request).model_validate(dict(request) | ids), logs, details)
        named = sorted(str(run["label"]) for run in record.runs)
    except (KeyError, TypeError, ValidationError) as error:
        raise InputError(f"{audit_record(folder, test.name)} is damaged: {error}", _FIX) from error
    if named != sorted(logs):
        stated = audit_record(folder, test.name).name
        raise InputError(f"{folder}: {stated} names the runs {named}, but the directory contains {sorted(logs)}", _FIX)
    test.validate(request)
    return judged_as_planned(folder, test, request, list(found_runs.values()))


def judged_as_planned(
    folder: Path,
    test: AuditTest[AuditOptionsT],
    request: AuditRequest[AuditOptionsT],
    read: Sequence[FinishedRun] = (),
) -> tuple[AuditResult, list[RunArtifacts]]:
    """Check the runs in an audit's directory. They must be the runs that the audit planned.

    Args:
        read: Runs of the audit that were read before; their files are not read again.

    Raises:
        HarnessError: If a run is missing, unfinished, changed or unplanned, or allows no verdict.
    """
    found_runs = runs_in(folder, read)
    logs = {label: run.detail for label, run in found_runs.items()}
    request = test.as_drawn(request, logs)

    def run_of(spec: RunSpec) -> RunArtifacts:
        return run_as_left(found_runs.get(spec.label) or FinishedRun(RunDir(folder / spec.label)), spec)

    runs = runs_in_turn(test, request, run_of)
    if left := sorted(logs.keys() - {run.spec.label for run in runs}):
        raise InputError(f"{folder}: the runs {left} do not belong to this audit", _FIX)
    return test.verify(request, runs), runs


def run_as_left(found_run: FinishedRun, spec: RunSpec) -> RunArtifacts:
    """Return a run in an audit's directory after checking that it is unchanged.

    Raises:
        InputError: If its manifest is missing or damaged.
        ExecutionError: If it did not finish, a file was changed, or its audit.config is not as planned or had no
            effect.
    """
    run = RunArtifacts.of(found_run, spec=spec)
    manifest = run.manifest or read_manifest(run.dir.manifest)
    if manifest.status != "finished":
        raise ExecutionError(f"{run.dir.root}: {unfinished(manifest)}")
    if manifest.plan.rows is None and spec.rows is not None:
        raise NoVerdictError(f"{run.dir.root}: {EARLIER_VERSION}", _FIX)
    if changed := attested(run.dir):
        raise ExecutionError(f"{run.dir.root}: a file was changed after the run ended: {changed[0].text}")
    run.check_engaged()
    if manifest.plan.rows != (None if spec.rows is None else list(spec.rows)):
        raise ExecutionError(
            f"{run.dir.manifest}: the rows of the dataset differ from the rows that the audit plans", _FIX
        )
    conf = read_record(run.dir.audit_config, _FIX).decode(errors="replace") if run.dir.audit_config.exists() else None
    if conf != spec.render():
        raise ExecutionError(f"{run.dir.audit_config} differs from the file that the audit plans for this run", _FIX)
    return run
