"""Responses of servers that send text: their tokens, their first token, and missing facts.

LoadGen needs token IDs. They come from the text, with the tokenizer of the run's model; without that tokenizer, LoadGen
gets as many zeros as the server reports tokens, or as many as chunks came.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from runs.benchmark import MIN_TOKENS_LOADGEN_ACCEPTS as LEAST
from runs.benchmark import SamplingPolicy
from runs.wording import counted
from sut.endpoint.dialects import MAY_OMIT, BadResponse
from sut.endpoint.exchange import FEW_RESPONSES, FINISH_REASONS, JSON, LEFT_OUT_SHARE, STREAM, Exchange
from sut.endpoint.tokenizer import Tokenizer
from sut.request_log import Lateness

APART_SHARE = 0.01  # minimum difference between two counts of tokens that is reported as a note


@dataclass(frozen=True)
class Texts:
    """Prompts as text, and responses as token IDs."""

    tokenizer: Tokenizer  # the tokenizer that encoded the prompts
    counts: bool  # True if the tokenizer of the model is known, so that it can count the tokens of responses

    def text_of(self, prompt_ids: list[int]) -> str:
        return self.tokenizer.decode(prompt_ids)

    def fitting(self, prompt_ids: list[int]) -> list[int]:
        """Return a prompt whose text has about as many tokens; the text of random IDs has more."""
        return self.tokenizer.encode(self.text_of(prompt_ids))[: len(prompt_ids)]

    def ids_of(self, text: str) -> list[int]:
        """Return the IDs of a text that is not empty; one zero without a model's tokenizer."""
        return (self.tokenizer.encode(text) if self.counts else []) or [0]

    @property
    def blank(self) -> int:
        """An ID without text, if the tokenizer has one."""
        return (self.tokenizer.lead or [0])[0] if self.counts else 0


@dataclass
class TextRecord:
    """A client's record of the text responses to its timed queries."""

    is_tokenized: bool  # True if the tokens were counted with the model's tokenizer
    responses_with_usage: int = 0  # responses whose tokens the server reports
    tokens_by_usage: int = 0
    tokens_by_tokenizer: int = 0  # count for the same responses
    prompt_tokens_by_usage: int = 0
    prompt_tokens_sent: int = 0  # count for the same responses
    responses_estimated: int = 0  # responses whose tokens are the number of chunks
    short: int = 0  # responses with fewer tokens than requested
    long: int = 0  # responses with more tokens than requested
    empty: int = 0  # responses without text
    padded: int = 0  # responses with fewer tokens than LoadGen accepts, to which an ID was added
    issue_to_text: Lateness = field(default_factory=Lateness)  # until the first text after reasoning

    def notes(self, responses: int, chunks: int, sampling: SamplingPolicy) -> Iterator[str]:
        """Yield notes on the counts of tokens, and on responses of other lengths than requested.

        Args:
            responses: responses to timed queries.
            chunks: their chunks with text.
        """
        server, own = self.tokens_by_usage, self.tokens_by_tokenizer
        if self.responses_estimated:
            yield (
                f"the tokens of {self.responses_estimated} of {responses} responses are estimated, one per chunk: the "
                "server reports no usage; give the model's tokenizer with --model-path"
            )
        elif self.responses_with_usage < responses:
            yield f"the server reports no usage in {responses - self.responses_with_usage} of {responses} responses"
        if not self.is_tokenized:
            if chunks < (1 - APART_SHARE) * server:
                yield f"{server:,} tokens arrived in {chunks:,} chunks: the first chunk may contain multiple tokens"
        elif abs(own - server) > APART_SHARE * server:
            yield (
                f"the server reports {server:,} output tokens, but its text has {own:,} with the tokenizer of "
                f"--model-path ({(own - server) / max(1, server):+.1%}); LoadGen's numbers use {own:,}"
            )
        sent, read = self.prompt_tokens_sent, self.prompt_tokens_by_usage
        if self.is_tokenized and abs(read - sent) > APART_SHARE * sent:
            yield (
                f"the server reports {read:,} prompt tokens, but the prompts have {sent:,} "
                f"({(read - sent) / max(1, sent):+.1%}): a chat template or another tokenizer changes them"
            )
        least, most = sampling.min_tokens, sampling.max_tokens
        for count, what in (
            (self.short, f"fewer than {least} tokens: the server does not honor min_tokens or ignore_eos"),
            (self.long, f"more than {most} tokens: the server does not honor max_tokens"),
            (self.empty, "no text"),
            (self.padded, f"fewer than {LEAST} tokens; LoadGen requires {LEAST}, so the harness reported {LEAST}"),
        ):
            if count:
                yield f"{count} of {responses} responses have {what}"


