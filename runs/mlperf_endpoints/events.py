"""`events.jsonl` of the MLPerf Endpoints client: an event per line, read into columns with a row per sample.

The client takes the time of every event in its main process when it publishes the event, in the order of the lines.
Only completions have the time of their receipt, slightly earlier. Times therefore never decrease among completions, nor
among all other events, and no completion is later than the next other event. Anomalies are kept in `odd`, with the
first line of each; rules in compliance/mlperf_endpoints check them.
"""

import re
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from runs.errors import InputError
from runs.files.reading import MIB, Bounds, bounded_lines
from runs.wording import printable

NO_TIME = -1  # value of a missing time
MAX_EVENTS_BYTES = 64 * 1024**3  # read as a stream: a million samples with 128 chunks each take 20 GB
EVENTS = Bounds(MAX_EVENTS_BYTES, 16 * MIB)  # a prompt of a million tokens has 5 MB
MAX_CHUNKS = 30_000_000  # limit for chunks whose times are kept: 240 MB
MAX_REASONS = 100  # limit for distinct finish reasons

# Kind of a prompt or response, which decides how the client counts its tokens.
NOTHING, TEXT, IDS, MESSAGES = range(4)
_FIX = "use the unchanged events.jsonl of the run; a cut last line means that the run was stopped"
_KNOWN = re.compile(r"(session|sample|error)\.[a-z_]{1,40}")
_NO_DIGITS = dict.fromkeys(b"0123456789")

EventColumn = NDArray[np.int64]


class _Event(msgspec.Struct, frozen=True, gc=False):
    event_type: str
    timestamp_ns: Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    sample_uuid: Annotated[str, msgspec.Meta(max_length=100)] = ""
    data: Any = None
    finish_reason: Annotated[str, msgspec.Meta(max_length=100)] | None = None
    worker_id: Annotated[int, msgspec.Meta(ge=0, le=2**31)] | None = None


_decode = msgspec.json.Decoder(_Event).decode


@dataclass
class EventAnomaly:
    """An anomaly among the events: the number of such events, and the first line."""

    count: int
    line: int
    uuid: str


class StreamedText(NamedTuple):
    """The text of a response, and the part after the chunk that counts as the first token."""

    kind: int
    text: str
    rest: str


def response_of(data: Any) -> StreamedText:
    """Return the part of a completion's data that the client tokenizes.

    With streaming, the pieces are [first, rest]; otherwise they are one text. A reasoning text is the first piece.
    """
    if not (isinstance(data, list) and data[:1] == ["TextModelOutput"]):
        return StreamedText(NOTHING, "", "")
    output, reasoning, tools = (data[1:4] + [None] * 3)[:3]
    parts = _pieces(output)
    text = "".join(_pieces(reasoning) + parts)
    if reasoning or tools:
        return StreamedText(MESSAGES, text, text)
    return StreamedText(TEXT if text else NOTHING, text, "".join(parts[1:]))


def _pieces(value: Any) -> list[str]:
    pieces = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(piece, str) for piece in pieces):
        raise ValueError("a response's text is neither a text nor a list of texts")
    return pieces


def _prompt_of(data: Any) -> tuple[int, int, int]:
    """Return kind, size and hash of a prompt."""
    if isinstance(data, list) and data[:1] == ["PromptData"]:
        text, ids, messages = (data[1:4] + [None] * 3)[:3]
        if isinstance(ids, list):
            return IDS, len(ids), hash(tuple(ids))
        if isinstance(text, str) and text:
            return TEXT, _bytes(text), hash(text)
        if messages is not None:
            return MESSAGES, 0, hash(msgspec.json.encode(messages))
    return NOTHING, 0, 0


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


# Initial values of a row; the columns of `Events`.
_ROW = {
    "tracked": False, "failed": False, "issued_ns": NO_TIME, "first_ns": NO_TIME, "complete_ns": NO_TIME, "reason": -1,
    "prompt_kind": NOTHING, "prompt_size": 0, "prompt_hash": 0, "response_kind": NOTHING, "response_bytes": 0,
    "response_hash": 0, "rest_bytes": 0,
}  # fmt: skip


