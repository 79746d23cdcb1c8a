"""H: do the accuracy and the performance legs show one and the same system, under the official load?"""

import itertools
from collections.abc import Iterator

import numpy as np

from compliance.audits.audit_registry import request_beside
from compliance.audits.base import AuditTest, LegArtifacts, LegSpec
from compliance.audits.two_modes import OutputConsistency, OutputLength
from compliance.finding import Finding, fail, note
from compliance.signoff.caching import caching, pace
from compliance.signoff.coherence import coherent
from compliance.signoff.evidence import Evidence, checks
from compliance.signoff.leg_conditions import conditions_of, unlike, without_mode
from runs.errors import HarnessError
from runs.record.conditions import differences


@checks("H-1", ("missing_raw", "error", "there is a leg of each mode"))
def harness(legs: list[Evidence]) -> Iterator[Finding]:
    """All of H on the legs of one result: every performance leg against every accuracy leg."""
    modes = {evidence.is_performance for evidence in legs}
    if lacking := [name for name, mode in (("performance", True), ("accuracy", False)) if mode not in modes]:
        text = f"no {lacking[0]} leg: the two modes cannot be compared"
        yield fail("H-1/missing_raw", text, *(leg.run.root for leg in legs[:1]))
    yield from coherent(legs)
    for evidence in legs:
        if evidence.is_performance:
            yield from _load(evidence)
            yield from caching(evidence)
    yield from one_system_in_both_modes(legs)


def one_system_in_both_modes(legs: list[Evidence]) -> Iterator[Finding]:
    """H-1, H-3, H-7 and H-8, of every performance leg against every accuracy leg."""
    for evidence, other in itertools.product(legs, legs):
        if evidence.is_performance and not other.is_performance:
            yield from _parity(evidence, other)
            yield from pace(evidence, other)


@checks(
    "H-1",
    ("other_path", "error", "both modes ran alike"),
    ("other_answers", "error", "both modes gave the same answers"),
    ("output_consistency", "note", "both modes gave the same answers"),
)
@checks("H-3", ("other_model_or_data", "error", "both modes ran one model on one data set"))
@checks(
    "H-7",
    ("other_length", "error", "outputs are as long as in the accuracy leg"),
    ("output_length", "note", "outputs are as long as in the accuracy leg"),
)
def _parity(performance: Evidence, accuracy: Evidence) -> Iterator[Finding]:
    """H-1 and H-3 by the records, H-7 and the answers by the audits that need no legs of their own."""
    found = without_mode(differences(conditions_of(accuracy), conditions_of(performance)))
    roots = accuracy.run.root, performance.run.root
    data = {key: value for key, value in found.items() if key in ("data set", "model", "model revision")}
    rule = "H-3/other_model_or_data" if data else "H-1/other_path"
    yield from unlike(rule, "accuracy and performance ran differently", data or found, *roots)
    if performance.part is None or accuracy.part is None or performance.requests is None:
        return
    audits: tuple[tuple[str, str, AuditTest], ...] = (
        ("H-1/other_answers", "H-1/output_consistency", OutputConsistency()),
        ("H-7/other_length", "H-7/output_length", OutputLength()),
    )
    legs = [  # read once for both audits
        LegArtifacts(LegSpec("accuracy", "accuracy"), accuracy),
        LegArtifacts(LegSpec("performance"), performance),
    ]
    for broken, kept, audit in audits:
        yield from _audit(broken, kept, audit, legs, performance)


def _audit(
    broken: str, kept: str, audit: AuditTest, legs: list[LegArtifacts], performance: Evidence
) -> Iterator[Finding]:
    try:
        result = audit.verify(request_beside(performance), legs)
    except HarnessError as error:
        yield fail(broken, f"{audit.name} cannot judge: {error.message}", performance.run.root)
        return
    if result.passed:
        yield note(kept, result.reason, performance.run.root)
    else:
        yield fail(broken, result.reason, performance.run.root)


@checks("H-2", ("not_representative", "error", "every loaded sample was issued, equally often"))
def _load(evidence: Evidence) -> Iterator[Finding]:
    """H-2: every loaded sample was issued, all of them equally often where the count allows it."""
    table = evidence.requests
    if table is None or not len(table):
        return
    loaded = evidence.detail.loaded_qsl_set
    issued, counts = np.unique(table.sample_index, return_counts=True)
    where = evidence.run.requests
    if len(table) >= len(loaded) and len(issued) != len(loaded):
        text = f"{len(issued)} different samples were issued, {len(loaded)} were loaded"
        yield fail("H-2/not_representative", text, where, issued=len(issued), loaded=len(loaded))
    elif len(table) % len(loaded) == 0 and counts.min() != counts.max():
        text = f"samples were issued {counts.min()} to {counts.max()} times, not equally often"
        yield fail("H-2/not_representative", text, where, fewest=int(counts.min()), most=int(counts.max()))
