"""The gate `mechanism_compression_quality`: whether a row's declaration holds, and its quality is shown.

Some criteria judge the declaration alone, others compare it with evidence and a division. Contradicting evidence always
closes the gate; missing evidence and unregistered names close it with `strict` only.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from compliance.judge.check import decides
from compliance.judge.finding import Finding, fail, note, warn
from compliance.judge.rule import OURS
from compliance.judge.text import by_severity, finding_lines
from compliance.judge.verdict import Verdict
from compliance.mechanisms.declaration import FIELD_NAMES, declare, is_empty
from compliance.mechanisms.declaration_rules import VALIDATION, check_declaration
from compliance.mechanisms.engine_facts import facts_of_row, misdeclared
from compliance.mechanisms.row import CERTIFICATION, JudgedRow
from compliance.mechanisms.technique import BASELINE, pair_of
from compliance.mechanisms.technique_registry import Division, Registries, eligibility
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
    """The gate on one row: FAIL if evidence contradicts the declaration, FLAG if it is missing."""

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
        """The criteria that the row does not meet."""
        return self.of("error", "warning")

    @property
    def word(self) -> str:
        return "FAIL" if self.failed else "pass"

    def with_reference(self, **more: Any) -> dict[str, Any]:
        return {"source": self.source, **{name: self.row.get(name) for name in _REFERENCE}, **more}


@dataclass
class GateOutcome(Verdict):
    """The gate on all rows. Its findings are those of each row, then those on all rows."""

    strict: bool
    matched: list[RowOutcome] = field(default_factory=list)
    division: Division | None = None
    not_matched: int = 0  # rows without a mechanism
    together: list[Finding] = field(default_factory=list)  # on all rows

    def __post_init__(self) -> None:
        self.findings = [finding for row in self.matched for finding in row.findings] + self.together

    def _pairs(self, severity: str) -> list[str]:
        return [one.numbers["pair"] for one in self.together if (one.rule, one.severity) == ("gate/coverage", severity)]

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
        """With `strict` unless all rows pass."""
        return self.exit_code(strict=self.strict) is not ExitCode.OK

    def record(self, *, strict: bool = False) -> dict[str, Any]:
        """The report. `overall` is partial without rows to judge."""
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
        """For a terminal: each row with its findings, then the outcome."""
        lines = []
        for row in self.matched:
            lines += [
                f"{row.word}: {row.title}  ({row.source})",
                *finding_lines(row, by_severity(row), with_place=True),
            ]
            for division, found in row.divisions.items():
                lines.append(f"  {division} division: {_ELIGIBLE[found['eligible']]}, {found['reason']}")
        together = Verdict(findings=self.together)
        lines += [*finding_lines(together, by_severity(together), with_place=True), self._last_line()]
        return printable("\n".join(lines) + "\n", lines=True)

    def as_markdown(self) -> str:
        """The same as Markdown: a table of the rows, then the findings on each."""
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
        lines += ["", *(f"- {sentence}" for sentence in _texts(self.together))]
        return printable("\n".join(lines).rstrip() + "\n", lines=True)

    def _last_line(self) -> str:
        counts = f"{counted(len(self.matched), 'row')} judged, {len(self.failing)} failing"
        if self.not_matched:
            counts += f", {self.not_matched} without a declaration"
        how = "closed" if self.closed else "open (with --strict: closed)"
        if not self.matched:
            how += ": nothing to judge"
        elif self.outcome == "PASS":
            how = "open"
        return f"gate {GATE_ID}: {how}; {counts}"


def _texts(findings: list[Finding]) -> list[str]:
    return [f"{finding.rule}: {finding.sentence}" for finding in findings]


@decides(
    "gate",
    ("gate/rows_declared", "warning", OURS, "there are rows, and each declares a technique",
     "declare the technique of each row, or leave the row out"),
    ("gate/coverage", "warning", OURS, "the rows include the techniques of --expect",
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
        rows: of runs or of a file. Those with a run's files are judged as a baseline if they name no technique.
        registries: if they could not be read, a lossy row fails and a baseline passes.
        strict: every failure closes the gate.
        division: in which rows must be eligible.
        expected: "mechanism/variant" pairs that the rows must include; empty for any.
    """
    every = list(rows)
    declared = [judged for judged in every if judged.engine or not is_empty(judged.row.get("mechanism"))]
    matched = [judge_row(judged, registries, division) for judged in declared]
    together, not_matched = [], len(every) - len(declared)
    if not declared or not_matched:
        text = f"{counted(not_matched, 'row')} of {len(every)} without a declaration"
        together.append(warn("gate/rows_declared", text))
    if wanted := set(expected):
        given = {"/".join(pair_of(one.row)) for one in matched}
        together += [warn("gate/coverage", f"no row declares {pair}", pair=pair) for pair in sorted(wanted - given)]
        together += [note("gate/coverage", f"a row declares {pair}", pair=pair) for pair in sorted(given - wanted)]
    return GateOutcome(strict, matched, division, not_matched, together)