@dataclass(slots=True, eq=False, repr=False)
class TextExchange(Exchange):
    """One request and its response, whose parts are text.

    The first token is the first text or reasoning. An accuracy run ignores reasoning, because it is not scored.
    """

    UNIT = "chunks"

    _first_text: str = ""  # text of the first chunk
    _first: list[int] = field(default_factory=list)  # IDs of that text
    _has_text: bool = False

    def _allowed_types(self) -> tuple[bytes, ...]:
        # A JSON body instead of a stream may have an error to report.
        return (STREAM, JSON) if self._client.streaming else (JSON,)

    def _parts_of_text(self) -> list[str]:
        response = self._response
        return response.reasoning + response.text if self._client.times_count else response.text

    def _amount(self) -> int:
        return len(self._parts_of_text())

    def _first_ids(self) -> list[int]:
        self._first_text = "".join(self._parts_of_text())
        self._first = self._texts.ids_of(self._first_text)
        return self._first

    @property
    def _texts(self) -> Texts:
        assert self._client.texts is not None
        return self._client.texts

    @property
    def _record(self) -> TextRecord | None:
        """The record of a timed query."""
        return self._client.record.text if self._request.seq >= 0 else None

    def _read(self, payload: bytes, read_ns: int) -> None:
        Exchange._read(self, payload, read_ns)
        if self._is_stream and self._response.text and not self._has_text:
            self._has_text = True
            if self._response.reasoning and self._record is not None:
                self._record.issue_to_text.add(read_ns - self._request.issue_ns)

    def _check(self) -> None:
        client, response, request = self._client, self._response, self._request
        if client.streaming and not self._is_stream:
            raise BadResponse("the server does not stream: only throughput can be measured (--scenario Offline)")
        if self._is_stream and response.finish_reason is None and not self._done:
            raise BadResponse(f"the response ends after {self._amount()} chunks without a finish reason")
        if response.finish_reason not in (*FINISH_REASONS, None):
            raise BadResponse(f"finish reason {response.finish_reason!r}, not one of {', '.join(FINISH_REASONS)}")
        ids = self._ids()
        client.generated += len(ids) - self._amount()
        if self._record is not None:
            self._count(self._record, ids)
        ids += [self._texts.blank] * (LEAST - len(ids))
        if client.streaming and not self._first_read_ns:  # an empty response
            request.heard_ns = self._progress_ns
            request.sink.first_token(request, ids[0])
        response.ids = ids

    def _ids(self) -> list[int]:
        """Return the IDs of the response. They begin with the reported first token."""
        text, texts = "".join(self._parts_of_text()), self._texts
        if not texts.counts:
            return [0] * (self._response.completion_tokens or self._amount())
        if not text:
            return []
        ids = texts.ids_of(text)
        if ids[:1] == self._first[:1] or not self._first:
            return ids
        # The tokenizer may join text of the first and of the second chunk to one token; the model did not.
        rest = text[len(self._first_text) :]
        return self._first + (texts.ids_of(rest) if rest else [])

    def _count(self, record: TextRecord, ids: list[int]) -> None:
        response, sampling, answers = self._response, self._sampling, self._client.record.answers
        used = response.completion_tokens
        if used is not None:
            record.responses_with_usage += 1
            record.tokens_by_usage += used
            record.tokens_by_tokenizer += len(ids)
            record.prompt_tokens_by_usage += response.prompt_tokens or 0
            record.prompt_tokens_sent += len(self._request.prompt_ids)
            record.short += used < sampling.min_tokens
            record.long += used > sampling.max_tokens
        else:
            record.responses_estimated += not record.is_tokenized
            # Tokens of a text may be fewer than the model generated: the finish reason tells short responses apart.
            record.short += len(ids) < sampling.min_tokens and response.finish_reason != "length"
        record.padded += len(ids) < LEAST
        record.empty += not self._amount()
        if record.empty > max(FEW_RESPONSES, LEFT_OUT_SHARE * answers):
            raise BadResponse(
                f"{counted(record.empty, 'response')} of {answers} had no text (finish reason {response.finish_reason})"
            )

    def _fix(self) -> str:
        if self._status in (400, 422):
            said = b"".join(self._parts)
            refused = [name for name in MAY_OMIT if name in self._template.fields and name.encode() in said]
            if refused:
                options = " ".join(f"--api-omit {name}" for name in refused)
                return f"if the server rejects {' and '.join(refused)}, omit these fields with {options}"
        return Exchange._fix(self)
