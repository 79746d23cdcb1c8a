"""What findings add up to: each with the result that it is about, and its cause; causes by weight, each told once."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field
from functools import cached_property
from pathlib import Path

from compliance.finding import Finding, Rule, find_rule
from compliance.submission.tree import Place, Tree
from runs.record.layout import LOADGEN_LOGS
from runs.wording import counted

SUBJECT = ("division", "organisation", "system", "benchmark", "scenario")

# What matters, the gravest first.
WEIGHTS = (
    "contradictions and copies",
    "audits that are empty, missing or failing",
    "rules and limits that are broken",
    "settings that were not in force",
    "files and descriptions",
)
COPIES, AUDITS, LIMITS, SETTINGS, FILES = range(len(WEIGHTS))
# The weight of a rule, by the longest beginning of its id; contradictions have the first, whatever they are named.
_WEIGHT_OF = {
    "": FILES,
    "log-": COPIES, "perf-mode": COPIES, "accuracy-mode": COPIES,
    "plausible-": COPIES, "rehearsal": COPIES, "runs-": COPIES,
    "audit-": AUDITS, "test0": AUDITS,
    "perf-": LIMITS, "accuracy-": LIMITS, "measurements-retraining": LIMITS, "measurements-fewer-weights": LIMITS,
    "user-conf-": SETTINGS, "log-config": SETTINGS, "log-dates": SETTINGS,
    "log-missing": FILES, "log-damaged": FILES,
    "accuracy-text": FILES, "accuracy-hash": FILES, "accuracy-size": FILES, "accuracy-shape": FILES,
    "accuracy-files": FILES,
}  # fmt: skip


def weight_of(rule: Rule) -> int:
    """The place of a rule's weight in WEIGHTS."""
    if rule.kind == "contradiction":
        return COPIES
    return _WEIGHT_OF[max((start for start in _WEIGHT_OF if rule.id.startswith(start)), key=len)]


@dataclass(frozen=True)
class _Joint:
    """One fault that breaks several rules of a result."""

    name: str
    weight: int
    summary: str
    rules: frozenset[str]  # each of them is the fault
    follow: frozenset[str]  # broken by the fault too, in results that have it


_JOINT = (
    _Joint(
        "extra-token", LIMITS, "no special id stands before an answer and is counted as one of its tokens",
        frozenset({"test06-begin", "test06-end-last"}),
        frozenset({"test06-length", "test06-end-once", "perf-output-tokens"}),
    ),
)  # fmt: skip
SELECTION = "selection"  # the cause of what follows from a tree's being a selection
_OF_A_SELECTION = frozenset(
    {"tree-source", "tree-no-results", "system-unused", "scenario-set", "accuracy-files", "power-files"}
)


@dataclass(frozen=True)
class Told:
    """A finding with its cause, and what it is about: as many of SUBJECT as are known."""

    finding: Finding
    subject: tuple[str, ...]
    cause: str

    @property
    def result(self) -> tuple[str, ...] | None:
        """The result that it is about; None where it is about a submitter or a system."""
        return self.subject if len(self.subject) == len(SUBJECT) else None


@dataclass
class Cause:
    """All findings of one cause."""

    name: str
    weight: int
    summary: str  # what was not kept
    told: list[Told] = field(default_factory=list)

    @cached_property
    def results(self) -> list[str]:
        named = {"/".join(one.result) for one in self.told if one.result}
        return sorted(named.union(*(one.finding.numbers.get("results", ()) for one in self.told)))

    @cached_property
    def submitters(self) -> list[str]:
        return sorted({one.subject[1] for one in self.told if len(one.subject) > 1})

    @property
    def is_error(self) -> bool:
        return any(one.finding.severity == "error" for one in self.told)

    @property
    def rules(self) -> Counter[str]:
        return Counter(one.finding.rule for one in self.told)

    @property
    def example(self) -> Finding:
        """The first of the gravest: of errors, and of those about most results."""

        def gravity(finding: Finding) -> tuple[bool, int]:
            return finding.severity != "error", -len(finding.numbers.get("results", ()))

        return min((one.finding for one in self.told), key=gravity)

    @property
    def extent(self) -> str:
        """How many of what it touches: 37 results of 7 submitters."""
        what = counted(len(self.results), "result") if self.results else counted(len(self.told), "finding")
        return f"{what} of {counted(len(self.submitters), 'submitter')}" if self.submitters else what

    @property
    def order(self) -> tuple[int, bool, int, str]:
        return self.weight, not self.is_error, -len(self.results or self.told), self.name


def tell(tree: Tree, places: Sequence[Place], findings: Iterable[Finding]) -> list[Told]:
    """Each finding with its subject and cause, in the same order."""
    known = {tuple(astuple(place)[:count]) for place in places for count in range(len(SUBJECT) + 1)}
    known |= {home[:count] for home in tree.organisations() for count in (1, 2)}
    about = [(finding, _subject(finding.files[0], known)) for finding in findings]
    broken = {(subject, finding.rule) for finding, subject in about}
    selected = is_selection(tree, findings)
    return [Told(finding, subject, _cause(tree, finding, subject, broken, selected)) for finding, subject in about]


def _subject(file: Path, known: set[tuple[str, ...]]) -> tuple[str, ...]:
    division, organisation, kind, *inside = (*file.parts, "", "", "")[: max(3, len(file.parts))]
    if kind == "systems" and inside:
        inside = [inside[0].removesuffix(".json")]
    names = (division, organisation, *inside)[: len(SUBJECT)]
    return next(names[:count] for count in range(len(names), -1, -1) if names[:count] in known)


def is_selection(tree: Tree, findings: Iterable[Finding]) -> bool:
    """Several submitters, and no code of any of them: somebody left the large parts of a round out."""
    homes = list(tree.organisations())
    return len(homes) > 1 and sum(finding.rule == "tree-source" for finding in findings) >= len(homes)


def _cause(
    tree: Tree, finding: Finding, subject: tuple[str, ...], broken: set[tuple[tuple[str, ...], str]], selected: bool
) -> str:
    if selected:
        path, missed = finding.files[0], weight_of(finding.known) in (AUDITS, FILES)
        absent = missed and path.name in LOADGEN_LOGS and not (tree.root / path).exists()
        if finding.rule in _OF_A_SELECTION or absent:
            return SELECTION
    for joint in _JOINT:
        fault = finding.rule in joint.follow and any((subject, rule) in broken for rule in joint.rules)
        if fault or finding.rule in joint.rules:
            return joint.name
    return finding.rule


def causes(told: Iterable[Told]) -> list[Cause]:
    """What is behind the findings, by weight; in one weight errors first, then what touches most."""
    joint = {one.name: (one.weight, one.summary) for one in _JOINT} | {SELECTION: (FILES, "the tree is whole")}
    found: dict[str, Cause] = {}
    for one in told:
        if one.cause not in found:
            weight, summary = joint.get(one.cause) or _of_rule(find_rule(one.cause))
            found[one.cause] = Cause(one.cause, weight, summary)
        found[one.cause].told.append(one)
    return sorted(found.values(), key=lambda cause: cause.order)


def _of_rule(rule: Rule) -> tuple[int, str]:
    return weight_of(rule), f"{rule.summary} ({rule.source})"
