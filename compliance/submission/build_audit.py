"""An audit that is to be submitted, judged again from its leg's files: what its record says must still be true."""

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from compliance.audits import test06
from compliance.audits.base import AuditRequest
from compliance.audits.record import read_audit
from compliance.audits.registry import AUDITS, find_audit
from compliance.audits.rejudge import files_that_differ, leg_as_left, legs_in_turn
from compliance.evidence.performance import verify_performance
from compliance.submission.build_inputs import SUBMITTED_TESTS, Audit
from runs.errors import HarnessError, InputError
from runs.record.layout import ResultDir, audit_record

_FIX = "run the audit again"


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
        record = audit_record(home.audit(test), test)
        if test in SUBMITTED_TESTS or not record.exists():
            continue
        try:
            found = read_audit(record.parent, test)
        except InputError as error:
            yield test, error.message
            continue
        if not found.passed:
            yield test, f"{test} beside it did not pass: {found.reason}"


def _failures(audit: Audit) -> Iterator[str]:
    record = read_audit(audit.folder, audit.test)
    if not record.passed:
        yield f"{audit.test} did not pass: {record.reason}"
        return
    test = find_audit(audit.test)
    request = _request(audit, record.model_extra or {})
    test.validate(request)
    legs = legs_in_turn(test, request, lambda spec: leg_as_left(audit.folder, spec))
    broken = [found for leg in legs for found in verify_performance(leg.leg).contradictions]
    yield from (f"{audit.test}: {found.sentence}" for found in broken)
    if broken:
        return
    for leg in legs:
        if leg.detail.error_count:
            yield f"{leg.run.detail}: {leg.detail.error_count} error records"
    result = test.verify(request, legs)
    if not result.passed:
        yield f"{audit.test} judged again from {audit.run.root} does not pass: {result.reason}"
    if test06.COMPLETE not in result.text:
        yield f"{audit.test}: the official script would say: {result.text.strip().splitlines()[-1]}"
    yield from (f"{path} is not what the legs' files give" for path in files_that_differ(audit.folder, result))


def _request(audit: Audit, details: dict[str, Any]) -> AuditRequest:
    """What was asked of the audit, special ids included."""
    plan = audit.manifest.resolved
    names = ("stop_ids", "bos_ids", "special_ids")
    if absent := [name for name in names if name not in details]:
        raise InputError(f"{audit_record(audit.folder, audit.test).name} has no {', '.join(absent)}", _FIX)
    ids = {name: details[name] for name in names}
    try:
        return AuditRequest(
            scenario=audit.scenario, loadgen_key=plan.loadgen_key, loaded_count=plan.sample_count, **ids
        )
    except ValidationError as error:
        raise InputError(f"{audit_record(audit.folder, audit.test).name}: {error.errors()[0]['msg']}", _FIX) from error
