"""The gate `mechanism_compression_quality`: rules on the declared technique of a row and its quality evaluation.

Some rules check the declaration alone, others compare it with evidence and with a division. Contradicting evidence
always closes the gate, and so does a supported compression without a shown quality evaluation. Other missing evidence
and unregistered names close it with `strict` only.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from compliance.judge.check import WITHOUT_INPUT, Need, check_of, decides, judge
from compliance.judge.finding import Finding, Severity, compared
from compliance.judge.rule import OURS
from compliance.judge.text import by_severity, finding_lines, not_judged_lines
from compliance.judge.verdict import Verdict
from compliance.techniques.declaration import (
    FIELD_NAMES,
    QUALITY_BASELINE,
    QUALITY_RESULTS,
    SUPPORT_STATUS,
    Declaration,
    declaration_of,
    is_empty,
)
from compliance.techniques.declaration_rules import VALIDATION, check_declaration, claims_support
from compliance.techniques.engine_facts import EngineFacts, facts_of_row, misdeclared
from compliance.techniques.evaluation import ATTACHED, COMPLETED, Evaluation, check_evaluation, no_evaluation
from compliance.techniques.row import CERTIFICATION, TechniqueRow
from compliance.techniques.technique_registry import GateDivision, Registries, eligibility
from runs.errors import ExitCode
from runs.record.technique import BASELINE, pair_of
from runs.store_columns import odd_values
from runs.wording import counted, printable

GATE_ID = "mechanism_compression_quality"
GATE_LABEL = "Declared technique, its registration and its quality evaluation"
# Rules that a row must meet if it declares its technique as supported, in the gate and in the result store.
_OF_SUPPORT = frozenset({"gate/quality_evaluated", COMPLETED, "gate/mechanism_misdeclared"})
_ALLOWED = {True: "technique allowed", False: "technique not allowed", None: "unknown"}
_REFERENCE = ("run_id", "scenario", "lg_model_name", "mechanism", "mechanism_variant", "support_status")


@dataclass
class RowOutcome(Verdict):
    """The verdict on a row: FAIL if it violates a rule of the gate, FLAG if facts are missing."""

    strict: bool
    source: str
    file: Path  # file with the declaration
    row: dict[str, Any]
    divisions: dict[str, dict[str, Any]]
    evaluation: Evaluation

    @property
    def title(self) -> str:
        variant, scenario = self.row.get("mechanism_variant"), self.row.get("scenario")
        name = f"{self.row['mechanism']}{f'/{variant}' if variant else ''}"
        return f"{name}, {scenario}" if scenario else name

    @property
    def failed(self) -> list[Finding]:
        """The findings that close the gate."""
        return self.of("error", "warning") if self.strict else self.of("error")

    @property
    def to_review(self) -> list[Finding]:
        """The findings that need a review and do not close the gate."""
        return self.of("note") if self.strict else self.of("warning", "note")

    @property
    def word(self) -> str:
        return "FAIL" if self.failed else "warning" if self.of("warning") else "pass"

    def with_other_files(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Yield the findings without the row's own file, because the report names this file once for the row."""
        return (replace(one, files=()) if one.files == (self.file,) else one for one in findings)

    def with_reference(self, **more: Any) -> dict[str, Any]:
        return {"source": self.source, **{name: self.row.get(name) for name in _REFERENCE}, **more}


