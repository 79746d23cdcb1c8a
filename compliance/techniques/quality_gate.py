"""The gate `mechanism_compression_quality`: rules on the declared technique of a row and its quality evaluation.

Some rules check the declaration alone, others compare it with evidence and with a division. Contradicting evidence
always closes the gate, and so does a supported compression without a shown quality evaluation. Other missing evidence
and unregistered names close it with `strict` only.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from compliance.judge.record import not_applied_record
from compliance.judge.rule import OURS, Need, check_of, decides
from compliance.judge.text import TextLayout, by_severity, text
from compliance.judge.verdict import Finding, Policy, Severity, Subject, Verdict, compared, judge, not_applied
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
_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note", "pass")
_ALLOWED = {True: "technique allowed", False: "technique not allowed", None: "unknown"}
_REFERENCE = ("run_id", "scenario", "lg_model_name", "mechanism", "mechanism_variant", "support_status")


@dataclass
class RowDetails:
    """What the gate states of a row besides the findings. A row has the verdict FLAG if facts are missing."""

    source: str
    file: Path  # file with the declaration
    row: dict[str, Any]
    divisions: dict[str, dict[str, Any]]
    evaluation: Evaluation

    def with_reference(self, **more: Any) -> dict[str, Any]:
        return {"source": self.source, **{name: self.row.get(name) for name in _REFERENCE}, **more}

    def as_json(self, verdict: "RowVerdict", common: dict[str, Any]) -> dict[str, Any]:
        return common


@dataclass
class GateDetails:
    """What the gate states of all rows. Findings on a single row are in the verdict on that row."""

    strict: bool
    division: GateDivision | None = None
    not_matched: int = 0  # number of rows that declare no technique

    def as_json(self, verdict: "GateVerdict", common: dict[str, Any]) -> dict[str, Any]:
        """Return the report in plain types. `overall` is `partial` if no row declares a technique."""
        rows, status = verdict.parts, gate_status(verdict)
        entries = [(entry, row.name) for row in rows for entry in not_applied(row) if entry.lacks_input]
        return common | {
            "schema_version": "1.0.0",
            "exit_code": int(gate_exit_code(verdict)),
            "not_judged": [not_applied_record(entry, name) for entry, name in entries],
            "overall": {"no_rows": "partial"}.get(status, status),
            "closed": is_closed(verdict),
            "advisory": not self.strict,
            "division": self.division,
            "claim_boundary": CERTIFICATION,
            "rows_without_mechanism": self.not_matched,
            "gates": [
                {
                    "id": GATE_ID,
                    "label": GATE_LABEL,
                    "status": status,
                    "matched_rows": len(rows),
                    "failing_rows": [
                        row.details.with_reference(failed_criteria=_texts(failed), refuted=row.outcome == "FAIL")
                        for row in rows
                        if (failed := closing_findings(row, self.strict))
                    ],
                    "review_required_rows": [
                        row.details.with_reference(review=[note.sentence for note in notes])
                        for row in rows
                        if (notes := row.of("note") if self.strict else row.of("warning", "note"))
                    ],
                    "missing_coverage": _pairs(verdict, "error"),
                    "unexpected_coverage": _pairs(verdict, "note"),
                }
            ],
            "eligibility": [row.details.with_reference(**row.details.divisions) for row in rows],
            "evaluations": [row.details.with_reference(**row.details.evaluation.record()) for row in rows],
        }


RowVerdict = Verdict[RowDetails]
GateVerdict = Verdict[GateDetails]


def closing_findings(row: RowVerdict, strict: bool) -> list[Finding]:
    """Return the findings on a row that close the gate."""
    return row.of("error", "warning") if strict else row.of("error")


def _pairs(verdict: GateVerdict, severity: Severity) -> list[str]:
    """Return the expected techniques (--expect) that no row declares, or with "note" the unexpected techniques."""
    return [
        finding.numbers["pair"]
        for finding in verdict.findings
        if finding.rule == "gate/coverage" and finding.severity == severity
    ]


def gate_status(verdict: GateVerdict) -> Literal["pass", "fail", "no_rows"]:
    """Return the status of the gate."""
    if verdict.parts or _pairs(verdict, "error"):
        return "fail" if is_closed(verdict) else "pass"
    return "no_rows"


def gate_exit_code(verdict: GateVerdict) -> ExitCode:
    """Return the exit code. With `strict`, it is also negative if a row has the verdict FLAG."""
    return verdict.exit_code(strict=verdict.details.strict)


def is_closed(verdict: GateVerdict) -> bool:
    """Return True if the gate is closed."""
    return gate_exit_code(verdict) is not ExitCode.OK


def _word(row: RowVerdict, strict: bool) -> str:
    return "FAIL" if closing_findings(row, strict) else "warning" if row.of("warning") else "pass"


def gate_text(verdict: GateVerdict) -> str:
    """Return the report as text: each row with its findings, then the outcome."""
    strict = verdict.details.strict
    row_layout = TextLayout(
        lambda row: (f"{_word(row, strict)}: {row.name}  ({row.details.source})",),
        shown=_findings_on_row,
        with_place=True,
        tail=_row_tail,
    )
    return text(
        verdict,
        TextLayout(
            part=row_layout,
            shown=lambda gate: sorted(gate.findings, key=lambda finding: _SEVERITIES.index(finding.severity)),
            with_place=True,
            with_not_applied=False,
            tail=lambda gate: (_last_line(gate),),
        ),
    )


def _findings_on_row(row: RowVerdict) -> Iterator[Finding]:
    """Yield the findings, most severe first, without the row's own file, which the first line names."""
    own_file = (row.details.file,)
    return (replace(finding, files=()) if finding.files == own_file else finding for finding in by_severity(row))


