"""What an audit is: legs planned as data, checks before anything starts, and a verdict from files alone.

An audit changes LoadGen's settings only through an audit.config that is rendered here. The settings in force afterwards
show that LoadGen read it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from compliance.audits.summaries import SUMMARIES
from compliance.judge.finding import Finding
from compliance.judge.verdict import Outcome, Verdict
from runs.benchmark import Mode, Scenario
from runs.errors import ExecutionError, InputError, SetupError
from runs.loadgen.detail_log import DetailLog
from runs.loadgen.replay import expected_samples
from runs.numbers.numbers import Numbers, reported_numbers
from runs.record.leg import FinishedLeg
from runs.record.requests_log import RequestTable, read_requests

EXISTING = ("ref", "run")  # labels of existing runs (--ref, --run)
PERFORMANCE = "performance"  # label of a leg whose logged answers are judged
PERFORMANCE_MODE = 2  # LoadGen's number for it
_AS_LOGGED = {
    "mode": "test_mode", "min_duration": "min_duration_ms", "max_duration": "max_duration_ms",
    "performance_sample_count_override": "performance_sample_count",
}  # fmt: skip
_SWITCHES = ("performance_issue_unique", "performance_issue_same", "sample_concatenate_permutation")
NAMED_IN_MESSAGES = 3  # faulty samples or answers
SHOWN = ("mean", "p50", "p90", "p99")


class NoVerdictError(SetupError):
    """The runs of an audit are whole, and allow no verdict."""


@dataclass(frozen=True)
class LegSpec:
    """One leg of an audit."""

    label: str  # name of the leg's directory
    mode: Mode = "performance"  # performance or accuracy
    settings: Mapping[str, int] = field(default_factory=dict)  # LoadGen settings by key; none = no audit.config
    scenario: Scenario = "Offline"  # of a leg with settings
    requested: int | None = None  # samples to answer; None = all that LoadGen issues

    @property
    def in_force(self) -> dict[str, Any]:
        """The `effective_*` values (without that prefix) that the detail log must show afterwards."""
        return in_force(self.settings, self.scenario)

    def render(self) -> str | None:
        """The audit.config as text; None where the leg has none."""
        return "".join(f"*.*.{key} = {value}\n" for key, value in self.settings.items()) or None


@dataclass(eq=False)
class LegArtifacts(FinishedLeg):
    """A finished leg of an audit."""

    spec: LegSpec = field(kw_only=True)

    @classmethod
    def of(cls, leg: FinishedLeg, spec: LegSpec) -> "LegArtifacts":
        """The same leg, with what it has read so far."""
        found = cls(leg.run, spec=spec)
        vars(found).update(vars(leg))
        return found

    @property
    def request_table(self) -> RequestTable:
        """The record of every request, which a leg of an audit must have."""
        return read_requests(self.run.requests) if self.requests is None else self.requests

    @cached_property
    def numbers(self) -> Numbers:
        return reported_numbers(self.detail)

    @property
    def completed(self) -> int:
        """Samples answered, as LoadGen counts them."""
        return expected_samples(self.detail) or 0

    @property
    def requested(self) -> int:
        return self.completed if self.spec.requested is None else self.spec.requested

    def check_engaged(self) -> None:
        """Check that the audit.config took effect, by the settings in force.

        LoadGen logs that it found the file before it reads it, and ignores all of it for one bad line.

        Raises:
            ExecutionError: LoadGen did not finish, or a value differs.
        """
        detail = self.detail
        if not detail.finished or (self.spec.mode == "performance" and not detail.has_results):
            raise ExecutionError(
                f"audit leg {self.spec.label}: LoadGen did not finish",
                f"see {self.run.engine_log}; no verdict",
            )
        for key, wanted in self.spec.in_force.items():
            found = detail.get(f"effective_{key}")
            if found != wanted or type(found) is not type(wanted):
                raise ExecutionError(
                    f"audit leg {self.spec.label}: audit.config not engaged: effective_{key} is {found}, not {wanted}",
                    f"see {self.run.detail}; no verdict",
                )

    def record(self) -> dict[str, Any]:
        """The leg in numbers, for the record."""
        detail, table, manifest = self.detail, self.requests, self.manifest
        facts: dict[str, Any] = {
            "label": self.spec.label,
            "directory": str(self.run.root),
            "scenario": detail.scenario,
            "mode": detail.mode,
            "loadgen_version": detail.get("loadgen_version"),
            "loadgen_verdict": detail.validity,
            "min_duration_ms": detail.effective("min_duration_ms"),
            "requested": self.requested,
            "completed": self.completed,
            "in_force": {f"effective_{key}": detail.get(f"effective_{key}") for key in self.spec.in_force},
        }
        if self.spec.mode == "performance":
            facts["numbers"] = self.numbers.model_dump(exclude_none=True)
        if table is not None and len(table):
            facts |= {
                "distinct_samples": len(np.unique(table.sample_index)),
                "mean_prompt_tokens": float(np.mean(table.prompt_tokens)),
                "mean_output_tokens": float(np.mean(table.output_tokens)),
            }
        if manifest is not None:
            facts |= {
                "pid": manifest.pid,
                "start_time_ns": manifest.start_time_ns,
                "prefix_caching": manifest.engine.prefix_caching,
                "cached_prompt_tokens": manifest.observed.cached_prompt_tokens,
            }
        return facts

    def lines(self) -> Iterator[str]:
        """The leg for people: scenario, rates and validity in one line, then a line for each kind of latency."""
        numbers = self.numbers
        rates = ((numbers.samples_per_second, "samples/s"), (numbers.tokens_per_second, "tokens/s"))
        shown = ", ".join(f"{value:.6g} {unit}" for value, unit in rates if value is not None)
        yield (
            f"{self.spec.label}: {self.detail.scenario}, {shown}, {self.completed} of {self.requested} samples, "
            f"LoadGen says {self.detail.validity}"
        )
        for name, values in (("latency", numbers.latency_ns), ("TTFT", numbers.ttft_ns), ("TPOT", numbers.tpot_ns)):
            if values is not None:
                shown = ", ".join(f"{one} {getattr(values, one) / 1e6:.3f} ms" for one in SHOWN)
                yield f"{self.spec.label}: {name} {shown}"


class AuditRequest(BaseModel):
    """What is audited. Counts are samples; `sample_index` are places in LoadGen's set of loaded samples."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), defer_build=True)

    scenario: Scenario
    loadgen_key: str
    loaded_count: int  # samples LoadGen can load: rows of the data set, at most the benchmark's own number
    samples: int | None = None
    audit_samples: int | None = None
    sample_index: tuple[int, ...] = ()  # empty = chosen from the reference leg
    threshold: float | None = None
    stop_ids: tuple[int, ...] = ()  # end-of-sequence ids of the model
    bos_ids: tuple[int, ...] = ()
    special_ids: tuple[int, ...] = ()  # other special ids of the tokenizer
    log_seed: int | None = None  # chooses the answers that a leg logs; None = drawn
    earlier_runs: tuple[str, ...] = ()  # labels of the runs of an audit of an earlier version, to be judged again

    def threshold_or(self, default: float) -> float:
        """The threshold, in the open interval (0, 1).

        Raises:
            InputError: outside.
        """
        value = default if self.threshold is None else self.threshold
        if not 0 < value < 1:
            raise InputError(f"--threshold {value:g} is not between 0 and 1", "give a share such as 0.1")
        return value

    def samples_or(self, default: int) -> int:
        """The number of samples, at most as many as are loaded.

        Raises:
            InputError: below 1, or more than are loaded.
        """
        count = min(default, self.loaded_count) if self.samples is None else self.samples
        if count < 1:
            raise InputError(f"--samples {count} is below 1", "give a count of at least 1")
        if count > self.loaded_count:
            raise InputError(
                f"--samples {count} is more than the {self.loaded_count} samples that LoadGen can load; "
                "it would repeat them",
                f"give at most {self.loaded_count}",
            )
        return count


