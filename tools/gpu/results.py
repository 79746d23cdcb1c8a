"""`results.json`: the figures that were measured on a GPU machine, and the state of each stage."""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from runs.errors import names_its_file
from runs.files.reading import read_as
from runs.files.writing import write_json

RESULTS = "results.json"
StageState = Literal["running", "complete", "stopped", "cut"]
RUNNING: StageState = "running"
COMPLETE: StageState = "complete"  # each step was tried
STOPPED: StageState = "stopped"  # the share of the stage ended
CUT: StageState = "cut"  # the command ended before, so that the next one continues the stage


class _Part(BaseModel):
    """A part of results.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Figure(_Part):
    """A measured figure. `title` and `compared` replace those of expected.yaml."""

    value: float | str  # a number in the unit of the figure, or a verdict
    text: str = ""  # the value with its unit, and further numbers
    title: str = ""
    compared: str = ""  # what the value is compared with
    detail: dict[str, Any] = Field(default_factory=dict)  # further numbers of the measurement


class StageRecord(_Part):
    """The state of a stage, and how each of its steps ended."""

    state: StageState
    seconds: float = 0.0  # time of the stage in all commands
    steps: dict[str, str] = Field(default_factory=dict)  # name → `done`, or why the step has no figure


class Results(_Part):
    """The content of results.json."""

    schema_version: Literal[1] = 1
    system: dict[str, str] = Field(default_factory=dict)  # GPU, versions, weights: conditions of all figures
    figures: dict[str, Figure] = Field(default_factory=dict)  # ID → figure
    stages: dict[str, StageRecord] = Field(default_factory=dict)


@names_its_file
def read_results(path: Path) -> Results:
    """Read a results.json.

    Raises:
        InputError: If the file is missing or damaged.
    """
    return read_as(path, Results, "give the results.json of `sh tools/gpu/measure.sh`", within=path.parent)


def write_results(path: Path, results: Results) -> None:
    """Write results.json atomically."""
    write_json(path, results.model_dump(mode="json"))
