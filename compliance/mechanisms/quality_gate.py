"""The gate `mechanism_compression_quality`: may a row's number stand beside its declaration?

Four criteria judge the row itself; the others judge it against evidence, and a division. What evidence refutes closes
the gate always; what is only missing or not registered closes it with `strict`, and is advice without.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from compliance.finding import Finding, fail, warn
from compliance.mechanisms.declaration import (
    FIELD_NAMES,
    FIELDS,
    OF_TECHNIQUES,
    QUALITY_STATUSES,
    SUPPORT_STATUS,
    SUPPORT_STATUSES,
    coerced,
    is_empty,
)
from compliance.mechanisms.eligibility import Division, eligibility
from compliance.mechanisms.engine_facts import facts_of_row, misdeclared
from compliance.mechanisms.quality import QualityEvidence
from compliance.mechanisms.row import CERTIFICATION, JudgedRow
from compliance.mechanisms.technique_registry import BASELINE, NO_VARIANT, Registries
from compliance.mechanisms.validation import RECORD, validate
from runs.benchmarks import BENCHMARKS
from runs.store.store_schema import odd_values

GATE_ID = "mechanism_compression_quality"
GATE_LABEL = "Declared technique, its registration and its quality evaluation"

Status = Literal["pass", "fail", "no_rows"]


@dataclass
class RowOutcome:
    """What the gate found in one row. `review` is for a person to look at; it closes nothing."""

    source: str
    row: dict[str, Any]
    # criteria that are not met; an error where evidence says otherwise, a warning where it only lacks
    failures: list[Finding]
    review: list[str]
    divisions: dict[str, dict[str, Any]]


@dataclass
class GateOutcome:
    """The gate over all rows. `advisory`: failures that nothing refutes leave it open."""

    strict: bool
    division: Division | None
    matched: list[RowOutcome] = field(default_factory=list)
    not_matched: int = 0  # rows that declare no mechanism: results from before declarations
    missing_coverage: list[str] = field(default_factory=list)
    unexpected_coverage: list[str] = field(default_factory=list)

    @property
    def failing(self) -> list[RowOutcome]:
        return [row for row in self.matched if row.failures]

    @property
    def status(self) -> Status:
        if self.failing or self.missing_coverage:
            return "fail"
        return "pass" if self.matched else "no_rows"

    @property
    def refuted(self) -> bool:
        return any(is_refuted(row) for row in self.failing)

    @property
    def closed(self) -> bool:
        """With `strict` nothing opens the gate but rows that pass, all of them."""
        if self.strict:
            return self.status != "pass" or bool(self.not_matched)
        return self.status == "fail" and self.refuted


def is_refuted(row: RowOutcome) -> bool:
    """Does evidence say otherwise than the row, not only nothing?"""
    return any(finding.severity == "error" for finding in row.failures)


def judge_rows(
    rows: Iterable[JudgedRow],
    registries: Registries | None,
    load_error: str | None = None,
    *,
    strict: bool = False,
    division: Division | None = None,
    expected: Iterable[str] = (),
) -> GateOutcome:
    """Apply the gate.

    Args:
        rows: of runs or of a file.
        registries: None when they could not be read (`load_error` says why): a lossy row then fails, a baseline passes.
        strict: every failure closes the gate.
        division: rows must be eligible there.
        expected: "mechanism/variant" pairs that the rows have to cover; empty = whatever is there.
    """
    outcome = GateOutcome(strict, division)
    for judged in rows:
        if is_empty(judged.row.get("mechanism")):
            outcome.not_matched += 1
        else:
            outcome.matched.append(judge_row(judged, registries, load_error, division))
    wanted = set(expected)
    if wanted:
        there = {_pair(one.row) for one in outcome.matched}
        outcome.missing_coverage = sorted(wanted - there)
        outcome.unexpected_coverage = sorted(there - wanted)
    return outcome


def judge_row(
    judged: JudgedRow, registries: Registries | None, load_error: str | None = None, division: Division | None = None
) -> RowOutcome:
    """Apply every criterion to one row that declares a mechanism."""
    row, review = _readable(judged.row)
    record = validate(row, registries, load_error)
    evidence = judged.evidence
    engine = evidence.engine if evidence else facts_of_row(judged.row)
    passed = evidence.quality.passed if evidence else None
    lossy = {mechanism for mechanism, _ in engine.in_force}
    recorded = evidence is not None and not engine.gaps  # a row's own columns are somebody's word
    divisions = eligibility(str(row["mechanism"]), passed, lossy, recorded=recorded)
    wrong = list(evidence.misdeclared) if evidence else misdeclared(row, engine)
    failures = [
        *_pair_registered(row, record),
        *_status_known(row, record),
        *_quality_evaluated(row, record, registries),
        *_draft_model_declared(row, registries),
        *(fail("gate/mechanism_misdeclared", sentence) for sentence in wrong),
        *_completed_passes(row, judged),
        *_eligible(division, divisions),
    ]
    if evidence is not None:  # a run directory has to show a run, and what it ran with
        if evidence.broken is not None:
            failures.append(fail("gate/run_verified", evidence.broken))
        failures += [warn("gate/engine_record_missing", gap) for gap in engine.gaps]
    else:
        review += engine.gaps
        failures += _own_word(judged.row)
    told = " ".join(finding.sentence for finding in failures)
    review += [issue for issue in record["issues"] if issue not in told]
    if evidence is not None:
        review += [*judged.row[RECORD]["issues"], *_evaluated_already(row, evidence.quality)]
    return RowOutcome(judged.source, {**judged.row, **row}, failures, list(dict.fromkeys(review)), divisions)


def _own_word(row: dict[str, Any]) -> Iterator[Finding]:
    """What a row without files says of its run, and values that no store has written."""
    for name, good in (("status", "success"), ("certification", CERTIFICATION)):
        if (said := row.get(name, good)) != good:
            # of a row from before there was such a column nothing is known
            told = fail if said is not None else warn
            yield told("gate/run_verified", f"the row has {name} {str(said)[:40]}, of a finished run it is {good}")
    for sentence in odd_values(row, FIELD_NAMES):
        yield warn("gate/run_verified", sentence)


def _readable(given: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The fourteen fields as they are to be held, support_status, and what could not be read."""
    row: dict[str, Any] = {}
    issues = []
    for entry in FIELDS:
        row[entry.name], issue = coerced(entry, given.get(entry.name))
        issues += [issue] if issue else []
    row[SUPPORT_STATUS] = given.get(SUPPORT_STATUS)
    return row, issues


