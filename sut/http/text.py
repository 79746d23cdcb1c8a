"""Responses of servers that send text: their tokens, their first token, and missing facts.

LoadGen counts the token IDs that it receives. In a performance run, it receives as many IDs as the server reports
tokens: those of the text, by the tokenizer of the run's model, or zeros without this tokenizer. The number is needed
when the last token arrives, and many servers report it later. `TokenCounts` chooses the source of the number. In an
accuracy run, LoadGen receives the IDs of the text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from runs.benchmark import MIN_TOKENS_LOADGEN_ACCEPTS as LEAST
from runs.benchmark import SamplingPolicy
from runs.record.engines.server_notes import failed_responses
from runs.record.observed import TextResponses
from sut.http.dialects import MAY_OMIT
from sut.http.events import BadResponse
from sut.http.exchange import FEW_RESPONSES, FINISH_REASONS, JSON, LEFT_OUT_SHARE, STREAM, Exchange
from sut.http.tokenizer import TextTokenizer

# Words of servers that do not accept a field.
_UNSUPPORTED = r"(?i:unsupported|not support|unknown|unrecogni|unexpected|not permitted|not allowed|deprecated|extra)"
APART_SHARE = 0.01  # minimum difference between two counts of tokens that is reported as a note


@dataclass(frozen=True)
class Texts:
    """Prompts as text, and responses as token IDs."""

    tokenizer: TextTokenizer  # the tokenizer that encoded the prompts
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


@dataclass(slots=True)
class TokenCounts:
    """The sources of a response's number of tokens before the server reports it, and their errors so far.

    The number of chunks and the number of tokens of the text are estimates. `max_tokens` is the number after the finish
    reason `length`. A source is used while it was right in all responses so far; else the source with the smallest
    error, if this error is smaller than the error of the times that waiting for the server's report would cause.
    """

    is_tokenized: bool
    responses: int = 0  # responses so far
    tokens: int = 0  # tokens of the responses that the server counted
    # Sums of the differences from the server's number.
    chunks_error: int = 0
    text_error: int = 0
    length_error: int = 0
    excess_chunks: int = 0  # responses with more chunks than tokens
    wait_ns: int = 0  # time from the last tokens to the server's reports
    span_ns: int = 0  # time from the first to the last tokens of the same responses

    def learn(self, tokens: int | None, chunks: int, text_tokens: int, most: int | None) -> None:
        """Compare the sources with the number that the server reported.

        Args:
            tokens: number that the server reported; None if it reported none.
            chunks: number of chunks with text.
            own: number of tokens of the text.
            most: requested maximum, if the finish reason was `length`.
        """
        self.responses += 1
        if tokens is None:
            return
        self.tokens += tokens
        self.chunks_error += abs(chunks - tokens)
        self.text_error += abs(text_tokens - tokens)
        self.length_error += 0 if most is None else abs(most - tokens)
        self.excess_chunks += chunks > tokens

    def choose(self, chunks: int, text_tokens: int, most: int | None) -> int | None:
        """Return the number of tokens; None to wait for the server's report. Arguments: see `learn`."""
        if most is not None and not self.length_error:
            return most
        if not self.tokens:  # The first response shows whether the server reports the number.
            return (text_tokens if self.is_tokenized else chunks) if self.responses else None
        sources = [(self.chunks_error, chunks), *([(self.text_error, text_tokens)] if self.is_tokenized else [])]
        error, number = min(sources, key=lambda source: source[0])
        return number if error * self.span_ns <= self.wait_ns * self.tokens else None

    @property
    def chunks_are_tokens(self) -> bool:
        """True if the server sent no chunk without a token so far."""
        return bool(self.tokens) and not self.excess_chunks


