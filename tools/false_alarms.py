"""Count the findings of this harness's own rules on published rounds, for the table in docs/check-rules.md.

    .venv/bin/python -m tools.false_alarms v5.1=CHECKOUT v6.0=CHECKOUT v4.1=CHECKOUT [--write]

Each CHECKOUT is a work tree of a round's results, and the name before it is the round whose rules apply. `REVIEWED` has
the numbers of findings that were reviewed by hand, and of those that were false. `--write` writes the table to
docs/check-rules.md instead of printing it.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compliance.judge.rule import OURS, all_rules
from compliance.results.scoring import ScoreSources
from compliance.sources import VerdictRequest, find
from compliance.trees.check_tree import TreeReport, catalog
from runs.harness import HARNESS_ROOT
from runs.rounds import TREE_ROUNDS

PAGE = HARNESS_ROOT / "docs" / "check-rules.md"
BEGIN, END = "<!-- false alarms: tools/false_alarms.py -->\n", "<!-- end of false alarms -->\n"


@dataclass(frozen=True)
class ManualReview:
    """The outcome of a manual review of a rule's findings."""

    reviewed: int
    false: int
    remark: str


# Findings of rounds v5.1, v6.0 and v4.1, drawn at random over the submitters.
REVIEWED = {
    "accuracy-reach": ManualReview(
        4, 0, "True: some runs scored a part of the dataset, and one TEST07 score is 23% above its threshold"
    ),
    "audit-errors": ManualReview(
        9, 6, "False: max_query_count ends a TEST07 run. The rule no longer reports this case"
    ),
    "audit-log": ManualReview(10, 0, "True: submitters truncated TEST06 logs as if they were accuracy logs"),
    "audit-numbers": ManualReview(
        191, 162, "False: a score has fewer digits than the log. The rule no longer reports this case"
    ),
    "log-config": ManualReview(10, 0, "True: one result contains runs of two LoadGen versions"),
    "log-duplicate": ManualReview(10, 0, "True: two results contain one log"),
    "log-same-answers": ManualReview(10, 0, "True, but allowed if short responses are deterministic"),
    "log-sources": ManualReview(
        4, 0, "True: one file of LoadGen differs from that in all other logs of its revision. v6.0 was not counted"
    ),
    "perf-cut-short": ManualReview(
        4, 4, "False: max_query_count exceeds min_query_count. The rule now reports a warning for such benchmarks"
    ),
    "perf-network-name": ManualReview(10, 0, "True, but allowed: the systems have multiple nodes"),
    "perf-tokens-accuracy": ManualReview(1, 0, "True: accuracy.txt counts each token twice"),
    "system-accelerators": ManualReview(
        4,
        0,
        "True: the name and the description state different numbers of accelerators",
    ),
    "system-hosts": ManualReview(
        6,
        0,
        "True: a description lists processors as accelerators, or the system's name does not contain its processor",
    ),
    "system-placeholder": ManualReview(10, 0, "True: a field contains TBD, TODO or <fill>"),
    "text-place": ManualReview(2, 0, "True: 3d-unet results contain the audit text of resnet50"),
    "test06-begin": ManualReview(126, 43, "False: 1 to 5 of 100 responses contain the ID. The rule now reports a note"),
    "test06-end-last": ManualReview(10, 0, "True: all 100 responses continue after an end-of-sequence ID"),
    "user-conf-absent": ManualReview(10, 0, "True: no line of user.conf contains the rate of the log"),
    "user-conf-accuracy": ManualReview(10, 0, "True: user.conf belongs to the accuracy run"),
    "user-conf-differs": ManualReview(10, 0, "True: user.conf often contains 0.92 × the rate of the run"),
}


def own_rules() -> list[str]:
    """Return the IDs of the rules of `check` whose source is this project."""
    return [rule for rule in catalog() if OURS in all_rules()[rule].source]


def table(counts: Mapping[str, Counter[str]]) -> str:
    """Return the table in Markdown.

    Args:
        counts: round → rule ID → number of findings.
    """
    rounds, rules = list(counts), own_rules()
    lines = [
        f"| rule | severity | {' | '.join(rounds)} | examined | false | result of the examination |",
        f"|---|---|{'---|' * len(rounds)}---|---|---|",
    ]
    for rule in rules:
        if rule in REVIEWED or any(count[rule] for count in counts.values()):
            review = REVIEWED.get(rule, ManualReview(0, 0, ""))
            cells = " | ".join(f"{counts[name][rule]:,}" for name in rounds)
            severity = all_rules()[rule].severity
            lines.append(f"| `{rule}` | {severity} | {cells} | {review.reviewed} | {review.false} | {review.remark} |")
    silent = [
        f"`{rule}`" for rule in rules if rule not in REVIEWED and not any(count[rule] for count in counts.values())
    ]
    return "\n".join([*lines, "", f"These rules have no finding in these rounds: {', '.join(silent)}."]) + "\n"


def write(text: str, page: Path = PAGE) -> None:
    """Write the table to its place in the page."""
    before, _, rest = page.read_text().partition(BEGIN)
    page.write_text(before + BEGIN + text + END + rest.partition(END)[2])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rounds", nargs="+", metavar="ROUND=CHECKOUT")
    parser.add_argument("--write", action="store_true", help="write the table into docs/check-rules.md")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Print or write the table; return the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    counts: dict[str, Counter[str]] = {}
    for word in options.rounds:
        name, _, folder = word.partition("=")
        if name not in TREE_ROUNDS or not Path(folder).is_dir():
            parser.error(f"{word}: write ROUND=CHECKOUT, with a round of {', '.join(TREE_ROUNDS)} and a directory")
        (case,) = find("check", [Path(folder)], VerdictRequest(ScoreSources(), round=TREE_ROUNDS[name]))
        label = Path(folder).resolve().name
        counts[label] = Counter(finding.rule for finding in TreeReport(case.judge()).findings)
    text = table(counts)
    if options.write:
        write(text)
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
