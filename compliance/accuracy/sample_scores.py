"""The scores of one prediction; what a scoring process hands back."""

from typing import NamedTuple


class Rouge(NamedTuple):
    """F-measures of one pair of texts, each from 0 to 1."""

    rouge1: float
    rouge2: float
    rougeL: float
    rougeLsum: float


ROUGE_NAMES = Rouge._fields


class SampleScores(NamedTuple):
    """F-measures and length in characters of one prediction."""

    rouge: Rouge
    length: int
