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


def test_samples_that_lack_or_do_not_belong_are_named() -> None:
    with pytest.raises(ExecutionError, match="lacks 2 of 3 samples: 0, 2"):
        score_accuracy_log(ROUGE, [entry(1, "x")], REFERENCES, decode)
    with pytest.raises(ExecutionError, match="outside 0 to 2: 3"):
        score_accuracy_log(ROUGE, [entry(index, "x") for index in range(4)], REFERENCES, decode)
    with pytest.raises(ExecutionError, match="outside 0 to 2: -1"):
        score_accuracy_log(ROUGE, [entry(index, "x") for index in (-1, 0, 1, 2)], REFERENCES, decode)
    with pytest.raises(ExecutionError, match=r"lacks 20 of 20 samples: 0, 1, 2, 3, 4 and 15 more"):
        score_accuracy_log(ROUGE, [], ["x"] * 20, decode)
    with pytest.raises(InputError, match="4 samples are to be scored but the data set has 3 rows"):
        score_accuracy_log(ROUGE, [entry(0, "x")], REFERENCES, decode, expected_count=4)


def test_data_that_are_no_ids_are_refused_by_sample() -> None:
    cut = AccuracyEntry(seq_id=7, qsl_idx=1, data=bytes(13), token_count=None, token_data=None)
    with pytest.raises(ExecutionError, match=r"sample 1 \(seq_id 7\): 13 bytes"):
        score_accuracy_log(ROUGE, [entry(0, "x"), cut, entry(2, "x")], REFERENCES, decode)
    negative = AccuracyEntry(seq_id=8, qsl_idx=1, data=b"\xff" * 8, token_count=2, token_data=None)
    with pytest.raises(ExecutionError, match=r"sample 1 \(seq_id 8\): -1 is no token id"):
        score_accuracy_log(ROUGE, [entry(0, "x"), negative, entry(2, "x")], REFERENCES, decode)
    huge = np.array([5, 2**40], np.int64).tobytes()
    with pytest.raises(ExecutionError, match=f"response: {2**40} is no token id"):
        decode_ids(huge, 2)


def test_the_width_of_ids_is_found() -> None:
    ids = [9642, 0, 128009, 0]
    as_int32, as_int64 = (np.array(ids, dtype).tobytes() for dtype in (np.int32, np.int64))
    assert decode_ids(as_int64, None).tolist() == ids
    assert decode_ids(as_int64, 4).tolist() == ids
    # Id 0 is an ordinary token; only the count tells two int32 ids from one int64.
    assert decode_ids(as_int32, 4).tolist() == ids
    assert decode_ids(as_int32[:12], None).tolist() == ids[:3]
    # A count that fits neither says nothing.
    assert decode_ids(as_int64, 3).tolist() == ids
    assert decode_ids(b"", 0).tolist() == []
    assert decode_ids(b"", None).tolist() == []


def test_without_counts_one_plain_int32_sample_decides_for_the_log() -> None:
    ambiguous = np.array([ord("Y"), 0], np.int32).tobytes()  # would be one int64
    log = [
        AccuracyEntry(seq_id=0, qsl_idx=0, data=ambiguous, token_count=None, token_data=None),
        entry(1, "plain", counted=False),
    ]
    assert score_accuracy_log(ROUGE, log, REFERENCES[:2], decode)["gen_len"] == len("Y\0" + "plain")
