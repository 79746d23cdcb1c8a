"""Whether runs are of one system: each question has the facts that count, and the rule that a difference breaks."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from compliance.finding import Finding, fail, warn
from runs.record import fingerprint as facts
from runs.record.fingerprint import FREE_MEMORY, Differences, Facts, Scope, describe, differences
from runs.wording import shortened_list

Item = TypeVar("Item")

_DAY_NS = 86_400 * 10**9
MOST_DAYS_APART = 183  # between the first run of a result or bundle and the last; a round takes half a year
SHOWN = 4  # differences in a finding


class Question(NamedTuple):
    """Are two runs alike in some facts?"""

    rule: str  # of a finding that they are not
    scope: Scope
    text: str


REPEATS = Question("B-3/other_conditions", facts.MEASURED, "the repeats ran under different conditions")
MODES = Question("H-1/other_path", facts.BOTH_MODES, "accuracy and performance ran differently")
DATA_OF_MODES = Question("H-3/other_model_or_data", facts.BUNDLE_BENCHMARK, MODES.text)
AUDIT = Question("H-5/caching_audit_forged", facts.AUDITED, "the audit is of another system")
OF_BUNDLE = Question("H-9/several_systems", facts.BUNDLE, "the legs of this bundle are of several systems")
OF_BUNDLE_BENCHMARK = OF_BUNDLE._replace(scope=facts.BUNDLE_BENCHMARK)
OF_BUNDLE_MODE = OF_BUNDLE._replace(scope=facts.BUNDLE_MODE)
HARNESS = Question("B-3/other_harness", facts.CODE, "legs by different versions of the harness")
# Before a tree is built; the text is the fix.
OF_RESULT = Question("submit/one-configuration", facts.RESULT, "run the legs again in one configuration")
OF_TREE = Question("submit/one-system", facts.TREE, "submit results of one system; another has a tree entry of its own")
OF_BENCHMARK = Question("submit/one-model", facts.BENCHMARK, "run all scenarios with that one")
OF_PRECISION = Question("submit/one-model", facts.PRECISION, OF_BENCHMARK.text)


def with_first(
    items: Iterable[Item], kind: Callable[[Item], Hashable] = lambda item: None
) -> Iterator[tuple[Item, Item]]:
    """Yield the first item of each kind with each later one."""
    first: dict[Hashable, Item] = {}
    for item in items:
        if (earlier := first.setdefault(kind(item), item)) is not item:
            yield earlier, item


def differing(question: Question, one: Facts, other: Facts, *roots: Path) -> Iterator[Finding]:
    """A finding if two runs differ; a warning if only the free memory at the start does."""
    if found := differences(one, other, question.scope):
        make = warn if found.keys() <= FREE_MEMORY else fail
        yield make(question.rule, f"{question.text}: {difference_text(found)}", *roots, keys=sorted(found))


def difference_text(found: Differences) -> str:
    """Differences between a first and a second run as a text."""
    return shortened_list(describe(found, "in the first", "in the second"), SHOWN)


def too_far_apart(starts: Iterable[tuple[int, Item]]) -> tuple[float, Item, Item] | None:
    """The days between the first of some runs and the last, and these two; None if the days are allowed.

    Args:
        starts: the time of each in ns, and the run.
    """
    if not (in_order := sorted(starts, key=lambda start: start[0])):
        return None
    (early_ns, early), (late_ns, late) = in_order[0], in_order[-1]
    days = (late_ns - early_ns) / _DAY_NS
    return (days, early, late) if days > MOST_DAYS_APART else None
