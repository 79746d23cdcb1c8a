"""Scores of texts: they equal the reference procedure to the bit, with any number of processes."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rouge_score import rouge_scorer

from compliance.accuracy.metrics import ROUGE, Scores
from compliance.accuracy.punkt import sentence_splitter
from compliance.accuracy.rouge import Rouge, score_pair
from compliance.accuracy.scores import DecodedResponse, begin_scoring, score_texts
from compliance.accuracy.scoring_pool import ScoringPool
from runs.errors import ExecutionError, InputError
from tests.support.files.nltk_data import nltk_sentences
from tests.support.processes.patience import finish

ROOT = Path(__file__).resolve().parents[3]
TEXTS = [
    "",
    " \n\t ",
    "One word",
    "The council voted 19-14 to keep the libraries open. Residents cheered!",
    "Dr. A. J. Smith of the U.S. Navy arrived at 4.52 p.m. on Jan. 3. He left at 5 a.m. the next day.",
    "\"We won't go,\" she said. 'Why not?' he asked... Nobody answered!? (It was late.) [Sic.] The end .",
    "Line one .\nLine two has no stop\nLine three, vs. the rest, costs $3.5m.\n\n\nLine five .",
    "Café São Tomé naïve façade — “quoted.” Straße, ΣΊΣΥΦΟΣ İstanbul 東京。次の文。 🙂 OK.",
    "Runner's running runs; the ponies' caresses were relational, conditional and hopefully formalized.",
    "library library library library libraries libraries open opening opened opens",
    "e.g. this, i.e. that, etc. No. 5 is alive. Mr. Prewett denies it, vs. Mrs. Gantry. Inc. Ltd. Co. Corp.",
    "the the the the. The the? the\u00a0the\u2028the the.",
    "https://example.org/a.b?c=d e-mail me@example.org 1,234.56 3.14159 ... ?! --",
    "The council voted. " * 120,
    "Dying skies lie, and the news is that innings and proceedings were bought early, only to exceed all.",
]
PAIRS = list(product(TEXTS, TEXTS))


def begin(predictions: Sequence[str], references: Sequence[str], pool: ScoringPool) -> Callable[..., Scores]:
    responses = [DecodedResponse(place, np.empty(0, np.int32), text) for place, text in enumerate(predictions)]
    return begin_scoring(ROUGE, responses, references, pool)


@pytest.fixture(scope="module")
def sent_tokenize(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], list[str]]]:
    with nltk_sentences(tmp_path_factory.mktemp("nltk_data")) as split:
        yield split


def score_with_reference_packages(pairs: list[tuple[str, str]], sent_tokenize: Callable[[str], list[str]]) -> Scores:
    """Score pairs with the functions of the reference packages alone."""
    lines = [tuple("\n".join(sent_tokenize(text.strip())) for text in pair) for pair in pairs]
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL", "rougeLsum"], use_stemmer=True)
    scores = [scorer.score(reference, prediction) for prediction, reference in lines]
    rouge = {name: float(round(np.mean([s[name].fmeasure for s in scores]) * 100, 4)) for name in scores[0]}
    return {**rouge, "gen_len": sum(len(prediction) for prediction, _ in lines), "gen_num": len(lines)}


def test_sentences_are_split_as_by_nltk(sent_tokenize: Callable[[str], list[str]]) -> None:
    split = sentence_splitter()
    assert [split(text) for text in TEXTS] == [sent_tokenize(text) for text in TEXTS]
    assert split("Dr. Smith went to Wash. on Jan. 3. He stayed.") == [
        "Dr. Smith went to Wash. on Jan. 3.",
        "He stayed.",
    ]


def test_scores_equal_the_reference_implementation(sent_tokenize: Callable[[str], list[str]]) -> None:
    scores = score_texts(*zip(*PAIRS, strict=True))
    assert scores == score_with_reference_packages(PAIRS, sent_tokenize)
    assert 0 < scores["rouge2"] < scores["rougeLsum"] < scores["rougeL"] < scores["rouge1"] < 100
    assert {type(value) for value in scores.values()} == {float, int}


# Words, marks and abbreviations that decide where a sentence ends.
WORDS = """The the Mr. Dr U.S. p.m. J. No. 3 4.52 . ? ! ... " ' ) (Sic.) said. said Smith etc. i.e. - -- he He was to
vote voted. voting votes"""
NEWS = st.lists(st.sampled_from([*WORDS.split(), "\n"]), max_size=60).map(" ".join)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(NEWS, st.booleans())
def test_bundled_articles_are_split_as_by_nltk(
    sent_tokenize: Callable[[str], list[str]], text: str, close: bool
) -> None:
    text = text.replace(" .", ".") if close else text
    assert sentence_splitter()(text) == sent_tokenize(text)


# One pair -------------------------------------------------------------------------------------------------------------

SCORER = rouge_scorer.RougeScorer(list(Rouge._fields), use_stemmer=True)
# Few different words: many longest common subsequences have one length, and the same one must be chosen.
FEW_WORDS = st.lists(st.sampled_from(["a", "b", "c", "running", "runs", "\n", "!"]), max_size=40).map(" ".join)


def expected(prediction: str, reference: str) -> Rouge:
    scores = SCORER.score(reference, prediction)
    return Rouge(*(scores[name].fmeasure for name in Rouge._fields))


@settings(max_examples=300, deadline=None)
@given(FEW_WORDS, FEW_WORDS)
def test_scores_of_texts_with_few_words_equal_the_reference(prediction: str, reference: str) -> None:
    assert score_pair(prediction, reference) == expected(prediction, reference)


@settings(max_examples=300, deadline=None)
@given(st.text("ab\n ", max_size=200), st.text("abc\n ", max_size=200))
def test_scores_with_many_common_subsequences_of_one_length_equal_the_reference(
    prediction: str, reference: str
) -> None:
    """The texts have few words, more columns than a machine word has bits, and sentences that miss some words."""
    prediction, reference = (" ".join(text) for text in (prediction, reference))
    assert score_pair(prediction, reference) == expected(prediction, reference)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text("aeiosbdgilmnrtyz0", min_size=1, max_size=12), max_size=20).map(" ".join))
def test_words_are_stemmed_as_in_the_reference(text: str) -> None:
    endings = ["ational", "ies", "sses", "eed", "ing", "ed", "iveness", "y", "s"]
    longer = " ".join(word + ending for word, ending in zip(text.split(), endings * 3, strict=False))
    assert score_pair(longer, text) == expected(longer, text)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60), st.text(max_size=60))
def test_scores_of_arbitrary_characters_equal_the_reference(prediction: str, reference: str) -> None:
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
def test_scores_of_corner_cases_equal_the_reference(prediction: str, reference: str) -> None:
    assert score_pair(prediction, reference) == expected(prediction, reference)


# Processes ------------------------------------------------------------------------------------------------------------


def test_scores_are_equal_with_any_number_of_processes() -> None:
    predictions, references = zip(*PAIRS, strict=True)
    seen: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        assert len(multiprocessing.active_children()) == 2
        seen.append((done, total))

    def alone(done: int, total: int) -> None:
        assert multiprocessing.active_children() == []

    with ScoringPool(2, parallel_from=100) as pool:
        parallel = begin(predictions, references, pool)(progress)
    assert parallel == score_texts(predictions, references, workers=1, progress=alone)
    with ScoringPool(2, parallel_from=100) as pool:
        begin(predictions[:99], references[:99], pool)(alone)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (len(PAIRS), len(PAIRS))


def test_scoring_processes_start_before_the_first_prediction() -> None:
    predictions, references = zip(*PAIRS, strict=True)
    with ScoringPool(2, parallel_from=100) as pool:
        pool.start(99)
        assert multiprocessing.active_children() == []
        pool.start(100)
        started = {child.pid for child in multiprocessing.active_children()}
        assert len(started) == 2
        scorings = [begin(predictions, references, pool) for _ in range(2)]
        assert scorings[1]() == scorings[0]() == score_texts(predictions, references, workers=1)
        assert {child.pid for child in multiprocessing.active_children()} == started
    assert multiprocessing.active_children() == []


def test_an_abandoned_scoring_ends_its_processes() -> None:
    with ScoringPool(2) as pool:
        begin([TEXTS[3]] * 2_000, [TEXTS[4]] * 2_000, pool)
    assert multiprocessing.active_children() == []


def kill_workers() -> None:
    for child in multiprocessing.active_children():
        child.kill()
        child.join()


@pytest.mark.parametrize("pairs_came", [True, False])
def test_a_dead_scoring_process_is_an_error(pairs_came: bool) -> None:
    with ScoringPool(2, parallel_from=3) as pool:
        pool.start(3)
        predictions, references = ([text] * (10_000 if pairs_came else 3) for text in TEXTS[3:5])
        if pairs_came:
            scoring = begin(predictions, references, pool)
        kill_workers()
        with pytest.raises(ExecutionError, match="scoring process died"):
            (scoring if pairs_came else begin(predictions, references, pool))()


KILLED_WHILE_SCORING = """
import multiprocessing, os, signal
from compliance.accuracy.scores import score_texts
def die(done, total):
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
if __name__ == "__main__":
    score_texts(["The council voted. " * 20] * 4000, ["The council met. " * 20] * 4000, workers=2, progress=die)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_scoring_processes_end_with_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED_WHILE_SCORING)
    # The workers hold the other end of this pipe. The read ends only when the last worker has ended.
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, script], env=environment, stdout=subprocess.PIPE) as killed:
        stdout, _ = finish(killed)
    assert killed.returncode == -9
    assert len(stdout.split()) == 2


def test_texts_of_unequal_number_are_refused() -> None:
    with pytest.raises(InputError, match="2 predictions for 1 references"):
        score_texts(["a", "b"], ["a"])
    with pytest.raises(InputError, match="predictions are missing"):
        score_texts([], [])
    with pytest.raises(InputError, match="workers: 0 is below 1"):
        score_texts(["a"], ["a"], workers=0)