class Events:
    """All samples in order of issue, in columns of equal length. Samples of the measured phase are tracked; those of
    the warm-up and of accuracy phases are not.

    Raises:
        InputError: If the file is missing, not a regular file or too large, or a line is damaged; it names the line.
    """

    tracked: NDArray[np.bool_]
    failed: NDArray[np.bool_]
    issued_ns: EventColumn
    first_ns: EventColumn  # NO_TIME without streaming
    complete_ns: EventColumn
    reason: EventColumn  # index in `reasons`; -1 = not recorded
    prompt_kind: EventColumn
    prompt_size: EventColumn  # bytes of a text in UTF-8, or number of IDs
    prompt_hash: EventColumn  # Python's hash, which differs between processes
    response_kind: EventColumn
    response_bytes: EventColumn
    response_hash: EventColumn  # hash of the text without its digits
    rest_bytes: EventColumn  # bytes after the first chunk

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, int] = {}  # uuid of a sample → row
        self.reasons: dict[str, int] = {}  # finish reason → its number
        self.phases: list[list[int]] = []  # start and end of each measured phase; NO_TIME = no end
        self.counts = Counter[str]()  # number of events by type
        self.odd: dict[str, EventAnomaly] = {}
        self.workers: set[int] = set()  # worker_id of completions, which earlier clients do not write
        self.started_ns = self.ended_ns = NO_TIME
        self.last_ns = NO_TIME  # latest time of all events
        self._published_ns = self._received_ns = 0
        self._columns = {name: array("b" if isinstance(first, bool) else "q") for name, first in _ROW.items()}
        self._piece_ns: dict[int, int] = {}  # time of the last chunk of each open response
        chunks = self._chunks = array("q")
        for number, line in bounded_lines(path, EVENTS, _FIX):
            try:
                event = _decode(line)
                for anomaly in self._process(event):
                    self.odd.setdefault(anomaly, EventAnomaly(0, number, event.sample_uuid)).count += 1
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                raise InputError(f"{path} line {number} is not an event of the client: {error}", _FIX) from error
            except TypeError as error:  # a list instead of a number is not hashable
                raise InputError(f"{path} line {number} has data in an unknown format", _FIX) from error
        for name, first in _ROW.items():
            setattr(self, name, np.array(self._columns.pop(name), np.bool_ if isinstance(first, bool) else np.int64))
        # Times between two chunks of a response; None = too many to keep.
        self.chunk_ns = np.array(chunks, np.int64) if len(chunks) <= MAX_CHUNKS else None
        del self._chunks

    def __len__(self) -> int:
        return len(self.issued_ns)

    @property
    def completed(self) -> NDArray[np.bool_]:
        return np.asarray(self.complete_ns != NO_TIME)

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Number of tracked samples that completed with a response."""
        return np.asarray(self.tracked & self.completed & (self.response_kind != NOTHING))

    def responses(self) -> Iterator[tuple[int, StreamedText]]:
        """Return the row and response of each completion."""
        return ((row, response_of(data)) for row, data in self._data("sample.complete"))

    def prompts(self) -> Iterator[tuple[int, str]]:
        """Return the row and text of each prompt that is a text."""
        return ((row, data[1]) for row, data in self._data("sample.issued") if self.prompt_kind[row] == TEXT)

    def _data(self, kind: str) -> Iterator[tuple[int, Any]]:
        """Read the file again, because texts are not kept in memory."""
        for _, line in bounded_lines(self.path, EVENTS, _FIX):
            event = _decode(line) if kind.encode() in line else None
            if event and event.event_type == kind and event.sample_uuid in self.rows:
                yield self.rows[event.sample_uuid], event.data

    def _process(self, event: _Event) -> Iterator[str]:
        """Process one event; yield the anomalies of the event."""
        kind, now = event.event_type, event.timestamp_ns
        if kind not in self.counts and not _KNOWN.fullmatch(kind):
            raise ValueError(f"unknown type of event {printable(kind, 40)!r}")
        self.counts[kind] += 1
        self.last_ns = max(now, self.last_ns)
        if self.ended_ns != NO_TIME:
            yield "after the session's end"
        elif self.started_ns == NO_TIME and kind != "session.started":
            yield "before the session's start"
        if kind == "sample.complete":
            if now < self._received_ns:
                yield "completion with an earlier time than the previous completion"
            self._received_ns = max(now, self._received_ns)
        else:
            if now < self._published_ns:
                yield "event with an earlier time than the previous event"
            elif now < self._received_ns:
                yield "event with an earlier time than a previous completion"
            self._published_ns = max(now, self._published_ns)
        if kind.startswith("session."):
            yield from self._session(kind, now)
        elif kind == "sample.issued":
            yield from self._issued(event)
        elif kind in _OF_SAMPLES or (event.sample_uuid and kind.startswith("error.")):
            if (row := self.rows.get(event.sample_uuid)) is None:
                yield "event of a sample that was not issued"
            else:
                yield from _OF_SAMPLES.get(kind, Events._error)(self, row, event)

    def _session(self, kind: str, now: int) -> Iterator[str]:
        measuring = bool(self.phases) and self.phases[-1][1] == NO_TIME
        match kind:
            case "session.started" if self.started_ns != NO_TIME:
                yield "second start of the session"
            case "session.started":
                self.started_ns = now
            case "session.ended" if self.ended_ns == NO_TIME:
                self.ended_ns = now
            case "session.start_performance_tracking" if measuring:
                yield "measuring started twice"
            case "session.start_performance_tracking":
                self.phases.append([now, NO_TIME])
            case "session.stop_performance_tracking" if not measuring:
                yield "measuring stopped twice"
            case "session.stop_performance_tracking":
                self.phases[-1][1] = now

    def _issued(self, event: _Event) -> Iterator[str]:
        if not event.sample_uuid:
            raise ValueError("a sample without sample_uuid")
        if event.sample_uuid in self.rows:
            yield "second issue of a sample"
            return
        self.rows[event.sample_uuid] = len(self.rows)
        kind, size, text_hash = _prompt_of(event.data)
        row = _ROW | {
            "tracked": bool(self.phases) and self.phases[-1][1] == NO_TIME, "issued_ns": event.timestamp_ns,
            "prompt_kind": kind, "prompt_size": size, "prompt_hash": text_hash,
        }  # fmt: skip
        for name, value in row.items():
            self._columns[name].append(value)

    def _piece(self, row: int, event: _Event) -> Iterator[str]:
        first_ns, now = self._columns["first_ns"], event.timestamp_ns
        if self._columns["complete_ns"][row] != NO_TIME:
            yield "chunk of a response after its completion"
        if event.event_type == "sample.recv_first":
            if first_ns[row] != NO_TIME:
                yield "second first token"
            first_ns[row] = now
        elif row not in self._piece_ns:
            yield "chunk of a response before its first token"
        elif self._columns["tracked"][row] and len(self._chunks) <= MAX_CHUNKS:
            self._chunks.append(now - self._piece_ns[row])
        self._piece_ns[row] = now

    def _complete(self, row: int, event: _Event) -> Iterator[str]:
        columns = self._columns
        if columns["complete_ns"][row] != NO_TIME:
            yield "second completion"
            return
        if event.data is None and not columns["failed"][row]:
            yield "completion without a response or an error"
        response = response_of(event.data)
        columns["complete_ns"][row] = event.timestamp_ns
        columns["response_kind"][row] = response.kind
        columns["response_bytes"][row] = _bytes(response.text)
        columns["response_hash"][row] = hash(response.text.translate(_NO_DIGITS))
        if event.worker_id is not None and len(self.workers) < MAX_REASONS:
            self.workers.add(event.worker_id)
        columns["rest_bytes"][row] = _bytes(response.rest)
        if event.finish_reason is not None:
            columns["reason"][row] = self.reasons.setdefault(event.finish_reason, len(self.reasons))
            if len(self.reasons) > MAX_REASONS:
                raise ValueError(f"more than {MAX_REASONS} different values of finish_reason")
        self._piece_ns.pop(row, None)

    def _error(self, row: int, event: _Event) -> Iterator[str]:
        if self._columns["complete_ns"][row] != NO_TIME:
            yield "error of a sample after its completion"
        elif self._columns["failed"][row]:
            yield "second error of a sample"
        self._columns["failed"][row] = True


_OF_SAMPLES = {
    "sample.recv_first": Events._piece, "sample.recv_non_first": Events._piece, "sample.complete": Events._complete,
}  # fmt: skip
