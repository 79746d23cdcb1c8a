"""A result, and the rules on both of its runs."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from compliance.judge.rule import Check, Need, check_of, decides
from compliance.judge.verdict import Finding, Subject, compared
from compliance.results.attestation_check import attested
from compliance.results.log_contradictions import log_contradictions
from compliance.results.log_numbers import mean_output_tokens
from compliance.results.official_rules import round_of_seeds, tokens_as_in_accuracy
from compliance.results.run_evidence import RunEvidence
from compliance.results.same_system import LOGGED_PAIR, RECORDED_PAIR, unlike
from compliance.results.scoring import ScoreSources
from runs.benchmark import Scenario
from runs.errors import HarnessError, SetupError
from runs.loadgen.detail_log import OF_ROUNDS
from runs.numbers.numbers import reported_numbers
from runs.record.finished_run import ACCURACY, PERFORMANCE, FinishedRun
from runs.record.layout import RunDir
from runs.rounds import Round


@dataclass(eq=False)
class Result(Subject):
    """A performance run, an accuracy run, or both, of one benchmark and scenario.

    Attributes:
        home: Default directory of the verdict. Audits may be in it.
        error: First error in a run.
        sources: Dataset and model for rescoring.
        requested_round: Round whose seeds, limits and sample counts apply. Default: the round that the seeds name.
    """

    home: Path
    directories: list[Path]
    runs: list[FinishedRun] = field(default_factory=list)
    error: HarnessError | None = None
    sources: ScoreSources = field(default_factory=ScoreSources)
    requested_round: Round | None = None

    kind = "result"

    @property
    def parts(self) -> Sequence[RunEvidence]:
        return [run for run in (self.performance, self.accuracy) if run is not None]

    @property
    def place(self) -> tuple[str, Scenario]:
        """The benchmark and the scenario: the names of the directories of its runs in a submission."""
        return self.runs[0].benchmark.submission_name, self.runs[0].scenario

    def run(self, mode: str) -> FinishedRun | None:
        """Return the performance or the accuracy run. The claimed mode decides."""
        return next((run for run in self.runs if run.claimed_mode == mode), None)

    @cached_property
    def in_round(self) -> Round | None:
        """The round whose rules apply; None if the seeds name no supported round."""
        runs = filter(None, map(self.run, (PERFORMANCE, ACCURACY)))
        return self.requested_round or next(filter(None, (round_of_seeds(run.detail) for run in runs)), None)

    @cached_property
    def performance(self) -> RunEvidence | None:
        return self._evidence(PERFORMANCE)

    @cached_property
    def accuracy(self) -> RunEvidence | None:
        return self._evidence(ACCURACY)

    def _evidence(self, mode: str) -> RunEvidence | None:
        run = self.run(mode)
        return None if run is None else RunEvidence.of(run, sources=self.sources, in_round=self.in_round)

    @property
    def both(self) -> tuple[RunEvidence, RunEvidence]:
        assert self.performance is not None  # see `needs` of the checks
        assert self.accuracy is not None
        return self.performance, self.accuracy

    def absent(self, need: Need) -> str:
        if need != "both":
            return super().absent(need)
        expected = {PERFORMANCE: self.performance, ACCURACY: self.accuracy}
        complete = all(run is not None and run.mode == mode for mode, run in expected.items())
        return "" if complete else "a performance run and an accuracy run are needed"


@decides(
    "result",
    ("one-system", "error", "[rules] accuracy of each result", "configuration of both runs",
     "repeat both runs in one configuration"),
    needs=("both",),
)  # fmt: skip
def both_runs_of_one_system(result: Result) -> Iterator[Finding]:
    """Compare system, model and dataset of both runs, as far as the files show them."""
    questions = RECORDED_PAIR if all(run.manifest is not None for run in result.both) else LOGGED_PAIR
    different = [question for question, *_ in unlike(result.both, *questions)]
    roots = [run.dir.root for run in result.both]
    for question in questions:
        performance_text, accuracy_text = (question.scope.text(run.facts) for run in result.both)
        value, same = (
            f"{performance_text} in the performance run, {accuracy_text} in the accuracy run",
            question not in different,
        )
        name = question.text
        yield compared(question.rule, same, value, "equal in both runs", *roots, fact=name, text=name)


@decides("plausible", needs=("both",), also=("perf-tokens-accuracy",))
def tokens_of_both(result: Result) -> Iterator[Finding]:
    """Compare the output tokens per sample of the performance run with accuracy.txt."""
    performance, accuracy = result.both
    if performance.detail.uses_token_latencies and accuracy.stated_text is not None:
        tokens = mean_output_tokens(performance.detail, reported_numbers(performance.detail))
        yield from tokens_as_in_accuracy(
            tokens, performance.dir.detail, accuracy.stated_text, accuracy.dir.accuracy_text.name
        )


def changed_files(result: Result) -> Iterator[Finding]:
    """Yield findings on files that changed after a run ended. Such changes may explain an error."""
    for run in result.runs:
        with suppress(HarnessError, OSError):
            if run.manifest is not None:
                yield from attested(run.dir)


def contradictions_of_unread(result: Result) -> Iterator[Finding]:
    """Yield contradictions between logs whose benchmark is not supported. No other rule applies to them."""
    for directory in result.directories if isinstance(result.error, SetupError) else ():
        with suppress(HarnessError):
            run = RunEvidence(RunDir(directory))
            if not run.detail.unknown_version(OF_ROUNDS):
                yield from log_contradictions(run.detail, run.summary)


CHECKS = (check_of(both_runs_of_one_system), check_of(tokens_of_both))
AFTER_ERROR = (Check(changed_files, ()), Check(contradictions_of_unread, ()))
