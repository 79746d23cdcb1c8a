"""One request over HTTP, from its body to the checked response. An invalid response ends the run."""

import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import msgspec
import orjson

from runs.benchmark import SamplingPolicy
from sut.engine import Request
from sut.http.dialects import BodyTemplate
from sut.http.events import BadResponse, Completion, UnrelatedEvent, error_event, error_words
from sut.http.refusals import fix_of_status, is_success, response_problem

if TYPE_CHECKING:
    from sut.http.client import Client

DONE = b"[DONE]"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
STREAM, JSON = b"text/event-stream", b"application/json"
MAX_BODY_BYTES = 16 << 20  # limit for the body of a response; 128 IDs with text and prompt take about 20 kB
MAX_ERROR_BYTES = 64 << 10
GAP_FACTOR = 3.0  # limit for a wait, as a multiple of the longest wait so far
END_LIMIT_S = 10.0  # limit from the last ID to the end of the response, and from an error status to the end of its body
FINISH_REASONS = ("stop", "length")
LEFT_OUT_SHARE = 0.01  # share of the responses that a p99 TPOT ignores
FEW_RESPONSES = 10  # number of such responses that are tolerated in a short run
LONGEST_EVENT_BYTES = 4 << 20  # five times the size of a returned prompt of 100,000 IDs


class EventStream:
    """A parser of server-sent events in parts of any size. It returns the undecoded content of `data:`.

    [WHATWG HTML, server-sent events]
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._is_begun = False  # True after the first bytes, where a byte-order mark may be
        self._swallows_lf = False  # True if the bytes so far end in CR, so that a LF belongs to the same line end
        self.event_name = b""  # value of `event:` of the event that `feed` yields

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the payloads of all events that these bytes complete.

        Raises:
            BadResponse: If a line is longer than LONGEST_EVENT_BYTES.
        """
        if self._swallows_lf or b"\r" in data:
            data = self._with_lf(data)
        is_alone = self._is_begun and not (self._rest or self._data or self.event_name)
        if is_alone and data.startswith(b"data:") and data.endswith(b"\n\n") and data.count(b"\n") == 2:
            if payload := data[5:-2].strip():  # one whole event, the usual case
                yield payload
            return
        data = self._rest + data
        if not self._is_begun:
            if BYTE_ORDER_MARK.startswith(data):  # also a part of the mark
                self._rest = data
                return
            self._is_begun = True
            data = data.removeprefix(BYTE_ORDER_MARK)
        *lines, self._rest = data.split(b"\n")
        if len(self._rest) > LONGEST_EVENT_BYTES:
            raise BadResponse(f"an event is larger than {LONGEST_EVENT_BYTES >> 20} MiB")
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].strip())
            elif not line:
                if payload := b"\n".join(self._data):
                    yield payload
                self._data, self.event_name = [], b""
            elif line.startswith(b"event:"):
                self.event_name = line[6:].strip()
            # comments (`:`) and other fields are ignored

    def _with_lf(self, data: bytes) -> bytes:
        """Return bytes whose lines end in LF instead of CR or CR LF."""
        if self._swallows_lf:
            data = data.removeprefix(b"\n")
        self._swallows_lf = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def ends_with(self, payload: bytes) -> bool:
        """Return whether the bytes so far end with an event with this payload that lacks its empty line."""
        return [*self._data, *(part.strip() for part in self._rest.split(b"data:") if part)] == [payload]

    @property
    def is_between_events(self) -> bool:
        """True if no event is incomplete."""
        return not self._data and not self._rest.strip()


