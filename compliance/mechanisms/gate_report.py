"""The gate's outcome as JSON, as markdown, and as lines for a terminal."""

from typing import Any

from compliance.mechanisms.quality_gate import GATE_ID, GATE_LABEL, GateOutcome, RowOutcome
from compliance.mechanisms.row import CERTIFICATION
from runs.wording import counted, printable

SCHEMA_VERSION = "1.0.0"
_ELIGIBLE = {True: "eligible", False: "no", None: "not known"}
_REFERENCE = ("run_id", "scenario", "lg_model_name", "mechanism", "mechanism_variant", "support_status")


def as_json(outcome: GateOutcome) -> dict[str, Any]:
    """The report. `overall` is partial when no gate has rows to judge."""
    return {
        "schema_version": SCHEMA_VERSION,
        "overall": {"no_rows": "partial"}.get(outcome.status, outcome.status),
        "closed": outcome.closed,
        "advisory": not outcome.strict,
        "division": outcome.division,
        "claim_boundary": CERTIFICATION,
        "rows_without_mechanism": outcome.not_matched,
        "gates": [
            {
                "id": GATE_ID,
                "label": GATE_LABEL,
                "status": outcome.status,
                "matched_rows": len(outcome.matched),
                "failing_rows": [
                    {
                        **_reference(row),
                        "failed_criteria": _criteria(row),
                        "refuted": row.outcome == "FAIL",
                    }
                    for row in outcome.failing
                ],
                "review_required_rows": [
                    {**_reference(row), "review": row.review} for row in outcome.matched if row.review
                ],
                "missing_coverage": outcome.missing_coverage,
                "unexpected_coverage": outcome.unexpected_coverage,
            }
        ],
        "eligibility": [{**_reference(row), **row.divisions} for row in outcome.matched],
    }


def as_text(outcome: GateOutcome) -> str:
    """Lines for a terminal: one a row, what speaks against it below, the outcome last."""
    lines = []
    for row in outcome.matched:
        lines.append(f"{'FAIL' if row.findings else 'pass'}: {_title(row)}  ({row.source})")
        lines += [f"  {finding}" for finding in row.findings]
        lines += [f"  review: {text}" for text in row.review]
        for division, found in row.divisions.items():
            lines.append(f"  {division} division: {_ELIGIBLE[found['eligible']]}, {found['reason']}")
    lines += _coverage(outcome)
    lines.append(_last_line(outcome))
    return printable("\n".join(lines) + "\n", lines=True)


def as_markdown(outcome: GateOutcome) -> str:
    """The same as a page: a table of the rows, then what speaks against each."""
    lines = [
        f"# {GATE_ID}",
        "",
        _last_line(outcome),
        "",
        "| row | tier | outcome | closed | open |",
        "|---|---|---|---|---|",
    ]
    for row in outcome.matched:
        divisions = [_ELIGIBLE[row.divisions[name]["eligible"]] for name in ("closed", "open")]
        cells = [_title(row), str(row.row.get("support_status") or "–"), "FAIL" if row.findings else "pass", *divisions]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    for row in outcome.matched:
        found = _criteria(row) + [f"review: {text}" for text in row.review]
        if found:
            lines += ["", f"## {_title(row)}", "", f"{row.source}", "", *(f"- {sentence}" for sentence in found)]
    coverage = _coverage(outcome)
    page = [*lines, *([""] if coverage else []), *(f"- {line}" for line in coverage)]
    return printable("\n".join(page) + "\n", lines=True)


def _criteria(row: RowOutcome) -> list[str]:
    """The criteria that the row does not meet."""
    return [f"{finding.rule}: {finding.sentence}" for finding in row.findings]


def _coverage(outcome: GateOutcome) -> list[str]:
    lines = [f"missing: no row declares {pair}" for pair in outcome.missing_coverage]
    return lines + [f"unexpected: a row declares {pair}" for pair in outcome.unexpected_coverage]


def _last_line(outcome: GateOutcome) -> str:
    counts = f"{counted(len(outcome.matched), 'row')} judged, {len(outcome.failing)} failing"
    if outcome.not_matched:
        counts += f", {outcome.not_matched} without a declaration"
    how = "closed" if outcome.closed else "open (advice only; --strict closes it)"
    if not outcome.matched:
        how += ": nothing to judge"
    elif outcome.status == "pass" and not outcome.not_matched:
        how = "open"
    return f"gate {GATE_ID}: {how}; {counts}"


def _title(row: RowOutcome) -> str:
    variant = row.row.get("mechanism_variant")
    name = f"{row.row['mechanism']}{f'/{variant}' if variant else ''}"
    scenario = row.row.get("scenario")
    return f"{name}, {scenario}" if scenario else name


def _reference(row: RowOutcome) -> dict[str, Any]:
    return {"source": row.source, **{name: row.row.get(name) for name in _REFERENCE}}
