"""An audit that is to be submitted, judged again from its leg's files: what its record says must still be true."""

from collections.abc import Iterator

from compliance.audits import test06
from compliance.audits.audit_record import read_audit
from compliance.audits.audit_registry import AUDITS
from compliance.audits.base import EXISTING
from compliance.audits.rejudge import IDS, files_that_differ, judged_again, request_beside
from compliance.evidence.performance import verify_performance
from compliance.submission.build_inputs import SUBMITTED_TESTS, Audit
from runs.errors import HarnessError
from runs.record.layout import ResultDir, audit_record
from runs.record.leg import FinishedLeg


def audit_failures(audit: Audit) -> Iterator[str]:
    """Why the audit cannot be submitted, one sentence each; what is damaged is a reason as well."""
    try:
        yield from _failures(audit)
    except HarnessError as error:
        yield error.message


def failed_audits(home: ResultDir, leg: FinishedLeg) -> Iterator[tuple[str, str]]:
    """Audits that are not submitted, but lie beside a result and do not pass: (test, a sentence).

    Nobody has to run them; what they showed is not left out, though. Legs of their own are judged again.

    Args:
        leg: of the result.
    """
    for test in AUDITS:
        record = audit_record(home.audit(test), test)
        if test in SUBMITTED_TESTS or not record.exists():
            continue
        try:
            found = read_audit(record.parent, test)
            said = "" if found.passed else f"did not pass: {found.reason}"
            own = {leg.get("label") for leg in found.legs} != set(EXISTING)
            if not said and own:
                result, _ = judged_again(record.parent, test, request_beside(leg))
                said = "" if result.passed else f"judged again does not pass: {result.reason}"
        except (OSError, HarnessError) as error:
            said = f"cannot be judged again: {error.message if isinstance(error, HarnessError) else error}"
        if said:
            yield test, f"{test} beside it {said}"


def _failures(audit: Audit) -> Iterator[str]:
    record = read_audit(audit.folder, audit.test)
    if not record.passed:
        yield f"{audit.test} did not pass: {record.reason}"
        return
    if absent := [name for name in IDS if name not in (record.model_extra or {})]:
        yield f"{audit_record(audit.folder, audit.test).name} has no {', '.join(absent)}"
        return
    result, legs = judged_again(audit.folder, audit.test, request_beside(audit.leg))
    broken = [found for leg in legs for found in verify_performance(leg.leg).contradictions]
    yield from (f"{audit.test}: {found.sentence}" for found in broken)
    if broken:
        return
    for leg in legs:
        if leg.detail.error_count:
            yield f"{leg.run.detail}: {leg.detail.error_count} error records"
    if not result.passed:
        yield f"{audit.test} judged again from {audit.run.root} does not pass: {result.reason}"
    if test06.COMPLETE not in result.text:
        yield f"{audit.test}: the official script would say: {result.text.strip().splitlines()[-1]}"
    yield from (f"{path} is not what the legs' files give" for path in files_that_differ(audit.folder, result))
