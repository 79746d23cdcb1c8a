"""Detection of accuracy logs that the official tool truncated, and the hash of the whole log in accuracy.txt.

[mlcommons/inference, tools/submission/truncate_accuracy_log.py]
"""

from pathlib import Path

from compliance.accuracy.accuracy_text import stated_hash
from runs.errors import InputError
from runs.files.reading import read_record
from runs.loadgen.accuracy_log import TRUNCATION_MARK
from runs.record.layout import RunDir

SHOWN_BYTES = 4096  # bytes that the tool keeps at the start and at the end of a log [tool: VIEWABLE_SIZE]
CUT = b"\n\n...\n\n"


def is_truncated(run: RunDir) -> bool:
    """Return True if the middle of the accuracy log was removed for submission."""
    path = run.accuracy_log
    return path.is_file() and path.stat().st_size < 64 * 1024 and bool(TRUNCATION_MARK.search(read_record(path, "")))


def hash_in_accuracy_text(text: str, path: Path) -> str:
    """Return the SHA-256 of the untruncated accuracy log that accuracy.txt states, or an empty text.

    Raises:
        InputError: If multiple hashes differ, or a hash is not a SHA-256.
    """
    digest, problem = stated_hash(text)
    if problem:
        raise InputError(f"{path}: {problem}", "keep the hash of this run's accuracy log", path=path)
    return digest
