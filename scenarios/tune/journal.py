"""The journal of a tuning, with one JSON line per finished step. An interrupted tuning continues from it.

A killed tuning repeats its unfinished step, because a step is written at its end. The file is replaced as a whole, so
that a reader never sees half a line.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError

from runs.errors import InputError
from runs.files.reading import MAX_LOG_BYTES, read_as, read_whole
from runs.files.writing import write_atomic
from runs.record.fingerprint import Facts
from scenarios.tune.rates import Tried

SchedulingOptions = dict[str, Any]  # scheduling option → value; other options have the user's or the default value
TuneStep = Literal["search", "repeat", "probe", "confirm"]  # repeat: repetition of a probe, for a sign-off
# Phases of a search over scheduling options. base: a probe of the best settings beside those of a trial.
TunePhase = Literal["defaults", "trial", "worth", "base"]


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Configuration(_Line):
    """The first line: the configuration of the runs."""

    step: Literal["configuration"] = "configuration"
    schema_version: Literal[1] = 1
    scenario: str
    identity: Facts


class Estimate(_Line):
    """The Offline rate, from which the first estimate follows."""

    step: Literal["estimate"] = "estimate"
    samples_per_second: float
    source: str  # origin of the rate: given or measured
    directory: str | None = None


class TuneRun(_Line):
    """One ended run. The latencies of a stopped run come from the responses that it received."""

    step: TuneStep
    number: int  # from 1
    target_qps: float
    verdict: Literal["VALID", "INVALID"] | None  # None in a search: the run failed, or its time was over
    stopped: bool = False  # True if the run was stopped early, because its verdict was certain
    reasons: list[str]
    queries_planned: int
    queries_answered: int = 0
    late_allowed: int | None = None  # allowed late queries for each limit; None in Offline
    late_ttft: int | None = None
    late_tpot: int | None = None
    ttft_p99_ms: float | None = None
    tpot_p99_ms: float | None = None
    ttft_limit_ms: float | None = None
    tpot_limit_ms: float | None = None
    samples_per_second: float | None = None  # LoadGen's rate; None for a stopped run
    tokens_per_second: float | None = None
    wall_s: float  # duration with engine start and checks
    directory: str
    options: SchedulingOptions = {}  # options that a search set; the configuration has the other options
    # Fields of a search:
    trial: int | None = None
    phase: TunePhase | None = None
    cut: bool = False  # True if the end of the search's time stopped the run

    @property
    def valid(self) -> bool:
        return self.verdict == "VALID"


class AccuracyRun(_Line):
    """An accuracy run, for the sign-off of an option whose responses differ."""

    step: Literal["accuracy"] = "accuracy"
    number: int  # from 1
    directory: str
    options: SchedulingOptions


Line = Configuration | Estimate | TuneRun | AccuracyRun
_LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="step")])


class Journal:
    """The finished steps of a tuning.

    Raises:
        InputError: If the file is damaged; the message names the line.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[Line] = []
        if not os.path.lexists(path):
            return
        content = read_whole(path, "make the file readable", max_bytes=MAX_LOG_BYTES)
        for number, line in enumerate(content.splitlines(), start=1):
            try:
                self._lines.append(_LINE.validate_python(orjson.loads(line)))
            except (orjson.JSONDecodeError, ValidationError) as error:
                raise InputError(
                    f"{path}:{number}: not a valid line of a journal ({str(error).splitlines()[0]})",
                    "restore the file, or give another --output-log-dir",
                ) from error

    @property
    def configuration(self) -> Configuration | None:
        return next((line for line in self._lines if isinstance(line, Configuration)), None)

    @property
    def estimate(self) -> Estimate | None:
        return next((line for line in self._lines if isinstance(line, Estimate)), None)

    def runs(self, step: TuneStep, options: SchedulingOptions | None = None) -> list[TuneRun]:
        """Return the finished runs of a step in their order, only those with `options` if given."""
        runs = [line for line in self._lines if isinstance(line, TuneRun) and line.step == step]
        return [line for line in runs if options in (None, line.options)]

    def accuracy_run(self, options: SchedulingOptions) -> AccuracyRun | None:
        """Return the finished accuracy run with these options."""
        runs = (line for line in self._lines if isinstance(line, AccuracyRun) and line.options == options)
        return next(runs, None)

    def measured(self) -> list[TuneRun]:
        """Return all runs with a verdict in their order."""
        return [line for line in self._lines if isinstance(line, TuneRun) and line.verdict]

    def next_number(self, step: str) -> int:
        """Return the number of the next run of a step."""
        return sum(line.step == step for line in self._lines) + 1

    def add(self, line: Line) -> None:
        """Write a finished step."""
        self._lines.append(line)
        write_atomic(self._path, b"".join(orjson.dumps(entry.model_dump(mode="json")) + b"\n" for entry in self._lines))

    def changed(self, now: Configuration) -> Sequence[str]:
        """Return the differences between the configuration of the finished steps and `now`."""
        from runs.record.fingerprint import changes

        then = self.configuration
        return [] if then is None else changes(then.identity, now.identity)

    def summary(self) -> dict[str, Any]:
        """Return the content of tune.json, except the results of the option search."""
        return {
            "estimate": None if self.estimate is None else self.estimate.model_dump(mode="json", exclude={"step"}),
            "probes": records(self.runs("probe")),
            "confirmations": records(self.runs("confirm")),
        }


def best_probe(probes: Sequence[TuneRun]) -> TuneRun | None:
    """Return the probe with the highest valid rate; among equal rates, the fewest options, then the earliest."""
    valid = [probe for probe in probes if probe.valid]
    return max(valid, key=lambda probe: (probe.target_qps, -len(probe.options)), default=None)


def with_options(probes: Sequence[TuneRun], options: SchedulingOptions) -> list[TuneRun]:
    """Return all probes of these settings that have a verdict."""
    return [probe for probe in probes if probe.options == options and probe.verdict]


def records(runs: Sequence[TuneRun]) -> list[dict[str, Any]]:
    """Return runs in the form of tune.json."""
    return [run.model_dump(mode="json") for run in runs]


def tried_of(runs: Sequence[TuneRun]) -> list[Tried]:
    """Return the rate and the verdict of each run."""
    return [Tried(run.target_qps, run.valid) for run in runs]


class _Record(BaseModel):
    """The fields of tune.json that other code reads."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    scenario: str
    target_qps: FiniteFloat | None
    probes: list[TuneRun]
    confirmations: list[TuneRun]


def read_tune(path: Path) -> dict[str, Any]:
    """Return the result of a tuning (tune.json).

    Raises:
        InputError: If the file is missing or damaged.
    """
    return read_as(path, _Record, "repeat the tuning", strict=True).model_dump()
