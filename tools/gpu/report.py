"""The table of docs/performance.md and a page, from results of the measurements: `python -m tools.gpu.report $OUT`."""

import argparse
import sys
from pathlib import Path

from runs.files.writing import write_atomic
from scripts.program import exit_code_of
from tools.gpu.page import figure_rows, gpu_page, unmeasured_steps
from tools.gpu.results import RESULTS, Results, read_results

PAGE = "measured.html"
HEAD = "| figure | measured value | compared with |\n|---|---|---|\n"


def table(results: Results) -> str:
    """Return the figures as a table in Markdown."""
    rows = ((row.title, row.text, row.compared) for row in figure_rows(results))
    return HEAD + "".join("|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|\n" for cells in rows)


def write_report(path: Path, page: Path | None) -> None:
    """Print the table, the conditions and the steps without a figure, and write the page.

    Args:
        path: results.json, or its directory.
        page: path of the page; None = beside the results.
    """
    file = path / RESULTS if path.is_dir() else path
    results = read_results(file)
    print(table(results))
    print(f"Measured with {'; '.join(f'{name}: {value}' for name, value in results.system.items())}.")
    for step, outcome in unmeasured_steps(results):
        print(f"Not measured: {step}: {outcome}")
    target = page or file.with_name(PAGE)
    write_atomic(target, gpu_page(results))
    print(f"page: {target}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path, help="results.json of the measurements, or its directory")
    parser.add_argument("--page", type=Path, metavar="FILE", help=f"default: {PAGE} beside the results")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the program; return the exit code."""
    parsed = _parser().parse_args(arguments)
    return exit_code_of(lambda: write_report(parsed.results, parsed.page))


if __name__ == "__main__":
    sys.exit(main())
