"""The gate `mechanism_compression_quality`: rules on a row's declared technique and its quality.

Some rules check the declaration alone, others compare it with evidence and with a division. Contradicting evidence
always closes the gate; missing evidence and unregistered names close it with `strict` only.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from compliance.judge.check import WITHOUT_INPUT, Need, check, decides, judge
from compliance.judge.finding import Finding, Severity, fail, note, warn
from compliance.judge.rule import OURS
from compliance.judge.text import by_severity, finding_lines, not_judged_lines
from compliance.judge.verdict import Verdict
from compliance.mechanisms.declaration import FIELD_NAMES, Declaration, declare, is_empty
from compliance.mechanisms.declaration_rules import VALIDATION, check_declaration
from compliance.mechanisms.engine_facts import EngineFacts, facts_of_row, misdeclared
from compliance.mechanisms.row import CERTIFICATION, MechanismRow
from compliance.mechanisms.technique import BASELINE, pair_of
from compliance.mechanisms.technique_registry import Division, Registries, eligibility
from runs.benchmarks import BENCHMARKS
from runs.errors import ExitCode
from runs.store import odd_values
from runs.wording import counted, printable, shortened_list

GATE_ID = "mechanism_compression_quality"
GATE_LABEL = "Declared technique, its registration and its quality evaluation"
_MISDECLARED = "gate/mechanism_misdeclared"
_ELIGIBLE = {True: "eligible", False: "not eligible", None: "unknown"}
_REFERENCE = ("run_id", "scenario", "lg_model_name", "mechanism", "mechanism_variant", "support_status")


@dataclass
class RowOutcome(Verdict):
    """The verdict on a row: FAIL if evidence contradicts the declaration, FLAG if evidence is missing."""

    source: str
    row: dict[str, Any]
    divisions: dict[str, dict[str, Any]]

    @property
    def title(self) -> str:
        variant, scenario = self.row.get("mechanism_variant"), self.row.get("scenario")
        name = f"{self.row['mechanism']}{f'/{variant}' if variant else ''}"
        return f"{name}, {scenario}" if scenario else name

    @property
    def failed(self) -> list[Finding]:
        """The rules that the row violates."""
        return self.of("error", "warning")

    @property
    def word(self) -> str:
        return "FAIL" if self.failed else "pass"

    def with_reference(self, **more: Any) -> dict[str, Any]:
        return {"source": self.source, **{name: self.row.get(name) for name in _REFERENCE}, **more}


@dataclass
class GateOutcome(Verdict):
    """The verdict on all rows. Its own findings are on the rows together."""

    strict: bool
    matched: list[RowOutcome] = field(default_factory=list)
    division: Division | None = None
    not_matched: int = 0  # number of rows without a technique

    @property
    def members(self) -> Sequence[Verdict]:
        return self.matched

    def _pairs(self, severity: Severity) -> list[str]:
        return [one.numbers["pair"] for one in self.of(severity) if one.rule == "gate/coverage"]

    @property
    def missing_coverage(self) -> list[str]:
        """Expected pairs that no row declares."""
        return self._pairs("warning")

    @property
    def unexpected_coverage(self) -> list[str]:
        return self._pairs("note")

    @property
    def failing(self) -> list[RowOutcome]:
        return [row for row in self.matched if row.failed]

    @property
    def status(self) -> Literal["pass", "fail", "no_rows"]:
        if self.failing or self.missing_coverage:
            return "fail"
        return "pass" if self.matched else "no_rows"

    @property
    def closed(self) -> bool:
        """True if the gate is closed; with `strict`, it is open only if all rows pass."""
        return self.exit_code(strict=self.strict) is not ExitCode.OK

    def record(self, *, strict: bool = False) -> dict[str, Any]:
        """Return the report. `overall` is partial if there are no rows to check."""
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
                        if (notes := row.of("note"))
                    ],
                    "missing_coverage": self.missing_coverage,
                    "unexpected_coverage": self.unexpected_coverage,
                }
            ],
            "eligibility": [row.with_reference(**row.divisions) for row in self.matched],
        }

    def as_text(self) -> str:
        """Return each row with its findings, then the outcome, as text."""
        lines = []
        for row in self.matched:
            lines += [
                f"{row.word}: {row.title}  ({row.source})",
                *finding_lines(row, by_severity(row), with_place=True),
                *not_judged_lines(row),
            ]
            for division, found in row.divisions.items():
                lines.append(f"  {division} division: {_ELIGIBLE[found['eligible']]}, {found['reason']}")
        lines += [*finding_lines(self, by_severity(self), with_place=True), self._last_line()]
        return printable("\n".join(lines) + "\n", lines=True)

    def as_markdown(self) -> str:
        """Return a table of the rows and the findings on each row, as Markdown."""
        table = [["row", "tier", "outcome", "closed", "open"], ["---"] * 5]
        lines = [f"# {GATE_ID}", "", self._last_line(), ""]
        for row in self.matched:
            divisions = [_ELIGIBLE[row.divisions[name]["eligible"]] for name in ("closed", "open")]
            table.append([row.title, str(row.row.get("support_status") or "–"), row.word, *divisions])
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in table]
        for row in self.matched:
            if row.findings:
                found = _texts(row.of("error", "warning", "note"))
                lines += ["", f"## {row.title}", "", row.source, "", *(f"- {sentence}" for sentence in found)]
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
    """A row that declares a technique, and the registries and division that it is compared with."""

    judged: MechanismRow
    registries: Registries
    division: Division | None  # division in which the row must be eligible

    def absent(self, need: Need) -> str:
        """Return the reason why a part is missing; empty if it is available."""
        lacking = need == "files" and self.judged.quality is None
        return "the row's run directory is not available" if lacking else ""

    @cached_property
    def declared(self) -> Declaration:
        return declare({name: self.judged.row.get(name) for name in FIELD_NAMES})

    @cached_property
    def row(self) -> dict[str, Any]:
        """The row with the technique of its corrected declaration."""
        return {**self.judged.row, **self.declared.values, "mechanism": self.declared.mechanism}

    @cached_property
    def engine(self) -> EngineFacts:
        return self.judged.engine or facts_of_row(self.judged.row)

    @cached_property
    def divisions(self) -> dict[str, dict[str, Any]]:
        """The eligibility of the row by division."""
        recorded = (
            self.judged.engine is not None and not self.engine.gaps
        )  # the columns of a row do not count as evidence
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
    rows: Iterable[MechanismRow],
    registries: Registries,
    *,
    strict: bool = False,
    division: Division | None = None,
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
    every = list(rows)
    declared = [judged for judged in every if judged.engine or not is_empty(judged.row.get("mechanism"))]
    matched = [_judge_row(RowEvidence(judged, registries, division)) for judged in declared]
    not_matched = len(every) - len(declared)
    found = judge(RowsEvidence([one.row for one in matched], not_matched, frozenset(expected)), ROWS_CHECKS)
    lacking = [replace(one, results=(row.title,)) for row in matched for one in row.not_judged]
    return GateOutcome(strict, matched, division, not_matched, findings=found.findings, not_judged=lacking)


def _judge_row(of: RowEvidence) -> RowOutcome:
    found, said = judge(of, ROW_CHECKS), dict[str, Finding]()
    for finding in found.findings:  # gate/review may repeat the sentence of another rule
        said.setdefault(finding.sentence, finding)
    lacking = [one for one in found.not_judged if one.what == WITHOUT_INPUT]
    return RowOutcome(of.judged.source, of.row, of.divisions, findings=list(said.values()), not_judged=lacking)


def _no_evaluation(of: RowEvidence) -> str:
    completed = of.row["quality_eval_status"] == "completed" and of.row["mechanism"] != BASELINE
    return "" if completed else "the row declares no completed evaluation"


@decides(
    "gate",
    ("gate/completed_evaluation_passes", "error", OURS, "rescored accuracy run of a completed evaluation",
     "restore the files of the accuracy run, or repeat it"),
    applies=_no_evaluation,
)  # fmt: skip
def _completed(of: RowEvidence) -> Iterator[Finding]:
    """Check that the files of a completed evaluation are available and pass when they are rescored."""
    rule, quality, named = "gate/completed_evaluation_passes", of.judged.quality, of.row["quality_eval_id"]
    own = quality.evaluation if quality else None
    known = {own} if own else {one.quality_eval for one in BENCHMARKS.values()}
    if named not in known:
        only = " or ".join(sorted(known))
        yield warn(rule, f"quality_eval_id is {named or 'missing'}, but only {only} can be recomputed here")
    elif quality is None:
        yield warn(rule, "the row's run directory is missing, so the evaluation cannot be recomputed")
    elif quality.directory is None:
        yield warn(rule, "the accuracy run of the result is missing")
    elif not quality.passed:
        yield fail(rule, f"{quality.directory} does not pass: {shortened_list(quality.reasons, 3)}")


@decides(
    "gate",
    ("gate/eligible_in_division", "error", "[rules] closed and open division", "eligibility in the division",
     "choose the open division, or repeat the run without the technique"),
    applies=lambda of: "" if of.division else "--division was not given",
)  # fmt: skip
def _eligible(of: RowEvidence) -> Iterator[Finding]:
    found = of.divisions[str(of.division)]
    if not found["eligible"]:
        make, word = (warn, "unknown") if found["eligible"] is None else (fail, "no")
        yield make("gate/eligible_in_division", f"eligible in the {of.division} division: {word}: {found['reason']}")


@decides(
    "gate",
    ("gate/run_verified", "error", OURS, "status of the run and agreement of its files",
     "rerun"),
)  # fmt: skip
def _verified(of: RowEvidence) -> Iterator[Finding]:
    """Check the files of the run, or the columns of a row without files."""
    rule, row = "gate/run_verified", of.judged.row
    if of.judged.quality is not None:
        if of.judged.broken is not None:
            yield fail(rule, of.judged.broken)
        return
    for name, good in (("status", "success"), ("certification", CERTIFICATION)):
        if (value := row.get(name, good)) != good:
            sentence = f"{name} of the row: {str(value)[:40]}, required: {good}"
            yield (warn if value is None else fail)(
                rule, sentence
            )  # None: a row of an older version without the column
    for sentence in odd_values(row, FIELD_NAMES):
        yield warn(rule, sentence)


@decides(
    "gate",
    ("gate/engine_record_missing", "warning", OURS, "missing parts of the recorded engine configuration",
     "repeat the run with an engine that reports its configuration"),
    needs=("files",),
)  # fmt: skip
def _recorded(of: RowEvidence) -> Iterable[Finding]:
    return (warn("gate/engine_record_missing", gap) for gap in of.engine.gaps)


@decides("gate", also=("gate/review",))
def _review(of: RowEvidence) -> Iterable[Finding]:
    """Report what a person should review."""
    review, quality, status = [*of.declared.issues], of.judged.quality, of.row["quality_eval_status"]
    review += [of.registries.error] if of.registries.error else []
    review += of.engine.gaps if quality is None else of.judged.row[VALIDATION]["issues"]
    if quality is not None and quality.directory and of.row["mechanism"] != BASELINE and status != "completed":
        outcome = "passes" if quality.passed else f"does not pass: {quality.reasons[0]}"
        review.append(f"quality_eval_status is {status}, but the rescored accuracy run {quality.directory} {outcome}")
    return (note("gate/review", sentence) for sentence in review)


@decides(
    "gate",
    ("gate/rows_declared", "warning", OURS, "rows without a declared technique",
     "declare the technique of each row, or remove the row"),
)  # fmt: skip
def _rows_declared(of: RowsEvidence) -> Iterator[Finding]:
    if of.undeclared or not of.declared:
        count = len(of.declared) + of.undeclared
        yield warn("gate/rows_declared", f"rows without a declaration: {of.undeclared} of {count}")


@decides(
    "gate",
    ("gate/coverage", "warning", OURS, "techniques of the rows, compared with --expect",
     "add a row of the technique"),
    applies=lambda of: "" if of.expected else "--expect was not given",
)  # fmt: skip
def _coverage(of: RowsEvidence) -> Iterator[Finding]:
    given = {"/".join(pair_of(row)) for row in of.declared}
    for pair in sorted(of.expected - given):
        yield warn("gate/coverage", f"missing row of {pair}", pair=pair)
    for pair in sorted(given - of.expected):
        yield note("gate/coverage", f"additional row of {pair}", pair=pair)


# The checks, in the order of their findings.
ROW_CHECKS = (
    check(lambda of: check_declaration(of.row, of.registries), check_declaration),
    check(lambda of: [fail(_MISDECLARED, text) for text in misdeclared(of.row, of.engine)], misdeclared),
    *map(check, (_completed, _eligible, _verified, _recorded, _review)),
)
ROWS_CHECKS = tuple(map(check, (_rows_declared, _coverage)))
