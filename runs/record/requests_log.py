"""`requests.jsonl`: the harness's request log, with a JSON line per request.

Results are recomputed from it, because LoadGen's files have no token counts, and times only in the trace, which is
often off. Times are `time.time_ns()`, the clock that LoadGen reads.
"""

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from runs.errors import InputError, names_its_file
from runs.files.reading import REQUESTS_LOG, bounded_lines

NO_TIME = -1  # value for null or an absent field in the columns
DIGEST_BYTES = 32
MAX_REASONS = 100  # limit for different finish reasons; an engine has five

Whole = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
MAX_GAP_US = 2**32 - 1  # 72 minutes
Gap = Annotated[int, msgspec.Meta(ge=0, le=MAX_GAP_US)]
RequestDigest = Annotated[str, msgspec.Meta(min_length=64, max_length=64)]


class RequestLogLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of the request log, for one sample."""

    seq: Whole  # order of issue, from 0; equals LoadGen's sample sequence
    sample_index: Whole  # index in the query sample library
    prompt_tokens: Whole
    output_tokens: Whole
    issue_ns: Whole  # time at which LoadGen issued the sample
    first_token_ns: Whole | None  # None in Offline without a closed loop
    complete_ns: Whole
    finish_reason: Annotated[str, msgspec.Meta(max_length=100)]
    output_sha256: RequestDigest  # SHA-256 of the output token IDs as passed to LoadGen
    replica: Whole | None = None  # number of the replica that responded, in a run with replicas
    submit_ns: Whole | msgspec.UnsetType = msgspec.UNSET  # time when the query was sent; only in a closed loop
    # Times between the parts of the response in µs, from the first part to the last; only for servers that send parts
    # of a few tokens.
    token_gaps_us: list[Gap] | msgspec.UnsetType = msgspec.UNSET


FIELDS = RequestLogLine.__struct_fields__
_COLUMNS = tuple(name for name in FIELDS if name not in ("finish_reason", "output_sha256", "token_gaps_us"))
_OPTIONAL = (b'"replica":', b'"submit_ns":', b'"token_gaps_us":')
_numbers = attrgetter(*_COLUMNS)
_NO_HEX = re.compile("[^0-9a-f]")
_decode = msgspec.json.Decoder(RequestLogLine).decode


class Digests:
    """SHA-256 of many responses, 32 bytes each; read as hexadecimal digits."""

    def __init__(self, content: bytes | memoryview) -> None:
        """Create the table from the concatenated digests."""
        self._content = content

    def __len__(self) -> int:
        return len(self._content) // DIGEST_BYTES

    def __getitem__(self, place: int) -> str:
        first = range(len(self))[place] * DIGEST_BYTES
        return self._content[first : first + DIGEST_BYTES].hex()

    def __iter__(self) -> Iterator[str]:
        content = self._content
        return (content[first : first + DIGEST_BYTES].hex() for first in range(0, len(content), DIGEST_BYTES))


@dataclass(frozen=True)
class TokenGaps:
    """The times between the parts of many responses, in µs."""

    values_us: NDArray[np.uint32]  # of all responses, one after the other
    ends: NDArray[np.int64]  # for each response, the number of values up to its end

    @classmethod
    def of(cls, values_us: "array[int]", counts: "array[int]", order: NDArray[np.int64]) -> "TokenGaps":
        """Create the table in the given order of responses, from values in the order of the lines."""
        values, sizes = np.frombuffer(values_us, np.uint32), np.frombuffer(counts, np.int64)
        begins = np.cumsum(sizes) - sizes
        ends = np.cumsum(sizes[order])
        # Place of each value in the order of the lines: its place within its response, after the response's begin.
        places = np.arange(len(values)) + np.repeat(begins[order] - (ends - sizes[order]), sizes[order])
        return cls(values[places], ends)

    def __len__(self) -> int:
        return len(self.values_us)

    def each(self) -> list[NDArray[np.uint32]]:
        """Return the times of each response."""
        return np.split(self.values_us, self.ends[:-1])


@dataclass(frozen=True)
class RequestTable:
    """The request log of one run, in order of `seq`; the columns are of equal length and int64."""

    seq: NDArray[np.int64]
    sample_index: NDArray[np.int64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    issue_ns: NDArray[np.int64]
    first_token_ns: NDArray[np.int64]  # NO_TIME if missing
    complete_ns: NDArray[np.int64]
    finish_reason: list[str]
    output_sha256: Digests
    replica: NDArray[np.int64] | None = None  # None in a run with one engine
    submit_ns: NDArray[np.int64] | None = None  # None unless the run was a closed loop
    token_gaps: TokenGaps | None = None  # None unless all responses have them

    def __len__(self) -> int:
        return len(self.seq)

    @property
    def span_s(self) -> float:
        """Time from the first issue to the last completion, in seconds."""
        return float(self.complete_ns.max() - self.issue_ns.min()) / 1e9

    def tpot_ns(self, selected: NDArray[np.bool_] | bool = True) -> NDArray[np.float64]:
        """Return the TPOT of the selected requests that have a first token and at least two output tokens."""
        has_tpot = (self.first_token_ns != NO_TIME) & (self.output_tokens > 1) & selected
        spans_ns = (self.complete_ns - self.first_token_ns)[has_tpot].astype(np.float64)
        times_ns: NDArray[np.float64] = spans_ns / (self.output_tokens[has_tpot] - 1)
        return times_ns


@names_its_file
def read_request_table(path: Path) -> RequestTable:
    """Parse a `requests.jsonl`; an empty file gives an empty table.

    Raises:
        InputError: If the file is missing, a line is damaged, or a `seq` occurs twice.
    """
    columns, finish_reason, digests, gaps = _read_columns(path)
    return _sorted_table(path, columns, finish_reason, digests, gaps)


Gaps = tuple["array[int]", "array[int]"]  # values of all lines, and the number of values in each line


def _read_columns(path: Path) -> tuple[dict[str, "array[int]"], list[str], bytearray, Gaps]:
    """Return columns of numbers, finish reasons, concatenated digests, and gaps, in the order of the lines."""
    gaps_us, gap_counts = array("I"), array("q")
    columns = {name: array("q") for name in _COLUMNS}
    appends = [column.append for column in columns.values()]
    finish_reason: list[str] = []
    digests = bytearray()
    known_reasons: dict[str, str] = {}

    for number, line in bounded_lines(path, REQUESTS_LOG, "give a run directory that this harness wrote"):
        try:
            record = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path} line {number} is not a line of a request log: {error}", _FIX) from error
        absent = sum(name not in line for name in _OPTIONAL)
        if line.count(b'":') != len(FIELDS) - absent:  # no value contains these characters
            raise InputError(
                f"{path} line {number} contains a field twice, or differs from the format of this harness", _FIX
            )
        for append, value in zip(appends, _numbers(record), strict=True):
            append(value if isinstance(value, int) else NO_TIME)
        reason = record.finish_reason
        finish_reason.append(known_reasons.setdefault(reason, reason))  # equal strings share memory
        if len(known_reasons) > MAX_REASONS:
            raise InputError(f"{path} line {number}: more than {MAX_REASONS} different values of finish_reason", _FIX)
        if _NO_HEX.search(record.output_sha256):
            raise InputError(f"{path} line {number}: output_sha256 is not 64 lower-case hex digits", _FIX)
        digests += bytes.fromhex(record.output_sha256)
        if isinstance(record.token_gaps_us, list):
            gaps_us.extend(record.token_gaps_us)
            gap_counts.append(len(record.token_gaps_us))
    return columns, finish_reason, digests, (gaps_us, gap_counts)


_FIX = "use the unchanged requests.jsonl of the run; a cut last line means that the run was stopped"


def _sorted_table(
    path: Path, columns: dict[str, "array[int]"], finish_reason: list[str], digests: bytearray, gaps: Gaps
) -> RequestTable:
    seq = np.frombuffer(columns["seq"], np.int64)
    order = np.argsort(seq, kind="stable")
    repeated = np.flatnonzero(np.diff(seq[order]) == 0)
    if len(repeated):
        first, second = sorted(int(place) + 1 for place in order[repeated[0] : repeated[0] + 2])
        raise InputError(
            f"{path} line {second}: field 'seq' is {seq[second - 1]}, as on line {first}",
            "use the unchanged requests.jsonl, which has one line per sample",
        )
    # columns are converted one by one to save memory
    in_order = {name: np.frombuffer(columns.pop(name), np.int64)[order] for name in _COLUMNS}
    optional: dict[str, NDArray[np.int64] | None] = {}
    for name in ("replica", "submit_ns"):
        column = in_order.pop(name)
        optional[name] = None if np.all(column == NO_TIME) else column
    return RequestTable(
        **in_order,
        replica=optional["replica"],
        submit_ns=optional["submit_ns"],
        token_gaps=TokenGaps.of(*gaps, order) if len(gaps[1]) == len(order) > 0 else None,
        finish_reason=[finish_reason[place] for place in order],
        output_sha256=Digests(np.frombuffer(digests, np.uint8).reshape(-1, DIGEST_BYTES)[order].reshape(-1).data),
    )
