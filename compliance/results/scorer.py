"""Rescoring of responses, with a cache and without network access.

A command may need the scores of one run multiple times (`submit` verifies, then signs off), and score multiple runs
with one dataset. A scorer keeps its worker processes, its inputs and its scores, by the hashes of their inputs. The
cache is in memory and ends with the command, because scores in a file could be forged.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from compliance.accuracy.metrics import METRICS, Scores
from compliance.accuracy.scores import DecodedResponse, OnProgress, begin_scoring, decoded_responses
from compliance.accuracy.scoring_pool import ScoringPool
from compliance.judge.verdict import Finding
from compliance.results.plausibility import responses_plausible
from qsl.dataset import References, load_references
from qsl.tokenizers import BYTES, Tokenizer, load_tokenizer, tokenizer_fingerprint
from runs.errors import InputError
from runs.loadgen.accuracy_log import AccuracyEntry


@dataclass(frozen=True)
class Scored:
    """Scores of a run's responses, and the findings of compliance/results/plausibility.py on the responses."""

    scores: Scores
    findings: tuple[Finding, ...]


class _Key(NamedTuple):
    metric: str
    answers_sha256: str
    dataset_sha256: str
    tokenizer: str  # fingerprint of the tokenizer
    expected_count: int | None


class Scorer(AbstractContextManager["Scorer"]):
    """A scorer of accuracy logs. Its worker processes run until the end of its `with` block."""

    def __init__(self) -> None:
        self._pool = ScoringPool()
        self._references: dict[tuple[Path, int, int, int], References] = {}  # references by path, inode, time and size
        self._reading: dict[Path, Callable[[], References]] = {}
        self._tokenizers: dict[str, Tokenizer] = {}
        self._begun: dict[_Key, tuple[list[DecodedResponse], list[str], Callable[[OnProgress | None], Scores]]] = {}
        self._scored: dict[_Key, Scored] = {}

    def __exit__(self, *error: Any) -> None:
        self._pool.__exit__(*error)

    def expect(self, samples: int, dataset_path: Path | None) -> None:
        """Start the worker processes for a number of responses, and let one of them read the dataset."""
        if not self._scored:
            self._pool.start(samples)
        if dataset_path is not None and not self._references and dataset_path not in self._reading:
            self._reading[dataset_path] = self._pool.submit(load_references, dataset_path)

    def references(self, dataset_path: Path) -> References:
        """Return the reference texts and the prompt lengths of a dataset.

        Raises:
            InputError: If the file cannot be read or is not a dataset.
        """
        try:
            facts = dataset_path.stat()
        except OSError:
            return load_references(dataset_path)  # raise the same error in this process
        state = (dataset_path, facts.st_ino, facts.st_mtime_ns, facts.st_size)
        if state not in self._references:
            reading = self._reading.pop(dataset_path, None)
            self._references[state] = reading() if reading is not None else load_references(dataset_path)
        return self._references[state]

    def scoring(
        self,
        metric: str,
        entries: Sequence[AccuracyEntry],
        references: References,
        model: str,
        *,
        expected_count: int | None,
    ) -> Callable[[OnProgress | None], Scored]:
        """Begin to score the responses of a log; use the cached scores if the responses were scored before.

        Args:
            model: Folder whose tokenizer decodes the responses, or "bytes".
            expected_count: Samples of the run. Default: the whole dataset.

        Returns:
            A function that waits for the scores. It calls its argument with the numbers of scored and of all samples,
            and raises an ExecutionError if a process died.

        Raises:
            InputError: If the tokenizer cannot be loaded, or more samples are expected than the dataset has.
            ExecutionError: If an expected sample is missing in the log, or its data are not token IDs.
        """
        fingerprint = tokenizer_fingerprint(model)
        key = _Key(metric, _hash_of(entries), references.sha256, fingerprint, expected_count)
        if key not in self._scored and key not in self._begun:
            self._pool.start(len(entries))
            if fingerprint not in self._tokenizers:
                self._tokenizers[fingerprint] = load_tokenizer(model)
            responses = decoded_responses(
                entries, references.texts, self._tokenizers[fingerprint].batch_decode, expected_count
            )
            wanted = [references.texts[response.sample_index] for response in responses]
            self._begun[key] = responses, wanted, begin_scoring(METRICS[metric], responses, wanted, self._pool)

        def finish(progress: OnProgress | None = None) -> Scored:
            if key not in self._scored:
                responses, wanted, scores = self._begun.pop(key)
                # The worker processes score in the meantime.
                findings = responses_plausible(responses, wanted, self._tokenizers[fingerprint])
                self._scored[key] = Scored(scores(progress), tuple(findings))
            return self._scored[key]

        return finish


def _hash_of(entries: Sequence[AccuracyEntry]) -> str:
    """Return a hash of the log entries that decide the scores."""
    digest = sha256()
    for entry in entries:
        digest.update(f"{entry.qsl_idx} {entry.token_count} {len(entry.data)}:".encode())
        digest.update(entry.data)
    return digest.hexdigest()


def local_model(name: str, revision: str | None = None) -> str:
    """Return the folder of a model's tokenizer: a given path, or a folder in the local Hugging Face cache.

    Args:
        name: A model folder, a Hugging Face ID of the form org/name, or "bytes" for the byte tokenizer.
        revision: Commit of a Hugging Face ID. Default: the main branch in the cache.

    Returns:
        Path of the folder, or "bytes".

    Raises:
        InputError: If the folder does not exist and the model is not in the cache.
    """
    if name == BYTES or Path(name).is_dir():
        return name
    if Path(name).exists() or name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise InputError(
            f"model folder {name} does not exist", "give the model folder that the run used: --model-path DIR"
        )
    from huggingface_hub import snapshot_download  # imported here because it is slow and rarely needed

    try:
        return str(snapshot_download(name, revision=revision, local_files_only=True))
    except Exception as error:  # the Hugging Face client raises many unrelated types
        commit, option = (f" at revision {revision}", f" --revision {revision}") if revision else ("", "")
        raise InputError(
            f"model {name}{commit} is not a folder, and not in the local Hugging Face cache",
            f"download it with hf download {name}{option}, or give a folder with its tokenizer: --model-path DIR",
        ) from error
