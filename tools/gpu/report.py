"""The table of docs/performance.md from results of the measurements: `python -m tools.gpu.report $OUT`."""

import argparse
import sys
from pathlib import Path

from scripts.program import exit_code_of
from tools.gpu.expected import expected_figures
from tools.gpu.results import RESULTS, Figure, Results, read_results

HEADINGS = ("figure", "measured value", "compared with")


def title_of(name: str, figure: Figure) -> str:
    """Return the title of a figure."""
    row = expected_figures().get(name)
    return figure.title or (row.title if row is not None else name)


def compared_with(name: str, figure: Figure) -> str:
    """Return what a figure is compared with, and how the expected value follows."""
    row = expected_figures().get(name)
    basis = row.basis if row is not None and not figure.title else ""
    return ": ".join(filter(None, [figure.compared, basis]))


def system_line(results: Results) -> str:
    """Return the conditions of all figures as a sentence."""
    return "; ".join(f"{name}: {value}" for name, value in results.system.items())


def table(results: Results) -> str:
    """Return the figures as a table in Markdown."""
    rows = [HEADINGS, ("---",) * len(HEADINGS)]
    rows += [
        (title_of(name, figure), figure.text, compared_with(name, figure)) for name, figure in results.figures.items()
    ]
    return "".join("|" + "|".join(f" {cell} " if cell else " " for cell in row) + "|\n" for row in rows).replace(
        "| --- | --- | --- |", "|---|---|---|"
    )


def unmeasured(results: Results) -> list[str]:
    """Return the steps without a figure, with the reason."""
    return [
        f"{stage} {step}: {outcome}"
        for stage, record in results.stages.items()
        for step, outcome in record.steps.items()
        if outcome != "done"
    ]


def print_report(path: Path) -> None:
    """Print the table, the conditions and the steps without a figure.

    Args:
        path: results.json, or its directory.
    """
    results = read_results(path / RESULTS if path.is_dir() else path)
    print(table(results))
    print(f"Measured with {system_line(results)}.")
    for line in unmeasured(results):
        print(f"Not measured: {line}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path, help="results.json of the measurements, or its directory")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the program; return the exit code."""
    parsed = _parser().parse_args(arguments)
    return exit_code_of(lambda: print_report(parsed.results))


if __name__ == "__main__":
    sys.exit(main())
