"""The gate `mechanism_compression_quality`: may a row's number stand beside its declaration?

Four criteria judge the row itself; the others judge it against evidence, and a division. What evidence refutes closes
the gate always; what is only missing or not registered closes it with `strict`, and is advice without.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from compliance.finding import OURS, Finding, Verdict, decides, fail, warn
from compliance.mechanisms.declaration import (
    FIELD_NAMES,
    OF_TECHNIQUES,
    SUPPORT_STATUS,
    SUPPORT_STATUSES,
    declare,
    is_empty,
)
from compliance.mechanisms.engine_facts import facts_of_row, misdeclared
from compliance.mechanisms.row import CERTIFICATION, JudgedRow
from compliance.mechanisms.technique_registry import (
    BASELINE,
    NO_VARIANT,
    QUALITY_STATUSES,
    RECORD,
    Division,
    Registries,
    eligibility,
    validate,
)
from runs.benchmarks import BENCHMARKS
from runs.errors import ExitCode
from runs.store import odd_values
from runs.wording import counted, printable, shortened_list

GATE_ID = "mechanism_compression_quality"
GATE_LABEL = "Declared technique, its registration and its quality evaluation"
_ELIGIBLE = {True: "eligible", False: "no", None: "not known"}
_REFERENCE = ("run_id", "scenario", "lg_model_name", "mechanism", "mechanism_variant", "support_status")


@dataclass
class RowOutcome(Verdict):
    """What the gate found in one row: FAIL where evidence refutes the declaration, FLAG where it only lacks.

    `review` is for a person to look at; it closes nothing.
    """

    source: str
    row: dict[str, Any]
    review: list[str]
    divisions: dict[str, dict[str, Any]]

    @property
    def title(self) -> str:
        variant, scenario = self.row.get("mechanism_variant"), self.row.get("scenario")
        name = f"{self.row['mechanism']}{f'/{variant}' if variant else ''}"
        return f"{name}, {scenario}" if scenario else name

    @property
    def word(self) -> str:
        return "FAIL" if self.findings else "pass"

    @property
    def criteria(self) -> list[str]:
        """The criteria that the row does not meet."""
        return [f"{finding.rule}: {finding.sentence}" for finding in self.findings]

    def with_reference(self, **more: Any) -> dict[str, Any]:
        return {"source": self.source, **{name: self.row.get(name) for name in _REFERENCE}, **more}


@dataclass
class GateOutcome(Verdict):
    """The gate over all rows; its findings are theirs, and those on the rows together."""

    strict: bool
    matched: list[RowOutcome] = field(default_factory=list)
    division: Division | None = None
    not_matched: int = 0  # rows that declare no mechanism: results from before declarations
    missing_coverage: list[str] = field(default_factory=list)
    unexpected_coverage: list[str] = field(default_factory=list)

    @property
    def failing(self) -> list[RowOutcome]:
        return [row for row in self.matched if row.findings]

    @property
    def status(self) -> Literal["pass", "fail", "no_rows"]:
        if self.failing or self.missing_coverage:
            return "fail"
        return "pass" if self.matched else "no_rows"

    @property
    def closed(self) -> bool:
        """With `strict` nothing opens the gate but rows that pass, all of them."""
        return self.exit_code(strict=self.strict) is not ExitCode.OK

    def record(self, *, strict: bool = False) -> dict[str, Any]:
        """The report. `overall` is partial when no gate has rows to judge."""
        return super().record(strict=strict or self.strict) | {
            "schema_version": "1.0.0",
            "overall": {"no_rows": "partial"}.get(self.status, self.status),
            "closed": self.closed,
            "advisory": not self.strict,
            "division": self.division,
            "claim_boundary": CERTIFICATION,
            "rows_without_mechanism": self.not_matched,
            "gates": [
                {
                    "id": GATE_ID,
                    "label": GATE_LABEL,
                    "status": self.status,
                    "matched_rows": len(self.matched),
                    "failing_rows": [
                        row.with_reference(failed_criteria=row.criteria, refuted=row.outcome == "FAIL")
                        for row in self.failing
                    ],
                    "review_required_rows": [
                        row.with_reference(review=row.review) for row in self.matched if row.review
                    ],
                    "missing_coverage": self.missing_coverage,
                    "unexpected_coverage": self.unexpected_coverage,
                }
            ],
            "eligibility": [row.with_reference(**row.divisions) for row in self.matched],
        }

    def as_text(self) -> str:
        """Lines for a terminal: one a row, what speaks against it below, the outcome last."""
        lines = []
        for row in self.matched:
            lines += [f"{row.word}: {row.title}  ({row.source})", *row.finding_lines()]
            lines += [f"  review: {text}" for text in row.review]
            for division, found in row.divisions.items():
                lines.append(f"  {division} division: {_ELIGIBLE[found['eligible']]}, {found['reason']}")
        lines += [*self._coverage(), self._last_line()]
        return printable("\n".join(lines) + "\n", lines=True)

    def as_markdown(self) -> str:
        """The same as a page: a table of the rows, then what speaks against each."""
        table = [["row", "tier", "outcome", "closed", "open"], ["---"] * 5]
        lines = [f"# {GATE_ID}", "", self._last_line(), ""]
        for row in self.matched:
            divisions = [_ELIGIBLE[row.divisions[name]["eligible"]] for name in ("closed", "open")]
            table.append([row.title, str(row.row.get("support_status") or "–"), row.word, *divisions])
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in table]
        for row in self.matched:
            if found := row.criteria + [f"review: {text}" for text in row.review]:
                lines += ["", f"## {row.title}", "", row.source, "", *(f"- {sentence}" for sentence in found)]
        lines += ["", *(f"- {line}" for line in self._coverage())]
        return printable("\n".join(lines).rstrip() + "\n", lines=True)

    def _coverage(self) -> list[str]:
        lines = [f"missing: no row declares {pair}" for pair in self.missing_coverage]
        return lines + [f"unexpected: a row declares {pair}" for pair in self.unexpected_coverage]

    def _last_line(self) -> str:
        counts = f"{counted(len(self.matched), 'row')} judged, {len(self.failing)} failing"
        if self.not_matched:
            counts += f", {self.not_matched} without a declaration"
        how = "closed" if self.closed else "open (advice only; --strict closes it)"
        if not self.matched:
            how += ": nothing to judge"
        elif self.outcome == "PASS":
            how = "open"
        return f"gate {GATE_ID}: {how}; {counts}"


@decides(
    "gate",
    ("gate/rows_declared", "warning", OURS, "there are rows, and each declares a technique",
     "declare the technique of each row, or leave the row out"),
    ("gate/coverage", "warning", OURS, "the rows cover the techniques that were asked for",
     "add a row of the technique"),
)  # fmt: skip
def judge_rows(
    rows: Iterable[JudgedRow],
    registries: Registries,
    *,
    strict: bool = False,
    division: Division | None = None,
    expected: Iterable[str] = (),
) -> GateOutcome:
    """Apply the gate.

    Args:
        rows: of runs or of a file.
        registries: where they could not be read, a lossy row fails and a baseline passes.
        strict: every failure closes the gate.
        division: rows must be eligible there.
        expected: "mechanism/variant" pairs that the rows have to cover; empty = whatever is there.
    """
    every = list(rows)
    declared = [judged for judged in every if not is_empty(judged.row.get("mechanism"))]
    outcome = GateOutcome(strict, [judge_row(judged, registries, division) for judged in declared], division)
    outcome.findings = [finding for row in outcome.matched for finding in row.findings]
    outcome.not_matched = len(every) - len(declared)
    if not declared or outcome.not_matched:
        said = f"{counted(outcome.not_matched, 'row')} of {len(every)} without a declaration"
        outcome.findings.append(warn("gate/rows_declared", said))
    if wanted := set(expected):
        there = {_pair(one.row) for one in outcome.matched}
        outcome.missing_coverage = sorted(wanted - there)
        outcome.unexpected_coverage = sorted(there - wanted)
        outcome.findings += [warn("gate/coverage", f"no row declares {pair}") for pair in outcome.missing_coverage]
    return outcome


_DECLARE = "correct the declaration, or run the legs again with the technique that it names"


@decides(
    "gate",
    ("gate/pair_registered", "warning", OURS, "technique and variant are in the registry", _DECLARE),
    ("gate/status_known", "warning", OURS, "both statuses are known values", _DECLARE),
    ("gate/quality_evaluated", "warning", OURS, "a supported compression has a registered evaluation",
     "evaluate the quality of the technique, and name the evaluation"),
    ("gate/draft_model_declared", "warning", OURS, "speculative decoding names its draft model", _DECLARE),
    ("gate/completed_evaluation_passes", "error", OURS, "a completed evaluation passes when derived again",
     "give the accuracy leg as it ran, or run it again"),
    ("gate/eligible_in_division", "error", "[rules] closed and open division", "the division allows the technique",
     "choose the open division, or run without the technique"),
    ("gate/run_verified", "error", OURS, "the files are those of a finished run and agree with each other",
     "run the leg again"),
    ("gate/engine_record_missing", "warning", OURS, "the engine's record says what was in force",
     "run the leg again with an engine that records its configuration"),
)  # fmt: skip
def judge_row(judged: JudgedRow, registries: Registries, division: Division | None = None) -> RowOutcome:
    """Apply every criterion to one row that declares a mechanism."""
    declared = declare({name: judged.row.get(name) for name in FIELD_NAMES})
    row = {**judged.row, **declared.values}
    record = validate(row, registries)
    evidence = judged.evidence
    engine = evidence.engine if evidence else facts_of_row(judged.row)
    lossy = {mechanism for mechanism, _ in engine.in_force}
    recorded = evidence is not None and not engine.gaps  # a row's own columns are no evidence
    divisions = eligibility(row["mechanism"], evidence.quality.passed if evidence else None, lossy, recorded=recorded)
    failures = [warn(f"gate/{slug}", sentence) for slug, sentence in _incomplete(row, record, registries)]
    failures += [fail("gate/mechanism_misdeclared", sentence) for sentence in misdeclared(row, engine)]
    failures += _completed_without_evidence(row, judged)
    if division is not None and not divisions[division]["eligible"]:
        not_known = divisions[division]["eligible"] is None  # for want of a record: only missing, not refuted
        how = "not known to be" if not_known else "not"
        sentence = f"{how} in the {division} division: {divisions[division]['reason']}"
        failures.append((warn if not_known else fail)("gate/eligible_in_division", sentence))
    review = [*declared.issues]
    if evidence is None:
        failures += _row_alone(judged.row)
        review += engine.gaps
    else:  # a run directory has to show a run, and what it ran with
        if evidence.broken is not None:
            failures.append(fail("gate/run_verified", evidence.broken))
        failures += [warn("gate/engine_record_missing", gap) for gap in engine.gaps]
        review += judged.row[RECORD]["issues"]
        quality = evidence.quality  # an accuracy leg that the declaration does not speak of
        if quality.passed is not None and row["mechanism"] != BASELINE and row["quality_eval_status"] != "completed":
            outcome = "passes" if quality.passed else f"does not pass: {quality.failures[0]}"
            review.append(f"quality_eval_status is {row['quality_eval_status']}, and {quality.directory} {outcome}")
    sentences = " ".join(finding.sentence for finding in failures)
    review += [issue for issue in record["issues"] if issue not in sentences]
    return RowOutcome(judged.source, row, list(dict.fromkeys(review)), divisions, findings=failures)


def _pair(row: dict[str, Any]) -> str:
    return f"{row.get('mechanism')}/{row.get('mechanism_variant') or NO_VARIANT}"


def _incomplete(row: dict[str, Any], record: dict[str, Any], registries: Registries) -> Iterator[tuple[str, str]]:
    """What the declaration by itself lacks: the criterion, and a sentence."""
    mechanism, quality_id, status = row["mechanism"], row["quality_eval_id"], row["quality_eval_status"]
    unread = next((f" ({issue})" for issue in record["issues"] if issue.startswith("registry_load_error")), "")
    if mechanism == BASELINE:
        for name in OF_TECHNIQUES:
            if row[name] not in (None, NO_VARIANT):
                yield "pair_registered", f"a baseline has no {name}, the row says {row[name]!r}"
    elif record["mechanism_eval_registered"] is not True:
        yield "pair_registered", f"{_pair(row)} is not in the registry of mechanisms{unread}"
    for name, known in (("quality_eval_status", QUALITY_STATUSES), (SUPPORT_STATUS, SUPPORT_STATUSES)):
        if row.get(name) is not None and row[name] not in known:
            yield "status_known", f"{name} {row[name]!r} is none of {', '.join(known)}"
    registered = record["quality_eval_registered"] is True
    if registries.compresses(mechanism) and row.get(SUPPORT_STATUS) == "supported":
        needs = f"supported {mechanism} needs a"
        if status != "completed":
            yield "quality_evaluated", f"{needs} completed evaluation, it is {status or 'not given'}"
        if not registered:
            yield "quality_evaluated", f"{needs} registered evaluation, the row has {quality_id or 'none'}{unread}"
    elif mechanism != BASELINE and quality_id is not None and not registered:
        sentence = f"quality_eval_id {quality_id!r} is not in the registry of quality evaluations{unread}"
        yield "quality_evaluated", sentence
    for name in ("draft_model_id", "speculative_acceptance_rate"):
        if registries.drafts(mechanism) and row[name] is None:
            yield "draft_model_declared", f"{mechanism} needs {name}"


def _row_alone(row: dict[str, Any]) -> Iterator[Finding]:
    """What a row without files says of its run, and values that no store has written."""
    for name, good in (("status", "success"), ("certification", CERTIFICATION)):
        if (value := row.get(name, good)) != good:
            sentence = f"the row has {name} {str(value)[:40]}, of a finished run it is {good}"
            # None: a row from before there was such a column
            yield (warn if value is None else fail)("gate/run_verified", sentence)
    for sentence in odd_values(row, FIELD_NAMES):
        yield warn("gate/run_verified", sentence)


def _completed_without_evidence(row: dict[str, Any], judged: JudgedRow) -> Iterator[Finding]:
    """A completed evaluation has to have its files, and they have to pass when scored again."""
    if row["quality_eval_status"] != "completed" or row["mechanism"] == BASELINE:
        return
    rule = "gate/completed_evaluation_passes"
    quality = judged.evidence.quality if judged.evidence else None
    own = quality.evaluation if quality else None
    known = {own} if own else {one.quality_eval for one in BENCHMARKS.values()}
    if row["quality_eval_id"] not in known:
        sentence = f"only {' or '.join(sorted(known))} can be derived again here"
        yield warn(rule, f"{sentence}, not {row['quality_eval_id'] or 'an unnamed one'}")
    elif quality is None:
        yield warn(rule, "the row's run directory is not available, and the row alone is no evidence")
    elif quality.passed is None:
        yield warn(rule, "the result has no accuracy leg")
    elif not quality.passed:
        yield fail(rule, f"{quality.directory} does not pass: {shortened_list(quality.failures, 3)}")
