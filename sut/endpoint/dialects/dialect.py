"""What every dialect can do: write a request's body, and read what comes back into a `Completion`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field
from typing import Annotated, Any, ClassVar

import msgspec
import orjson

from runs.benchmark import SamplingPolicy

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]  # LoadGen is given int32
NOTHING = msgspec.Raw()  # in place of a part that is kept as it came, and did not come
WORDS_OF_AN_ERROR = 300


class BadResponse(Exception):
    """A response that cannot be what it should be. The text names what is wrong; server and query are named by whoever
    reports it."""


@dataclass(slots=True)
class Completion:
    """What has come of one response so far. None: the server has not said it."""

    ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    prompt_ids: bytes | None = None  # as JSON, where the server repeats them
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    request_id: str | None = None


class BodyTemplate:
    """A request's body but for its own id and the prompt's ids: everything else is the same for all of them."""

    def __init__(self, fields: dict[str, Any], prompt_field: str, id_field: str | None) -> None:
        self._head = orjson.dumps(fields)[:-1] + b"," + orjson.dumps(prompt_field) + b":"
        self._id_name = b"," + orjson.dumps(id_field) + b":" if id_field else b""

    def body(self, prompt_ids: list[int], request_id: str) -> bytes:
        own_id = self._id_name + orjson.dumps(request_id) if self._id_name else b""
        return self._head + orjson.dumps(prompt_ids) + own_id + b"}"


@dataclass(eq=False)
class Dialect(ABC):
    """One server's language."""

    model: str  # the model's name at the server
    sampling: SamplingPolicy  # sent in full
    _: KW_ONLY
    streaming: bool  # whether ids come as they are made, or all at the end

    name: ClassVar[str]
    path: ClassVar[str]
    prompt_field: ClassVar[str]
    id_field: ClassVar[str | None] = None  # takes a request's id, which stands at the end of the answer's then
    renew_unused: ClassVar[bool] = False  # the server closes connections that were never used
    closes_after_a_stream: ClassVar[bool] = False  # the server does, though its answer's head speaks of keeping it open
    renamed: ClassVar[Mapping[str, str]] = {}  # what the server calls fields of `parameters`; "": it has none
    two_chunks: ClassVar[bool] = False  # has an interval of chunks: two a request then, as of an engine in the leg
    min_tokens_holds_stop_ids: ClassVar[bool] = True  # holds stop ids back too, not the model's own end alone

    def template(self, sampling: SamplingPolicy | None = None, stop_ids: tuple[int, ...] = ()) -> BodyTemplate:
        """The body for the sampling of the leg, or for another one that a probe asks for."""
        return BodyTemplate(self.fields(sampling or self.sampling, stop_ids), self.prompt_field, self.id_field)

    @property
    def has_min_tokens(self) -> bool:
        return self.renamed.get("min_tokens") != ""

    def parameters(self, sampling: SamplingPolicy, stop_ids: tuple[int, ...]) -> dict[str, Any]:
        """All that decides about a token: what is not sent, a server may take from generation_config.json."""
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
            BadResponse: the server tells of an error.
            msgspec.DecodeError: it is not the JSON that the dialect speaks.
        """


def error_words(said: bytes) -> str:
    """An error as a server said it, on one line and not too long."""
    return " ".join(said.decode("utf-8", "replace").split())[:WORDS_OF_AN_ERROR]
