"""Files of one run, its claim, and the values computed from both. Each file is read once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from compliance.accuracy import accuracy_verdict
from compliance.accuracy.metrics import metric_of
from compliance.accuracy.scores import TokenIds, decode_ids
from compliance.judge.rule import Need
from compliance.judge.verdict import Subject
from compliance.results.run_claim import RunClaim, claim_of
from compliance.results.scoring import (
    FoundScores,
    ScoreSources,
    find_scores,
    model_folder_of,
    read_accuracy_text,
    references_of,
    target_of,
)
from compliance.results.truncate import is_truncated
from qsl.dataset import References
from qsl.tokenizers import BYTES, Tokenizer, load_tokenizer
from runs.errors import HarnessError
from runs.files.reading import read_object, read_record
from runs.loadgen.accuracy_log import issued_samples
from runs.numbers.derive_result import derive_result
from runs.numbers.result import RunNumbers
from runs.record.engines.server_facts import without_ids
from runs.record.fingerprint import Facts, run_fingerprint
from runs.record.finished_run import ACCURACY, PERFORMANCE, FinishedRun
from runs.rounds import Round

ReadT = TypeVar("ReadT")
MODE_NAMES = {PERFORMANCE: "performance", ACCURACY: "accuracy"}


@dataclass(eq=False)
class RunEvidence(FinishedRun, Subject):
    """A run of this harness, or a directory with only LoadGen's logs."""

    sources: ScoreSources = field(default_factory=ScoreSources)
    in_round: Round | None = None  # None: the seeds belong to no supported round

    @property
    def kind(self) -> str:
        """The claimed mode: performance or accuracy."""
        return MODE_NAMES.get(self.claimed_mode, self.claimed_mode)

    @property
    def name(self) -> str:
        return self.kind

    @property
    def unofficial_reasons(self) -> Sequence[str]:
        return self.manifest.unofficial_reasons if self.manifest else ()

    def absent(self, need: Need) -> str:
        match need:
            case "manifest" if self.manifest is None:
                return f"{self.dir.manifest.name} is missing: the model, dataset and engine options are unknown"
            case "record" if self.requests is None:
                return f"{self.dir.requests.name} is missing: no number can be recomputed"
            case "numbers" if not self.detail.has_results:
                return f"{self.dir.detail.name} has no results"
            case "responses" if self.truncated:
                return f"{self.dir.accuracy_log.name} is truncated for submission: its responses cannot be read"
            case "text" if self.stated_text is None:
                return f"{self.dir.accuracy_text.name} is missing"
            case "manifest" | "record" | "numbers" | "responses" | "text" | "log":
                return ""
        return super().absent(need)

    @cached_property
    def claim(self) -> RunClaim:
        """What the run is said to be, by its manifest, its log or the command line."""
        return claim_of(self.scenario, self.benchmark, self.in_round)

    @cached_property
    def result(self) -> RunNumbers:
        """LoadGen's numbers, and the numbers recomputed from the request log if it exists.

        Raises:
            ExecutionError: If LoadGen did not finish. InputError: If a file is damaged.
        """
        return derive_result(self, scenario=self.scenario)

    @property
    def invalid_because(self) -> list[str]:
        """Reasons why a performance run is INVALID; empty for a VALID run."""
        return self.result.reasons

    @cached_property
    def truncated(self) -> bool:
        """True if the accuracy log was truncated for submission."""
        return is_truncated(self.dir)

    @property
    def logged_issue(self) -> list[tuple[int, int]]:
        """seq_id and qsl_idx of each response in the accuracy log. The log may be truncated."""
        if self.truncated:
            return issued_samples(read_record(self.dir.accuracy_log, ""))
        return [(entry.seq_id, entry.qsl_idx) for entry in self.entries]

    @cached_property
    def stated_text(self) -> str | None:
        """accuracy.txt."""
        return read_accuracy_text(self.dir.accuracy_text) if self.dir.accuracy_text.exists() else None

    @cached_property
    def scores(self) -> FoundScores:
        """Scores of the accuracy run, and their source (rescored or from accuracy.txt).

        Raises:
            InputError: If accuracy.txt is missing and the responses cannot be scored.
        """
        return find_scores(self, self.sources, self.stated_text, is_complete=not self.absent("responses"))

    @cached_property
    def accuracy(self) -> accuracy_verdict.AccuracyVerdict:
        """Scores compared with the targets that apply. Raises the same errors as `scores`."""
        return accuracy_verdict.judge_scores(metric_of(self.benchmark), self.scores.scores, *target_of(self))

    @cached_property
    def facts(self) -> Facts:
        """Fingerprint of the run: facts on its system and settings."""
        return run_fingerprint(self)

    @cached_property
    def references(self) -> References | None:
        """Dataset of the run, read once for all runs; None if it is missing or changed."""
        return _or_none(lambda: references_of(self, self.sources)) if self.manifest is not None else None

    @cached_property
    def response_ids(self) -> list[TokenIds]:
        """Token IDs of the logged responses, in the log's order.

        Raises:
            HarnessError: If the data are not token IDs.
        """
        return [decode_ids(entry.data, entry.token_count) for entry in self.entries]

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        """Tokenizer for the responses; None if it is unavailable."""
        return (
            _or_none(lambda: load_tokenizer(model_folder_of(self, self.sources))) if self.manifest is not None else None
        )

    @cached_property
    def vocabulary_size(self) -> int | None:
        """Size of the model's vocabulary, from config.json or the tokenizer; None if both are missing."""
        model = _or_none(lambda: model_folder_of(self, self.sources)) if self.manifest is not None else None
        if model is not None and model != BYTES:
            size = (_or_none(lambda: read_object(Path(model) / "config.json", "")) or {}).get("vocab_size")
            if type(size) is int and size > 0:
                return size
        return self.tokenizer.vocab_size if self.tokenizer is not None else None


def ids_unknown(run: FinishedRun) -> str:
    """Return the reason why rules on generated token IDs do not apply to a run; empty if they apply."""
    return without_ids(run.manifest)


def _or_none(read: Callable[[], ReadT]) -> ReadT | None:
    try:
        return read()
    except (HarnessError, OSError):
        return None
