"""What `check` found in a tree: findings by their place in it."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from compliance.finding import Finding, Severity, find_rule
from compliance.submission.tree import NOT_IN_OPEN
from runs.wording import printable

SHOWN = 200  # characters of foreign content in a message
# Findings of one rule in one directory, and in the whole tree; of more their number is told. All results of round v5.1
# have 738 of one rule.
MOST_ALIKE = 100
MOST_OF_A_RULE = 10_000

# Rules on a leg that are asked of the tree's own files here, or by the round that was named; and
# what needs the whole answers, which no tree has (check --runs has them).
_ASKED_OTHERWISE = frozenset(
    {
        "perf-benchmark-scenario", "perf-validity", "perf-seeds", "accuracy-errors", "accuracy-seeds",
        "accuracy-target", "accuracy-count", "accuracy-no-target", "accuracy-scored-again",
    }
)  # fmt: skip


def is_asked(rule_id: str, division: str) -> bool:
    """Is a rule on legs told of as verify found it, in a tree of this division?"""
    return rule_id not in _ASKED_OTHERWISE and not (division == "open" and rule_id in NOT_IN_OPEN)


class Findings:
    """Collects what is found in one tree."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._kept: list[Finding] = []
        self._of_a_rule: Counter[tuple[str, Severity]] = Counter()
        self._alike: Counter[tuple[str, Severity, Path]] = Counter()

    def add(
        self,
        rule_id: str,
        path: Path,
        found: str,
        expected: str = "",
        fix: str = "",
        severity: Severity | None = None,
    ) -> None:
        """Note a breach; `expected`, `fix` and `severity` are the rule's own where they are not given."""
        rule = find_rule(rule_id)
        told = severity or rule.severity
        self._of_a_rule[rule_id, told] += 1
        if self._of_a_rule[rule_id, told] > MOST_OF_A_RULE:
            return
        self._alike[rule_id, told, path.parent] += 1
        if self._alike[rule_id, told, path.parent] <= MOST_ALIKE:
            self._kept.append(self._finding(rule_id, told, path, found, expected or rule.summary, fix or rule.fix))

    def _finding(self, rule_id: str, severity: Severity, path: Path, found: str, expected: str, fix: str) -> Finding:
        place = (Path(shown_path(path.relative_to(self._root))),)
        return Finding(rule_id, severity, "", place, found=shortened(found), required=shortened(expected), fix=fix)

    @property
    def items(self) -> list[Finding]:
        """What was noted; of each kind at most so many, and how many more there are."""
        more = [
            *((key, f"{count - MOST_ALIKE:,} more in this directory") for key, count in self._alike.items()
              if count > MOST_ALIKE),
            *(((*key, self._root), f"{count - MOST_OF_A_RULE:,} more in this tree")
              for key, count in self._of_a_rule.items() if count > MOST_OF_A_RULE),
        ]  # fmt: skip
        return self._kept + [
            self._finding(rule_id, severity, folder, said, find_rule(rule_id).summary, find_rule(rule_id).fix)
            for (rule_id, severity, folder), said in more
        ]

    def name(self, path: Path) -> str:
        """The path as it is shown: relative to the tree."""
        return shown_path(path.relative_to(self._root))


def place_of(finding: Finding) -> str:
    """The file that a finding of this collector is about, as it is shown."""
    return finding.files[0].as_posix()


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Each finding once, by its place."""
    return sorted(set(findings), key=lambda one: (place_of(one), one.rule, one.found, one.required))


def shown_path(path: Path) -> str:
    return printable(path.as_posix(), 1000)


def shortened(text: str) -> str:
    return printable(text, SHOWN * 2)
