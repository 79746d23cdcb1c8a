"""What an audit is: options, runs planned as data, checks before anything starts, and a verdict from files alone.

An audit changes LoadGen's settings only through an audit.config that is rendered here. The effective settings
afterwards show that LoadGen read it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from compliance.audits.options import AuditOptions, AuditRequest, Logs, Options
from compliance.judge.finding import Finding
from compliance.judge.verdict import Outcome, Verdict
from runs.benchmark import Mode, Scenario
from runs.errors import ExecutionError, SetupError

if TYPE_CHECKING:  # what runs leave behind is read when they are judged
    from compliance.audits.run_artifacts import RunArtifacts
    from runs.loadgen.detail_log import DetailLog

EXISTING = ("ref", "run")  # labels of existing runs (--ref, --run)
PERFORMANCE = "performance"  # label of a run whose logged responses are judged
PERFORMANCE_MODE = 2  # LoadGen's number for it
_AS_LOGGED = {
    "mode": "test_mode", "min_duration": "min_duration_ms", "max_duration": "max_duration_ms",
    "performance_sample_count_override": "performance_sample_count",
}  # fmt: skip
_SWITCHES = ("performance_issue_unique", "performance_issue_same", "sample_concatenate_permutation")
NAMED_IN_MESSAGES = 3  # faulty samples or responses


class NoVerdictError(SetupError):
    """The runs of an audit are whole, and allow no verdict."""


@dataclass(frozen=True)
class RunSpec:
    """One run of an audit."""

    label: str  # name of the run's directory
    mode: Mode = "performance"  # performance or accuracy
    settings: Mapping[str, int] = field(default_factory=dict)  # LoadGen settings by key; none = no audit.config
    scenario: Scenario = "Offline"  # of a run with settings
    requested: int | None = None  # samples to answer; None = all that LoadGen issues

    @property
    def in_force(self) -> dict[str, Any]:
        """The `effective_*` values (without that prefix) that the detail log must show afterwards."""
        return in_force(self.settings, self.scenario)

    def render(self) -> str | None:
        """The audit.config as text; None where the run has none."""
        return "".join(f"*.*.{key} = {value}\n" for key, value in self.settings.items()) or None


@dataclass
class AuditResult(Verdict):
    """The outcome of an audit."""

    test: str
    official: bool
    required: bool  # by the submissions of the runs' benchmark
    runs: tuple[dict[str, Any], ...]
    passed: bool
    reason: str  # one sentence, with the numbers that decided
    rule: str  # the rule that was applied, in words
    # text_name, text: the file the official tools look for, and its content
    text_name: str
    text: str
    details: Mapping[str, Any] = field(default_factory=dict)
    # files of the runs that are copied next to it, by their name there
    copies: Mapping[str, Path] = field(default_factory=dict)

    @property
    def outcome(self) -> Outcome:
        """By `passed`: the official comparison of TEST04 has no findings."""
        return "PASS" if self.passed else "FAIL"

    @property
    def reasons(self) -> list[str]:
        return [] if self.passed else [self.reason]

    def record(self, *, strict: bool = False) -> dict[str, Any]:
        """The fixed keys win over any detail of the same name."""
        names = ("test", "passed", "official", "required", "reason", "rule")
        fixed = {name: getattr(self, name) for name in names} | {"legs": list(self.runs)}
        return {**self.details, **super().record(strict=strict), **fixed}


class AuditTest(ABC, Generic[Options]):
    """An audit. A new one is a class with a name in a module of `compliance/audits/catalog/`."""

    name: str  # value of --test, and directory name
    summary: str  # one line for --help
    official = False  # whether MLCommons has this test
    text_name = "verify_performance.txt"  # the file that official tools look for
    options: ClassVar[type[Any]] = AuditOptions  # what --test NAME takes: type[Options]
    existing: tuple[Mode, Mode] | None = None  # modes of (--ref, --run) where it can judge existing runs

    @property
    def default_options(self) -> Options:
        found: Options = self.options(test=self.name)
        return found

    def validate(self, request: AuditRequest[Options]) -> None:
        """Refuse what cannot be audited, before any run starts.

        Raises:
            InputError, SetupError: naming what it is.
        """
        return

    @abstractmethod
    def runs(self, request: AuditRequest[Options]) -> list[RunSpec]:
        """The runs that run first."""

    def more_runs(self, request: AuditRequest[Options], finished: Sequence["RunArtifacts"]) -> list[RunSpec]:
        """Further runs, by those that are finished; none when the audit is complete."""
        return []

    def run_counts(self, request: AuditRequest[Options]) -> tuple[int, int]:
        """The fewest and the most runs of the audit."""
        count = len(self.runs(request))
        return count, count

    @abstractmethod
    def verify(self, request: AuditRequest[Options], runs: list["RunArtifacts"]) -> AuditResult:
        """Judge the finished runs from their files.

        Raises:
            ExecutionError: a file is damaged or not as planned.
            NoVerdictError: the files are whole and allow no verdict.
        """

    def recover(self, request: AuditRequest[Options], logs: Logs, details: Mapping[str, Any]) -> AuditRequest[Options]:
        """The request of an audit that was made, where its runs show that its options were not the default.

        Args:
            request: with the default options.
            details: of the audit's record, which may make a rule stricter, never milder.
        """
        return request

    def as_drawn(self, request: AuditRequest[Options], logs: Logs) -> AuditRequest[Options]:
        """The request with what was drawn by chance, as the logs of its runs show it."""
        return request

    def need(self, runs: list["RunArtifacts"], at_least: int) -> None:
        """Refuse to judge an incomplete set of runs."""
        if len(runs) < at_least:
            raise ExecutionError(
                f"{self.name} needs {at_least} finished runs and was given {len(runs)}", "run the audit again"
            )

    def result(
        self, checks: Sequence[Finding], runs: Sequence["RunArtifacts"], *, kept: str = "", **others: Any
    ) -> AuditResult:
        """The outcome by the checks.

        Args:
            kept: the reason where none failed.
            others: fields of `AuditResult`, which win.
        """
        failed = [check for check in checks if check.violated]
        reason = failed[0].sentence if failed else kept
        outcome: dict[str, Any] = {"passed": not failed, "reason": reason, "text_name": self.text_name, **others}
        summaries = tuple(run.record() for run in runs)
        required = any(self.name in run.benchmark.entry.audits for run in runs)
        return AuditResult(self.name, self.official, required, summaries, findings=list(checks), **outcome)

    def text_of(self, head: str, rule: str, runs: Sequence["RunArtifacts"], checks: Sequence[Finding]) -> str:
        """The text: the official wording, then the name and origin of the audit, the rule, the runs, every check."""
        whose = "MLCommons" if self.official else "this harness; MLCommons has no such test"
        lines = [f"audit: {self.name}, from {whose}", f"rule: {rule}", *(line for run in runs for line in run.lines())]
        return head + "\n".join([*lines, *(f"check: {check}" for check in checks)]) + "\n"


def in_force(settings: Mapping[str, int], scenario: Scenario) -> dict[str, Any]:
    """The `effective_*` values (without that prefix) that the detail log shows of such settings of performance runs."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        name = _AS_LOGGED.get(key, key)
        if key == "min_query_count" and scenario == "Offline":
            name = "samples_per_query"  # it has one query of so many samples
        found[name] = "PerformanceOnly" if key == "mode" else bool(value) if key in _SWITCHES else value
    return found


def requested_count(log: "DetailLog") -> int:
    """The number of samples that a run of an audit had to answer."""
    return log.integer("effective_samples_per_query" if log.scenario == "Offline" else "effective_min_query_count")