def notes_on_texts(texts: TextResponses, responses: int, chunks: int, sampling: SamplingPolicy) -> Iterator[str]:
    """Yield notes on the counts of tokens, and on responses of other lengths than requested.

    Args:
        responses: responses to timed queries.
        chunks: their chunks with text.
    """
    server, counted_tokens, passed = texts.tokens_by_usage, texts.tokens_by_tokenizer, texts.tokens_for_loadgen
    if texts.responses_estimated:
        yield (
            f"the tokens of {texts.responses_estimated} of {responses} responses are estimated, one per chunk: the "
            "server reports no usage; give the model's tokenizer with --model-path"
        )
    elif texts.responses_with_usage < responses:
        yield f"the server reports no usage in {responses - texts.responses_with_usage} of {responses} responses"
    if not texts.is_tokenized:
        if chunks < (1 - APART_SHARE) * server:
            yield f"{server:,} tokens arrived in {chunks:,} chunks: the first chunk may contain multiple tokens"
    elif abs(counted_tokens - server) > APART_SHARE * server:
        yield (
            f"the server reports {server:,} output tokens, but its text has {counted_tokens:,} with the tokenizer "
            f"of --model-path ({(counted_tokens - server) / max(1, server):+.1%})"
        )
    if abs(passed - server) > APART_SHARE * server:
        yield (
            f"LoadGen counted {passed:,} output tokens, but the server reported {server:,} after the responses "
            f"({(passed - server) / max(1, server):+.1%}): TPOT and tokens/s have this error"
        )
    if texts.without_finish_reason and not texts.with_finish_reason:
        yield "no response has a finish reason: [DONE] ends a response, and a cut response would not be noticed"
    sent, read = texts.prompt_tokens_sent, texts.prompt_tokens_by_usage
    if texts.is_tokenized and abs(read - sent) > APART_SHARE * sent:
        yield (
            f"the server reports {read:,} prompt tokens, but the prompts have {sent:,} "
            f"({(read - sent) / max(1, sent):+.1%}): a chat template or another tokenizer changes them"
        )
    least, most = sampling.min_tokens, sampling.max_tokens
    for count, what in (
        (texts.short, f"fewer than {least} tokens: the server does not honor min_tokens or ignore_eos"),
        (texts.long, f"more than {most} tokens: the server does not honor max_tokens"),
        (texts.empty, "no text"),
        (texts.without_finish_reason if texts.with_finish_reason else 0, "no finish reason: they were cut"),
        (texts.padded, f"fewer than {LEAST} tokens; LoadGen requires {LEAST}, so the harness reported {LEAST}"),
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
    _own: list[int] | None = None  # IDs of the text, by the tokenizer; zeros without it
    _passed: int = 0  # number of IDs that LoadGen received
    _counted_ns: int = 0  # time of the read with the server's number of tokens
    _has_text: bool = False
    _are_ids_fixed: bool = False

    def _allowed_types(self) -> tuple[bytes, ...]:
        # A JSON body instead of a stream may have an error to report.
        return (STREAM, JSON) if self._client.streaming else (JSON,)

    def _parts_of_text(self) -> list[str]:
        response = self._response
        return response.reasoning + response.text if self._client.times_count else response.text

    def _amount(self) -> int:
        response = self._response
        return len(response.text) + (len(response.reasoning) if self._client.times_count else 0)

    def _first_id(self) -> int:
        self._first_text = "".join(self._parts_of_text())
        self._first = self._texts.ids_of(self._first_text)
        return self._first[0]

    @property
    def _texts(self) -> Texts:
        assert self._client.texts is not None
        return self._client.texts

    @property
    def _record(self) -> TextResponses | None:
        """The record of a timed query."""
        return self._client.record.text if self._request.seq >= 0 else None

    def _read(self, payload: bytes, read_ns: int) -> None:
        Exchange._read(self, payload, read_ns)
        if self._response.counts_all:
            self._counted_ns = read_ns
        if self._has_text or not self._is_stream:
            return
        if self._response.text:
            self._has_text = True
            if self._response.reasoning and self._record is not None:
                self._client.lateness.issue_to_text.add(read_ns - self._request.issue_ns)

    def _refuse_later(self, *, after_reason: bool) -> None:
        # Some servers put a finish reason into each chunk. The requests before the timed run show this.
        if self._request.seq < 0:
            self._client.reasons_come_early = True
        elif self._completed_ns or not self._client.reasons_come_early:
            Exchange._refuse_later(self, after_reason=after_reason)

    def _has_last_token(self) -> bool:
        response, client, most = self._response, self._client, self._sampling.max_tokens
        chunks = self._amount()
        if not chunks:
            return False
        counted = (response.completion_tokens or 0) if response.counts_all else 0
        ends = (
            self._done
            or (response.finish_reason in FINISH_REASONS and not client.reasons_come_early)
            or counted >= most
            or (chunks >= most and client.token_counts.chunks_are_tokens)
        )
        return ends and (self._done or self._number() is not None)

    def _number(self) -> int | None:
        """Return the number of tokens of the whole response; None if it is unknown as yet."""
        response, most = self._response, self._sampling.max_tokens
        if response.counts_all:
            return response.completion_tokens
        chunks = self._amount()
        counts = self._client.token_counts
        is_longest = self._is_at_limit() or (chunks >= most and counts.chunks_are_tokens)
        text_tokens = len(self._own_ids()) if counts.is_tokenized else 0
        return counts.choose(chunks, text_tokens, most if is_longest else None)

    def _is_at_limit(self) -> bool:
        return self._response.finish_reason == "length" and not self._client.reasons_come_early

    def _check(self) -> None:
        client, response = self._client, self._response
        if client.streaming and not self._is_stream:
            raise BadResponse("the server does not stream: only throughput can be measured (--scenario Offline)")
        if self._is_stream and response.finish_reason is None and not self._done:
            raise BadResponse(f"the response ends after {self._amount()} chunks without a finish reason")
        if response.finish_reason not in (*FINISH_REASONS, None):
            raise BadResponse(f"finish reason {response.finish_reason!r}, not one of {', '.join(FINISH_REASONS)}")

    def _fix_ids(self) -> None:
        if self._are_ids_fixed:
            return
        self._are_ids_fixed = True
        client, request, text_ids = self._client, self._request, self._own_ids()
        ids = text_ids
        if client.times_count:
            chunks, number = self._amount(), self._number()
            if number is None:
                number = len(text_ids) if self._texts.counts else chunks
            ids = text_ids[:number] + [0] * (number - len(text_ids))
        client.generated += len(ids) - self._amount()
        self._passed = len(ids)
        self._response.ids = ids = ids + [self._texts.blank] * (LEAST - len(ids))
        if client.streaming and not self._first_read_ns:  # an empty response
            request.heard_ns = self._progress_ns
            request.sink.first_token(request, ids[0])

    def _own_ids(self) -> list[int]:
        """Return the IDs of the text by the tokenizer, or zeros. They begin with the reported first token."""
        if self._own is None:
            self._own = self._tokenize()
        return self._own

    def _tokenize(self) -> list[int]:
        text, texts = "".join(self._parts_of_text()), self._texts
        if not texts.counts:
            return [0] * self._amount()
        if not text:
            return []
        ids = texts.ids_of(text)
        if ids[:1] == self._first[:1] or not self._first:
            return ids
        # The tokenizer may join text of the first and of the second chunk to one token; the model did not.
        rest = text[len(self._first_text) :]
        return self._first + (texts.ids_of(rest) if rest else [])

    def _count(self) -> None:
        response, counts = self._response, self._client.token_counts
        chunks, text_tokens = self._amount(), len(self._own_ids())
        # Some servers report 0 tokens instead of none.
        used = response.completion_tokens if response.completion_tokens or not chunks else None
        counts.learn(used, chunks, text_tokens, self._sampling.max_tokens if self._is_at_limit() else None)
        if used and self._counted_ns and self._first_read_ns:
            counts.wait_ns += self._counted_ns - self._last_read_ns
            counts.span_ns += self._last_read_ns - self._first_read_ns
        record = self._client.record.text
        if record is not None:
            record.with_finish_reason += response.finish_reason is not None
        Exchange._count(self)
        if self._record is not None:
            self._count_timed(self._record, used, chunks, text_tokens)

    def _count_timed(self, record: TextResponses, used: int | None, chunks: int, text_tokens: int) -> None:
        response, sampling = self._response, self._sampling
        is_cut = chunks > 0 and response.finish_reason is None
        if used is not None:
            record.responses_with_usage += 1
            record.tokens_by_usage += used
            record.tokens_by_tokenizer += text_tokens
            record.tokens_for_loadgen += self._passed
            record.prompt_tokens_by_usage += response.prompt_tokens or 0
            record.prompt_tokens_sent += len(self._request.prompt_ids)
        elif not record.is_tokenized and not self._is_at_limit():
            record.responses_estimated += 1
        record.without_finish_reason += is_cut
        record.empty += not chunks
        if chunks and not (is_cut and record.with_finish_reason):
            # Tokens of a text may be fewer than the model generated: the finish reason tells short responses apart.
            number = text_tokens if used is None else used
            record.short += number < sampling.min_tokens and (used is not None or not self._is_at_limit())
            record.long += used is not None and used > sampling.max_tokens
        record.padded += self._passed < LEAST
        answers = self._client.record.answers
        if record.failed > max(FEW_RESPONSES, LEFT_OUT_SHARE * answers):
            raise BadResponse(failed_responses(answers, record.empty, record.failed - record.empty))

    def _began_with_several(self) -> bool:
        # The tokenizer may split one token of the model, so the server's own number must confirm several tokens.
        excess = (self._response.completion_tokens or 0) - self._amount()
        return 1 < len(self._first) <= excess + 1 and self._client.token_counts.is_tokenized

    def _fix(self) -> str:
        if self._status in (400, 422):
            return self._fix_of_fields(b"".join(self._parts).decode("utf-8", "replace")) or Exchange._fix(self)
        return Exchange._fix(self)

    def _fix_of_fields(self, error: str) -> str:
        """Return what to type if the error of the server names a field of the request; "" if it names none."""
        fields = self._template.fields.keys()
        if "max_tokens" in fields and (
            "max_completion_tokens" in error
            or re.search(rf"\bmax_tokens\b.*{_UNSUPPORTED}|{_UNSUPPORTED}.*\bmax_tokens\b", error)
        ):
            return "if the server rejects max_tokens, give --api-rename max_tokens=max_completion_tokens"
        refused = [name for name in MAY_OMIT if name in fields and re.search(rf"\b{name}\b", error)]
        options = " ".join(f"--api-omit {name}" for name in refused)
        return f"if the server rejects {' and '.join(refused)}, omit these fields with {options}" if refused else ""
