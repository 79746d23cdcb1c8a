"""The expected value of each figure (expected.yaml), so that a surprise is seen while the machine is there."""

import functools
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict

_FILE = Path(__file__).with_name("expected.yaml")
ANY_GPU = "any"
OFF = "OFF"


class ExpectedFigure(BaseModel):
    """A figure before it is measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    unit: str = ""
    expected: dict[str, float | str]  # GPU → value; `any` for each GPU
    factor: float = 1.0  # the largest expected quotient of the measured and the expected value, or its inverse
    tolerance: float = 0.0  # the largest expected difference, where the expected value is 0
    basis: str  # how the expected value follows from known numbers

    def for_gpu(self, gpu: str) -> float | str | None:
        """Return the expected value for a GPU, by the name that nvidia-smi prints; None for an unknown GPU."""
        names = (name for name in self.expected if name in gpu)
        return self.expected.get(next(names, ANY_GPU))

    def is_off(self, measured: float | str, expected: float | str) -> bool:
        """Return whether a measured value is outside the expected range; verdicts must be equal."""
        if isinstance(measured, str) or isinstance(expected, str):
            return measured != expected
        low, high = sorted((expected / self.factor, expected * self.factor))
        return not low - self.tolerance <= measured <= high + self.tolerance


@functools.cache
def expected_figures() -> dict[str, ExpectedFigure]:
    """Return the expected figures by their IDs."""
    content = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return {name: ExpectedFigure.model_validate(row) for name, row in content["figures"].items()}


def with_unit(value: float | str, unit: str) -> str:
    """Return a value as text."""
    number = value if isinstance(value, str) else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{number}%" if unit == "%" else f"{number} {unit}".rstrip()


def comparison(figure: str, value: float | str, gpu: str) -> str:
    """Return what is expected of a figure, with a mark if the value is off; empty if nothing is expected."""
    row = expected_figures()[figure]
    expected = row.for_gpu(gpu)
    if expected is None:
        return ""
    text = f"expected {with_unit(expected, row.unit)}"
    if row.tolerance:
        text += f" ± {with_unit(row.tolerance, row.unit)}"
    elif not isinstance(expected, str):
        text += f" within a factor of {row.factor:g}"
    return f"{OFF}, {text}" if row.is_off(value, expected) else text