@dataclass
class GateOutcome(Verdict):
    """The verdict on all rows. Findings on a single row are in the verdict on that row."""

    strict: bool
    matched: list[RowOutcome] = field(default_factory=list)
    division: GateDivision | None = None
    not_matched: int = 0  # number of rows that declare no technique

    @property
    def members(self) -> Sequence[Verdict]:
        return self.matched

    def _pairs(self, severity: Severity) -> list[str]:
        return [one.numbers["pair"] for one in self.of(severity) if one.rule == "gate/coverage"]

    @property
    def missing_coverage(self) -> list[str]:
        """Expected techniques (--expect) that no row declares."""
        return self._pairs("error")

    @property
    def unexpected_coverage(self) -> list[str]:
        return self._pairs("note")

    @property
    def failing(self) -> list[RowOutcome]:
        return [row for row in self.matched if row.failed]

    @property
    def status(self) -> Literal["pass", "fail", "no_rows"]:
        if self.matched or self.missing_coverage:
            return "fail" if self.closed else "pass"
        return "no_rows"

    @property
    def closed(self) -> bool:
        """True if the gate is closed. With `strict`, it is also closed if a row has the verdict FLAG."""
        return self.exit_code(strict=self.strict) is not ExitCode.OK

    def record(self, *, strict: bool = False) -> dict[str, Any]:
        """Return the report in plain types. `overall` is `partial` if no row declares a technique."""
        return super().record(strict=strict or self.strict) | {
            "schema_version": "1.0.0",
            "findings": [finding.as_json() for one in (*self.matched, self) for finding in one.findings],
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
                        row.with_reference(failed_criteria=_texts(row.failed), refuted=row.outcome == "FAIL")
                        for row in self.failing
                    ],
                    "review_required_rows": [
                        row.with_reference(review=[one.sentence for one in notes])
                        for row in self.matched
                        if (notes := row.to_review)
                    ],
                    "missing_coverage": self.missing_coverage,
                    "unexpected_coverage": self.unexpected_coverage,
                }
            ],
            "eligibility": [row.with_reference(**row.divisions) for row in self.matched],
            "evaluations": [row.with_reference(**row.evaluation.record()) for row in self.matched],
        }

    def as_text(self) -> str:
        """Return the report as text: each row with its findings, then the outcome."""
        lines = []
        for row in self.matched:
            lines += [
                f"{row.word}: {row.title}  ({row.source})",
                *finding_lines(row, row.with_other_files(by_severity(row)), with_place=True),
                *not_judged_lines(row),
                *([f"  quality evaluation: {row.evaluation.text}"] if row.evaluation.how else []),
            ]
            for division, state in row.divisions.items():
                why = "" if state["eligible"] else f": {state['reason']}"
                lines.append(f"  {division} division: {_ALLOWED[state['eligible']]}{why}")
        lines += [*finding_lines(self, by_severity(self), with_place=True), self._last_line()]
        return printable("\n".join(lines) + "\n", lines=True)

    def as_markdown(self) -> str:
        """Return a table of the rows and the findings on each row, as Markdown."""
        table = [["row", "tier", "quality evaluation", "outcome", "closed", "open"], ["---"] * 6]
        lines = [f"# {GATE_ID}", "", self._last_line(), ""]
        for row in self.matched:
            divisions = [_ALLOWED[row.divisions[name]["eligible"]] for name in ("closed", "open")]
            shown = (row.row.get("support_status"), row.evaluation.how)
            table.append([row.title, *(str(cell or "–") for cell in shown), row.word, *divisions])
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in table]
        for row in self.matched:
            if row.findings:
                texts = _texts(row.of("error", "warning", "note"))
                lines += ["", f"## {row.title}", "", row.source, "", *(f"- {sentence}" for sentence in texts)]
        lines += ["", *(f"- {sentence}" for sentence in _texts(self.findings))]
        return printable("\n".join(lines).rstrip() + "\n", lines=True)

    def _last_line(self) -> str:
        counts = f"{counted(len(self.matched), 'row')} checked, {len(self.failing)} failing"
        if self.not_matched:
            counts += f", {self.not_matched} without a declaration"
        how = "closed" if self.closed else "open (with --strict: closed)"
        if not self.matched:
            how += ": no rows to check"
        elif self.outcome == "PASS":
            how = "open"
        return f"gate {GATE_ID}: {how}; {counts}"


def _texts(findings: list[Finding]) -> list[str]:
    return [f"{finding.rule}: {finding.sentence}" for finding in findings]


@dataclass(frozen=True)
class RowEvidence:
    """A row that declares a technique, with the registries and the division for its check."""

    judged: TechniqueRow
    registries: Registries
    division: GateDivision | None  # division in which the row must be eligible

    def absent(self, need: Need) -> str:
        """Return the reason why a part is missing; empty if it is available."""
        is_absent = need == "files" and self.judged.quality is None
        return "the row's run directory is not available" if is_absent else ""

    @cached_property
    def declared(self) -> Declaration:
        return declaration_of(
            {name: self.judged.row.get(name) for name in (*FIELD_NAMES, QUALITY_RESULTS, QUALITY_BASELINE)}
        )

    @cached_property
    def row(self) -> dict[str, Any]:
        """The row with its technique as corrected from the files."""
        return {**self.judged.row, **self.declared.values, "mechanism": self.declared.mechanism}

    @cached_property
    def engine(self) -> EngineFacts:
        return self.judged.engine or facts_of_row(self.judged.row)

    @cached_property
    def evaluation(self) -> Evaluation:
        return check_evaluation(self.row, self.declared, self.judged.quality, self.registries)

    @cached_property
    def divisions(self) -> dict[str, dict[str, Any]]:
        """The eligibility of the row in each division."""
        # The columns of a row do not count as evidence, because only files prove them.
        recorded = self.judged.engine is not None and not self.engine.gaps
        lossy, quality = {mechanism for mechanism, _ in self.engine.in_force}, self.judged.quality
        passed = quality.passed if quality is not None else None
        return eligibility(self.row["mechanism"], passed, lossy, recorded=recorded)


