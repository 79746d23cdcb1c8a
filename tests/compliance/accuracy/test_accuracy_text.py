"""Scores and hash in accuracy.txt, in the forms that evaluations write."""

from collections.abc import Callable

import pytest

from compliance.accuracy.accuracy_text import read_scores, stated_hash, stated_score
from compliance.accuracy.metrics import ROUGE, ROUGE_AND_TOKENS
from runs.errors import InputError
from tests.support.official import rouge

EXACT = rouge(38.7792, 15.9075, 24.4957, 35.793, 8_167_644, 13_368)
TEXT = ROUGE.text(EXACT)
TOKENS = "{'rouge1': 44.4, 'rouge2': 22.2, 'rougeL': 28.8, 'tokens_per_sample': 287.3}"
DIGEST = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "form",
    [
        lambda text: text,
        lambda text: f"Results\r\n\r\n{text}\r\nhash={DIGEST}\r\n",
        lambda text: text.replace(", '", ",\n '"),
        lambda text: text.replace("'38.7792'", "38.7792"),
        lambda text: text.replace("'rouge1': ", "'rouge1':   "),
        lambda text: f"{text}\n{text}",
    ],
)
def test_scores_are_read_in_each_form_that_the_official_checker_reads(form: Callable[[str], str]) -> None:
    assert read_scores(ROUGE, form(TEXT)) == EXACT


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "'rouge1': '38.7792'",
            "'rouge1': np.float64(38.7792)",
            "rouge1 is missing .*; the checker does not read NumPy's form",
        ),
        ("8167644", "np.int64(8167644)", "gen_len is missing .*; the checker does not read NumPy's form of a number"),
        ("'rouge1': '38.7792'", "'rouge1': numpy.float32(38.7792)", "NumPy's form of a number"),
        ("'", '"', "rouge1 is missing .*; the checker does not read JSON's double quotes"),
        ("'rouge1': '38.7792'", "'rouge1': nan", "rouge1 is missing .*; the checker does not read 'rouge1': nan"),
        ("'rouge1': ", "'rouge1':", "the checker does not read 'rouge1':'38.7792'"),
        ("'rouge1'", "rouge1", "the checker does not read rouge1: '38.7792'"),
        ("'rouge1'", "'rouge3'", r"accuracy\.txt: rouge1 is missing or unreadable for the checker\n"),
        ("38.7792", "38.7.79", "rouge1 is 38.7.79, which is not a number"),
        ("'38.7792'", "39e-05", "rouge1 is 39e-05, but the checker reads only 39"),
        ("38.7792", "3.8E+1", r"rouge1 is 3.8E\+1, but the checker reads only 3.8"),
        ("8167644", "9" * 400, "gen_len is 9+..., which is not a number"),
        ("{", "{'rouge1': 39.0, ", "multiple values of rouge1: 39.0, 38.7792"),
    ],
)
def test_scores_in_unsupported_forms_are_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_scores(ROUGE, TEXT.replace(old, new))


def test_a_missing_number_of_samples_is_taken_from_the_log() -> None:
    assert read_scores(ROUGE_AND_TOKENS, TOKENS, answered=24_576)["gen_num"] == 24_576
    assert "gen_len" not in read_scores(ROUGE_AND_TOKENS, TOKENS, answered=1)
    with pytest.raises(InputError, match=r"gen_num is missing or unreadable for the checker\n"):
        read_scores(ROUGE_AND_TOKENS, TOKENS)


def test_a_score_without_a_dictionary_is_read_at_the_start_of_a_line() -> None:
    assert stated_score(["AUC=80.3", " AUC=1"], "AUC").values == [80.3]
    assert stated_score(["accuracy=9"], "AUC").problem == "AUC is missing or unreadable for the checker"
    numpy = stated_score(["Results", '{"exact_match": np.float64(83.6), "f1": np.float64(90.8)}'], "F1")
    assert (
        numpy.problem
        == "F1 is missing or unreadable for the checker; the checker does not read NumPy's form of a number"
    )
    assert numpy.line == 2


@pytest.mark.parametrize(
    ("text", "digest", "problem"),
    [
        (f"{TEXT}\nhash={DIGEST.upper()} \r\nhash={DIGEST}\n", DIGEST, ""),
        (TEXT, "", ""),
        (f"hash={DIGEST}\nhash={'0' * 64}", "", "multiple hash lines: "),
        ("hash=abc", "", "hash=abc is not a SHA-256"),
    ],
)
def test_the_hash_of_the_complete_log_is_read_from_the_text(text: str, digest: str, problem: str) -> None:
    stated, reason = stated_hash(text)
    assert stated == digest
    assert reason.startswith(problem)
    assert bool(reason) == bool(problem)
