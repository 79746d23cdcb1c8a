"""The page of a checked tree, made from the record of `check`: its causes, submitters, charts and findings.

The files of a tree are untrusted. Their texts are shortened, made printable and escaped, and hashes in the page allow
only the page's own scripts.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compliance.judge.verdict import place_text
from compliance.report.page import CHARTS, render_page
from compliance.report.tree_charts import cause_charts, latency_charts, rate_charts
from compliance.trees.causes import RANKS, extent_text
from compliance.trees.check_report import summary_text
from compliance.trees.findings import shown_lines
from runs.wording import printable

MAX_FINDINGS_CHARS = 1_200_000  # maximum length of the findings on a page, without markup
FIRST_OF_A_CAUSE = 50  # findings of each cause that are shown before more findings of a more severe cause
MAX_LINE_CHARS = 300  # maximum length of a quoted line
MAX_QUOTED = 3  # findings with one sentence whose lines are quoted
MAX_COLUMNS = 24  # causes in the matrix
MAX_REASONS = 40  # maximum number of reasons why rules were not applied
SUBMITTER = "organisation"  # key of a finding and of a result

Json = Mapping[str, Any]


@dataclass(frozen=True)
class FindingPlace:
    """The place of a finding, and the lines that decided it: file name, number and text."""

    submitter: str
    where: str
    lines: Sequence[tuple[str, int, str]]
    logs: Sequence[str]  # logs that the finding compares, if they are many


@dataclass(frozen=True)
class RepeatedFinding:
    """The findings with one sentence on one rule, and all their places."""

    record: Json  # record of the first one
    places: list[FindingPlace] = field(default_factory=list)

    @property
    def is_error(self) -> bool:
        return bool(self.record["severity"] == "error")


@dataclass
class ShownCause:
    """A cause with its findings on the page."""

    record: Json
    extent: str
    example: Json  # record of a finding
    findings: list[RepeatedFinding] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.record["cause"])

    @property
    def is_error(self) -> bool:
        return bool(self.record["severity"] == "error")


def tree_page(record: Json, made: str) -> str:
    """Return the page as HTML.

    Args:
        record: What `check --json` prints.
    """
    causes = _causes(record)
    shown = _add_findings(record, causes)
    counts = Counter(
        (finding[SUBMITTER], finding["cause"]) for finding in record["findings"] if finding[SUBMITTER] is not None
    )
    columns = causes[:MAX_COLUMNS]
    page = {
        "title": f"Check of {printable(Path(record['tree']).name, 80)}, round {record['round']}",
        "made": made,
        "is_clean": record["exit_code"] == 0,
        "headline": summary_text(record["scenarios"], record["round"], record["errors"], record["warnings"]),
        "weights": [weight for weight in RANKS if any(cause.record["weight"] == weight for cause in causes)],
        "causes": causes,
        "columns": columns,
        # rows of the matrix: submitter, and its number of findings for each cause
        "matrix": [
            (submitter, [counts[submitter, cause.name] for cause in columns])
            for submitter in sorted({submitter for submitter, _ in counts})
        ],
        "shown": shown,
        "findings": len(record["findings"]),
        "not_judged": record["not_judged"][:MAX_REASONS],
        "reasons": len(record["not_judged"]),
        "charts": cause_charts(record["causes"]),
        "rates": rate_charts(record["results"]),
        "latencies": latency_charts(record["results"]),
    }
    return render_page(page, "tree_page.html", (CHARTS, "tree_page.js"))


def _causes(record: Json) -> list[ShownCause]:
    return [
        ShownCause(
            cause,
            extent_text(len(cause["results"]), len(cause["submitters"]), cause["findings"]),
            record["findings"][cause["example"]],
        )
        for cause in record["causes"]
    ]


def _add_findings(record: Json, causes: Sequence[ShownCause]) -> int:
    """Add findings to their causes until the page is full. Return the number of added findings."""
    root, by_name = Path(record["tree"]), {cause.name: cause for cause in causes}
    repeated: dict[tuple[str, str, str, str], RepeatedFinding] = {}
    shown = chars = 0
    for finding in _by_cause(record["findings"], list(by_name)):
        if chars > MAX_FINDINGS_CHARS:
            break
        key = finding["cause"], finding["rule"], finding["sentence"], finding["fix"]
        if key not in repeated:
            repeated[key] = RepeatedFinding(finding)
            by_name[finding["cause"]].findings.append(repeated[key])
            chars += len(finding["sentence"]) + len(finding["fix"]) + len(finding["source"])
        place = _place(root, finding, is_quoted=len(repeated[key].places) < MAX_QUOTED)
        repeated[key].places.append(place)
        chars += len(place.where) + sum(len(text) for *_, text in place.lines)
        shown += 1
    return shown


def _by_cause(findings: Sequence[Json], causes: Sequence[str]) -> Iterator[Json]:
    """Yield the first findings of each cause, then the others, each time in the order of the causes."""
    of_cause: defaultdict[str, list[Json]] = defaultdict(list)
    for finding in findings:
        of_cause[finding["cause"]].append(finding)
    for turn in (slice(FIRST_OF_A_CAUSE), slice(FIRST_OF_A_CAUSE, None)):
        for cause in causes:
            yield from of_cause[cause][turn]


def _place(root: Path, finding: Json, *, is_quoted: bool) -> FindingPlace:
    return FindingPlace(
        finding[SUBMITTER] or "",
        place_text(finding["files"], finding["line"], finding["numbers"]),
        list(shown_lines(root, finding, MAX_LINE_CHARS)) if is_quoted else [],
        finding["numbers"].get("logs", []),
    )
