"""Causes: groups of findings that one fault explains, ordered by rank."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field
from functools import cached_property
from pathlib import Path

from compliance.judge.rule import Rank, Rule, find_rule
from compliance.judge.verdict import Finding
from compliance.trees.tree import Place, Tree
from runs.record.layout import LOADGEN_LOGS
from runs.wording import counted

SUBJECT = ("division", "organisation", "system", "benchmark", "scenario")

# Headings by rank, most severe first.
RANKS = (
    "contradictions and copies",
    "audits that are empty, missing or failed",
    "violated rules and limits",
    "settings that did not take effect",
    "files and descriptions",
)
COPIES, AUDITS, LIMITS, SETTINGS, FILES = Rank


def weight_of(rule: Rule) -> int:
    """Return the index of a rule's heading in RANKS."""
    return rule.rank


# Rules that the fault "extra token" violates. Rules of the first set prove the fault; the other violations follow.
EXTRA_TOKEN = "extra-token"
_SHOWS_EXTRA_TOKEN = frozenset({"test06-begin", "test06-end-last"})
_FOLLOWS_EXTRA_TOKEN = frozenset({"test06-length", "test06-end-once", "perf-output-tokens"})
# Rules that a dataset of another size violates. Rules of the first set prove the fault; the other violations follow.
DATASET_SIZE = "dataset-size"
_SHOWS_DATASET_SIZE = frozenset({"perf-data-set", "accuracy-samples"})
_FOLLOWS_DATASET_SIZE = frozenset({"perf-sample-count", "perf-samples", "accuracy-no-target"})
SELECTION = "selection"  # name of the cause if files are missing because the tree is a part of a round
_JOINT = {
    EXTRA_TOKEN: (LIMITS, "special token ID at the start of responses that is counted as an output token"),
    DATASET_SIZE: (LIMITS, "dataset with another number of samples than the dataset of the benchmark"),
    SELECTION: (FILES, "files that are missing because the tree is a part of a round"),
}
_OF_A_SELECTION = frozenset(
    {"tree-source", "tree-no-results", "system-unused", "scenario-set", "accuracy-files", "power-files"}
)


_BY_RULES = (
    (EXTRA_TOKEN, _SHOWS_EXTRA_TOKEN, _FOLLOWS_EXTRA_TOKEN),
    (DATASET_SIZE, _SHOWS_DATASET_SIZE, _FOLLOWS_DATASET_SIZE),
)


def is_joint(cause: str) -> bool:
    """Return whether the findings of a cause on one result have one fault, so that a report shows the first of them."""
    return cause in _JOINT


@dataclass(frozen=True)
class CausedFinding:
    """A finding with its cause and its subject. The subject has the leading fields of SUBJECT that are known."""

    finding: Finding
    subject: tuple[str, ...]
    cause: str

    @property
    def result(self) -> tuple[str, ...] | None:
        """The result that the finding is about; None for a finding on a submitter or a system."""
        return self.subject if len(self.subject) == len(SUBJECT) else None


@dataclass
class Cause:
    """All findings of one cause."""

    name: str
    rank: int
    summary: str  # summary of the violated rule
    caused: list[CausedFinding] = field(default_factory=list)

    @cached_property
    def results(self) -> list[str]:
        named = {"/".join(caused_finding.result) for caused_finding in self.caused if caused_finding.result}
        return sorted(
            named.union(*(caused_finding.finding.numbers.get("results", ()) for caused_finding in self.caused))
        )

    @cached_property
    def submitters(self) -> list[str]:
        return sorted({caused_finding.subject[1] for caused_finding in self.caused if len(caused_finding.subject) > 1})

    @property
    def is_error(self) -> bool:
        return any(caused_finding.finding.severity == "error" for caused_finding in self.caused)

    @property
    def rules(self) -> Counter[str]:
        return Counter(caused_finding.finding.rule for caused_finding in self.caused)

    @property
    def example(self) -> Finding:
        """The most severe finding. Of equally severe findings, the one with the most results."""

        def severity(finding: Finding) -> tuple[bool, int]:
            return finding.severity != "error", -len(finding.numbers.get("results", ()))

        return min((caused_finding.finding for caused_finding in self.caused), key=severity)

    @property
    def extent(self) -> str:
        """The number of affected results and submitters as text, such as `37 results of 7 submitters`."""
        return extent_text(len(self.results), len(self.submitters), len(self.caused))

    @property
    def order(self) -> tuple[int, bool, int, str]:
        return self.rank, not self.is_error, -len(self.results or self.caused), self.name


def extent_text(results: int, submitters: int, findings: int) -> str:
    """Return the extent of a cause. Without affected results, it is the number of findings."""
    what = counted(results, "result") if results else counted(findings, "finding")
    return f"{what} of {counted(submitters, 'submitter')}" if submitters else what


def with_causes(tree: Tree, places: Sequence[Place], findings: Iterable[Finding]) -> list[CausedFinding]:
    """Return the findings with their subjects and causes; the order is unchanged."""
    subjects = {tuple(astuple(place)[:count]) for place in places for count in range(len(SUBJECT) + 1)}
    subjects |= {home[:count] for home in tree.organizations() for count in (1, 2)}
    about = [(finding, _subject(finding.files[0], subjects)) for finding in findings]
    violated = {(subject, finding.rule) for finding, subject in about}
    selected = is_selection(tree, findings)
    return [
        CausedFinding(finding, subject, _cause(tree, finding, subject, violated, selected))
        for finding, subject in about
    ]


def _subject(file: Path, subjects: set[tuple[str, ...]]) -> tuple[str, ...]:
    division, organization, kind, *inside = (*file.parts, "", "", "")[: max(3, len(file.parts))]
    if kind == "systems" and inside:
        inside = [inside[0].removesuffix(".json")]
    names = (division, organization, *inside)[: len(SUBJECT)]
    return next(names[:count] for count in range(len(names), -1, -1) if names[:count] in subjects)


def is_selection(tree: Tree, findings: Iterable[Finding]) -> bool:
    """Return True if the tree is a part of a round: it has multiple submitters, but no source code."""
    homes = list(tree.organizations())
    return len(homes) > 1 and sum(finding.rule == "tree-source" for finding in findings) >= len(homes)


def _cause(
    tree: Tree, finding: Finding, subject: tuple[str, ...], violated: set[tuple[tuple[str, ...], str]], selected: bool
) -> str:
    if selected:
        path, missed = finding.files[0], weight_of(finding.definition) in (AUDITS, FILES)
        absent = missed and path.name in LOADGEN_LOGS and not (tree.root / path).exists()
        if finding.rule in _OF_A_SELECTION or absent:
            return SELECTION
    for cause, shows, follows in _BY_RULES:
        proved = finding.rule in follows and any((subject, rule) in violated for rule in shows)
        if proved or finding.rule in shows:
            return cause
    return finding.rule


def causes(caused: Iterable[CausedFinding]) -> list[Cause]:
    """Return the causes, ordered by rank, then errors before warnings, then by the number of results."""
    by_name: dict[str, Cause] = {}
    for caused_finding in caused:
        if caused_finding.cause not in by_name:
            by_name[caused_finding.cause] = Cause(
                caused_finding.cause, *(_JOINT.get(caused_finding.cause) or _of_rule(find_rule(caused_finding.cause)))
            )
        by_name[caused_finding.cause].caused.append(caused_finding)
    return sorted(by_name.values(), key=lambda cause: cause.order)


def _of_rule(rule: Rule) -> tuple[int, str]:
    return weight_of(rule), f"{rule.summary} ({rule.source})"
