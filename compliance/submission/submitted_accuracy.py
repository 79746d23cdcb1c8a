"""The accuracy log and accuracy.txt as they are submitted: the log is cut, and its hash ends accuracy.txt.

Byte for byte what the official tool leaves [mlcommons/inference, tools/submission/truncate_accuracy_log.py], but
written to another place: the run keeps its whole log.
"""

import os
from typing import NamedTuple

from compliance.evidence.truncate import CUT, SHOWN_BYTES, hash_in_accuracy_text, is_truncated
from runs.errors import InputError
from runs.files import sha256_of
from runs.reading import open_record, read_record
from runs.record.layout import RunDir


class SubmittedAccuracy(NamedTuple):
    """Contents of the two files."""

    log: bytes  # mlperf_log_accuracy.json
    text: bytes  # accuracy.txt, with the hash line


def submitted_accuracy(run: RunDir) -> SubmittedAccuracy:
    """What of an accuracy run's responses and scores goes into a submission; nothing in `run` is changed.

    A log that was truncated before is taken as it is, if accuracy.txt has its hash.

    Raises:
        InputError: accuracy.txt is missing, or a truncated log has no hash.
    """
    text = read_record(run.accuracy_text, "score the run: run it again with --accuracy")
    said = hash_in_accuracy_text(text.decode(errors="replace"), run.accuracy_text)
    if is_truncated(run):
        if not said:
            raise InputError(
                f"{run.accuracy_log} is truncated and {run.accuracy_text.name} has no hash= line",
                "give the run's whole accuracy log",
            )
        return SubmittedAccuracy(read_record(run.accuracy_log, "give the run's own log"), text)
    if not said:
        text += f"\nhash={sha256_of(run.accuracy_log)}\n".encode()
    with open_record(run.accuracy_log, "give the run's own log") as stream:
        size = os.fstat(stream.fileno()).st_size
        log = stream.read(SHOWN_BYTES)
        if size >= SHOWN_BYTES:
            stream.seek(size - SHOWN_BYTES)
            log += CUT + stream.read(SHOWN_BYTES)
    return SubmittedAccuracy(log, text)
