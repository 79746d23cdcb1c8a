"""The journal of a tune: one JSON line a finished step. The search goes on from it, and can be repeated from it.

A step stands here when it is over and not before, so a tune that was killed repeats the step that it was in. The file
is replaced as a whole: a reader never sees half a line.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError

from runs.errors import InputError
from runs.files import write_atomic
from runs.reading import MAX_LOG_BYTES, read_as, read_whole
from scenarios.identity import Difference, Identity, differences
from scenarios.tune.option_space import Options
from scenarios.tune.rates import Tried

Step = Literal["probe", "confirm"]
Phase = Literal["defaults", "trial", "worth"]  # of a search over scheduling options


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Configuration(_Line):
    """What the legs are made with; the first line."""

    step: Literal["configuration"] = "configuration"
    schema_version: Literal[1] = 1
    scenario: str
    identity: Identity


class Estimate(_Line):
    """The Offline rate from which the search starts."""

    step: Literal["estimate"] = "estimate"
    samples_per_second: float
    source: str  # given, or how it was measured
    directory: str | None = None


class MeasuredLeg(_Line):
    """One leg with a verdict. Latencies of a leg that was stopped are those of the answers it had."""

    number: int  # from 1
    target_qps: float
    verdict: Literal["VALID", "INVALID"]
    stopped: bool  # before its end, its verdict being certain
    reasons: list[str]
    queries_planned: int
    queries_answered: int
    late_allowed: int | None = None  # of each limit; None in Offline
    late_ttft: int | None = None
    late_tpot: int | None = None
    ttft_p99_ms: float | None = None
    tpot_p99_ms: float | None = None
    ttft_limit_ms: float | None = None
    tpot_limit_ms: float | None = None
    samples_per_second: float | None = None  # LoadGen's; None of a leg that was stopped
    tokens_per_second: float | None = None
    wall_s: float  # engine start and judging included
    directory: str
    options: Options = {}  # scheduling options that a search set; the others are those of the configuration

    @property
    def valid(self) -> bool:
        return self.verdict == "VALID"


class LegRecord(MeasuredLeg):
    """One probe or confirmation."""

    step: Step


class SearchRecord(MeasuredLeg):
    """One probe of the search over scheduling options."""

    step: Literal["search"] = "search"
    trial: int
    phase: Phase


class NoVerdict(_Line):
    """A probe of the search that came to no verdict."""

    step: Literal["no verdict"] = "no verdict"
    number: int  # counted with those that did
    cut: bool  # by the end of the time that the search has; otherwise the leg failed
    reason: str
    target_qps: float
    wall_s: float
    directory: str
    options: Options
    trial: int
    phase: Phase


Line = Configuration | Estimate | LegRecord | SearchRecord | NoVerdict
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

    def legs(self, step: Step, options: Options | None = None) -> list[LegRecord]:
        """All finished probes, or confirmations, in their order; with some options only, if these are given."""
        return [
            line
            for line in self._lines
            if isinstance(line, LegRecord) and line.step == step and options in (None, line.options)
        ]

    def measured(self) -> list[LegRecord | SearchRecord]:
        """All legs with a verdict in their order."""
        return [line for line in self._lines if isinstance(line, LegRecord | SearchRecord)]

    def searched(self) -> list[SearchRecord | NoVerdict]:
        """All probes of the search in their order."""
        return [line for line in self._lines if isinstance(line, SearchRecord | NoVerdict)]

    def add(self, line: Line) -> None:
        """Record a finished step."""
        self._lines.append(line)
        write_atomic(self._path, b"".join(orjson.dumps(one.model_dump(mode="json")) + b"\n" for one in self._lines))

    def changed(self, now: Configuration) -> Sequence[Difference]:
        """What the finished steps were made with and is not so now."""
        then = self.configuration
        return [] if then is None else differences(then.identity, now.identity)


class _Record(BaseModel):
    """What others read of a tune.json."""

    model_config = ConfigDict(extra="allow")

    scenario: str
    target_qps: FiniteFloat | None
    probes: list[MeasuredLeg]
    confirmations: list[MeasuredLeg]


def read_tune(path: Path) -> dict[str, Any]:
    """What a tune came to (tune.json).

    Raises:
        InputError: missing or damaged.
    """
    return read_as(path, _Record, "run the tune again", strict=True).model_dump()


def tried_of(legs: Sequence[MeasuredLeg]) -> list[Tried]:
    """Rates and verdicts."""
    return [Tried(leg.target_qps, leg.valid) for leg in legs]


@dataclass(frozen=True)
class Probe:
    """One probe of a search over scheduling options, as the next one is decided by it."""

    trial: int  # its number in optuna's study; 0: the settings given
    phase: Phase
    options: Options
    target_qps: float
    valid: bool | None = None  # None: no verdict yet, or the leg failed, as with an engine that refuses the settings
    held: float = 0.0  # share of its queries that were answered when its verdict was certain


def probes_of(lines: Sequence[SearchRecord | NoVerdict]) -> list[Probe]:
    """What the search is decided by. A probe that the clock cut short tells nothing and is left out."""
    found = []
    for line in lines:
        probe = Probe(line.trial, line.phase, line.options, line.target_qps)
        if isinstance(line, SearchRecord):
            found.append(replace(probe, valid=line.valid, held=min(1.0, line.queries_answered / line.queries_planned)))
        elif not line.cut:
            found.append(probe)
    return found


def summary(journal: Journal) -> dict[str, Any]:
    """The journal's content for tune.json."""
    return {
        "estimate": None if journal.estimate is None else journal.estimate.model_dump(mode="json", exclude={"step"}),
        "probes": [leg.model_dump(mode="json", exclude={"step"}) for leg in journal.legs("probe")],
        "confirmations": [leg.model_dump(mode="json", exclude={"step"}) for leg in journal.legs("confirm")],
    }
