"""All proofs on one leg by itself, whatever it is part of: a result or an audit."""

from collections.abc import Iterator

from compliance.finding import Finding
from compliance.signoff.evidence import Evidence
from compliance.signoff.proofs.issued_queries import late_issues, replay
from compliance.signoff.proofs.provenance import provenance
from compliance.signoff.proofs.request_checks import request_checks


def leg_proofs(evidence: Evidence) -> Iterator[Finding]:
    """Is the leg whole, unchanged, one run, and of the queries that LoadGen issued?"""
    part = evidence.part
    yield from evidence.reasons
    if part is None:
        return
    yield from provenance(evidence)
    if evidence.manifest is not None or evidence.trace is not None:
        yield from replay(evidence)
    yield from request_checks(evidence)
    yield from late_issues(evidence)