@dataclass(slots=True, eq=False, repr=False)
class Exchange:
    """One request and its response, whose parts a connection passes on as they arrive. It has slots, because a run has
    many.
    """

    UNIT: ClassVar[str] = "IDs"

    _client: "Client"
    _request: Request
    _template: BodyTemplate
    _response: Completion = field(default_factory=Completion)
    _events: EventStream = field(default_factory=EventStream)
    _parts: list[bytes] = field(default_factory=list)  # parts of an unstreamed body
    _status: int = 200
    _location: bytes = b""  # target of a redirect
    _body_bytes: int = 0
    _chunks: int = 0
    _seen: int = 0  # IDs so far (chunks, if the server sends text)
    _may_be_complete: bool = False  # True if the stream shows a sign of its last token
    _first_read_ns: int = 0
    _last_read_ns: int = 0  # time of the last read of IDs
    _first_count: int = 0  # number of IDs in the first chunk
    _completed_ns: int = 0  # time of the read at which the response was passed on
    _sent_ns: int = 0
    _progress_ns: int = 0  # time of the last progress of the response
    _done: bool = False
    _is_stream: bool = False
    _is_over: bool = False  # True after the end of the response, or its failure
    _completes_early: bool = field(init=False)  # True if the last token completes the query, not the end of the stream
    _request_id: str = field(init=False)
    _sampling: SamplingPolicy = field(init=False)

    def __post_init__(self) -> None:
        self._sampling = self._request.sampling(self._client.sampling)
        self._client.asked += 1
        self._client.open_responses += 1
        self._completes_early = self._client.streaming and self._client.times_count and self._request.seq >= 0
        self._request_id = f"{self._client.name}-{self._client.asked}"

    # The request ------------------------------------------------------------------------------------------

    def request(self) -> tuple[bytes, bytes]:
        """Return the head up to `content-length: `, and the body. They are built when a connection is free, to save
        memory.
        """
        return self._client.head, self._template.body(self._request.prompt_ids, self._request_id)

    def sent(self, sent_ns: int) -> None:
        """Record the time at which the kernel took the request's last byte."""
        self._sent_ns = sent_ns
        if self._request.seq >= 0:
            self._client.lateness.issue_to_wire.add(sent_ns - self._request.issue_ns)

    # The response -------------------------------------------------------------------------------------------

    def head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self._status = status
        self._progress_ns = time.time_ns()
        if not self._is_accepted:
            self._location = headers.get(b"location", b"")
            return
        encoding = headers.get(b"content-encoding", b"identity")
        if encoding != b"identity":
            raise BadResponse(f"the response is encoded ({error_words(encoding)}); the request accepts only identity")
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        self._is_stream = kind == STREAM
        if kind not in self._allowed_types():
            wanted = self._allowed_types()[0].decode()
            raise BadResponse(f"the response's content type is {error_words(kind) or 'missing'}, not {wanted}")

    def _allowed_types(self) -> tuple[bytes, ...]:
        return (STREAM,) if self._client.streaming else (JSON,)

    def body(self, data: bytes, read_ns: int) -> None:
        self._body_bytes += len(data)
        if self._body_bytes > MAX_BODY_BYTES:
            raise BadResponse(f"the response is larger than {MAX_BODY_BYTES >> 20} MiB")
        if not self._is_accepted:
            if self._body_bytes <= MAX_ERROR_BYTES:
                self._parts.append(data)
        elif self._is_stream:
            for payload in self._events.feed(data):
                self._event(payload, read_ns)
        else:
            self._parts.append(data)

    def read_over(self, read_ns: int) -> None:
        """Pass the response on if its last token has arrived. The rest of the response is checked when it arrives.

        The connection calls this after each read that does not end the response.
        """
        if self._may_be_complete and self._completes_early and not self._completed_ns and self._has_last_token():
            self._complete(read_ns)

    def _has_last_token(self) -> bool:
        """Return whether the last token has arrived, and the number of tokens is certain."""
        response = self._response
        ends = response.finish_reason in FINISH_REASONS or len(response.ids) >= self._sampling.max_tokens
        return ends and bool(response.ids)

    def _event(self, payload: bytes, read_ns: int) -> None:
        if self._done:
            raise BadResponse("data arrived after the end of the stream")
        if payload == DONE:
            self._done = self._may_be_complete = True
            return
        if self._events.event_name == b"error":
            raise error_event(payload)
        try:
            self._read(payload, read_ns)
        except UnrelatedEvent:
            return  # such as a ping while the prompt is computed

    def _read(self, payload: bytes, read_ns: int) -> None:
        response, client, request = self._response, self._client, self._request
        before, finished = self._seen, response.finish_reason is not None
        try:
            client.read(payload, response, client.event_form)
        except (msgspec.DecodeError, RecursionError) as error:
            if self._is_stream and self._events.event_name not in (b"", b"message"):
                raise UnrelatedEvent(f"an event of type {error_words(self._events.event_name)}") from error
            raise BadResponse(
                f"the response is not of dialect {client.dialect.name} ({error}): {error_words(payload)}"
            ) from error
        if response.request_id is not None and response.request_id.endswith(self._request_id):
            client.ids_come_back = True
        elif client.ids_come_back:
            raise BadResponse(f"the response has the ID {response.request_id}; the request had {self._request_id}")
        client.moved += 1
        self._seen = self._amount()
        new = self._seen - before
        most = self._sampling.max_tokens
        if response.finish_reason is not None or self._seen >= most or response.counts_all:
            self._may_be_complete = self._is_stream
        if not new:
            return
        if self._completed_ns or finished:
            self._refuse_later(after_reason=finished)
        if len(response.ids) > most:
            raise BadResponse(f"the response has {len(response.ids)} token IDs; at most {most} were requested")
        client.generated += new
        self._chunks += 1
        if self._chunks > 1:
            if (gaps := request.token_gaps_ns) is not None:
                gaps.append(read_ns - self._last_read_ns)
            client.slowest_token_ns = max(client.slowest_token_ns, (read_ns - self._progress_ns) // new)
        elif client.streaming:
            self._first_read_ns = request.heard_ns = read_ns
            request.sink.first_token(request, self._first_id())
            if self._completes_early and not client.dialect.two_chunks:
                request.token_gaps_ns = array("q")
            if request.seq >= 0:
                client.lateness.read_to_loadgen.add(time.time_ns() - read_ns)
        self._last_read_ns = self._progress_ns = read_ns

    def _amount(self) -> int:
        """Return the number of IDs (of chunks, if the server sends text) so far."""
        return len(self._response.ids)

    def _first_id(self) -> int:
        """Return the first ID of the first chunk."""
        self._first_count = len(self._response.ids)
        return self._response.ids[0]

    def _refuse_later(self, *, after_reason: bool) -> None:
        """Refuse tokens after the last token.

        Raises:
            BadResponse: Always, unless the server reports finish reasons before the last token.
        """
        end = "the finish reason" if after_reason else f"the response had all {self._sampling.max_tokens} {self.UNIT}"
        raise BadResponse(f"{self.UNIT} arrived after {end}")

    def end(self, read_ns: int) -> None:
        """Check the complete response, and pass it on unless its last token did this."""
        try:
            self._end(read_ns)
        except BadResponse as fault:
            self.cut_off(str(fault))
        self._close()

    def _close(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._client.open_responses -= 1

    def _end(self, read_ns: int) -> None:
        if self._is_over:
            return
        if not self._is_accepted:
            raise BadResponse(self._refusal())
        if not self._is_stream:
            self._read(b"".join(self._parts), read_ns)
        elif not self._events.is_between_events:
            if self._done or not self._events.ends_with(DONE):
                raise BadResponse("the stream ends within an event")
            self._done = True
        client, response, request = self._client, self._response, self._request
        self._check()
        self._fix_ids()
        self._count()
        if client.streaming and len(response.ids) > 1 and self._last_read_ns == self._first_read_ns:
            self._without_tpot()
        client.latest_answered_ns = max(client.latest_answered_ns, self._sent_ns)
        client.longest_answer_ns = max(client.longest_answer_ns, read_ns - self._sent_ns)
        if not self._completed_ns:
            self._complete(read_ns)
        if request.seq >= 0 and self._is_stream and self._last_read_ns:
            client.lateness.last_token_to_end.add(read_ns - self._last_read_ns)

    def _complete(self, read_ns: int) -> None:
        """Pass the response on."""
        client, response, request = self._client, self._response, self._request
        self._fix_ids()
        self._completed_ns = request.heard_ns = read_ns
        is_longest = len(response.ids) >= self._sampling.max_tokens
        reason = response.finish_reason or ("length" if is_longest else "unknown")
        request.sink.complete(request, response.ids, reason, response.cached_tokens or 0)
        if request.seq >= 0:
            client.lateness.read_to_loadgen.add(time.time_ns() - read_ns)
            if self._last_read_ns:
                client.lateness.last_token_to_loadgen.add(read_ns - self._last_read_ns)

    def _fix_ids(self) -> None:
        """Set the IDs that LoadGen receives, before their count and their use."""

    def _count(self) -> None:
        """Count a complete response to a timed query."""
        if self._request.seq >= 0:
            record, response = self._client.record, self._response
            record.answers += 1
            record.tokens += len(response.ids)
            record.chunks += self._chunks
            record.answers_with_cached_count += response.cached_tokens is not None
            record.cached_tokens += response.cached_tokens or 0
            record.answers_with_their_prompt += response.prompt_ids is not None
            record.answers_with_their_id += (response.request_id or "").endswith(self._request_id)
            record.first_tokens_with_others += self._began_with_several()

    def _began_with_several(self) -> bool:
        """Return whether the first chunk had several tokens."""
        return self._first_count > 1

    def _check(self) -> None:
        """Check a complete response.

        Raises:
            BadResponse: If the response is invalid.
        """
        response, sampling, prompt_ids = self._response, self._sampling, self._request.prompt_ids
        ids, vocab_size = len(response.ids), self._client.vocab_size
        if response.finish_reason is None:
            raise BadResponse(f"the response ends after {ids} IDs without a finish reason")
        if not ids:
            raise BadResponse(
                "the response has no token IDs: the server sends text only (--api-dialect openai), or nothing"
            )
        if response.finish_reason not in FINISH_REASONS:
            raise BadResponse(f"finish reason {response.finish_reason!r}, required: {' or '.join(FINISH_REASONS)}")
        if response.completion_tokens is None or response.prompt_tokens is None:
            raise BadResponse("the server reports no token counts (no `usage`), so the number of IDs cannot be checked")
        if response.completion_tokens != ids:
            raise BadResponse(
                f"the response has {ids} token IDs, but the server reports {response.completion_tokens} tokens"
            )
        if response.prompt_tokens != len(prompt_ids):
            raise BadResponse(
                f"{len(prompt_ids)} prompt IDs were sent, but the server reports {response.prompt_tokens} prompt tokens"
            )
        if response.prompt_ids is not None and not _same_prompt(prompt_ids, response.prompt_ids):
            raise BadResponse("the prompt IDs in the response differ from those in the request")
        if vocab_size is not None and max(response.ids) >= vocab_size:
            raise BadResponse(
                f"the response has token ID {max(response.ids)}, but the vocabulary of the model has {vocab_size} "
                "tokens"
            )
        if not sampling.min_tokens <= ids <= sampling.max_tokens:
            raise BadResponse(
                f"the response has {ids} token IDs, requested: {sampling.min_tokens} to {sampling.max_tokens}"
            )

    def _without_tpot(self) -> None:
        """Count a response whose tokens arrived in one read.

        A few such responses are tolerated. With more than a p99 ignores, the TPOT would not be measured.
        """
        record = self._client.record
        if self._request.seq < 0:
            return
        record.answers_in_one_chunk += self._chunks == 1
        record.answers_read_at_once += 1
        if self._client.times_count and record.answers_read_at_once > max(
            FEW_RESPONSES, LEFT_OUT_SHARE * record.answers
        ):
            lag = self._client.loop_lag()
            raise BadResponse(
                f"{record.answers_read_at_once} of {record.answers} responses had all their tokens in one read "
                f"({record.answers_in_one_chunk} in one chunk): TPOT is 0. Either the server or a proxy does "
                f"not stream, or the client is too slow: its event loop was {lag.p99_ms if lag else 0:.0f} ms late "
                "(p99), which more client processes (--replicas N) or cores reduce"
            )

    @property
    def _is_accepted(self) -> bool:
        """True unless the status reports an error or a redirect."""
        return is_success(self._status)

    def _refusal(self) -> str:
        first_line = b"".join(self._parts).strip().split(b"\n")[0]
        return response_problem(self._status, first_line, self._location)

    def cut_off(self, reason: str) -> None:
        """Record that the connection or the response was cut."""
        if self._is_over:
            return
        if not self._is_accepted and self._parts and not reason.startswith("status"):
            reason = self._refusal()
        error = self._client.fail(self._request, reason, self._fix())
        if self._completed_ns:
            self._client.late_failure = self._client.late_failure or error
        self._close()

    def _fix(self) -> str:
        client = self._client
        if self._location:
            return client.address.fix_of_redirect(client.dialect.path, self._location)
        return fix_of_status(self._status, client.access.key_fix, client.server_log)

    def overdue(self, now_ns: int, silence_s: float) -> str | None:
        """Return why this response is overdue, or None.

        Args:
            silence_s: shortest allowed pause in a stream.
        """
        client, amount, unit = self._client, self._amount(), self.UNIT
        waited_s = (now_ns - self._progress_ns) / 1e9
        limit_s = client.request_timeout_s or float("inf")
        if self._sent_ns and not self._completed_ns and now_ns - self._sent_ns > limit_s * 1e9:
            return f"no complete response within {limit_s:g} s (--request-timeout)"
        if not self._is_accepted:
            return self._refusal() if waited_s > END_LIMIT_S else None
        if self._completed_ns or self._response.finish_reason is not None or amount >= self._sampling.max_tokens:
            late = f"all {unit} arrived, but no end of the response for {waited_s:.0f} s"
            return late if waited_s > END_LIMIT_S else None
        if amount:
            return f"{amount} {unit} arrived, then nothing for {waited_s:.0f} s" if waited_s > silence_s else None
        # A request may wait in the server's queue, but not long after later requests got their responses.
        overtaken_s = (client.latest_answered_ns - self._sent_ns) / 1e9
        if self._sent_ns and overtaken_s > max(client.silence_s, GAP_FACTOR * client.longest_answer_ns / 1e9):
            return f"no response, although a request {overtaken_s:.0f} s later got a response"
        return None


def _same_prompt(prompt_ids: list[int], repeated: bytes) -> bool:
    """Return whether the returned IDs (JSON) are equal to the sent IDs."""
    if repeated == orjson.dumps(prompt_ids):
        return True
    try:
        returned = orjson.loads(repeated)
    except orjson.JSONDecodeError:
        return False
    return bool(returned in (prompt_ids, [prompt_ids]))
