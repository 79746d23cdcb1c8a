"""The files of a run folder of the MLPerf Endpoints client. They identify such a folder."""

from os.path import lexists
from pathlib import Path

CONFIG, EVENTS, SAMPLES = "config.yaml", "events.jsonl", "sample_idx_map.json"
SUMMARY, SNAPSHOT, REPORT = "performance/result_summary.json", "metrics/final_snapshot.json", "report.txt"
FILES = (CONFIG, EVENTS, SAMPLES, SUMMARY, SNAPSHOT, REPORT)  # files of every run that ends by itself
# A directory with one of these files is such a folder: runs of LoadGen and of this harness have no files of these
# names.
MARKS = (EVENTS, SAMPLES, SUMMARY, SNAPSHOT)
# Folders of an audit, below the run's folder. With `only: true`, the run's folder has nothing else.
AUDIT, REFERENCE, CACHED = "audit", "reference", "output_caching"
VERDICT = "audit_output_caching_test.json"
AUDIT_FILES = (f"{AUDIT}/{VERDICT}", *(f"{AUDIT}/{run}/{EVENTS}" for run in (REFERENCE, CACHED)))


def is_run_folder(path: Path) -> bool:
    """Return whether a directory contains the files of a run folder of the client."""
    return path.is_dir() and any(lexists(path / name) for name in (*MARKS, *AUDIT_FILES))
