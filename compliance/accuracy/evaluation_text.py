"""Contradictions and failures in the text of an evaluation (accuracy.txt, verify_*.txt) of any benchmark.

The reference evaluations print a score and its parts: correct samples and all samples, the error rate and the accuracy,
the points of each dataset and their sum. A text whose parts do not give the score was edited.

Sources, read at mlcommons/inference commit b66003e1 (2026-08-20): the evaluations in vision/, language/, graph/,
speech2text/, recommendation/ and text_to_video/.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

_N = r"(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"
# Words that state a failure. No accuracy text of the published rounds v4.1, v5.1 and v6.0 contains them.
_FAILURE = re.compile(
    r"\b(?:fail(?:ed|ure|s|ing)?|traceback|exception|\w*error(?! rate)|aborted|invalid|nan)\b"
    r"|\bpass(?:ed)?\s*[:=]\s*(?:no|false)\b|\bnot (?:passed|met|reached)\b|\bbelow (?:the )?(?:target|threshold)\b",
    re.IGNORECASE,
)
# Patterns of numbers by name. The first match in a text counts.
_NUMBERS = {
    name: re.compile(pattern.replace("#", _N), re.MULTILINE)
    for name, pattern in {
        "accuracy": r"\baccuracy=#%", "good": r"\bgood=#", "total": r"\btotal=#", "queries": r"\bqueries=#",
        "word error rate": r"^Word Error Rate: #%",
        "mean": r"^Accuracy: mean = #", "threshold": r"^Accuracy: mean = [\d.]+, threshold = #",
        "kidney": r"(?:^ *- Kidney:|, kidney =) #", "tumor": r"(?:^ *- Tumor:|, tumor =) #",
        "mAP": r"^mAP=#%", "AP": r"\(AP\) @\[ IoU=0\.50:0\.95 \| area= +all \| maxDets=100 \] = #",
        "rouge1": r"'rouge1': '?#", "rouge2": r"'rouge2': '?#", "rougeL": r"'rougeL': '?#",
        "rougeLsum": r"'rougeLsum': '?#", "gen_num": r"'gen_num': #", "gen_tok_len": r"'gen_tok_len': #",
        "tokens_per_sample": r"'tokens_per_sample': #", "num-samples": r"'num-samples': #",
        "pass@1": r"^ *#% pass@1", "mbxp": r"'mbxp': #",
        "exact_match": r"['\"]exact_match['\"]: #", "f1": r"['\"]f1['\"]: #",
        "samples evaluated": r"^Total samples evaluated: #",
        "raw accuracy": r"^Overall raw accuracy: #%", "correct": r"^Overall raw accuracy: [\d.]+% \(#/",
        "evaluated": r"^Overall raw accuracy: [\d.]+% \(\d+/#\)",
        "final score": r"^FINAL SCORE: #%", "points": r"^FINAL SCORE: [\d.]+% \(#/",
        "most points": r"^FINAL SCORE: [\d.]+% \([\d.]+/#\)",
        "vbench_score": r"'vbench_score': #", "overall average": r"^ *Overall Average *: #",
        "threshold in percent": r"^Threshold: #%",
        **{name: rf"^{name} = #" for name in (
            "num_perf_log_entries", "num_perf_log_qsl_idx_match", "num_missing_qsl_idxs", "num_matched",
            "num_unmatched",
        )},
    }.items()
}  # fmt: skip
# Row of a table of datasets: name, correct, samples, repetitions, points, accuracy.
_ROW = re.compile(r"^(\w+) +# +# +# +# +#%$".replace("#", _N), re.MULTILINE)
_DIMENSION = re.compile(rf"^  [a-z_]+ +: {_N}$", re.MULTILINE)

NumberByName = Mapping[str, float]


class TextFault(NamedTuple):
    """A contradiction or a failure that a text states."""

    found: str
    required: str
    key: str = ""  # beginning of the line with the contradiction or failure


class _Follows(NamedTuple):
    """A number that can be computed from other numbers of the text."""

    name: str
    value: Callable[[NumberByName], float]
    slack: float  # tolerance for rounding to the printed digits


_FOLLOWS = (
    _Follows("accuracy", lambda n: 100 * n["good"] / n["total"], 0.00051),
    _Follows("accuracy", lambda n: 100 - n["word error rate"], 1e-6),
    _Follows("mean", lambda n: (n["kidney"] + n["tumor"]) / 2, 6e-5),
    _Follows("mAP", lambda n: 100 * n["AP"], 0.051),
    _Follows("tokens_per_sample", lambda n: n["gen_tok_len"] / n["gen_num"], 0.051),
    _Follows("mbxp", lambda n: n["pass@1"], 0.0051),
    _Follows("samples evaluated", lambda n: n["evaluated"], 0.0),
    _Follows("raw accuracy", lambda n: 100 * n["correct"] / n["evaluated"], 0.0051),
    _Follows("final score", lambda n: 100 * n["points"] / n["most points"], 0.01),
    _Follows("exact_match", lambda n: n["final score"], 0.0051),
    _Follows("vbench_score", lambda n: 100 * n["overall average"], 0.0051),
    _Follows("samples evaluated", lambda n: n["samples of rows"], 0.0),
    _Follows("correct", lambda n: n["correct of rows"], 0.0),
    _Follows("points", lambda n: n["points of rows"], 0.0251),
    _Follows("overall average", lambda n: n["mean of dimensions"], 6e-5),
    _Follows("num_perf_log_entries", lambda n: n["num_perf_log_qsl_idx_match"] + n["num_missing_qsl_idxs"], 0.0),
    _Follows("num_perf_log_entries", lambda n: n["num_matched"] + n["num_unmatched"], 0.0),
)
# Pairs of scores. By definition, the first score is at most as high as the second.
_AT_MOST = (
    ("rouge2", "rouge1"), ("rougeL", "rouge1"), ("rougeLsum", "rouge1"), ("threshold", "mean"),
    ("exact_match", "f1"), ("threshold in percent", "vbench_score"), ("good", "total"), ("correct", "evaluated"),
)  # fmt: skip
# Names for the number of scored samples. With `queries`, `total` is a number of labels. [recommendation/dlrm_v2]
_COUNTS = ("gen_num", "num-samples", "samples evaluated", "queries")


def stated_failures(text: str) -> Iterator[TextFault]:
    """Yield the first place at which a text states a failure."""
    if match := _FAILURE.search(text):
        line = text[text.rfind("\n", 0, match.start()) + 1 :].partition("\n")[0].strip()
        yield TextFault(f"{match[0]!r} in the line {line[:120]!r}", "no failure", line)


def numbers_in(text: str) -> dict[str, float]:
    """Return the numbers in a text by name. For a table, return the sums of its columns."""
    numbers = {name: float(match[1]) for name, pattern in _NUMBERS.items() if (match := pattern.search(text))}
    rows = [tuple(map(float, row[1:])) for row in _ROW.findall(text)]
    if rows:
        correct, samples, _, points, _ = (sum(column) for column in zip(*rows, strict=True))
        numbers |= {"correct of rows": correct, "samples of rows": samples, "points of rows": points}
    dimensions = [float(number) for number in _DIMENSION.findall(text)]
    if dimensions:
        numbers["mean of dimensions"] = sum(dimensions) / len(dimensions)
    return numbers


def datasets_in(text: str) -> list[str]:
    """Return the names of the datasets in the table of a text."""
    return [row[0] for row in _ROW.findall(text)]


def text_contradictions(text: str) -> Iterator[TextFault]:
    """Yield the numbers of a text that contradict its other numbers."""
    numbers = numbers_in(text)
    yield from (
        TextFault(f"{name} is {value:.10g}", "at least 0", name) for name, value in numbers.items() if value < 0
    )
    for name, value, slack in _FOLLOWS:
        try:
            stated, wanted = numbers[name], value(numbers)
        except (KeyError, ZeroDivisionError):
            continue
        if abs(stated - wanted) > slack + 1e-9:
            yield TextFault(
                f"{name} is {stated:.10g}", f"{wanted:.10g}, computed from the other numbers of the text", name
            )
    for low, high in _AT_MOST:
        if low in numbers and high in numbers and numbers[low] > numbers[high]:
            yield TextFault(f"{low} is {numbers[low]:.10g}", f"at most {numbers[high]:.10g} ({high})", low)
    for name, correct, samples, repeats, points, accuracy in _ROW.findall(text):
        of_all, share = float(correct) / max(float(repeats), 1.0), 100 * float(correct) / max(float(samples), 1.0)
        if abs(float(points) - of_all) > 0.0051 or abs(float(accuracy) - share) > 0.0051:
            stated_score = f"{name}: {points} points, {accuracy}%"
            yield TextFault(stated_score, f"{of_all:.2f} points, {share:.2f}% computed from the correct samples", name)


def scored_samples(text: str) -> Iterator[tuple[str, int]]:
    """Yield every number of scored samples that a text states, with its name."""
    numbers = numbers_in(text)
    names = [*_COUNTS, "total"] if "good" in numbers and "queries" not in numbers else _COUNTS
    yield from ((name, int(numbers[name])) for name in names if name in numbers)
