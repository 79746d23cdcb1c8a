"""Which rules were applied to each result: a rule of the catalogue is kept, broken, not applicable, or without input.

A broken rule has findings; a rule that was applied and has none is kept; the others get a reason. Applied rules are
those that deciders noted (`compliance.finding.note_applied`).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from compliance.finding import ON_LEGS, Rule, all_rules
from compliance.submission.check.layout import AUDIT_FOLDERS
from compliance.submission.check.power import POWER_LOG
from compliance.submission.tree import NOT_IN_OPEN, Place, Tree
from runs.record.layout import LOADGEN_LOGS

SUMMARY, DETAIL, ANSWERS, _ = LOADGEN_LOGS
_RUN = f"performance/run_1/{DETAIL}"
_WHOLE = f"the whole accuracy/{ANSWERS}, which a tree has cut"
_RECORD = "requests.jsonl and manifest.json of a leg of ours, which no tree has"
_ENDPOINTS = "a run folder of the MLPerf Endpoints client, which no tree has"
_RUNS = "the runs that the tree was built from (--runs)"
# The files that rules need, by the longest prefix of their ids that is here; of several files one is enough. Paths that
# begin with "TEST" are in the directory of an audit; what is no path is never in a tree.
_INPUTS: dict[str, tuple[str, ...]] = {
    "": (),
    "perf-": (_RUN,),
    "log-": (_RUN, f"accuracy/{DETAIL}"), "log-missing": (), "log-records": (_RECORD,), "log-not-in-runs": (_RUNS,),
    "power-": ("performance/power", "performance/ranging", f"performance/run_1/{POWER_LOG}"),
    "user-conf-": ("user.conf",),
    "accuracy-": (f"accuracy/{DETAIL}",),
    "accuracy-text": ("accuracy/accuracy.txt",), "accuracy-hash": ("accuracy/accuracy.txt",),
    "accuracy-target": ("accuracy/accuracy.txt",), "accuracy-size": (), "accuracy-shape": (f"accuracy/{ANSWERS}",),
    "accuracy-text-differs": (_WHOLE,), "accuracy-answers": (_WHOLE,), "accuracy-longest": (_WHOLE,),
    "accuracy-count": (_WHOLE,), "accuracy-token-counts": (_WHOLE,), "accuracy-scored-again": (_WHOLE,),
    "accuracy-no-target": (_WHOLE,),
    "audit-verdict": ("TEST/verify_performance.txt",), "audit-numbers": ("TEST/verify_performance.txt",),
    "audit-fallback": ("TEST/verify_accuracy.txt",),
    "audit-": ("TEST",), "audit-missing": (), "audit-settings": (f"TEST/performance/run_1/{DETAIL}",),
    "audit-errors": (f"TEST/performance/run_1/{DETAIL}",), "audit-order": (f"TEST/performance/run_1/{DETAIL}",),
    "endpoints-": (_ENDPOINTS,),
    "test0": (f"TEST/accuracy/{ANSWERS}",),
    "plausible-": (_RECORD,), "record-": (_RECORD,), "attested": (_RECORD,), "one-system": (_RECORD,),
    "runs-": (_RUNS,),
}  # fmt: skip
NOT_APPLICABLE, WITHOUT_INPUT = "not applicable", "without input"


@dataclass(frozen=True)
class NotJudged:
    """Rules that were not applied to a result, and why."""

    what: str  # NOT_APPLICABLE or WITHOUT_INPUT
    why: str  # for which reason, or without which file
    rules: tuple[str, ...]


@cache
def catalogue() -> tuple[Rule, ...]:
    """The rules on trees and their results, in order of their ids."""
    rules = all_rules().values()
    asked = (one for one in rules if one.kind in ON_LEGS or one.kind == "tree" or one.id.startswith("test06-"))
    return tuple(sorted(asked, key=lambda rule: rule.id))


def not_judged(
    tree: Tree, place: Place, applied: frozenset[str], broken: frozenset[str], *, with_runs: bool
) -> tuple[NotJudged, ...]:
    """The rules that were not applied to a result, by reason."""
    silent: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    missing = _missing(tree, place, with_runs)
    for rule in catalogue():
        if rule.id in broken:
            continue
        if place.division == "open" and rule.id in NOT_IN_OPEN:
            silent[NOT_APPLICABLE, "the open division is free there"].append(rule.id)
        elif why := missing[_subject(rule.id)]:
            silent[WITHOUT_INPUT, why].append(rule.id)
        elif rule.id not in applied and not (with_runs and _INPUTS[_subject(rule.id)] == (_RUNS,)):
            why = f"{place.scenario} has nothing of the kind"
            why = "a log of it is damaged" if "log-damaged" in broken else why
            silent[NOT_APPLICABLE, why].append(rule.id)
    found = [NotJudged(*key, tuple(rules)) for key, rules in silent.items()]
    return tuple(found)


@cache
def _subject(rule_id: str) -> str:
    return max((start for start in _INPUTS if rule_id.startswith(start)), key=len)


def _missing(tree: Tree, place: Place, with_runs: bool) -> dict[str, str]:
    """What the rules of each prefix lack; empty where they lack nothing."""
    audits = [folder for test in sorted(AUDIT_FOLDERS) if (folder := tree.audit(place, test)).is_dir()]

    @cache
    def there(name: str) -> bool:
        if name == _RUNS:
            return with_runs
        if name == "user.conf":
            return tree.user_conf(place).is_file()
        if name.startswith("TEST"):
            return any((folder / name.removeprefix("TEST").lstrip("/")).exists() for folder in audits)
        return (tree.scenario(place) / name).exists()

    return {
        subject: "" if not names or any(map(there, names)) else " or ".join(names) for subject, names in _INPUTS.items()
    }


def alike(judged: Mapping[str, Iterable[NotJudged]]) -> dict[NotJudged, list[str]]:
    """Results by what was not applied to them, the most frequent first."""
    results: defaultdict[NotJudged, list[str]] = defaultdict(list)
    for place, several in judged.items():
        for one in several:
            results[one].append(place)
    return dict(sorted(results.items(), key=lambda item: (-len(item[1]), item[0].what, item[0].why)))
