"""Accuracy scores of a run, exactly as the reference evaluations have them.

What they have in common [mlcommons/inference, language/llama3.1-8b/evaluation.py, llama2-70b/evaluate-accuracy.py]:
the first entry of every sample index counts, its IDs are decoded without special tokens, and a metric
(compliance/accuracy/metrics.py) scores the texts. Samples are spread over processes (scoring_pool.py beside it).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from compliance.accuracy.metrics import ROUGE, Metric, Scores
from compliance.accuracy.scoring_pool import ScoringPool
from qsl.dataset import LARGEST_ID
from runs.errors import ExecutionError, InputError
from runs.loadgen.accuracy_log import AccuracyEntry

NAMED_IN_MESSAGES = 5

Progress = Callable[[int, int], None]  # samples done, samples in all
Decode = Callable[[list[list[int]]], Sequence[str]]  # batch_decode that leaves special tokens out
TokenIds = npt.NDArray[np.int32] | npt.NDArray[np.int64]


class DecodedResponse(NamedTuple):
    """One sample's response, out of LoadGen's accuracy log."""

    sample_index: int
    ids: TokenIds
    text: str  # without special tokens


def begin_scoring(
    metric: Metric, responses: Sequence[DecodedResponse], references: Sequence[str], pool: ScoringPool
) -> Callable[[Progress | None], Scores]:
    """Begin to score responses against references, pair by pair.

    Worker processes begin at once; the caller may do other work before it asks for the result.

    Args:
        references: the dataset's summaries, in the order of the responses.
        pool: the processes. Their number changes nothing in the result: samples are averaged in their own order.

    Returns:
        What waits for the scores; it raises an ExecutionError where a worker process died.

    Raises:
        InputError: nothing to score, or the two differ in number.
        ExecutionError: a worker process died.
    """
    if len(responses) != len(references):
        raise InputError(
            f"{len(responses)} predictions for {len(references)} references",
            "score the predictions against the dataset that they were made from",
        )
    if not responses:
        raise InputError("no predictions to score", "run with at least one sample")
    pairs = [(response.text, reference) for response, reference in zip(responses, references, strict=True)]
    chunks = pool.begin(metric.score_pairs, pairs)

    def result(progress: Progress | None = None) -> Scores:
        samples: list[Any] = []
        for scored in chunks:
            samples.extend(scored)
            if progress:
                progress(len(samples), len(responses))
        return metric.of_run(samples, [len(response.ids) for response in responses])

    return result


def score_texts(
    predictions: Sequence[str],
    references: Sequence[str],
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Scores:
    """ROUGE of predictions against references, pair by pair, with processes of its own: by default one for each usable
    core. Few samples need no process."""
    responses = [DecodedResponse(place, np.empty(0, np.int32), text) for place, text in enumerate(predictions)]
    with ScoringPool(workers) as pool:
        return begin_scoring(ROUGE, responses, references, pool)(progress)


def score_accuracy_log(
    metric: Metric,
    entries: Sequence[AccuracyEntry],
    references: Sequence[str],
    decode: Decode,
    *,
    expected_count: int | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Scores:
    """Score LoadGen's accuracy log against the dataset."""
    with ScoringPool(workers) as pool:
        pool.start(len(entries))
        responses = decoded_responses(entries, references, decode, expected_count)
        wanted = [references[response.sample_index] for response in responses]
        return begin_scoring(metric, responses, wanted, pool)(progress)


def decoded_responses(
    entries: Sequence[AccuracyEntry], references: Sequence[str], decode: Decode, expected_count: int | None = None
) -> list[DecodedResponse]:
    """The responses that count, in the order of the log: of several entries of one sample the first.

    Args:
        entries: the log, in its own order.
        references: the dataset's summaries; position = sample index.
        decode: turns lists of IDs into texts without special tokens.
        expected_count: samples of the run, indices 0 to `expected_count` − 1; default: the whole dataset.

    Raises:
        InputError: more samples expected than the dataset has.
        ExecutionError: the log does not hold every expected sample, holds another, or its data are not IDs.
    """
    expected = len(references) if expected_count is None else expected_count
    if expected > len(references):
        raise InputError(
            f"{expected} samples are to be scored but the dataset has {len(references)} rows",
            "give the dataset that the run used",
        )
    first = _first_of_each(entries, expected)
    dtype = _id_type([(entry.data, entry.token_count) for entry in first])
    ids = [_read_ids(entry.data, dtype, f"sample {entry.qsl_idx} (seq_id {entry.seq_id})") for entry in first]
    texts = decode([sample.tolist() for sample in ids])
    return [DecodedResponse(entry.qsl_idx, sample, text) for entry, sample, text in zip(first, ids, texts, strict=True)]


def decode_ids(data: bytes, token_count: int | None) -> TokenIds:
    """Token IDs in one sample's response, an array of shape (tokens,).

    Systems send int32 or int64. `token_count` tells which; where it is unknown or fits neither, data whose
    high words are all zero are int64. Bytes are little-endian.

    Raises:
        ExecutionError: the length is not a multiple of 4 bytes, or a number is no possible ID.
    """
    return _read_ids(data, _id_type([(data, token_count)]), "response")


def _first_of_each(entries: Sequence[AccuracyEntry], expected: int) -> list[AccuracyEntry]:
    """The first entry of every sample, in the order of the log."""
    first: dict[int, AccuracyEntry] = {}
    for entry in entries:
        first.setdefault(entry.qsl_idx, entry)
    foreign = [index for index in first if not 0 <= index < expected]
    if foreign:
        raise ExecutionError(
            f"the accuracy log holds samples outside 0 to {expected - 1}: {_some(foreign)}",
            "give the dataset and the sample count that the run used",
        )
    missing = [index for index in range(expected) if index not in first]
    if missing:
        raise ExecutionError(
            f"the accuracy log lacks {len(missing)} of {expected} samples: {_some(missing)}",
            "repeat the accuracy run; the log of a run that was cut short cannot be scored",
        )
    return list(first.values())


def _some(indices: Sequence[int]) -> str:
    named = ", ".join(str(index) for index in indices[:NAMED_IN_MESSAGES])
    more = len(indices) - NAMED_IN_MESSAGES
    return f"{named} and {more} more" if more > 0 else named


def _id_type(samples: Sequence[tuple[bytes, int | None]]) -> np.dtype[Any]:
    """The ID type of a whole run, which writes all its samples alike: int64 only if every sample can be."""
    return np.dtype("<i8") if all(_may_be_int64(data, count) for data, count in samples) else np.dtype("<i4")


def _may_be_int64(data: bytes, token_count: int | None) -> bool:
    if len(data) % 8:
        return False
    if token_count and len(data) in (4 * token_count, 8 * token_count):
        return len(data) == 8 * token_count
    return not np.frombuffer(data, "<u4")[1::2].any()


def _read_ids(data: bytes, dtype: np.dtype[Any], name: str) -> TokenIds:
    if len(data) % 4:
        raise ExecutionError(
            f"{name}: {len(data)} bytes of data are not whole token IDs of 4 or 8 bytes",
            "the accuracy log must hold int32 or int64 token IDs",
        )
    ids: TokenIds = np.frombuffer(data, dtype)
    wrong = ids[(ids < 0) | (ids > LARGEST_ID)]
    if wrong.size:
        raise ExecutionError(
            f"{name}: {int(wrong[0])} is no token ID", "the accuracy log must hold int32 or int64 token IDs"
        )
    return ids
