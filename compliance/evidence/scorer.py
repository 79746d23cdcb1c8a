"""Scoring answers again, nothing twice.

A command may ask for the scores of one leg several times (`submit` verifies, then signs off), and score several legs
over one data set. A scorer keeps what it has read and found, under the hashes of what that was made from, and its
worker processes. All of it lives in this process and no longer than the command: scores in a file could be forged.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from compliance.accuracy.metrics import METRICS, Scores
from compliance.accuracy.pool import ScoringPool
from compliance.accuracy.scores import Progress, decoded_answers, scoring_of
from compliance.evidence.plausible import answers_plausible
from compliance.finding import Finding
from qsl.dataset import load_dataset
from qsl.tokenizers import Tokenizer, load_tokenizer, tokenizer_fingerprint
from runs.files import sha256_of
from runs.loadgen.accuracy_log import AccuracyEntry


@dataclass(frozen=True)
class References:
    """What is kept of a data set.

    Attributes:
        sha256: hex hash of the file.
        texts: the reference summaries; position = sample index.
        prompt_tokens: length of each prompt, in tokens, an array of shape (samples,).
    """

    sha256: str
    texts: list[str]
    prompt_tokens: NDArray[np.int64]


@dataclass(frozen=True)
class Scored:
    """Scores of a leg's answers, and the rules on the answers themselves (compliance/evidence/plausibility.py)."""

    scores: Scores
    findings: tuple[Finding, ...]


class _Key(NamedTuple):
    metric: str
    answers_sha256: str
    dataset_sha256: str
    tokenizer: str  # its fingerprint
    expected_count: int | None


class Scorer:
    """Scores accuracy logs until the end of its `with` block."""

    def __init__(self) -> None:
        self._pool = ScoringPool()
        self._references: dict[str, References] = {}
        self._reading: dict[Path, Callable[[], References]] = {}
        self._tokenizers: dict[str, Tokenizer] = {}
        self._scored: dict[_Key, Scored] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.__exit__(kind, error, trace)

    def expect(self, samples: int, dataset_path: Path | None) -> None:
        """Say that so many answers will be scored: the processes start, and one reads the data set meanwhile."""
        if not self._scored:
            self._pool.start(samples)
        if dataset_path is not None and not self._references and dataset_path not in self._reading:
            self._reading[dataset_path] = self._pool.submit(_read, dataset_path)

    def references(self, dataset_path: Path) -> References:
        """The summaries of a data set, and the lengths of its prompts.

        Raises:
            InputError: it cannot be read, or is no data set.
        """
        try:
            known = self._references.get(sha256_of(dataset_path)) if self._references else None
        except OSError:
            known = None  # the next line says what is wrong
        if known is None:
            reading = self._reading.pop(dataset_path, None)
            known = reading() if reading is not None else _read(dataset_path)
            self._references[known.sha256] = known
        return known

    def score(
        self,
        metric: str,
        entries: Sequence[AccuracyEntry],
        references: References,
        model: str,
        *,
        expected_count: int | None,
        progress: Progress | None = None,
    ) -> Scored:
        """Score a log's answers, unless the very same were scored before.

        Args:
            metric: by its name.
            entries: LoadGen's accuracy log.
            references: what it is scored against.
            model: the folder whose tokenizer decodes the answers, or "bytes".
            expected_count: samples of the run; None: the whole data set.
            progress: called with the number of samples done and of all samples.

        Raises:
            InputError: the tokenizer cannot be loaded, or more samples are expected than the data set has.
            ExecutionError: the log does not hold every expected sample, its data are not ids, or a process died.
        """
        fingerprint = tokenizer_fingerprint(model)
        key = _Key(metric, _hash_of(entries), references.sha256, fingerprint, expected_count)
        if key not in self._scored:
            self._pool.start(len(entries))
            if fingerprint not in self._tokenizers:
                self._tokenizers[fingerprint] = load_tokenizer(model)
            tokenizer = self._tokenizers[fingerprint]
            answers = decoded_answers(entries, references.texts, tokenizer.batch_decode, expected_count)
            wanted = [references.texts[answer.sample_index] for answer in answers]
            scoring = scoring_of(METRICS[metric], answers, wanted, self._pool)
            findings = answers_plausible(answers, wanted, tokenizer)  # while the processes score
            self._scored[key] = Scored(scoring.result(progress), tuple(findings))
        return self._scored[key]


def _read(dataset_path: Path) -> References:
    dataset = load_dataset(dataset_path)
    lengths = np.array([len(prompt) for prompt in dataset.prompts], dtype=np.int64)
    return References(dataset.sha256, dataset.targets, lengths)


def _hash_of(entries: Sequence[AccuracyEntry]) -> str:
    """Of everything in the log that decides the scores, in its order."""
    digest = sha256()
    for entry in entries:
        digest.update(f"{entry.qsl_idx} {entry.token_count} {len(entry.data)}:".encode())
        digest.update(entry.data)
    return digest.hexdigest()