def _row_tail(row: RowVerdict) -> Iterator[str]:
    if row.details.evaluation.how:
        yield f"  quality evaluation: {row.details.evaluation.text}"
    for division, state in row.details.divisions.items():
        why = "" if state["eligible"] else f": {state['reason']}"
        yield f"  {division} division: {_ALLOWED[state['eligible']]}{why}"


def gate_markdown(verdict: GateVerdict) -> str:
    """Return a table of the rows and the findings on each row, as Markdown."""
    table = [["row", "tier", "quality evaluation", "outcome", "closed", "open"], ["---"] * 6]
    lines = [f"# {GATE_ID}", "", _last_line(verdict), ""]
    for row in verdict.parts:
        details = row.details
        divisions = [_ALLOWED[details.divisions[name]["eligible"]] for name in ("closed", "open")]
        shown = (details.row.get("support_status"), details.evaluation.how)
        cells = [row.name, *(str(cell or "–") for cell in shown), _word(row, verdict.details.strict), *divisions]
        table.append(cells)
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in table]
    for row in verdict.parts:
        if row.findings:
            texts = _texts(row.of("error", "warning", "note"))
            lines += ["", f"## {row.name}", "", row.details.source, "", *(f"- {sentence}" for sentence in texts)]
    lines += ["", *(f"- {sentence}" for sentence in _texts(verdict.findings))]
    return printable("\n".join(lines).rstrip() + "\n", lines=True)


def _last_line(verdict: GateVerdict) -> str:
    rows, strict = verdict.parts, verdict.details.strict
    counts = f"{counted(len(rows), 'row')} checked, {sum(bool(closing_findings(row, strict)) for row in rows)} failing"
    if verdict.details.not_matched:
        counts += f", {verdict.details.not_matched} without a declaration"
    how = "closed" if is_closed(verdict) else "open (with --strict: closed)"
    if not rows:
        how += ": no rows to check"
    elif verdict.outcome == "PASS":
        how = "open"
    return f"gate {GATE_ID}: {how}; {counts}"


def _texts(findings: list[Finding]) -> list[str]:
    return [f"{finding.rule}: {finding.sentence}" for finding in findings]


@dataclass(frozen=True)
class RowEvidence(Subject):
    """A row that declares a technique, with the registries and the division for its check."""

    judged: TechniqueRow
    registries: Registries
    division: GateDivision | None  # division in which the row must be eligible

    kind = "row"

    @property
    def name(self) -> str:
        variant, scenario = self.row.get("mechanism_variant"), self.row.get("scenario")
        name = f"{self.row['mechanism']}{f'/{variant}' if variant else ''}"
        return f"{name}, {scenario}" if scenario else name

    def absent(self, need: Need) -> str:
        if need != "files":
            return super().absent(need)
        return "the row's run directory is not available" if self.judged.quality is None else ""

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
class RowsEvidence(Subject):
    """All rows of a gate."""

    rows: list[RowEvidence]
    undeclared: int
    expected: frozenset[str]  # pairs "mechanism/variant"
    strict: bool
    division: GateDivision | None

    kind = "rows"

    @property
    def parts(self) -> Sequence[RowEvidence]:
        return self.rows


