"""The journal of a tune: it has one JSON line per finished step, from which an interrupted tune continues.

A step is written when it is over, so a tune that was killed repeats the step that it was in. The file is replaced as a
whole: a reader never sees half a line.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError

from runs.errors import InputError
from runs.files import write_atomic
from runs.reading import MAX_LOG_BYTES, read_as, read_whole
from runs.record.fingerprint import Facts
from scenarios.tune.rates import Tried

Options = dict[str, Any]  # scheduling option → value; the others are as the user gave them, or at their default
Step = Literal["search", "probe", "confirm"]
Phase = Literal["defaults", "trial", "worth"]  # of a search over scheduling options


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Configuration(_Line):
    """What the runs are made with; the first line."""

    step: Literal["configuration"] = "configuration"
    schema_version: Literal[1] = 1
    scenario: str
    identity: Facts


class Estimate(_Line):
    """The Offline rate from which the search starts."""

    step: Literal["estimate"] = "estimate"
    samples_per_second: float
    source: str  # given, or how it was measured
    directory: str | None = None


class TuneRun(_Line):
    """One run that is over. Latencies of a run that was stopped are those of the responses it had."""

    step: Step
    number: int  # from 1
    target_qps: float
    verdict: Literal["VALID", "INVALID"] | None  # None, in a search: the run failed, or its time was over
    stopped: bool = False  # before its end, its verdict being certain
    reasons: list[str]
    queries_planned: int
    queries_answered: int = 0
    late_allowed: int | None = None  # of each limit; None in Offline
    late_ttft: int | None = None
    late_tpot: int | None = None
    ttft_p99_ms: float | None = None
    tpot_p99_ms: float | None = None
    ttft_limit_ms: float | None = None
    tpot_limit_ms: float | None = None
    samples_per_second: float | None = None  # LoadGen's; None of a run that was stopped
    tokens_per_second: float | None = None
    wall_s: float  # engine start and judging included
    directory: str
    options: Options = {}  # scheduling options that a search set; the others are those of the configuration
    # Of a search:
    trial: int | None = None
    phase: Phase | None = None
    cut: bool = False  # by the end of the time that the search has

    @property
    def valid(self) -> bool:
        return self.verdict == "VALID"


Line = Configuration | Estimate | TuneRun
_LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="step")])


class Journal:
    """What a tune has done so far.

    Raises:
        InputError: the file is damaged; names the line.
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
                    f"{path}:{number}: not a line of a tune's journal ({str(error).splitlines()[0]})",
                    "restore the file, or give --output-log-dir another directory",
                ) from error

    @property
    def configuration(self) -> Configuration | None:
        return next((line for line in self._lines if isinstance(line, Configuration)), None)

    @property
    def estimate(self) -> Estimate | None:
        return next((line for line in self._lines if isinstance(line, Estimate)), None)

    def runs(self, step: Step, options: Options | None = None) -> list[TuneRun]:
        """All finished runs of a step in their order; with some options only, if these are given."""
        found = [line for line in self._lines if isinstance(line, TuneRun) and line.step == step]
        return [line for line in found if options in (None, line.options)]

    def measured(self) -> list[TuneRun]:
        """All runs with a verdict in their order."""
        return [line for line in self._lines if isinstance(line, TuneRun) and line.verdict]

    def next_number(self, step: str) -> int:
        """That of the next run of a step."""
        return sum(line.step == step for line in self._lines) + 1

    def add(self, line: Line) -> None:
        """Record a finished step."""
        self._lines.append(line)
        write_atomic(self._path, b"".join(orjson.dumps(one.model_dump(mode="json")) + b"\n" for one in self._lines))

    def changed(self, now: Configuration) -> Sequence[str]:
        """What the finished steps were made with and is not so now."""
        from runs.record.fingerprint import changes

        then = self.configuration
        return [] if then is None else changes(then.identity, now.identity)

    def summary(self) -> dict[str, Any]:
        """The content for tune.json, without a search."""
        return {
            "estimate": None if self.estimate is None else self.estimate.model_dump(mode="json", exclude={"step"}),
            "probes": records(self.runs("probe")),
            "confirmations": records(self.runs("confirm")),
        }


def records(runs: Sequence[TuneRun]) -> list[dict[str, Any]]:
    """Runs as tune.json has them."""
    return [run.model_dump(mode="json") for run in runs]


def tried_of(runs: Sequence[TuneRun]) -> list[Tried]:
    """Rates and verdicts."""
    return [Tried(run.target_qps, run.valid) for run in runs]


class _Record(BaseModel):
    """The fields of a tune.json that others read."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    scenario: str
    target_qps: FiniteFloat | None
    probes: list[TuneRun]
    confirmations: list[TuneRun]


def read_tune(path: Path) -> dict[str, Any]:
    """The outcome of a tune (tune.json).

    Raises:
        InputError: missing or damaged.
    """
    return read_as(path, _Record, "run the tune again", strict=True).model_dump()
