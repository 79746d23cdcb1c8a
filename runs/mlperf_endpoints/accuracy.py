"""`accuracy_results.json` of the MLPerf Endpoints client: an entry for each dataset, in each known form.

The client writes a list of entries; earlier forms are an object of entries by dataset, alone or in `accuracy_scores`.
"""

from pathlib import Path
from typing import Any, NamedTuple

from runs.files.reading import json_value, read_whole
from runs.mlperf_endpoints.folder import PERFORMANCE
from runs.wording import printable

_FIX = "restore the file that the client wrote"
_SCORES = "accuracy_scores"


class AccuracyResults(NamedTuple):
    """Accuracy results by dataset, without those of the measured phase."""

    entries: dict[str, dict[str, Any]]
    fault: str  # why the form of the file is unknown; empty if it is known


def read_accuracy(path: Path, within: Path) -> AccuracyResults:
    """Read the accuracy results of a run; empty without the file.

    Raises:
        InputError: If the file is unreadable or not JSON.
    """
    if not path.exists():
        return AccuracyResults({}, "")
    content = json_value(read_whole(path, _FIX, within=within), path, _FIX)
    scores = content.get(_SCORES, content) if isinstance(content, dict) else content
    if isinstance(scores, dict):
        entries = [
            {"dataset_name": name} | entry if isinstance(entry, dict) else entry for name, entry in scores.items()
        ]
    else:
        entries = scores
    if fault := _fault(entries):
        return AccuracyResults({}, fault)
    named = {entry["dataset_name"]: entry for entry in entries}
    # Clients without dataset_type name the result of the measured phase `performance`.
    return AccuracyResults(
        {name: entry for name, entry in named.items() if entry.get("dataset_type", name) != PERFORMANCE}, ""
    )


def _fault(entries: Any) -> str:
    if not isinstance(entries, list):
        return f"no list or object {_SCORES}"
    names = [
        name for entry in entries if isinstance(entry, dict) and isinstance(name := entry.get("dataset_name"), str)
    ]
    if len(names) < len(entries) or not all(map(str.strip, names)):
        return f"no {_SCORES}, or an entry without dataset_name"
    twice = sorted({name for name in names if names.count(name) > 1})
    return f"dataset {printable(twice[0], 40)} twice" if twice else ""