def judge_rows(
    rows: Iterable[TechniqueRow],
    registries: Registries,
    *,
    strict: bool = False,
    division: GateDivision | None = None,
    expected: Iterable[str] = (),
) -> GateVerdict:
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
    subjects = [RowEvidence(judged, registries, division) for judged in declared]
    return judge(RowsEvidence(subjects, len(all_rows) - len(declared), frozenset(expected), strict, division), GATE)


def stored_row(judged: TechniqueRow, registries: Registries) -> dict[str, Any]:
    """Return a row for the result store. The row claims no more than its files show.

    Support that the gate does not confirm becomes a reviewed preview, with the reason in `support_status_reason`. A row
    whose technique contradicts the engine has no certification.
    """
    verdict: RowVerdict = judge(RowEvidence(judged, registries, None), GATE)
    evaluation, refuted = (
        verdict.details.evaluation,
        [finding for finding in verdict.of("error") if finding.rule in _OF_SUPPORT],
    )
    row = judged.row | {
        "quality_evidence": evaluation.how,
        "quality_results_sha256": evaluation.results and evaluation.results.sha256,
        "support_status_reason": None,
        "evidence": judged.row["evidence"] | {"evaluation": evaluation.record()},
    }
    if refuted and claims_support(row):
        row[SUPPORT_STATUS] = "reviewed_preview"
        row["support_status_reason"] = "; ".join(f"{finding.rule}: {finding.sentence}" for finding in refuted)
    if any(finding.rule == "gate/mechanism_misdeclared" for finding in refuted):
        row["certification"] = None
    return row


@decides(
    "gate",
    ("gate/eligible_in_division", "error", "[rules] closed and open division", "eligibility in the division",
     "choose the open division, or repeat the run without the technique"),
    applies=lambda subject: "" if subject.division else "--division was not given",
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
    reported = {finding.sentence for finding in check_declaration(evidence.row, evidence.registries)}
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
    if evidence.undeclared or not evidence.rows:
        count = len(evidence.rows) + evidence.undeclared
        share, required = f"{evidence.undeclared} of {count}", "0, and at least 1 row"
        yield compared("gate/rows_declared", False, share, required, text="rows without a declaration")


@decides(
    "gate",
    ("gate/coverage", "error", OURS, "techniques of the rows, compared with --expect",
     "add a row of the technique"),
    applies=lambda subject: "" if subject.expected else "--expect was not given",
)  # fmt: skip
def _coverage(evidence: RowsEvidence) -> Iterator[Finding]:
    pairs = {"/".join(pair_of(subject.row)) for subject in evidence.rows}
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
    check_of(lambda subject: check_declaration(subject.row, subject.registries), check_declaration),
    check_of(lambda subject: misdeclared(subject.row, subject.engine), misdeclared),
    check_of(
        lambda subject: subject.evaluation.findings,
        check_evaluation,
        applies=lambda subject: no_evaluation(subject.row),
    ),
    *map(check_of, (_eligible, _verified, _recorded, _review)),
)
ROWS_CHECKS = tuple(map(check_of, (_rows_declared, _coverage)))


def _with_file(subject: RowEvidence | RowsEvidence, findings: list[Finding]) -> list[Finding]:
    """Return the findings on a row, each with a file."""
    if isinstance(subject, RowsEvidence):
        return findings
    return [finding if finding.files else replace(finding, files=(subject.judged.file,)) for finding in findings]


def _row_details(row: RowEvidence, _: RowVerdict) -> RowDetails:
    return RowDetails(row.judged.source, row.judged.file, row.row, row.divisions, row.evaluation)


GATE = Policy(
    checks={"row": ROW_CHECKS, "rows": ROWS_CHECKS},
    present=_with_file,
    details={
        "row": _row_details,
        "rows": lambda rows, _: GateDetails(rows.strict, rows.division, rows.undeclared),
    },
)
