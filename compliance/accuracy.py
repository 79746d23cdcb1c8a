"""Accuracy scores of a run: ROUGE of the generated summaries, exactly as the reference evaluation has it.

The procedure [mlcommons/inference, language/llama3.1-8b/evaluation.py]: the first entry of every sample index,
ids decoded without special tokens, stripped, one sentence a line, ROUGE-1/2/L/Lsum with the Porter stemmer,
and the mean f-measure × 100 rounded to four decimals.
Samples are spread over processes.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from compliance.punkt import sentence_splitter
from compliance.rouge import Rouge, score_pair
from runs.accuracy_log import AccuracyEntry
from runs.errors import ExecutionError, InputError

ROUGE_NAMES = Rouge._fields

# Starting a worker takes about as long as scoring some hundred samples.
PARALLEL_FROM_SAMPLES = 2000
CHUNK_SAMPLES = 64
MAX_WORKERS = 16
NAMED_IN_MESSAGES = 5
MAX_TOKEN_ID = 2**31 - 1

Progress = Callable[[int, int], None]  # samples done, samples in all
Decode = Callable[[list[list[int]]], Sequence[str]]  # batch_decode that leaves special tokens out
TokenIds = npt.NDArray[np.int32] | npt.NDArray[np.int64]


@dataclass(frozen=True)
class AccuracyScores:
    """Scores of a whole run.

    The ROUGE values are mean f-measures × 100, rounded to 4 decimals. `gen_len` is the number of characters
    (not tokens) of all predictions after sentence splitting, `gen_num` the number of predictions.
    """

    rouge1: float
    rouge2: float
    rougeL: float
    rougeLsum: float
    gen_len: int
    gen_num: int


class SampleScores(NamedTuple):
    """F-measures (0 to 1) and length in characters of one prediction."""

    rouge: Rouge
    length: int


def score_sample(prediction: str, reference: str) -> SampleScores:
    """Score one generated summary against its reference."""
    split = sentence_splitter()
    prediction = "\n".join(split(prediction.strip()))
    reference = "\n".join(split(reference.strip()))
    return SampleScores(score_pair(prediction, reference), len(prediction))


def score_texts(
    predictions: Sequence[str],
    references: Sequence[str],
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> AccuracyScores:
    """Score predictions against references, pair by pair.

    The number of workers changes nothing in the result: samples are averaged in their own order.

    Args:
        predictions: decoded texts, special tokens already left out.
        references: the data set's summaries, in the same order.
        workers: processes to use; by default one for each usable core. Few samples need no process.
        progress: called in this thread with the number of samples done and of all samples.

    Raises:
        InputError: nothing to score, the two differ in number, or `workers` is below 1.
        ExecutionError: a worker process died.
    """
    total = len(predictions)
    if total != len(references):
        raise InputError(
            f"{total} predictions for {len(references)} references",
            "score the predictions against the data set that they were made from",
        )
    if total == 0:
        raise InputError("no predictions to score", "run with at least one sample")
    if workers is None:
        workers = _usable_cores()
    if workers < 1:
        raise InputError(f"cannot score with {workers} workers", "use at least 1")

    pairs = list(zip(predictions, references, strict=True))
    chunks = [pairs[start : start + CHUNK_SAMPLES] for start in range(0, total, CHUNK_SAMPLES)]
    if workers == 1 or total < PARALLEL_FROM_SAMPLES:
        scored_chunks: Iterable[list[SampleScores]] = map(_score_chunk, chunks)
    else:
        scored_chunks = _score_in_processes(chunks, workers)

    samples: list[SampleScores] = []
    for scored in scored_chunks:
        samples.extend(scored)
        if progress:
            progress(len(samples), total)
    # NumPy's mean and NumPy's rounding, as in the reference: Python's own may differ in the last place.
    rouge1, rouge2, rougeL, rougeLsum = (
        float(np.round(np.mean(values) * 100, 4)) for values in zip(*(s.rouge for s in samples), strict=True)
    )
    gen_len = sum(sample.length for sample in samples)
    return AccuracyScores(rouge1, rouge2, rougeL, rougeLsum, gen_len, gen_num=total)


def score_accuracy_log(
    entries: Sequence[AccuracyEntry],
    references: Sequence[str],
    decode: Decode,
    *,
    expected_count: int | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> AccuracyScores:
    """Score LoadGen's accuracy log against the data set.

    Args:
        entries: the log, in its own order. Of several entries of one sample the first counts.
        references: the data set's summaries; position = sample index.
        decode: turns lists of ids into texts without special tokens.
        expected_count: samples of the run, indices 0 to `expected_count` − 1; default: the whole data set.
        workers, progress: as in `score_texts`.

    Raises:
        InputError: more samples expected than the data set has, or what `score_texts` refuses.
        ExecutionError: the log does not hold every expected sample, holds another, or its data are not ids.
    """
    expected = len(references) if expected_count is None else expected_count
    if expected > len(references):
        raise InputError(
            f"{expected} samples are to be scored but the data set has {len(references)} rows",
            "give the data set that the run used",
        )
    first = _first_of_each(entries, expected)
    dtype = _id_type([(entry.data, entry.token_count) for entry in first])
    ids = [_ids_of(entry, dtype) for entry in first]
    texts = decode([sample.tolist() for sample in ids])
    return score_texts(texts, [references[entry.qsl_idx] for entry in first], workers=workers, progress=progress)


def decode_ids(data: bytes, token_count: int | None) -> TokenIds:
    """Token ids in one sample's response, an array of shape (tokens,).

    Systems send int32 or int64. `token_count` tells which; where it is unknown or fits neither, data whose
    high words are all zero are int64. Bytes are little-endian.

    Raises:
        ExecutionError: the length is not a multiple of 4 bytes, or a number is no possible id.
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
            "give the data set and the sample count that the run used",
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
    """The id type of a whole run, which writes all its samples alike: int64 only if every sample can be."""
    return np.dtype("<i8") if all(_may_be_int64(data, count) for data, count in samples) else np.dtype("<i4")


