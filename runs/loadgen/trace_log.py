"""Parser of `mlperf_log_trace.json`: per-sample times, exact to the nanosecond.

LoadGen's trace is not valid JSON (it quotes some strings twice). Its lines that describe samples have a fixed notation.
"""

import re
from array import array
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from runs.errors import InputError, names_its_file
from runs.files.reading import TRACE_LOG, bounded_lines

NO_TIME = -1

_TS = rb'"ts":(-?\d{1,100})\.(\d{3}),'
# Sample: a completed sample. Token: its first token (SingleStream). Both have the same arguments.
_SAMPLE = re.compile(
    rb'\{"name":"(?:Sample|Token)","cat":"default","ph":"b".*?'
    + _TS
    + rb'"args":\{"sample_seq":(\d{1,100}),"query_seq":\d{1,100},"sample_idx":(\d{1,100}),'
    rb'"issue_start_ns":(-?\d{1,100}),"complete_ns":(-?\d{1,100})\}\}'
)
# The Server scenario writes first tokens as a counter without a sample; the scheduled time finds the sample.
_TOKEN_LATENCY = re.compile(
    rb'\{"name":"Token_Latency","ph": ?"C".*?'
    + _TS
    + rb'"args":\{ ?"issue_delay":(-?\d{1,100}),"issue_to_done":(-?\d{1,100})\}\}'
)
_COLUMNS = ("sample_seq", "sample_index", "scheduled_ns", "issue_delay_ns", "complete_ns")


@dataclass(frozen=True)
class Trace:
    """Per-sample times, in order of `sample_seq`; the columns are of equal length and int64."""

    sample_seq: NDArray[np.int64]
    sample_index: NDArray[np.int64]
    scheduled_ns: NDArray[np.int64]  # scheduled time of issue, from the trace's origin
    issue_delay_ns: NDArray[np.int64]  # from scheduled to issued
    complete_ns: NDArray[np.int64]  # from scheduled to completed: LoadGen's latency
    first_token_ns: NDArray[np.int64]  # from scheduled to first token, or NO_TIME

    def __len__(self) -> int:
        return len(self.sample_seq)


@names_its_file
def read_trace(path: Path) -> Trace | None:
    """Parse a trace; return None for the empty file that LoadGen writes without tracing.

    Raises:
        InputError: If the trace is missing, damaged or cut off.
    """
    samples: dict[str, array[int]] = {name: array("q") for name in _COLUMNS}
    appends = [samples[name].append for name in _COLUMNS]
    token_by_seq: dict[int, int] = {}
    token_by_schedule: dict[tuple[int, int], list[int]] = {}
    number = 0
    ended = False
    for number, line in bounded_lines(path, TRACE_LOG, "give a trace that LoadGen wrote"):
        if line.startswith((b'{"name":"Sample","cat":"default","ph":"b"', b'{"name":"Token","')):
            if line.startswith(b'{"name":"Token","cat":"default","ph":"e"'):
                continue
            scheduled_ns, seq, index, delay_ns, done_ns = _times(path, number, line, _SAMPLE)
            if line.startswith(b'{"name":"Token"'):
                token_by_seq[seq] = done_ns
                continue
            for append, value in zip(appends, (seq, index, scheduled_ns, delay_ns, done_ns), strict=True):
                append(value)
        elif line.startswith(b'{"name":"Token_Latency"'):
            scheduled_ns, delay_ns, issue_to_done_ns = _times(path, number, line, _TOKEN_LATENCY)
            token_by_schedule.setdefault((scheduled_ns, delay_ns), []).append(delay_ns + issue_to_done_ns)
        elif line.startswith(b'{"name":"LastTrace"'):
            ended = True
        elif number == 1 and not line.startswith(b'{"traceEvents":['):
            raise _damaged(path, 1, "is not the start of a LoadGen trace")
    if number == 0:
        return None
    if not ended:
        raise _damaged(path, number, "is the last line: the end of the trace is missing")
    return _table(path, samples, token_by_seq, token_by_schedule)


def _times(path: Path, number: int, line: bytes, pattern: re.Pattern[bytes]) -> list[int]:
    """Return the time of a line in ns, and its other whole numbers."""
    match = pattern.match(line)
    if match is None:
        raise _damaged(path, number, "is damaged")
    microseconds, thousandths, *remaining = match.groups()
    values = [int(microseconds + thousandths), *map(int, remaining)]  # microseconds with three decimals, as ns
    if any(abs(value) > 2**62 for value in values):
        raise _damaged(path, number, "has a number that is out of range")
    return values


def _table(
    path: Path,
    samples: dict[str, "array[int]"],
    token_by_seq: dict[int, int],
    token_by_schedule: dict[tuple[int, int], list[int]],
) -> Trace:
    columns = {name: np.array(column, dtype=np.int64) for name, column in samples.items()}
    order = np.argsort(columns["sample_seq"], kind="stable")
    columns = {name: column[order] for name, column in columns.items()}
    if np.any(np.diff(columns["sample_seq"]) == 0):
        repeated = columns["sample_seq"][:-1][np.diff(columns["sample_seq"]) == 0][0]
        raise InputError(f"{path}: sample_seq {repeated} completes twice", "use the unchanged trace of one run")
    if token_by_schedule:
        keys = zip(columns["scheduled_ns"].tolist(), columns["issue_delay_ns"].tolist(), strict=True)
        first_token = [entries.pop(0) if (entries := token_by_schedule.get(key)) else NO_TIME for key in keys]
    else:
        first_token = [token_by_seq.get(seq, NO_TIME) for seq in columns["sample_seq"].tolist()]
    return Trace(**columns, first_token_ns=np.array(first_token, dtype=np.int64))


def _damaged(path: Path, number: int, problem: str) -> InputError:
    return InputError(f"{path} line {number} {problem}", "use the unchanged mlperf_log_trace.json of a finished run")