@dataclass(frozen=True)
class RowsEvidence:
    """All rows of a gate."""

    declared: list[dict[str, Any]]
    undeclared: int
    expected: frozenset[str]  # pairs "mechanism/variant"

    def absent(self, _: Need) -> str:
        return ""


def judge_rows(
    rows: Iterable[TechniqueRow],
    registries: Registries,
    *,
    strict: bool = False,
    division: GateDivision | None = None,
    expected: Iterable[str] = (),
) -> GateOutcome:
    """Apply the gate.

    Args:
        rows: rows of runs or of a file. A row with a run's files but without a technique is a baseline.
        registries: techniques and evaluations; if they are unreadable, a lossy row fails and a baseline passes.
        strict: True if every violated rule closes the gate.
        division: division in which rows must be eligible.
        expected: "mechanism/variant" pairs that the rows must include; empty for any pairs.
    """
    all_rows = list(rows)
    declared = [judged for judged in all_rows if judged.engine or not is_empty(judged.row.get("mechanism"))]
    matched = [_judge_row(RowEvidence(judged, registries, division), strict=strict) for judged in declared]
    not_matched = len(all_rows) - len(declared)
    judgement = judge(RowsEvidence([one.row for one in matched], not_matched, frozenset(expected)), ROWS_CHECKS)
    not_judged = [replace(one, results=(row.title,)) for row in matched for one in row.not_judged]
    return GateOutcome(strict, matched, division, not_matched, findings=judgement.findings, not_judged=not_judged)


def _judge_row(evidence: RowEvidence, *, strict: bool = False) -> RowOutcome:
    judgement = judge(evidence, ROW_CHECKS)
    not_judged = [one for one in judgement.not_judged if one.what == WITHOUT_INPUT]
    file = evidence.judged.file
    findings = [one if one.files else replace(one, files=(file,)) for one in judgement.findings]
    return RowOutcome(
        strict,
        evidence.judged.source,
        file,
        evidence.row,
        evidence.divisions,
        evidence.evaluation,
        findings=findings,
        not_judged=not_judged,
    )


def stored_row(judged: TechniqueRow, registries: Registries) -> dict[str, Any]:
    """Return a row for the result store. The row claims no more than its files show.

    Support that the gate does not confirm becomes a reviewed preview, with the reason in `support_status_reason`. A row
    whose technique contradicts the engine has no certification.
    """
    outcome = _judge_row(RowEvidence(judged, registries, None))
    results, refuted = outcome.evaluation.results, [one for one in outcome.of("error") if one.rule in _OF_SUPPORT]
    row = judged.row | {
        "quality_evidence": outcome.evaluation.how,
        "quality_results_sha256": results and results.sha256,
        "support_status_reason": None,
        "evidence": judged.row["evidence"] | {"evaluation": outcome.evaluation.record()},
    }
    if refuted and claims_support(row):
        row[SUPPORT_STATUS] = "reviewed_preview"
        row["support_status_reason"] = "; ".join(f"{one.rule}: {one.sentence}" for one in refuted)
    if any(one.rule == "gate/mechanism_misdeclared" for one in refuted):
        row["certification"] = None
    return row


@decides(
    "gate",
    ("gate/eligible_in_division", "error", "[rules] closed and open division", "eligibility in the division",
     "choose the open division, or repeat the run without the technique"),
    applies=lambda of: "" if of.division else "--division was not given",
)  # fmt: skip
def _eligible(evidence: RowEvidence) -> Iterator[Finding]:
    eligibility = evidence.divisions[str(evidence.division)]
    if not eligibility["eligible"]:
        is_known = eligibility["eligible"] is not None
        subject, why = (
            f"eligible in the {evidence.division} division",
            f"{'no' if is_known else 'unknown'} ({eligibility['reason']})",
        )
        severity: Severity = "error" if is_known else "warning"
        yield compared(
            "gate/eligible_in_division", False, why, "yes", text=subject, severity=severity, division=evidence.division
        )


