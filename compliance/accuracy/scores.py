"""Accuracy scores of a run, equal to the scores of the reference evaluations.

As in [mlcommons/inference, language/llama3.1-8b/evaluation.py, llama2-70b/evaluate-accuracy.py], the first entry of
each sample index counts, its token IDs are decoded without special tokens, and a metric (metrics.py) scores the text.
Worker processes (scoring_pool.py) share the samples.
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

OnProgress = Callable[[int, int], None]  # called with the number of scored samples and of all samples
Decode = Callable[[list[list[int]]], Sequence[str]]  # the tokenizer's batch_decode, without special tokens
TokenIds = npt.NDArray[np.int32] | npt.NDArray[np.int64]


class DecodedResponse(NamedTuple):
    """The response to one sample, from LoadGen's accuracy log."""

    sample_index: int
    ids: TokenIds
    text: str  # without special tokens


def begin_scoring(
    metric: Metric, responses: Sequence[DecodedResponse], references: Sequence[str], pool: ScoringPool
) -> Callable[[OnProgress | None], Scores]:
    """Begin to score responses with their reference texts.

    Worker processes begin immediately, so that the caller can do other work before it needs the result.

    Args:
        references: Reference texts in the order of the responses.
        pool: Worker processes. Their number does not change the result.

    Returns:
        A function that waits for the scores, and raises an ExecutionError if a worker process died.

    Raises:
        InputError: If there is no response, or the numbers of responses and references differ.
        ExecutionError: If a worker process died.
    """
    if len(responses) != len(references):
        raise InputError(
            f"{len(responses)} predictions for {len(references)} references",
            "score the predictions with their own dataset",
        )
    if not responses:
        raise InputError("predictions are missing", "run with at least one sample")
    pairs = [(response.text, reference) for response, reference in zip(responses, references, strict=True)]
    chunks = pool.begin(metric.score_pairs, pairs)

    def result(progress: OnProgress | None = None) -> Scores:
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
    progress: OnProgress | None = None,
) -> Scores:
    """Return the ROUGE scores of predictions. New worker processes compute them if there are many samples."""
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
    progress: OnProgress | None = None,
) -> Scores:
    """Score LoadGen's accuracy log with the reference texts of the dataset."""
    with ScoringPool() as pool:
        pool.start(len(entries))
        responses = decoded_responses(entries, references, decode, expected_count)
        wanted = [references[response.sample_index] for response in responses]
        return begin_scoring(metric, responses, wanted, pool)(progress)


def decoded_responses(
    entries: Sequence[AccuracyEntry], references: Sequence[str], decode: Decode, expected_count: int | None = None
) -> list[DecodedResponse]:
    """Return the first response to each sample, in the order of the log.

    Args:
        entries: Entries of the log, in their order.
        references: Reference texts by sample index.
        decode: Function that decodes lists of token IDs without special tokens.
        expected_count: Number of samples of the run, from index 0. Default: the whole dataset.

    Raises:
        InputError: If more samples are expected than the dataset has.
        ExecutionError: If an expected sample is missing, an unexpected one exists, or data are not token IDs.
    """
    expected = len(references) if expected_count is None else expected_count
    if expected > len(references):
        raise InputError(
            f"the run has {expected} samples, but the dataset has {len(references)} rows",
            "give the dataset that the run used: --dataset-path FILE",
        )
    first = _first_of_each(entries, expected)
    dtype = _id_type([(entry.data, entry.token_count) for entry in first])
    ids = [_read_ids(entry.data, dtype, f"sample {entry.qsl_idx} (seq_id {entry.seq_id})") for entry in first]
    texts = decode([sample.tolist() for sample in ids])
    return [DecodedResponse(entry.qsl_idx, sample, text) for entry, sample, text in zip(first, ids, texts, strict=True)]


def decode_ids(data: bytes, token_count: int | None) -> TokenIds:
    """Return the token IDs of one response, as an array of shape (tokens,).

    Systems report int32 or int64 in little-endian order. `token_count` decides which. If it is unknown or fits neither,
    data whose high words are all zero are int64.

    Raises:
        ExecutionError: If the length is not a multiple of 4 bytes, or a number is outside the range of token IDs.
    """
    return _read_ids(data, _id_type([(data, token_count)]), "response")


def _first_of_each(entries: Sequence[AccuracyEntry], expected: int) -> list[AccuracyEntry]:
    """Return the first entry of each sample, in the order of the log."""
    first: dict[int, AccuracyEntry] = {}
    for entry in entries:
        first.setdefault(entry.qsl_idx, entry)
    foreign = [index for index in first if not 0 <= index < expected]
    if foreign:
        raise ExecutionError(
            f"the accuracy log has samples outside 0 to {expected - 1}: {_some(foreign)}",
            "give the dataset that the run used: --dataset-path FILE",
        )
    missing = [index for index in range(expected) if index not in first]
    if missing:
        raise ExecutionError(
            f"{len(missing)} of {expected} samples are missing in the accuracy log: {_some(missing)}",
            "repeat the accuracy run",
        )
    return list(first.values())


def _some(indices: Sequence[int]) -> str:
    named = ", ".join(str(index) for index in indices[:NAMED_IN_MESSAGES])
    more = len(indices) - NAMED_IN_MESSAGES
    return f"{named} and {more} more" if more > 0 else named


def _id_type(samples: Sequence[tuple[bytes, int | None]]) -> np.dtype[Any]:
    """Return the type of the token IDs of a run: int64 if every sample can be int64, otherwise int32."""
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
            f"{name}: {len(data)} bytes of data are not a multiple of 4 or 8 bytes, the size of a token ID",
            "log int32 or int64 token IDs, and repeat the accuracy run",
        )
    ids: TokenIds = np.frombuffer(data, dtype)
    wrong = ids[(ids < 0) | (ids > LARGEST_ID)]
    if wrong.size:
        raise ExecutionError(
            f"{name}: {int(wrong[0])} is not a token ID", "log int32 or int64 token IDs, and repeat the accuracy run"
        )
    return ids
