"""H-5 on answers: one model gives one sample one answer, in a leg and across legs."""

from collections.abc import Iterator

from compliance.finding import Finding, fail
from compliance.signoff.evidence import Evidence
from compliance.signoff.levers import NEEDS_QUALITY_GATE
from compliance.signoff.limits import LEAST_ALIKE, LEAST_REPETITIONS


def repetitions(evidence: Evidence) -> Iterator[Finding]:
    """H-5: a greedy model gives the same sample hardly ever another answer; invented answers are never the same."""
    table = evidence.requests
    if table is None:
        return
    first: dict[int, str] = {}
    repeated = alike = 0
    for index, digest in zip(table.sample_index.tolist(), table.output_sha256, strict=True):
        if index in first:
            repeated += 1
            alike += first[index] == digest
        first.setdefault(index, digest)
    if repeated >= LEAST_REPETITIONS and alike < LEAST_ALIKE * repeated:
        text = f"{alike} of {repeated} repetitions of a sample have its first answer: greedy decoding repeats itself"
        yield fail("H-5/other_answers", text, evidence.run.requests, alike=alike, repeated=repeated)


def one_model(legs: list[Evidence]) -> Iterator[Finding]:
    """H-5 across legs that record one model, data set and sampling: they answer the same samples alike."""
    known: dict[str, tuple[dict[int, str], Evidence]] = {}
    for evidence in legs:
        manifest, table = evidence.manifest, evidence.requests
        if manifest is None or table is None:
            continue
        plan = manifest.resolved
        precision = {name: value for name, value in plan.engine_options.items() if name in NEEDS_QUALITY_GATE}
        system = repr((plan.model_path, manifest.model.get("sha256"), plan.dataset_sha256, plan.sampling, precision))
        answers = dict(zip(table.sample_index.tolist(), table.output_sha256, strict=True))
        before, other = known.setdefault(system, (answers, evidence))
        common = before.keys() & answers.keys()
        alike = sum(before[index] == answers[index] for index in common)
        if len(common) >= LEAST_REPETITIONS and alike < LEAST_ALIKE * len(common):
            text = f"{alike} of {len(common)} samples have the answers they have in {other.run.root}: another model"
            yield fail("H-5/other_answers", text, evidence.run.requests, alike=alike, common=len(common))
