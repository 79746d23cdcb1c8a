"""The accuracy log and accuracy.txt in a submission: the log is truncated, and accuracy.txt ends with its hash.

The bytes are those of the official tool [mlcommons/inference, tools/submission/truncate_accuracy_log.py], but the run
directory keeps its whole log.
"""

import os
from typing import NamedTuple

from compliance.results.truncate import CUT, SHOWN_BYTES, hash_in_accuracy_text, is_truncated
from runs.errors import InputError
from runs.files.reading import open_record, read_record
from runs.files.writing import sha256_of
from runs.record.layout import RunDir


class SubmittedAccuracy(NamedTuple):
    """The contents of the two files."""

    log: bytes  # mlperf_log_accuracy.json
    text: bytes  # accuracy.txt, with the hash line


def submitted_accuracy(run: RunDir) -> SubmittedAccuracy:
    """Return both files of an accuracy run for a submission. The run directory stays unchanged.

    A log that is already truncated is used unchanged, if accuracy.txt has a hash.

    Raises:
        InputError: If accuracy.txt is missing, or has no hash of a truncated log.
    """
    text = read_record(run.accuracy_text, "repeat the run with --accuracy")
    stated = hash_in_accuracy_text(text.decode(errors="replace"), run.accuracy_text)
    if is_truncated(run):
        if not stated:
            raise InputError(
                f"{run.accuracy_log}: truncated, but the hash= line in {run.accuracy_text.name} is missing",
                "restore the whole accuracy log",
            )
        return SubmittedAccuracy(read_record(run.accuracy_log, "restore the log of the run"), text)
    if not stated:
        text += f"\nhash={sha256_of(run.accuracy_log)}\n".encode()
    with open_record(run.accuracy_log, "restore the log of the run") as stream:
        size = os.fstat(stream.fileno()).st_size
        log = stream.read(SHOWN_BYTES)
        if size >= SHOWN_BYTES:
            stream.seek(size - SHOWN_BYTES)
            log += CUT + stream.read(SHOWN_BYTES)
    return SubmittedAccuracy(log, text)