def _pair(row: dict[str, Any]) -> str:
    return f"{row.get('mechanism')}/{row.get('mechanism_variant') or NO_VARIANT}"


def _pair_registered(row: dict[str, Any], record: dict[str, Any]) -> Iterator[Finding]:
    if row["mechanism"] == BASELINE:
        given = {name: row[name] for name in OF_TECHNIQUES if row[name] not in (None, NO_VARIANT)}
        for name, said in given.items():
            yield warn("gate/pair_registered", f"a baseline has no {name}, the row says {said!r}")
    elif record["mechanism_eval_registered"] is not True:
        yield warn("gate/pair_registered", f"{_pair(row)} is not in the registry of mechanisms{_why(record)}")


def _status_known(row: dict[str, Any], record: dict[str, Any]) -> Iterator[Finding]:
    status = row["quality_eval_status"]
    if status is not None and status not in QUALITY_STATUSES:
        yield warn("gate/status_known", f"quality_eval_status {status!r} is none of {', '.join(QUALITY_STATUSES)}")
    tier = row[SUPPORT_STATUS]
    if tier is not None and tier not in SUPPORT_STATUSES:
        yield warn("gate/status_known", f"support_status {tier!r} is none of {', '.join(SUPPORT_STATUSES)}")


def _quality_evaluated(row: dict[str, Any], record: dict[str, Any], registries: Registries | None) -> Iterator[Finding]:
    mechanism, quality_id = row["mechanism"], row["quality_eval_id"]
    # Without registries nobody can tell what compresses: everything but a baseline is held to the rule.
    compresses = mechanism in registries.compression if registries else mechanism != BASELINE
    if compresses and row[SUPPORT_STATUS] == "supported":
        if row["quality_eval_status"] != "completed":
            status = row["quality_eval_status"] or "not given"
            yield warn("gate/quality_evaluated", f"supported {mechanism} needs a completed evaluation, it is {status}")
        if record["quality_eval_registered"] is not True:
            sentence = f"supported {mechanism} needs a registered evaluation, the row has {quality_id or 'none'}"
            yield warn("gate/quality_evaluated", sentence + _why(record))
    elif mechanism != BASELINE and quality_id is not None and record["quality_eval_registered"] is not True:
        sentence = f"quality_eval_id {quality_id!r} is not in the registry of quality evaluations"
        yield warn("gate/quality_evaluated", sentence + _why(record))


