"""Functions that find the directory of a bench by its path or label."""

import re
from pathlib import Path

from runs.bench.bench_record import BenchRecord, read_bench_record
from runs.record.layout import BENCH_FILE


def file_name(label: str) -> str:
    """Return a label as the name of a file; empty if the label has no letter and no digit."""
    return re.sub(r"[^\w.+-]+", "-", label).strip("-.")


def folder_of(label: str) -> Path:
    """Return the default directory of a bench."""
    return Path("output") / f"bench-{file_name(label)}"


def bench_directory(name: str) -> Path | None:
    """Return the directory of a bench by its path or label; None if there is none."""
    return next((folder for folder in (Path(name), folder_of(name)) if (folder / BENCH_FILE).is_file()), None)


def find_bench(name: str) -> BenchRecord:
    """Read the record of a bench by its directory or label.

    Raises:
        InputError: If there is no such bench, or its record is damaged.
    """
    return read_bench_record((bench_directory(name) or Path(name)) / BENCH_FILE)
