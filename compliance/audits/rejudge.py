"""An audit's legs in turn, and an audit judged again from its directory: what lies there must still say the same."""

from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic import ValidationError

from compliance.audits.audit_record import read_audit
from compliance.audits.audit_registry import find_audit
from compliance.audits.base import AuditRequest, AuditResult, AuditTest, LegArtifacts, LegSpec
from runs.errors import ExecutionError, InputError
from runs.loadgen.detail_log import DetailLog
from runs.reading import MAX_LOG_BYTES, read_record
from runs.record.layout import RunDir, audit_record
from runs.record.leg import LOG_HASHES, FinishedLeg
from runs.record.manifest import read_manifest
from runs.record.unfinished import unfinished

_FIX = "run the audit again"
IDS = ("stop_ids", "bos_ids", "special_ids")  # of tokens, in a request and in a record


def legs_in_turn(
    test: AuditTest, request: AuditRequest, finish: Callable[[LegSpec], LegArtifacts]
) -> list[LegArtifacts]:
    """The legs that the test plans, each finished by `finish`; the test sees it before it plans the next."""
    finished: list[LegArtifacts] = []
    planner = test.legs(request)
    spec: LegSpec | None = next(planner)
    while spec is not None:
        finished.append(finish(spec))
        try:
            spec = planner.send(finished[-1])
        except StopIteration:
            spec = None
    return finished


def logs_in(folder: Path) -> dict[str, DetailLog]:
    """The detail log of every leg in an audit's directory, by its label."""
    there = sorted(folder.iterdir()) if folder.is_dir() else []
    return {path.name: FinishedLeg(RunDir(path)).detail for path in there if RunDir(path).detail.is_file()}


def request_beside(leg: FinishedLeg) -> AuditRequest:
    """What an audit of a leg's system was asked for, as far as the leg tells."""
    official = leg.manifest is not None and leg.manifest.official
    model = leg.benchmark.model if official else None  # no other is official
    return AuditRequest(
        scenario=leg.scenario,
        loadgen_key=leg.benchmark.loadgen_key,
        loaded_count=leg.detail.integer("qsl_reported_total_count"),
        stop_ids=tuple(model.stop_ids if model else ()),
        bos_ids=tuple(model.bos_ids if model else ()),
        special_ids=tuple(model.special_ids if model else ()),
    )


def judged_again(folder: Path, name: str, request: AuditRequest) -> tuple[AuditResult, list[LegArtifacts]]:
    """An audit by its own rules, from the legs in its directory, which have to be those that it plans. Of its record
    only what makes a rule stricter counts.

    Args:
        request: of `request_beside`.

    Raises:
        HarnessError: the record or a leg is missing, damaged or changed, is one too many, or allows no verdict.
    """
    test, record = find_audit(name), read_audit(folder, name)
    details = record.model_extra or {}
    logs = logs_in(folder)
    try:
        ids = {name: {*getattr(request, name), *details.get(name, ())} for name in IDS}
        request = test.asked(AuditRequest.model_validate(request.model_dump() | ids), logs, details)
        named = sorted(str(leg["label"]) for leg in record.legs)
    except (KeyError, TypeError, ValidationError) as error:
        raise InputError(f"{audit_record(folder, name)} is damaged: {error}", "run the audit again") from error
    if named != sorted(logs):
        raise InputError(f"{folder}: the record names the legs {named}, and {sorted(logs)} are there", _FIX)
    test.validate(request)
    legs = legs_in_turn(test, request, lambda spec: leg_as_left(folder, spec))
    if left := sorted(logs.keys() - {leg.spec.label for leg in legs}):
        raise InputError(f"{folder}: the audit has no legs {left}", _FIX)
    return test.verify(request, legs), legs


def leg_as_left(folder: Path, spec: LegSpec) -> LegArtifacts:
    """A leg in an audit's directory, with its files as it left them.

    Raises:
        InputError: its record is missing or damaged.
        ExecutionError: it did not finish, a log of it was changed, or its audit.config is another or had no effect.
    """
    leg = FinishedLeg(RunDir(folder / spec.label))
    manifest = leg.manifest or read_manifest(leg.run.manifest)
    if manifest.status != "finished":
        raise ExecutionError(f"{leg.run.root}: {unfinished(manifest)}")
    recorded, found = manifest.observed.get(LOG_HASHES) or {}, leg.hashes
    if changed := sorted(name for name in recorded | found if recorded.get(name) != found.get(name)):
        raise ExecutionError(f"{leg.run.root}: not the files that the leg left: {', '.join(changed)}")
    artifacts = LegArtifacts(spec, leg)
    artifacts.check_engaged()
    given = read_record(leg.run.audit_config, _FIX).decode(errors="replace") if leg.run.audit_config.exists() else None
    if given != spec.render():
        raise ExecutionError(f"{leg.run.audit_config} is not what the audit gives this leg", _FIX)
    return artifacts


def files_that_differ(folder: Path, result: AuditResult) -> Iterator[Path]:
    """Files beside an audit's record that are not what the legs' files give."""
    wanted = {result.text_name: result.text.encode()}
    fix = "give the leg's own files"
    wanted |= {name: read_record(source, fix, max_bytes=MAX_LOG_BYTES) for name, source in result.copies.items()}
    for name, content in wanted.items():
        path = folder / name
        try:
            found = read_record(path, "", max_bytes=len(content))
        except InputError:  # it is not there, or larger
            found = None
        if found != content:
            yield path