@dataclass
class AuditResult(Verdict):
    """The outcome of an audit."""

    test: str
    official: bool
    required: bool  # by the submissions of the legs' benchmark
    legs: tuple[dict[str, Any], ...]
    passed: bool
    reason: str  # one sentence, with the numbers that decided
    rule: str  # the rule that was applied, in words
    # text_name, text: the file the official tools look for, and its content
    text_name: str
    text: str
    details: Mapping[str, Any] = field(default_factory=dict)
    # files of the legs that are copied next to it, by their name there
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
        fixed = {name: getattr(self, name) for name in names} | {"legs": list(self.legs)}
        return {**self.details, **super().record(strict=strict), **fixed}


class AuditTest(ABC):
    """An audit. A new one is a module with such an object and a line in the registry."""

    name: str  # registry id and directory name
    official = False  # whether MLCommons has this test
    text_name = "verify_performance.txt"  # the file that official tools look for
    knobs: frozenset[str] = frozenset()  # fields of AuditRequest that a user may set for it
    existing: tuple[Mode, Mode] | None = None  # modes of (--ref, --run) where it can judge existing runs

    @property
    def summary(self) -> str:
        """One line for --help."""
        return SUMMARIES[self.name]

    def validate(self, request: AuditRequest) -> None:
        """Refuse what cannot be audited, before any leg starts, and options that the test does not use.

        Raises:
            InputError, SetupError: naming what it is.
        """
        for name in ("samples", "audit_samples", "sample_index", "threshold"):
            value = getattr(request, name)
            if value not in (None, ()) and name not in self.knobs:
                flag = "--" + name.replace("_", "-")
                raise InputError(f"--test {self.name} takes no {flag} (given: {value})", f"leave out {flag}")

    @abstractmethod
    def legs(self, request: AuditRequest) -> list[LegSpec]:
        """The legs that run first."""

    def more_legs(self, request: AuditRequest, finished: Sequence[LegArtifacts]) -> list[LegSpec]:
        """Further legs, by those that are finished; none when the audit is complete."""
        return []

    def run_counts(self, request: AuditRequest) -> tuple[int, int]:
        """The fewest and the most runs of the audit."""
        count = len(self.legs(request))
        return count, count

    @abstractmethod
    def verify(self, request: AuditRequest, legs: list[LegArtifacts]) -> AuditResult:
        """Judge the finished legs from their files.

        Raises:
            ExecutionError: a file is damaged or not as planned.
            NoVerdictError: the files are whole and allow no verdict.
        """

    def recover(self, scenario: Scenario, logs: Mapping[str, DetailLog], details: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of `AuditRequest` that follow from legs that are there.

        Args:
            logs: theirs, by label.
            details: of the audit's record, which may make a rule stricter, never milder.
        """
        return {}

    def need(self, legs: list[LegArtifacts], at_least: int) -> None:
        """Refuse to judge an incomplete set of legs."""
        if len(legs) < at_least:
            raise ExecutionError(
                f"{self.name} needs {at_least} finished legs and was given {len(legs)}", "run the audit again"
            )

    def result(
        self, checks: Sequence[Finding], legs: Sequence[LegArtifacts], *, kept: str = "", **others: Any
    ) -> AuditResult:
        """The outcome by the checks.

        Args:
            kept: the reason where none failed.
            others: fields of `AuditResult`, which win.
        """
        failed = [check for check in checks if check.violated]
        reason = failed[0].sentence if failed else kept
        outcome: dict[str, Any] = {"passed": not failed, "reason": reason, "text_name": self.text_name, **others}
        summaries = tuple(leg.record() for leg in legs)
        required = any(self.name in leg.benchmark.entry.audits for leg in legs)
        return AuditResult(self.name, self.official, required, summaries, findings=list(checks), **outcome)


def in_force(settings: Mapping[str, int], scenario: Scenario) -> dict[str, Any]:
    """The `effective_*` values (without that prefix) that the detail log shows of such settings of performance legs."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        name = _AS_LOGGED.get(key, key)
        if key == "min_query_count" and scenario == "Offline":
            name = "samples_per_query"  # it has one query of so many samples
        found[name] = "PerformanceOnly" if key == "mode" else bool(value) if key in _SWITCHES else value
    return found


def requested_count(log: DetailLog) -> int:
    """The number of samples that a leg of an audit had to answer."""
    return log.integer("effective_samples_per_query" if log.scenario == "Offline" else "effective_min_query_count")


def text_of(test: AuditTest, head: str, rule: str, legs: Sequence[LegArtifacts], checks: Sequence[Finding]) -> str:
    """An audit's text: the official wording, then the name and origin of the audit, the rule, the legs, every check."""
    whose = "MLCommons" if test.official else "this harness; MLCommons has no such test"
    lines = [f"audit: {test.name}, from {whose}", f"rule: {rule}", *(line for leg in legs for line in leg.lines())]
    return head + "\n".join([*lines, *(f"check: {check}" for check in checks)]) + "\n"
