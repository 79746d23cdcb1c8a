"""The metrics with which the benchmarks score an accuracy run.

A metric has names for its scores, a function that scores pairs of response and reference, a function that combines them
to the scores of a run, and the format of accuracy.txt.

Sources, read at mlcommons/inference commit b66003e1 (2026-08-20):
  [8b]       language/llama3.1-8b/evaluation.py
  [70b]      language/llama2-70b/evaluate-accuracy.py
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from runs.benchmark import Benchmark

if TYPE_CHECKING:
    from compliance.accuracy.rouge import Rouge

Scores = dict[str, float]  # score name → value over all samples of a run
ROUGE_NAMES = ("rouge1", "rouge2", "rougeL", "rougeLsum")


class SampleScores(NamedTuple):
    """F-measures and length in characters of one prediction, as a scoring process returns them."""

    rouge: "Rouge"
    length: int


@dataclass(frozen=True)
class ScoreForm:
    """One score of a run, with its format in accuracy.txt."""

    name: str
    decimals: int = 0  # number of decimals; 0: the score is an integer
    quoted: bool = False  # True if the reference evaluation writes the score as a string
    optional: bool = False  # True if the score may be missing in accuracy.txt

    def literal(self, value: float) -> float | str:
        """Return the number as a plain Python literal."""
        number = int(value) if self.decimals == 0 else float(round(value, self.decimals))
        return str(number) if self.quoted else number


@dataclass(frozen=True)
class Metric:
    """A metric of a benchmark."""

    name: str
    forms: tuple[ScoreForm, ...]  # the scores, in the order of accuracy.txt
    # names of the scores that are means over all responses (higher is better), the main score first
    means: tuple[str, ...]
    length: str  # name of the score that is the total length of the responses, in `length_unit`
    length_unit: str
    count: str  # name of the score that is the number of responses
    # function that scores (response, reference) pairs, in worker processes
    score_pairs: Callable[[Sequence[tuple[str, str]]], list[Any]]
    # function that returns the scores of a run from the scores and token counts of its responses
    of_run: Callable[[Sequence[Any], Sequence[int]], Scores]

    def text(self, scores: Mapping[str, float]) -> str:
        """Return the scores as a Python literal, as the reference evaluation writes them."""
        return repr({form.name: form.literal(scores[form.name]) for form in self.forms})

    def shown(self, scores: Mapping[str, float]) -> str:
        """Return the scores as a line of text."""
        means = "  ".join(f"{name} {scores[name]}" for name in self.means)
        return f"{means}  {self.length} {scores[self.length]:,} {self.length_unit}"


def score_pairs(pairs: Sequence[tuple[str, str]]) -> list[SampleScores]:
    """Score pairs of response and reference text: stripped, one sentence per line, Porter stemmer. [8b] [70b]"""
    # The import of NLTK takes 0.5 s. A process with scoring workers does not need NLTK.
    from compliance.accuracy.punkt import sentence_splitter
    from compliance.accuracy.rouge import score_pair

    split = sentence_splitter()
    scored = []
    for response, reference in pairs:
        lines = "\n".join(split(response.strip()))
        scored.append(SampleScores(score_pair(lines, "\n".join(split(reference.strip()))), len(lines)))
    return scored


def _rouge(samples: Sequence[SampleScores], token_counts: Sequence[int]) -> Scores:
    """Return the mean scores × 100. `gen_len` counts the characters of the split sentences. [8b] [70b]"""
    # The reference evaluation uses NumPy's mean and rounding. Those of Python may differ in the last digit.
    columns = zip(*(sample.rouge for sample in samples), strict=True)
    import numpy as np

    means = {name: float(np.round(np.mean(values) * 100, 4)) for name, values in zip(ROUGE_NAMES, columns, strict=True)}
    return {**means, "gen_len": sum(sample.length for sample in samples), "gen_num": len(samples)}


def _rouge_and_tokens(samples: Sequence[SampleScores], token_counts: Sequence[int]) -> Scores:
    """Return ROUGE scores and token counts. Every token ID in the log counts, special token IDs too. [70b]"""
    tokens = sum(token_counts)
    return {
        **_rouge(samples, token_counts),
        "gen_tok_len": tokens,
        "tokens_per_sample": round(tokens / len(samples), 1),
    }


ROUGE = Metric(
    name="rouge",
    forms=(
        *(ScoreForm(name, 4, quoted=True) for name in ROUGE_NAMES),
        ScoreForm("gen_len"),
        ScoreForm("gen_num"),
    ),
    means=ROUGE_NAMES,
    length="gen_len",
    length_unit="characters",
    count="gen_num",
    score_pairs=score_pairs,
    of_run=_rouge,
)
ROUGE_AND_TOKENS = Metric(
    name="rouge-tokens",
    forms=(
        *(ScoreForm(name, 4, optional=name == "rougeLsum") for name in ROUGE_NAMES),
        ScoreForm("gen_len", optional=True),
        ScoreForm("gen_num"),
        ScoreForm("gen_tok_len", optional=True),
        ScoreForm("tokens_per_sample", 1),
    ),
    means=("rouge1", "rouge2", "rougeL"),
    length="tokens_per_sample",
    length_unit="tokens per sample",
    count="gen_num",
    score_pairs=score_pairs,
    of_run=_rouge_and_tokens,
)
METRICS = {metric.name: metric for metric in (ROUGE, ROUGE_AND_TOKENS)}


def metric_of(benchmark: Benchmark) -> Metric:
    """Return the metric of a benchmark."""
    return METRICS[benchmark.metric]
