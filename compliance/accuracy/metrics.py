"""What scores an accuracy run: the metrics of the benchmarks, as values.

A metric has names for its scores, a way to score responses pair by pair, a way from these to the scores of a run, and
the form of accuracy.txt, as the reference evaluation writes it.

Sources, read at mlcommons/inference commit b66003e1 (2026-08-20):
  [8b]       language/llama3.1-8b/evaluation.py
  [70b]      language/llama2-70b/evaluate-accuracy.py
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from runs.benchmark import Benchmark

Scores = dict[str, float]  # of a whole run, by name


class Rouge(NamedTuple):
    """F-measures of one pair of texts, each from 0 to 1."""

    rouge1: float
    rouge2: float
    rougeL: float
    rougeLsum: float


ROUGE_NAMES = Rouge._fields


class SampleScores(NamedTuple):
    """F-measures and length in characters of one prediction; what a scoring process hands back."""

    rouge: Rouge
    length: int


@dataclass(frozen=True)
class ScoreForm:
    """One score of a run, and how accuracy.txt has it."""

    name: str
    decimals: int = 0  # that it is written with; 0 = a whole number
    quoted: bool = False  # whether the reference evaluation writes it as a string
    optional: bool = False  # whether an accuracy.txt may lack it

    def literal(self, value: float) -> float | str:
        """The number as a plain Python literal."""
        number = int(value) if self.decimals == 0 else float(round(value, self.decimals))
        return str(number) if self.quoted else number


@dataclass(frozen=True)
class Metric:
    """One way to score."""

    name: str
    forms: tuple[ScoreForm, ...]  # the scores, in the order of accuracy.txt
    # those that are means over the responses, better when higher; the first leads where one must do
    means: tuple[str, ...]
    length: str  # the score for the length of the responses; its unit is `length_unit`
    length_unit: str
    count: str  # the score that is the number of responses
    # scores (response, reference) pairs, each in a form of the metric's own; runs in other processes
    score_pairs: Callable[[Sequence[tuple[str, str]]], list[Any]]
    # the scores of a run, from those of its responses and the tokens that each response has
    of_run: Callable[[Sequence[Any], Sequence[int]], Scores]

    def text(self, scores: Mapping[str, float]) -> str:
        """One Python literal, as the reference evaluation writes it."""
        return repr({form.name: form.literal(scores[form.name]) for form in self.forms})

    def shown(self, scores: Mapping[str, float]) -> str:
        """The scores in one line, for people."""
        means = "  ".join(f"{name} {scores[name]}" for name in self.means)
        return f"{means}  {self.length} {scores[self.length]:,} {self.length_unit}"


def score_pairs(pairs: Sequence[tuple[str, str]]) -> list[SampleScores]:
    """ROUGE and length of each (response, reference): stripped, a sentence a line, Porter stemmer. [8b] [70b]"""
    # These import NLTK, which takes a second. A process whose workers score does without.
    from compliance.accuracy.punkt import sentence_splitter
    from compliance.accuracy.rouge import score_pair

    split = sentence_splitter()
    scored = []
    for response, reference in pairs:
        lines = "\n".join(split(response.strip()))
        scored.append(SampleScores(score_pair(lines, "\n".join(split(reference.strip()))), len(lines)))
    return scored


def _rouge(samples: Sequence[SampleScores], token_counts: Sequence[int]) -> Scores:
    """Means × 100 with four decimals; `gen_len` counts characters after sentence splitting, not tokens. [8b] [70b]"""
    # NumPy's mean and NumPy's rounding, as in the reference: Python's own may differ in the last place.
    columns = zip(*(sample.rouge for sample in samples), strict=True)
    import numpy as np

    means = {name: float(np.round(np.mean(values) * 100, 4)) for name, values in zip(ROUGE_NAMES, columns, strict=True)}
    return {**means, "gen_len": sum(sample.length for sample in samples), "gen_num": len(samples)}


def _rouge_and_tokens(samples: Sequence[SampleScores], token_counts: Sequence[int]) -> Scores:
    """Tokens are the ids in the log, special ones too. [70b]"""
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
    length_unit="tokens a sample",
    count="gen_num",
    score_pairs=score_pairs,
    of_run=_rouge_and_tokens,
)
METRICS = {metric.name: metric for metric in (ROUGE, ROUGE_AND_TOKENS)}


def metric_of(benchmark: Benchmark) -> Metric:
    """The metric that a benchmark names."""
    return METRICS[benchmark.metric]
