"""An audit that is to be submitted, judged again from its leg's files: what its record says must still be true."""

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from compliance.audits.base import AuditRequest, LegArtifacts
from compliance.audits.registry import AUDITS, find_audit
from compliance.submission.build_inputs import SUBMITTED_TESTS, Audit
from runs.errors import HarnessError, InputError
from runs.reading import read_object
from runs.record.layout import ResultDir
from runs.record.leg import LOG_HASHES
from runs.record.unfinished import unfinished

_FIX = "run the audit again"
_COMPLETE = "verification complete"  # the last line of the official text [mlcommons/inference compliance/TEST06]


def audit_failures(audit: Audit) -> Iterator[str]:
    """Why the audit cannot be submitted, one sentence each; what is damaged is a reason as well."""
    try:
        yield from _failures(audit)
    except HarnessError as error:
        yield error.message


def failed_audits(home: ResultDir) -> Iterator[tuple[str, str]]:
    """Audits that are not submitted, but lie beside a result and did not pass: (test, a sentence).

    Nobody has to run them; what they showed is not left out, though.
    """
    for test in AUDITS:
        record = home.audit(test) / f"audit_{test}.json"
        if test in SUBMITTED_TESTS or not record.exists():
            continue
        try:
            found = read_object(record, _FIX)
        except InputError as error:
            yield test, error.message
            continue
        if found.get("passed") is not True:
            yield test, f"{test} beside it did not pass: {found.get('reason', 'no reason given')}"


def _failures(audit: Audit) -> Iterator[str]:
    record = read_object(audit.folder / f"audit_{audit.test}.json", _FIX)
    if record.get("passed") is not True:
        yield f"{audit.test} did not pass: {record.get('reason', 'no reason given')}"
        return
    manifest = audit.manifest
    if manifest.status != "finished":
        yield f"{audit.run.root}: {unfinished(manifest)}"
        return
    recorded, found = manifest.observed.get(LOG_HASHES), audit.leg.hashes
    if recorded != found:
        changed = sorted(name for name in {*(recorded or {}), *found} if (recorded or {}).get(name) != found.get(name))
        yield f"{audit.run.root}: not the files that the leg left: {', '.join(changed)}"
        return
    test = find_audit(audit.test)
    request = _request(audit, record)
    leg = LegArtifacts(next(test.legs(request)), audit.leg)
    leg.check_engaged()
    if leg.detail.error_count:
        yield f"{audit.run.detail}: {leg.detail.error_count} error records"
    result = test.verify(request, [leg])
    if not result.passed:
        yield f"{audit.test} judged again from {audit.run.root} does not pass: {result.reason}"
    if _COMPLETE not in result.text:
        yield f"{audit.test}: the official script would say: {result.text.strip().splitlines()[-1]}"
    text = audit.folder / result.text_name
    if not text.is_file() or text.read_text(errors="replace") != result.text:
        yield f"{text} is not what the leg's files give"
    for name, source in result.copies.items():
        copy = audit.folder / name
        if not copy.is_file() or copy.read_bytes() != source.read_bytes():
            yield f"{copy} is not the leg's {source.name}"


def _request(audit: Audit, record: dict[str, Any]) -> AuditRequest:
    """What was asked of the audit, special ids included."""
    plan = audit.manifest.resolved
    ids = {name: record[name] for name in ("stop_ids", "bos_ids", "special_ids") if name in record}
    try:
        return AuditRequest(
            scenario=audit.scenario, loadgen_key=plan.loadgen_key, loaded_count=plan.sample_count, **ids
        )
    except ValidationError as error:
        raise InputError(f"audit_{audit.test}.json: {error.errors()[0]['msg']}", _FIX) from error