def _draft_model_declared(row: dict[str, Any], registries: Registries | None) -> Iterator[Finding]:
    speculative = registries.speculative if registries else frozenset({"speculative_decoding"})
    if row["mechanism"] in speculative:
        for name in ("draft_model_id", "speculative_acceptance_rate"):
            if row[name] is None:
                yield warn("gate/draft_model_declared", f"{row['mechanism']} needs {name}")


def _completed_passes(row: dict[str, Any], judged: JudgedRow) -> Iterator[Finding]:
    """A completed evaluation has to have its artefact, and that has to pass when it is derived again."""
    if row["quality_eval_status"] != "completed" or row["mechanism"] == BASELINE:
        return
    name = "gate/completed_evaluation_passes"
    ours = sorted({one.quality_eval for one in BENCHMARKS.values()})
    mine = judged.evidence.quality.evaluation if judged.evidence else None
    if row["quality_eval_id"] not in ([mine] if mine else ours):
        sentence = f"only {mine or ' or '.join(ours)} can be derived again here"
        yield warn(name, f"{sentence}, not {row['quality_eval_id'] or 'an unnamed one'}")
    elif judged.evidence is None:
        yield warn(name, "the row's run directory is not at hand, and its own word is no evidence")
    elif judged.evidence.quality.passed is None:
        yield warn(name, "the result has no accuracy leg")
    elif not judged.evidence.quality.passed:
        quality = judged.evidence.quality
        more = len(quality.failures) - 3
        sentence = "; ".join(quality.failures[:3]) + (f"; and {more} more" if more > 0 else "")
        yield fail(name, f"{quality.directory} does not pass: {sentence}")


def _evaluated_already(row: dict[str, Any], quality: QualityEvidence) -> Iterator[str]:
    """An accuracy leg that lies there while the declaration does not speak of it."""
    if row["mechanism"] != BASELINE and row["quality_eval_status"] != "completed" and quality.passed is not None:
        outcome = "passes" if quality.passed else f"does not pass: {quality.failures[0]}"
        yield f"quality_eval_status is {row['quality_eval_status']}, and {quality.directory} {outcome}"


def _eligible(division: Division | None, divisions: dict[str, dict[str, Any]]) -> Iterator[Finding]:
    """What the rules do not allow is refuted; what is not known for want of a record is only missing."""
    if division is None or divisions[division]["eligible"]:
        return
    known = divisions[division]["eligible"] is not None
    how = "not" if known else "not known to be"
    sentence = f"{how} in the {division} division: {divisions[division]['reason']}"
    yield (fail if known else warn)("gate/eligible_in_division", sentence)


def _why(record: dict[str, Any]) -> str:
    error = next((issue for issue in record["issues"] if issue.startswith("registry_load_error")), None)
    return f" ({error})" if error else ""
