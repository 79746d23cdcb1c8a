"""What every dialect does: write a request's body, and read the response into a `Completion`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field
from typing import Annotated, Any, ClassVar

import msgspec
import orjson

from runs.benchmark import SamplingPolicy

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]  # LoadGen is given int32
NOTHING = msgspec.Raw()  # default of a part that is kept undecoded
WORDS_OF_AN_ERROR = 300


class BadResponse(Exception):
    """A response that is wrong. The text says what is wrong; the client adds server and query."""


@dataclass(slots=True)
class Completion:
    """What came of one response so far; None where the server did not say."""

    ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    prompt_ids: bytes | None = None  # as JSON, where the server repeats them
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    request_id: str | None = None


class BodyTemplate:
    """A request's body without its id and the prompt's ids; the rest is the same for all."""

    def __init__(self, fields: dict[str, Any], prompt_field: str, id_field: str | None) -> None:
        self._head = orjson.dumps(fields)[:-1] + b"," + orjson.dumps(prompt_field) + b":"
        self._id_name = b"," + orjson.dumps(id_field) + b":" if id_field else b""

    def body(self, prompt_ids: list[int], request_id: str) -> bytes:
        own_id = self._id_name + orjson.dumps(request_id) if self._id_name else b""
        return self._head + orjson.dumps(prompt_ids) + own_id + b"}"


@dataclass(eq=False)
class Dialect(ABC):
    """One server's API."""

    model: str  # the model's name at the server
    sampling: SamplingPolicy  # sent in full
    _: KW_ONLY
    streaming: bool  # whether ids come as they are made, or all at the end

    name: ClassVar[str]
    path: ClassVar[str]
    prompt_field: ClassVar[str]
    id_field: ClassVar[str | None] = None  # of the request's id, with which the answer's id then ends
    renew_unused: ClassVar[bool] = False  # the server closes unused connections
    closes_after_a_stream: ClassVar[bool] = False  # the server does, although its head says keep-alive
    renamed: ClassVar[Mapping[str, str]] = {}  # what the server calls fields of `parameters`; "": it has none
    two_chunks: ClassVar[bool] = False  # has a stream interval, so an answer comes in two chunks
    min_tokens_holds_stop_ids: ClassVar[bool] = True  # min_tokens also holds back stop ids, not only the model's EOS

    def template(self, sampling: SamplingPolicy | None = None, stop_ids: tuple[int, ...] = ()) -> BodyTemplate:
        """The body for the sampling of the leg, or for another one that a probe asks for."""
        return BodyTemplate(self.fields(sampling or self.sampling, stop_ids), self.prompt_field, self.id_field)

    @property
    def has_min_tokens(self) -> bool:
        return self.renamed.get("min_tokens") != ""

    def parameters(self, sampling: SamplingPolicy, stop_ids: tuple[int, ...]) -> dict[str, Any]:
        """All sampling parameters: for those not sent, a server may use generation_config.json."""
        own = {**asdict(sampling), "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0}
        own |= {"frequency_penalty": 0.0, "stop_token_ids": list(stop_ids)}
        names = {name: self.renamed.get(name, name) for name in own}
        interval = {"stream_interval": sampling.max_tokens + 1} if self.two_chunks and self.streaming else {}
        return {names[name]: value for name, value in own.items() if names[name]} | interval

    @abstractmethod
    def fields(self, sampling: SamplingPolicy, stop_ids: tuple[int, ...]) -> dict[str, Any]:
        """Everything of the body but the prompt."""

    @abstractmethod
    def read(self, payload: bytes, answer: Completion) -> int:
        """Read one event, or the whole body where nothing is streamed, into `answer`.

        Returns:
            How many ids came with it.

        Raises:
            BadResponse: the server reports an error.
            msgspec.DecodeError: it is not the JSON that the dialect speaks.
        """


def error_words(said: bytes) -> str:
    """A server's error on one line, shortened."""
    return " ".join(said.decode("utf-8", "replace").split())[:WORDS_OF_AN_ERROR]