@decides(
    "gate",
    ("gate/run_verified", "error", OURS, "status of the run and agreement of its files",
     "rerun"),
)  # fmt: skip
def _verified(evidence: RowEvidence) -> Iterator[Finding]:
    """Check that the run finished and its files agree. For a row without files, check its columns."""
    rule, row = "gate/run_verified", evidence.judged.row
    if evidence.judged.quality is not None:
        if evidence.judged.invalid is not None:
            subject, shown, required = evidence.judged.invalid
            yield compared(rule, False, shown, required, text=subject)
        return
    for name, good in (("status", "success"), ("certification", CERTIFICATION)):
        if (value := row.get(name, good)) != good:
            # None: a row of an earlier version, which has no such column
            severity: Severity = "warning" if value is None else "error"
            yield compared(rule, False, str(value)[:40], good, text=f"{name} of the row", severity=severity, field=name)
    for sentence in odd_values(row, FIELD_NAMES):
        yield compared(
            rule, False, sentence, "a value of the type of the column", text="value of the row", severity="warning"
        )


@decides(
    "gate",
    ("gate/engine_record_missing", "warning", OURS, "missing parts of the recorded engine configuration",
     "repeat the run with an engine that reports its configuration"),
    needs=("files",),
)  # fmt: skip
def _recorded(evidence: RowEvidence) -> Iterable[Finding]:
    required = "the engine configuration in manifest.json and engine.log"
    rule, subject = "gate/engine_record_missing", "recorded engine configuration"
    return (compared(rule, False, gap, required, text=subject) for gap in evidence.engine.gaps)


@decides("gate", also=("gate/review",))
def _review(evidence: RowEvidence) -> Iterator[Finding]:
    """Yield the parts of the declaration that a person should review."""
    quality, status = evidence.judged.quality, evidence.row["quality_eval_status"]
    issues = [*evidence.declared.issues, *([] if quality is None else evidence.judged.row[VALIDATION]["issues"])]
    issues += [evidence.registries.error] if evidence.registries.error else []
    reported = {one.sentence for one in check_declaration(evidence.row, evidence.registries)}
    for issue in dict.fromkeys(issues):
        if issue not in reported:
            required = "values that fit their fields, the registries and the manifest"
            yield compared("gate/review", False, issue, required, text="declaration")
    for gap in evidence.engine.gaps if quality is None else ():
        yield compared(
            "gate/review",
            False,
            gap,
            "kv_cache_dtype, quantization or speculative",
            text="recorded engine configuration",
        )
    if quality is not None and quality.directory and evidence.row["mechanism"] != BASELINE:
        outcome = "passes" if quality.passed else f"does not pass: {quality.reasons[0]}"
        subject = f"rescored accuracy run {quality.directory}"
        if status != "completed" or (evidence.evaluation.how == ATTACHED and not quality.passed):
            yield compared(
                "gate/review", False, outcome, f"as quality_eval_status declares: {status or 'missing'}", text=subject
            )


@decides(
    "gate",
    ("gate/rows_declared", "warning", OURS, "rows without a declared technique",
     "declare the technique of each row, or remove the row"),
)  # fmt: skip
def _rows_declared(evidence: RowsEvidence) -> Iterator[Finding]:
    if evidence.undeclared or not evidence.declared:
        count = len(evidence.declared) + evidence.undeclared
        share, required = f"{evidence.undeclared} of {count}", "0, and at least 1 row"
        yield compared("gate/rows_declared", False, share, required, text="rows without a declaration")


@decides(
    "gate",
    ("gate/coverage", "error", OURS, "techniques of the rows, compared with --expect",
     "add a row of the technique"),
    applies=lambda of: "" if of.expected else "--expect was not given",
)  # fmt: skip
def _coverage(evidence: RowsEvidence) -> Iterator[Finding]:
    pairs = {"/".join(pair_of(row)) for row in evidence.declared}
    for pair in sorted(evidence.expected - pairs):
        yield compared("gate/coverage", False, "missing", "at least 1 row", text=f"row of {pair}", pair=pair)
    for pair in sorted(pairs - evidence.expected):
        yield compared(
            "gate/coverage",
            False,
            "given",
            "only techniques of --expect",
            text=f"row of {pair}",
            severity="note",
            pair=pair,
        )


# The checks, in the order of their findings.
ROW_CHECKS = (
    check_of(lambda of: check_declaration(of.row, of.registries), check_declaration),
    check_of(lambda of: misdeclared(of.row, of.engine), misdeclared),
    check_of(lambda of: of.evaluation.findings, check_evaluation, applies=lambda of: no_evaluation(of.row)),
    *map(check_of, (_eligible, _verified, _recorded, _review)),
)
ROWS_CHECKS = tuple(map(check_of, (_rows_declared, _coverage)))
