"""Accuracy verdict of a run, and the two files that hold it.

`accuracy.json` is the full record. `accuracy.txt` is for the official submission checker, which looks for the
scores with regular expressions in every line: it holds the reference evaluation's result and nothing else.
"""

import re
from dataclasses import asdict, dataclass

from compliance.accuracy.sample_scores import ROUGE_NAMES
from compliance.accuracy.scores import AccuracyScores
from compliance.finding import Finding, applied
from runs.benchmark import AccuracyTarget
from runs.errors import InputError
from runs.files import write_atomic, write_json
from runs.record.layout import RunDir

NUMBER = r"(\d+(?:\.\d+)?)"


@dataclass(frozen=True)
class AccuracyVerdict:
    """Scores and what they are worth.

    `label` names what was scored against what. Without a target there is nothing to pass: `target` is None,
    `checks` is empty and `passed` is None.
    """

    label: str
    scores: AccuracyScores
    target: AccuracyTarget | None
    checks: tuple[Finding, ...]  # one a score, numbers: metric, measured, low, high
    passed: bool | None

    @property
    def failures(self) -> list[str]:
        """One sentence for each check that failed."""
        return [score_line(check) for check in self.checks if not check.passed]


def judge(scores: AccuracyScores, target: AccuracyTarget | None, label: str) -> AccuracyVerdict:
    """Compare scores with their target as the official checker does, which reads them with four decimals.

    All four ROUGE values must reach the target's share; the share itself is not rounded, so 38.3914 misses
    99 % of 38.7792. Characters must lie in the target's band. The number of predictions must be the target's,
    which the checker does not look at.
    """
    if target is None:
        return AccuracyVerdict(label, scores, None, (), None)
    checks = [
        _check("accuracy-target", name, getattr(scores, name), getattr(target, name) * target.rouge_share, None)
        for name in ROUGE_NAMES
    ]
    low, high = target.gen_len * target.gen_len_low, target.gen_len * target.gen_len_high
    checks.append(_check("accuracy-target", "gen_len", scores.gen_len, low, high))
    checks.append(_check("accuracy-count", "gen_num", scores.gen_num, target.gen_num, target.gen_num))
    return AccuracyVerdict(label, scores, target, tuple(checks), all(check.passed for check in checks))


def result_text(scores: AccuracyScores) -> str:
    """The reference evaluation's result: one Python literal of plain numbers, ROUGE values as strings."""
    rouge = {name: str(float(round(getattr(scores, name), 4))) for name in ROUGE_NAMES}
    return repr({**rouge, "gen_len": int(scores.gen_len), "gen_num": int(scores.gen_num)})


def parse_accuracy_text(text: str, where: str = "accuracy.txt") -> AccuracyScores:
    """Scores in the text of an `accuracy.txt`, ours or another's, as the official checker finds them.

    Args:
        text: the file's content.
        where: its name, for messages.

    Raises:
        InputError: a score is missing, or stands there twice with different values.
    """
    rouge1, rouge2, rougeL, rougeLsum = (_find(rf"'{name}':\s+'?{NUMBER}'?", name, text, where) for name in ROUGE_NAMES)
    gen_len, gen_num = (int(_find(rf"'{name}':\s{NUMBER}", name, text, where)) for name in ("gen_len", "gen_num"))
    return AccuracyScores(rouge1, rouge2, rougeL, rougeLsum, gen_len, gen_num)


def write_reports(run: RunDir, verdict: AccuracyVerdict) -> None:
    """Write the record, then the text: where `accuracy.txt` exists, `accuracy.json` does too."""
    names = ("measured", "low", "high")
    checks = [
        {"name": check.text, **{name: check.numbers[name] for name in names}, "passed": check.passed}
        for check in verdict.checks
    ]
    write_json(run.accuracy_json, {**asdict(verdict), "checks": checks})
    # No `hash=` line: the official truncation tool appends it.
    write_atomic(run.accuracy_text, f"Results\n\n{result_text(verdict.scores)}\n")


def score_line(check: Finding) -> str:
    """One score as people read it."""
    return f"{check.text} {check.found}, required {check.required}: {'pass' if check.passed else 'FAIL'}"


def _check(rule: str, name: str, measured: float, low: float, high: float | None) -> Finding:
    """One score against what is required of it: `low` ≤ `measured` ≤ `high`, None = no upper limit."""
    if high is None:
        required = f"at least {low:.10g}"
    else:
        required = f"exactly {low:.10g}" if high == low else f"{low:.10g} to {high:.10g}"
    passed = low <= measured and (high is None or measured <= high)
    numbers = {"metric": name, "measured": measured, "low": low, "high": high}
    return applied(rule, name, passed, f"{measured:.10g}", required, **numbers)


def _find(pattern: str, name: str, text: str, where: str) -> float:
    found = {float(value) for value in re.findall(pattern, text)}
    if len(found) != 1:
        problem = "has no" if not found else "has several different values of"
        raise InputError(f"{where} {problem} {name}", "write it with the reference evaluation or with this program")
    return found.pop()