def _may_be_int64(data: bytes, token_count: int | None) -> bool:
    if len(data) % 8:
        return False
    if token_count and len(data) in (4 * token_count, 8 * token_count):
        return len(data) == 8 * token_count
    return not np.frombuffer(data, "<u4")[1::2].any()


def _ids_of(entry: AccuracyEntry, dtype: np.dtype[Any]) -> TokenIds:
    return _read_ids(entry.data, dtype, f"sample {entry.qsl_idx} (seq_id {entry.seq_id})")


def _read_ids(data: bytes, dtype: np.dtype[Any], name: str) -> TokenIds:
    if len(data) % 4:
        raise ExecutionError(
            f"{name}: {len(data)} bytes of data are not whole token ids of 4 or 8 bytes",
            "the accuracy log must hold int32 or int64 token ids",
        )
    ids: TokenIds = np.frombuffer(data, dtype)
    wrong = ids[(ids < 0) | (ids > MAX_TOKEN_ID)]
    if wrong.size:
        raise ExecutionError(
            f"{name}: {int(wrong[0])} is no token id", "the accuracy log must hold int32 or int64 token ids"
        )
    return ids


def _usable_cores() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MAX_WORKERS)


def _score_chunk(pairs: Sequence[tuple[str, str]]) -> list[SampleScores]:
    return [score_sample(prediction, reference) for prediction, reference in pairs]


def _score_in_processes(chunks: Sequence[Sequence[tuple[str, str]]], workers: int) -> Iterator[list[SampleScores]]:
    """Score chunks in worker processes; the results come in the order of the chunks."""
    executor = ProcessPoolExecutor(
        max_workers=min(workers, len(chunks)),
        # A fork would copy the locks of the caller's threads in whatever state they are.
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
    )
    try:
        yield from executor.map(_score_chunk, chunks)
    except BrokenProcessPool as error:
        raise ExecutionError(
            "a scoring process died before it was done",
            "most likely memory ran out: free some, or score with fewer workers",
        ) from error
    finally:
        executor.shutdown(cancel_futures=True)


def _start_worker() -> None:
    """Leave an interrupt to the parent, which ends its workers, and do not outlive a parent that was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
