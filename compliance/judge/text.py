"""Text lines for findings and for rules that were not applied, as all commands print them."""

from collections.abc import Iterable, Iterator

from compliance.judge.check import NOT_APPLICABLE
from compliance.judge.finding import Finding
from compliance.judge.verdict import Verdict


def by_severity(verdict: Verdict) -> list[Finding]:
    """Return the findings of a verdict, most severe first."""
    return verdict.of("error", "warning", "note", "pass")


def finding_lines(verdict: Verdict, findings: Iterable[Finding], *, with_place: bool = False) -> Iterator[str]:
    """Yield a line for each finding. Errors that do not count become reasons for "not eligible for submission"."""
    for finding in findings:
        if finding.severity == "error" and not verdict.counts(finding):
            yield f"  not eligible for submission: {finding.rule}: {finding.sentence}"
        else:
            yield f"  {finding.line_with_place if with_place else finding}"


def not_judged_lines(verdict: Verdict) -> Iterator[str]:
    """Yield a line for each missing input. Rules that do not apply are left out."""
    for entry in verdict.not_judged:
        if entry.what != NOT_APPLICABLE:
            prefix = f"{', '.join(entry.results)}: " if entry.results else ""
            yield f"  not judged: {prefix}{', '.join(entry.rules) or entry.what}: {entry.why}"