@decides(
    "gate",
    ("gate/completed_evaluation_passes", "error", OURS, "a completed evaluation passes when derived again",
     "give the accuracy leg as it ran, or run it again"),
    ("gate/eligible_in_division", "error", "[rules] closed and open division", "the division allows the technique",
     "choose the open division, or run without the technique"),
    ("gate/run_verified", "error", OURS, "the files are those of a finished run and agree with each other",
     "run the leg again"),
    ("gate/engine_record_missing", "warning", OURS, "the engine's record shows what was in force",
     "run the leg again with an engine that records its configuration"),
)  # fmt: skip
def judge_row(judged: JudgedRow, registries: Registries, division: Division | None = None) -> RowOutcome:
    """Apply every criterion to one row that declares a mechanism."""
    declared = declare({name: judged.row.get(name) for name in FIELD_NAMES})
    row, quality = {**judged.row, **declared.values, "mechanism": declared.mechanism}, judged.quality
    engine = judged.engine or facts_of_row(judged.row)
    recorded = judged.engine is not None and not engine.gaps  # the columns of a row are no evidence
    lossy = {mechanism for mechanism, _ in engine.in_force}
    divisions = eligibility(row["mechanism"], quality.passed if quality else None, lossy, recorded=recorded)
    findings = list(check_declaration(row, registries))
    findings += [fail("gate/mechanism_misdeclared", sentence) for sentence in misdeclared(row, engine)]
    findings += _completed(row, judged)
    if division is not None and not divisions[division]["eligible"]:
        not_known = divisions[division]["eligible"] is None  # for want of a record
        sentence = f"{'not known to be' if not_known else 'not'} in the {division} division: "
        sentence += divisions[division]["reason"]
        findings.append((warn if not_known else fail)("gate/eligible_in_division", sentence))
    review = [*declared.issues, *([registries.error] if registries.error else [])]
    if quality is None:
        findings += _row_alone(judged.row)
        review += engine.gaps
    else:  # the files must show a run, and what was in force
        if judged.broken is not None:
            findings.append(fail("gate/run_verified", judged.broken))
        findings += [warn("gate/engine_record_missing", gap) for gap in engine.gaps]
        review += judged.row[VALIDATION]["issues"]
        status = row["quality_eval_status"]
        if quality.directory is not None and row["mechanism"] != BASELINE and status != "completed":
            outcome = "passes" if quality.passed else f"does not pass: {quality.reasons[0]}"
            review.append(f"quality_eval_status is {status}, and {quality.directory} {outcome}")
    known = {finding.sentence for finding in findings}
    findings += [note("gate/review", sentence) for sentence in dict.fromkeys(review) if sentence not in known]
    return RowOutcome(judged.source, row, divisions, findings=findings)


def _row_alone(row: dict[str, Any]) -> Iterator[Finding]:
    """Problems of a row without files."""
    for name, good in (("status", "success"), ("certification", CERTIFICATION)):
        if (value := row.get(name, good)) != good:
            sentence = f"{name} of the row is {str(value)[:40]}, that of a finished run is {good}"
            # None: an old row without the column
            yield (warn if value is None else fail)("gate/run_verified", sentence)
    for sentence in odd_values(row, FIELD_NAMES):
        yield warn("gate/run_verified", sentence)


def _completed(row: dict[str, Any], judged: JudgedRow) -> Iterator[Finding]:
    """The files of a completed evaluation must be there and pass when scored again."""
    if row["quality_eval_status"] != "completed" or row["mechanism"] == BASELINE:
        return
    rule, quality = "gate/completed_evaluation_passes", judged.quality
    known = (
        {quality.evaluation} if quality and quality.evaluation else {one.quality_eval for one in BENCHMARKS.values()}
    )
    if row["quality_eval_id"] not in known:
        sentence = f"only {' or '.join(sorted(known))} can be derived again here"
        yield warn(rule, f"{sentence}, not {row['quality_eval_id'] or 'an unnamed one'}")
    elif quality is None:
        yield warn(rule, "the row's run directory is not available, and the row alone is no evidence")
    elif quality.directory is None:
        yield warn(rule, "the result has no accuracy leg")
    elif not quality.passed:
        yield fail(rule, f"{quality.directory} does not pass: {shortened_list(quality.reasons, 3)}")
