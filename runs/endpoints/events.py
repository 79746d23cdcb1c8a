"""`events.jsonl` of the MLPerf Endpoints client: one event a line, streamed into columns of one row a sample.

The client stamps every event in its main process, in the order in which it publishes them, which is the order of the
lines; a completion alone is stamped when it is received, a moment before it is published. So two clocks never go back
from line to line: that of completions, and that of all other events; and no completion is later than the next other
event. What does not fit is kept in `odd`, with the first line where it was seen; nothing here says what it means.
"""

import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from runs.errors import InputError, names_its_file
from runs.reading import MIB, Bounds, bounded_lines
from runs.wording import printable

NO_TIME = -1  # stands for a time that there is not
MAX_EVENTS_BYTES = 64 * 1024**3  # streamed: a million samples with 128 pieces each make 20 GB
EVENTS = Bounds(MAX_EVENTS_BYTES, 16 * MIB)  # a prompt of a million tokens has 5 MB
MOST_CHUNKS = 30_000_000  # of which the times between are kept: 240 MB
MOST_REASONS = 100  # of how answers ended

# What a prompt or an answer is made of, and so how the client counts its tokens.
NOTHING, TEXT, IDS, MESSAGES = range(4)
_FIX = "take the unchanged events.jsonl of the run; a cut last line means that the run was stopped"
_KNOWN = re.compile(r"(session|sample|error)\.[a-z_]{1,40}")

Whole = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Uuid = Annotated[str, msgspec.Meta(max_length=100)]


class _Event(msgspec.Struct, frozen=True, gc=False):
    event_type: str
    timestamp_ns: Whole
    sample_uuid: Uuid = ""
    data: Any = None
    finish_reason: Annotated[str, msgspec.Meta(max_length=100)] | None = None


_decode = msgspec.json.Decoder(_Event).decode


@dataclass
class Odd:
    """Events that do not fit: how many, and the first of them."""

    count: int
    line: int
    uuid: str


@dataclass(frozen=True)
class Answer:
    """The text of one answer, and what came after the piece that was counted as its first token."""

    kind: int
    text: str
    rest: str


@dataclass(eq=False)
class Events:
    """All samples in order of issue; columns are of equal length. A sample is tracked where it was issued while the
    client measured: warm-up before and accuracy phases after are not."""

    path: Path
    rows: dict[str, int] = field(default_factory=dict)  # of each sample's uuid
    issued_ns: NDArray[np.int64] = field(default_factory=lambda: _none())
    first_ns: NDArray[np.int64] = field(default_factory=lambda: _none())  # NO_TIME: without streaming
    complete_ns: NDArray[np.int64] = field(default_factory=lambda: _none())
    tracked: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    failed: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    reason: NDArray[np.int64] = field(default_factory=lambda: _none())  # place in `reasons`; -1: none was told
    prompt_kind: NDArray[np.int64] = field(default_factory=lambda: _none())
    prompt_size: NDArray[np.int64] = field(default_factory=lambda: _none())  # UTF-8 bytes of a text, number of ids
    prompt_hash: NDArray[np.int64] = field(default_factory=lambda: _none())  # Python's hash of a text: in this process
    answer_kind: NDArray[np.int64] = field(default_factory=lambda: _none())
    answer_bytes: NDArray[np.int64] = field(default_factory=lambda: _none())
    rest_bytes: NDArray[np.int64] = field(default_factory=lambda: _none())  # after the first piece
    answer_hash: NDArray[np.int64] = field(default_factory=lambda: _none())
    chunk_ns: NDArray[np.int64] | None = None  # between two pieces of an answer; None: too many to keep
    reasons: list[str] = field(default_factory=list)
    started_ns: int = NO_TIME
    ended_ns: int = NO_TIME
    last_ns: int = NO_TIME  # the latest stamp of all
    phases: list[list[int]] = field(default_factory=list)  # start and end of each time of measuring; NO_TIME: no end
    errors: int = 0  # events, also those of no sample
    counts: dict[str, int] = field(default_factory=dict)  # of events, by type
    odd: dict[str, Odd] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.issued_ns)

    @property
    def completed(self) -> NDArray[np.bool_]:
        return np.asarray(self.complete_ns != NO_TIME)

    def answers(self) -> Iterator[tuple[int, Answer]]:
        """(row, answer) of each completion, read again: texts are not kept."""
        for _, line in bounded_lines(self.path, EVENTS, _FIX):
            event = _decode(line) if b"sample.complete" in line else None
            if event and event.event_type == "sample.complete" and event.sample_uuid in self.rows:
                yield self.rows[event.sample_uuid], answer_of(event.data)


