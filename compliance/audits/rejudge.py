"""An audit's legs in turn, and an audit judged again from its directory: what lies there must still say the same."""

from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic import ValidationError

from compliance.audits.base import AuditRequest, AuditResult, AuditTest, LegArtifacts, LegSpec
from compliance.audits.output_caching import OutputCaching, specs_of
from compliance.audits.record import read_audit
from compliance.audits.registry import find_audit
from runs.errors import ExecutionError, InputError
from runs.reading import MAX_LOG_BYTES, read_record
from runs.record.layout import RunDir, audit_record
from runs.record.leg import LOG_HASHES, FinishedLeg
from runs.record.manifest import read_manifest
from runs.record.unfinished import unfinished


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


def judged_again(folder: Path, name: str, request: AuditRequest) -> AuditResult:
    """An audit by its own rules, from the legs in its directory; of its record only the ids of special tokens count.

    Raises:
        HarnessError: the record or a leg is missing, damaged or changed, or allows no verdict.
    """
    test, record = find_audit(name), read_audit(folder, name)
    told = {key: value for key, value in (record.model_extra or {}).items() if key.endswith("_ids")}
    try:
        request = AuditRequest.model_validate(request.model_dump() | told)
        labels = [str(leg["label"]) for leg in record.legs]
    except (KeyError, ValidationError) as error:
        raise InputError(f"{audit_record(folder, name)} is damaged: {error}", "run the audit again") from error
    if isinstance(test, OutputCaching):  # how many samples its legs had, nobody but they tell
        logs = {label: FinishedLeg(RunDir(folder / label)).detail for label in labels}
        legs = [leg_as_left(folder, spec) for spec in specs_of(request.scenario, logs)]
    else:
        legs = legs_in_turn(test, request, lambda spec: leg_as_left(folder, spec))
    return test.verify(request, legs)


def leg_as_left(folder: Path, spec: LegSpec) -> LegArtifacts:
    """A leg in an audit's directory, with its files as it left them.

    Raises:
        InputError: its record is missing or damaged.
        ExecutionError: it did not finish, a log of it was changed, or its audit.config had no effect.
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
