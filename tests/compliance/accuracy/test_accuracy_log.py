"""From LoadGen's accuracy log to scores: ids, duplicates, samples that lack or do not belong."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from compliance.accuracy.metrics import ROUGE
from compliance.accuracy.scores import decode_ids, score_accuracy_log, score_texts
from runs.errors import ExecutionError, InputError
from runs.loadgen.accuracy_log import AccuracyEntry

REFERENCES = ["The river rose .", "Dr. Marsh testified on Tuesday .", "Yes !"]
END = 257  # stands for a special token: left out of the text


def decode(ids: Sequence[Sequence[int]]) -> list[str]:
    """Ids below 256 are bytes, others special."""
    assert all(type(token) is int for sample in ids for token in sample)
    return [bytes(token for token in sample if token < 256).decode() for sample in ids]


def entry(index: int, text: str, dtype: Any = np.int32, seq_id: int = 0, counted: bool = True) -> AccuracyEntry:
    ids = np.array([*text.encode(), END], dtype)
    return AccuracyEntry(
        seq_id=seq_id,
        qsl_idx=index,
        data=ids.tobytes(),
        token_count=len(ids) if counted else None,
        token_data=None,
    )


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("counted", [True, False])
def test_a_log_scores_as_its_texts(dtype: Any, counted: bool) -> None:
    texts = ["The river fell.", "A Dr. Marsh testified.", "No!"]
    log = [entry(index, texts[index], dtype, counted=counted) for index in (2, 0, 1)]
    assert score_accuracy_log(ROUGE, log, REFERENCES, decode) == score_texts(texts, REFERENCES)


def test_of_several_entries_of_a_sample_the_first_counts() -> None:
    log = [entry(1, "first"), entry(0, "The river rose."), entry(1, "second, and longer"), entry(2, "Yes!")]
    assert score_accuracy_log(ROUGE, log, REFERENCES, decode)["gen_len"] == len("first" + "The river rose." + "Yes!")


def test_a_run_over_part_of_the_data_set_is_scored_against_that_part() -> None:
    scores = score_accuracy_log(ROUGE, [entry(0, "The river rose .")], REFERENCES, decode, expected_count=1)
    assert (scores["rouge1"], scores["gen_num"]) == (100.0, 1)


def broken(data: bytes, seq_id: int, token_count: int | None = None) -> AccuracyEntry:
    return AccuracyEntry(seq_id=seq_id, qsl_idx=1, data=data, token_count=token_count, token_data=None)


@pytest.mark.parametrize(
    ("log", "count", "said"),
    [
        ([entry(1, "x")], 3, "lacks 2 of 3 samples: 0, 2"),
        ([entry(index, "x") for index in range(4)], 3, "outside 0 to 2: 3"),
        ([entry(index, "x") for index in (-1, 0, 1, 2)], 3, "outside 0 to 2: -1"),
        ([], 20, "lacks 20 of 20 samples: 0, 1, 2, 3, 4 and 15 more"),
        ([entry(0, "x"), broken(bytes(13), 7), entry(2, "x")], 3, r"sample 1 \(seq_id 7\): 13 bytes"),
        ([entry(0, "x"), broken(b"\xff" * 8, 8, 2), entry(2, "x")], 3, r"sample 1 \(seq_id 8\): -1 is no token id"),
    ],
)
def test_samples_that_lack_do_not_belong_or_are_no_ids_are_named(
    log: list[AccuracyEntry], count: int, said: str
) -> None:
    with pytest.raises(ExecutionError, match=said):
        score_accuracy_log(ROUGE, log, (REFERENCES * 7)[:count], decode)


def test_more_samples_than_the_data_set_has_are_refused_and_so_is_an_id_beyond_every_model() -> None:
    with pytest.raises(InputError, match="4 samples are to be scored but the data set has 3 rows"):
        score_accuracy_log(ROUGE, [entry(0, "x")], REFERENCES, decode, expected_count=4)
    with pytest.raises(ExecutionError, match=f"response: {2**40} is no token id"):
        decode_ids(np.array([5, 2**40], np.int64).tobytes(), 2)


IDS = [9642, 0, 128009, 0]
AS_INT32, AS_INT64 = (np.array(IDS, dtype).tobytes() for dtype in (np.int32, np.int64))


@pytest.mark.parametrize(
    ("data", "count", "ids"),
    [
        (AS_INT64, None, IDS),
        (AS_INT64, 4, IDS),
        (AS_INT32, 4, IDS),  # id 0 is an ordinary token; only the count tells two int32 ids from one int64
        (AS_INT32[:12], None, IDS[:3]),
        (AS_INT64, 3, IDS),  # a count that fits neither says nothing
        (b"", 0, []),
        (b"", None, []),
    ],
)
def test_the_width_of_ids_is_found(data: bytes, count: int | None, ids: list[int]) -> None:
    assert decode_ids(data, count).tolist() == ids


def test_without_counts_one_plain_int32_sample_decides_for_the_log() -> None:
    ambiguous = np.array([ord("Y"), 0], np.int32).tobytes()  # would be one int64
    log = [
        AccuracyEntry(seq_id=0, qsl_idx=0, data=ambiguous, token_count=None, token_data=None),
        entry(1, "plain", counted=False),
    ]
    assert score_accuracy_log(ROUGE, log, REFERENCES[:2], decode)["gen_len"] == len("Y\0" + "plain")