def _none() -> NDArray[np.int64]:
    return np.zeros(0, np.int64)


def answer_of(data: Any) -> Answer:
    """What the client tokenises of a completion's data.

    The pieces are [first, rest] with streaming, else one text. The first piece is the reasoning's, where there is one.
    """
    if not (isinstance(data, list) and data[:1] == ["TextModelOutput"]):
        return Answer(NOTHING, "", "")
    output, reasoning, tools = (data[1:4] + [None] * 3)[:3]
    first, parts = _pieces(reasoning), _pieces(output)
    text = "".join([*first, *parts])
    if reasoning or tools:
        return Answer(MESSAGES, text, text)
    rest = "" if isinstance(output, str) or not parts else "".join(parts[1:])
    return Answer(TEXT if text else NOTHING, text, rest)


def _pieces(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and all(isinstance(piece, str) for piece in value):
        return value
    if value is None:
        return []
    raise ValueError("an answer's text is neither a text nor a list of texts")


def _prompt_of(data: Any) -> tuple[int, int, int]:
    """Kind, size and hash."""
    if not (isinstance(data, list) and data[:1] == ["PromptData"]):
        return NOTHING, 0, 0
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


_COLUMNS = (
    "issued_ns", "first_ns", "complete_ns", "reason", "prompt_kind", "prompt_size", "prompt_hash", "answer_kind",
    "answer_bytes", "rest_bytes", "answer_hash",
)  # fmt: skip


class _Reader:
    """Takes one event after the other."""

    def __init__(self, path: Path) -> None:
        self.events = Events(path)
        self.columns = {name: array("q") for name in _COLUMNS}
        self.tracked, self.failed = bytearray(), bytearray()
        self.chunks = array("q")
        self.last_chunk_ns: dict[int, int] = {}  # of answers under way
        self.reasons: dict[str, int] = {}
        self.line = 0
        self.published_ns = self.received_ns = 0
        self.handlers: dict[str, Callable[[_Event], None]] = {
            "sample.issued": self.issued,
            "sample.recv_first": self.piece,
            "sample.recv_non_first": self.piece,
            "sample.complete": self.complete,
            "session.started": self.started,
            "session.ended": self.ended,
            "session.start_performance_tracking": self.start_tracking,
            "session.stop_performance_tracking": self.stop_tracking,
        }

    def take(self, line: int, event: _Event) -> None:
        found, kind = self.events, event.event_type
        self.line = line
        if found.ended_ns != NO_TIME:
            self.odd("after the session's end", event)
        elif found.started_ns == NO_TIME and kind != "session.started":
            self.odd("before the session's start", event)
        self.clocks(event)
        if (count := found.counts.get(kind)) is None:
            if not _KNOWN.fullmatch(kind):
                raise InputError(f"{found.path} line {line}: {printable(kind, 40)!r} is no type of event", _FIX)
            count = 0
        found.counts[kind] = count + 1
        if handler := self.handlers.get(kind):
            handler(event)
        elif kind.startswith("error."):
            self.error(event)

    def odd(self, what: str, event: _Event) -> None:
        known = self.events.odd.setdefault(what, Odd(0, self.line, event.sample_uuid))
        known.count += 1

    def clocks(self, event: _Event) -> None:
        now = event.timestamp_ns
        if event.event_type == "sample.complete":
            if now < self.received_ns:
                self.odd("completion earlier than the one before it", event)
            self.received_ns = max(now, self.received_ns)
        else:
            if now < self.published_ns:
                self.odd("event earlier than the one before it", event)
            elif now < self.received_ns:
                self.odd("event earlier than a completion before it", event)
            self.published_ns = max(now, self.published_ns)
        self.events.last_ns = max(now, self.events.last_ns)

    def started(self, event: _Event) -> None:
        if self.events.started_ns != NO_TIME:
            self.odd("second start of the session", event)
        else:
            self.events.started_ns = event.timestamp_ns

    def ended(self, event: _Event) -> None:
        if self.events.ended_ns == NO_TIME:
            self.events.ended_ns = event.timestamp_ns

    @property
    def tracking(self) -> bool:
        return bool(self.events.phases) and self.events.phases[-1][1] == NO_TIME

    def start_tracking(self, event: _Event) -> None:
        if self.tracking:
            self.odd("measuring started twice", event)
        else:
            self.events.phases.append([event.timestamp_ns, NO_TIME])

    def stop_tracking(self, event: _Event) -> None:
        if self.tracking:
            self.events.phases[-1][1] = event.timestamp_ns
        else:
            self.odd("measuring stopped twice", event)

    def issued(self, event: _Event) -> None:
        rows = self.events.rows
        if not event.sample_uuid:
            raise InputError(f"{self.events.path} line {self.line}: a sample without sample_uuid", _FIX)
        if event.sample_uuid in rows:
            self.odd("second issue of a sample", event)
            return
        rows[event.sample_uuid] = len(rows)
        kind, size, text_hash = _prompt_of(event.data)
        for name, value in zip(
            _COLUMNS, (event.timestamp_ns, NO_TIME, NO_TIME, -1, kind, size, text_hash, NOTHING, 0, 0, 0), strict=True
        ):
            self.columns[name].append(value)
        self.tracked.append(self.tracking)
        self.failed.append(False)

    def piece(self, event: _Event) -> None:
        columns, row = self.columns, self.row(event)
        if row is None:
            return
        if columns["complete_ns"][row] != NO_TIME:
            self.odd("piece of an answer after its completion", event)
        if event.event_type == "sample.recv_first":
            if columns["first_ns"][row] != NO_TIME:
                self.odd("second first token", event)
            columns["first_ns"][row] = event.timestamp_ns
        elif row not in self.last_chunk_ns:
            self.odd("piece of an answer before its first token", event)
        elif self.tracked[row] and len(self.chunks) <= MOST_CHUNKS:
            self.chunks.append(event.timestamp_ns - self.last_chunk_ns[row])
        self.last_chunk_ns[row] = event.timestamp_ns

    def complete(self, event: _Event) -> None:
        columns, row = self.columns, self.row(event)
        if row is None:
            return
        if columns["complete_ns"][row] != NO_TIME:
            self.odd("second completion", event)
            return
        if event.data is None and not self.failed[row]:
            self.odd("completion without an answer or an error", event)
        answer = answer_of(event.data)
        columns["complete_ns"][row] = event.timestamp_ns
        columns["answer_kind"][row] = answer.kind
        columns["answer_bytes"][row] = _bytes(answer.text)
        columns["rest_bytes"][row] = _bytes(answer.rest)
        columns["answer_hash"][row] = hash(answer.text)
        if event.finish_reason is not None:
            columns["reason"][row] = self.reasons.setdefault(event.finish_reason, len(self.reasons))
            if len(self.reasons) > MOST_REASONS:
                raise InputError(f"{self.events.path} line {self.line}: the {MOST_REASONS + 1}th finish_reason", _FIX)
        self.last_chunk_ns.pop(row, None)

    def error(self, event: _Event) -> None:
        self.events.errors += 1
        if event.sample_uuid and (row := self.row(event)) is not None:
            if self.columns["complete_ns"][row] != NO_TIME:
                self.odd("error of a sample after its completion", event)
            elif self.failed[row]:
                self.odd("second error of a sample", event)
            self.failed[row] = True

    def row(self, event: _Event) -> int | None:
        row = self.events.rows.get(event.sample_uuid)
        if row is None:
            self.odd("event of a sample that was not issued", event)
        return row

    def finished(self) -> Events:
        found = self.events
        for name in _COLUMNS:
            setattr(found, name, np.frombuffer(self.columns.pop(name), np.int64) if len(found.rows) else _none())
        found.tracked, found.failed = (np.frombuffer(part, np.bool_) for part in (self.tracked, self.failed))
        found.chunk_ns = np.array(self.chunks, np.int64) if len(self.chunks) <= MOST_CHUNKS else None
        found.reasons = list(self.reasons)
        return found


@names_its_file
def read_events(path: Path) -> Events:
    """Parse an `events.jsonl`, line by line.

    Raises:
        InputError: the file is missing, no regular file or too large, or a line is damaged; names the line.
    """
    reader = _Reader(path)
    for number, line in bounded_lines(path, EVENTS, _FIX):
        try:
            event = _decode(line)
            reader.take(number, event)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise InputError(f"{path} line {number} is no event of the client: {error}", _FIX) from error
        except TypeError as error:  # a list in the place of a number: not hashable
            raise InputError(f"{path} line {number} has data of another form", _FIX) from error
    return reader.finished()
