"""Our ROUGE equals `rouge_score` to the last bit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score import rouge_scorer

from compliance.accuracy.metrics import Rouge
from compliance.accuracy.rouge import score_pair

SCORER = rouge_scorer.RougeScorer(list(Rouge._fields), use_stemmer=True)
# Few different words: many longest common subsequences of one length, of which the same one must be chosen.
FEW_WORDS = st.lists(st.sampled_from(["a", "b", "c", "running", "runs", "\n", "!"]), max_size=40).map(" ".join)


def expected(prediction: str, reference: str) -> Rouge:
    scores = SCORER.score(reference, prediction)
    return Rouge(*(scores[name].fmeasure for name in Rouge._fields))


@settings(max_examples=300, deadline=None)
@given(FEW_WORDS, FEW_WORDS)
def test_few_words_in_lines(prediction: str, reference: str) -> None:
    assert score_pair(prediction, reference) == expected(prediction, reference)


@settings(max_examples=300, deadline=None)
@given(st.text("ab\n ", max_size=200), st.text("abc\n ", max_size=200))
def test_many_equal_subsequences(prediction: str, reference: str) -> None:
    """Two or three words, more columns than a machine word has bits, and sentences that lack some words."""
    prediction, reference = (" ".join(text) for text in (prediction, reference))
    assert score_pair(prediction, reference) == expected(prediction, reference)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text("aeiosbdgilmnrtyz0", min_size=1, max_size=12), max_size=20).map(" ".join))
def test_words_stem_as_the_packages(text: str) -> None:
    endings = ["ational", "ies", "sses", "eed", "ing", "ed", "iveness", "y", "s"]
    longer = " ".join(word + ending for word, ending in zip(text.split(), endings * 3, strict=False))
    assert score_pair(longer, text) == expected(longer, text)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60), st.text(max_size=60))
def test_any_characters(prediction: str, reference: str) -> None:
    assert score_pair(prediction, reference) == expected(prediction, reference)


@pytest.mark.parametrize(
    ("prediction", "reference"),
    [
        ("", ""),
        ("word", ""),
        ("", "word"),
        ("word", "word"),
        ("!?", "\n\n"),
        ("one\n\ntwo", "two\none"),
        ("ΣΑΣ\nK\u212a İI", "σασ kk ii"),
        ("the cat sat\non the mat", "the mat sat\nthe cat on"),
        ("a b " * 200, "b a\n" * 150),
    ],
)
def test_corner_cases(prediction: str, reference: str) -> None:
    assert score_pair(prediction, reference) == expected(prediction, reference)
