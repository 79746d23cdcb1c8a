"""Accuracy logs of a tree, most of which are truncated."""

import re
from binascii import unhexlify
from dataclasses import dataclass
from pathlib import Path

from runs.errors import InputError
from runs.files.reading import ACCURACY_LOG, read_record
from runs.loadgen.accuracy_log import AccuracyEntry, issued_samples, read_accuracy_log

_ENTRY = re.compile(
    rb'"seq_id"\s*:\s*(\d{1,9}),\s*"qsl_idx"\s*:\s*(\d{1,9}),\s*"data"\s*:\s*"((?:[0-9A-Fa-f]{2})*)"'
    rb'(?:,\s*"token_count"\s*:\s*(\d{1,9}))?'
)


@dataclass(frozen=True)
class LoggedSamples:
    """The samples that an accuracy log shows."""

    path: Path
    shown: list[AccuracyEntry]  # complete entries, without the entry that truncation cut
    issued: list[tuple[int, int]]  # seq_id and qsl_idx of each entry, also of the entry that truncation cut
    problem: tuple[str, str] | None = None  # message and fix if the log is not complete

    @property
    def entries(self) -> list[AccuracyEntry]:
        """The entries of a complete log.

        Raises:
            InputError: If the log is not complete.
        """
        if self.problem is not None:
            # A new error each time, because a stored one would keep its frames in memory.
            raise InputError(*self.problem, path=self.path)
        return self.shown


def read_logged_samples(path: Path) -> LoggedSamples:
    """Read an accuracy log.

    Raises:
        InputError: If the file cannot be read.
    """
    try:
        entries = read_accuracy_log(path)
    except InputError as error:
        log = read_record(path, error.fix, max_bytes=ACCURACY_LOG.file_bytes)
        shown = [
            AccuracyEntry(int(seq), int(index), unhexlify(data), int(count) if count else None, None)
            for seq, index, data, count in _ENTRY.findall(log)
        ]
        return LoggedSamples(path, shown, issued_samples(log), (error.message, error.fix))
    return LoggedSamples(path, entries, [(entry.seq_id, entry.qsl_idx) for entry in entries])
