"""Base classes of audits. An audit has options, plans runs, checks requests, and reaches a verdict from files.

An audit changes LoadGen's settings only through its audit.config. The effective settings in the log show whether
LoadGen read the file.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from compliance.audits.options import AuditOptions, AuditOptionsT, AuditRequest, Logs
from compliance.judge.record import record
from compliance.judge.verdict import Finding, Verdict
from runs.benchmark import Mode, Scenario
from runs.errors import ExecutionError, SetupError
from runs.loadgen.defaults import PERFORMANCE_MODE as PERFORMANCE_MODE  # for audits, also of other packages

if TYPE_CHECKING:  # not imported at start-up
    from compliance.audits.run_artifacts import RunArtifacts
    from runs.loadgen.detail_log import DetailLog

EXISTING = ("ref", "run")  # labels of existing runs (--ref, --run)
PERFORMANCE = "performance"  # label of the run whose logged responses are checked
_AS_LOGGED = {
    "mode": "test_mode", "min_duration": "min_duration_ms", "max_duration": "max_duration_ms",
    "performance_sample_count_override": "performance_sample_count",
}  # fmt: skip
_SWITCHES = ("performance_issue_unique", "performance_issue_same", "sample_concatenate_permutation")
EARLIER_VERSION = "an earlier version of the harness made this audit"
NAMED_IN_MESSAGES = 3  # number of samples or responses listed in a message


class NoVerdictError(SetupError):
    """The runs of an audit are complete, but they allow no verdict."""


@dataclass(frozen=True)
class RunSpec:
    """A planned run of an audit."""

    label: str  # name of the run's directory
    mode: Mode = "performance"  # performance or accuracy
    settings: Mapping[str, int] = field(default_factory=dict)  # LoadGen settings by key; empty: no audit.config
    scenario: Scenario = "Offline"  # scenario of a run with settings
    requested: int | None = None  # requested samples; None: all that LoadGen issues
    rows: tuple[int, ...] | None = None  # rows of the dataset that the run uses; None: all
    engine: int = 1  # number of the engine, from 1; used if the runs of the audit share engines

    @property
    def in_force(self) -> dict[str, Any]:
        """The effective values that the detail log must contain, by key without `effective_`."""
        return effective_settings(self.settings, self.scenario)

    def render(self) -> str | None:
        """Return the audit.config as text, or None if the run has none."""
        return "".join(f"*.*.{key} = {value}\n" for key, value in self.settings.items()) or None


@dataclass
class AuditResult:
    """The outcome of an audit. Its findings alone do not decide it: the official comparison of TEST04 has none."""

    test: str
    official: bool
    required: bool  # True if submissions of the benchmark need this audit
    runs: tuple[dict[str, Any], ...]
    passed: bool
    reason: str  # one sentence with the deciding numbers
    rule: str  # applied rule in words
    # name and content of the file for the official tools
    text_name: str
    text: str
    details: Mapping[str, Any] = field(default_factory=dict)
    # files of the runs to copy next to the text, by new name
    copies: Mapping[str, Path] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """Return the fields of the JSON. Fixed keys take precedence over details."""
        names = ("test", "passed", "official", "required", "reason", "rule")
        fixed = {name: getattr(self, name) for name in names} | {"runs": list(self.runs)}
        verdict: Verdict[None] = Verdict(self.findings, refused_by=[] if self.passed else [self.reason])
        return {**self.details, **record(verdict), **fixed}


class AuditTest(ABC, Generic[AuditOptionsT]):
    """Base class of audits. To add an audit, add a subclass with a `name` to `compliance/audits/catalog/`."""

    name: str  # value of --test and name of the directory
    summary: str  # line of text for --help
    official = False  # True if MLCommons defines this audit
    text_name = "verify_performance.txt"  # file for the official tools
    options: ClassVar[type[Any]] = AuditOptions  # model of the options: type[Options]
    needs_generated_ids = False  # a server that sends text cannot be audited
    keeps_engine = False  # the runs share an engine, which stays up until a run needs a new engine
    existing: tuple[Mode, Mode] | None = None  # modes of --ref and --run; None: existing runs cannot be checked

    @property
    def default_options(self) -> AuditOptionsT:
        options: AuditOptionsT = self.options(test=self.name)
        return options

    def validate(self, request: AuditRequest[AuditOptionsT]) -> None:
        """Refuse an invalid request before any run starts.

        Raises:
            InputError, SetupError: If the audit cannot be made.
        """
        return

    @abstractmethod
    def runs(self, request: AuditRequest[AuditOptionsT]) -> list[RunSpec]:
        """Return the runs that the audit starts first."""

    def more_runs(self, request: AuditRequest[AuditOptionsT], finished: Sequence["RunArtifacts"]) -> list[RunSpec]:
        """Return the runs that must follow the finished runs; an empty list if the audit is complete."""
        return []

    def run_counts(self, request: AuditRequest[AuditOptionsT]) -> tuple[int, int]:
        """Return the minimum and the maximum number of runs."""
        count = len(self.runs(request))
        return count, count

    @abstractmethod
    def verify(self, request: AuditRequest[AuditOptionsT], runs: list["RunArtifacts"]) -> AuditResult:
        """Check the finished runs from their files, and return the verdict.

        Raises:
            ExecutionError: If a file is damaged or differs from the plan.
            NoVerdictError: If the files are complete but allow no verdict.
        """

    def recover(
        self, request: AuditRequest[AuditOptionsT], logs: Logs, details: Mapping[str, Any]
    ) -> AuditRequest[AuditOptionsT]:
        """Return the request of a finished audit, with the options that the logs of its runs show.

        Args:
            request: Request with the default options.
            details: Details of the audit's record, which can make a rule stricter, but not less strict.
        """
        return request

    def as_drawn(self, request: AuditRequest[AuditOptionsT], logs: Logs) -> AuditRequest[AuditOptionsT]:
        """Return the request with the random values that were drawn for it, read from the logs of its runs."""
        return request

    def need(self, runs: list["RunArtifacts"], at_least: int) -> None:
        """Raise an error if a run of the audit is missing or unfinished."""
        if len(runs) < at_least:
            raise ExecutionError(
                f"{self.name}: {len(runs)} finished runs, required: at least {at_least}", "run the audit again"
            )

    def need_ids(self, runs: Sequence["RunArtifacts"], *, zeros_only: bool = False) -> None:
        """Raise an error if the server sent text instead of token IDs; `without_ids` is the reason."""
        from runs.record.engines.server_facts import without_ids

        for run in runs:
            if why := without_ids(run.manifest, zeros_only=zeros_only):
                fix = "audit a server that returns token IDs"
                raise NoVerdictError(
                    f"{self.name} needs generated token IDs; run {run.spec.label}: {why}",
                    f"{fix}, or give the server's model with --model-path" if zeros_only else fix,
                )

    def result(
        self, checks: Sequence[Finding], runs: Sequence["RunArtifacts"], *, met: str = "", **extra: Any
    ) -> AuditResult:
        """Return the verdict that follows from the findings.

        Args:
            met: Reason if no rule is violated.
            others: Fields of `AuditResult`, which take precedence.
        """
        failed = [check for check in checks if check.violated]
        reason = failed[0].sentence if failed else met
        outcome: dict[str, Any] = {"passed": not failed, "reason": reason, "text_name": self.text_name, **extra}
        summaries = tuple(run.record() for run in runs)
        required = any(self.name in run.benchmark.entry.audits for run in runs)
        return AuditResult(self.name, self.official, required, summaries, findings=list(checks), **outcome)

    def text_of(self, head: str, rule: str, runs: Sequence["RunArtifacts"], checks: Sequence[Finding]) -> str:
        """Return the content of the text file: official wording, name and origin of the audit, rule, runs, findings."""
        whose = "MLCommons" if self.official else "this harness; MLCommons has no such test"
        lines = [f"audit: {self.name}, from {whose}", f"rule: {rule}", *(line for run in runs for line in run.lines())]
        return head + "\n".join([*lines, *(f"check: {check}" for check in checks)]) + "\n"


def effective_settings(settings: Mapping[str, int], scenario: Scenario) -> dict[str, Any]:
    """Return the effective values that LoadGen logs for these settings, by key without `effective_`."""
    effective: dict[str, Any] = {}
    for key, value in settings.items():
        name = _AS_LOGGED.get(key, key)
        if key == "min_query_count" and scenario == "Offline":
            name = "samples_per_query"  # Offline issues one query with all samples
        effective[name] = "PerformanceOnly" if key == "mode" else bool(value) if key in _SWITCHES else value
    return effective


def requested_count(log: "DetailLog") -> int:
    """Return the number of samples that a run of an audit requested."""
    return log.integer("effective_samples_per_query" if log.scenario == "Offline" else "effective_min_query_count")
