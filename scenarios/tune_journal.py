"""The journal of a tune: one JSON line a finished step. The search goes on from it, and can be repeated from it.

A step stands here when it is over and not before, so a tune that was killed repeats the step that it was in. The file
is replaced as a whole: a reader never sees half a line.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from runs.errors import InputError
from runs.files import write_atomic
from scenarios.campaign_identity import Difference, Identity, differences
from scenarios.tune_search import Tried

Step = Literal["probe", "confirm"]


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


class LegRecord(_Line):
    """One probe or confirmation. Latencies of a leg that was stopped are those of the answers it had."""

    step: Step
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

    @property
    def valid(self) -> bool:
        return self.verdict == "VALID"


_LINE: TypeAdapter[Configuration | Estimate | LegRecord] = TypeAdapter(
    Annotated[Configuration | Estimate | LegRecord, Field(discriminator="step")]
)


class Journal:
    """What a tune has done so far.

    Raises:
        InputError: the file is damaged; names the line.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[Configuration | Estimate | LegRecord] = []
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}", "make the file readable") from error
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

    def legs(self, step: Step) -> list[LegRecord]:
        """All finished probes, or confirmations, in their order."""
        return [line for line in self._lines if isinstance(line, LegRecord) and line.step == step]

    def tried(self) -> list[Tried]:
        return [Tried(leg.target_qps, leg.valid) for leg in self.legs("probe")]

    def add(self, line: Configuration | Estimate | LegRecord) -> None:
        """Record a finished step."""
        self._lines.append(line)
        write_atomic(self._path, b"".join(orjson.dumps(one.model_dump(mode="json")) + b"\n" for one in self._lines))

    def changed(self, now: Configuration) -> Sequence[Difference]:
        """What the finished steps were made with and is not so now."""
        then = self.configuration
        return [] if then is None else differences(then.identity, now.identity)


def summary(journal: Journal) -> dict[str, Any]:
    """The journal's content for tune.json."""
    return {
        "estimate": None if journal.estimate is None else journal.estimate.model_dump(mode="json", exclude={"step"}),
        "probes": [leg.model_dump(mode="json", exclude={"step"}) for leg in journal.legs("probe")],
        "confirmations": [leg.model_dump(mode="json", exclude={"step"}) for leg in journal.legs("confirm")],
    }
