"""The dummy engine with cheats, which prove the checks of docs/red-team.md.

A cheat changes what the engine computes for a request, or what it reports. The environment variable DUMMY_CHEAT of a
`main.py` that a test starts (tests/support/processes/warm.py) names the cheat of its runs. Only the run's process
reads it.
"""

import math
import os
import random
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path

from qsl.dataset import load_dataset
from qsl.tokenizers import BOS_ID, EOS_ID, ByteTokenizer
from runs.benchmarks import BENCHMARKS
from runs.record.manifest import RunPlan
from sut import engines
from sut.dummy.dummy_engine import DummyEngine
from sut.dummy.dummy_kind import DummyKind
from sut.dummy.fault import Fault
from sut.engine import Request
from sut.loadgen_sut import LoadgenSut

CHEAT = "DUMMY_CHEAT"  # environment variable
HONEST_QUERIES = 32
BURST_S = 0.010
PREFIX_BLOCK_TOKENS = 16  # prefixes are shared in blocks, as in real engines
STORE = "DUMMY_CHEAT_STORE"  # environment variable: directory that outlives a run
CANNED_RESPONSE = list(b"The article reports on recent events and the people involved in them.")
GUESSED_FIRST_ID = 1
HELD_SHARE = 0.875  # share of the limit: 1.75 of Server's 2 s, as in published results of v6.1
HELD_JITTER = 0.05  # random deviation that hides the constant delay
DROP_ONE_IN = 4
REPEATS = 8
OVERCOUNT_TOKENS = 16
SAVING = "DUMMY_CHEAT_SAVING"  # environment variable: the share of the time that `cache-part` saves
DEFAULT_SAVING = 0.15
LITTLE = 12  # one part of this many is omitted


@dataclass
class Service:
    """The computation and the response of the engine for one request."""

    response: list[int]
    prefill_tokens: int
    decode_tokens: int
    time_share: float = 1.0  # share of the time of the tokens
    first_id: int | None = None  # first token that is reported instead of that of the response
    first_at_once: bool = False  # True if it is reported before the computation
    first_held_s: float = 0.0  # earliest report after submission, although the token exists
    done_at_once: bool = False  # True if the response precedes the computation


# Change of the service for a request; called once for each timed request, in order of submission
Cheat = Callable[[Request, Service], None]


@dataclass(frozen=True)
class CheatContext:
    """Facts for cheats. `references` are the IDs of the reference texts by sample index, for `reference` alone."""

    performance: bool
    bos_id: int
    eos_id: int
    space_id: int
    max_tokens: int
    references: list[list[int]] = field(default_factory=list)
    ttft_limit_s: float = 2.0
    now_s: Callable[[], float] = time.monotonic


Maker = Callable[[CheatContext], Cheat]
Each = Callable[[CheatContext, Request, Service], None]

CHEAT_KINDS: dict[str, str] = {}  # name → description
_MAKERS: dict[str, Maker] = {}


def _made(kind: str, what: str) -> Callable[[Maker], Maker]:
    """Register the maker of a cheat with a memory."""

    def add(make: Maker) -> Maker:
        CHEAT_KINDS[kind], _MAKERS[kind] = what, make
        return make

    return add


def _each(kind: str, what: str, *, performance: bool = False) -> Callable[[Each], Each]:
    """Register a cheat that treats each request equally, optionally in performance runs only."""

    def add(cheat: Each) -> Each:
        _made(kind, what)(lambda value: partial(cheat, value) if value.performance or not performance else _honest)
        return cheat

    return add


Seen = dict[tuple[int, ...], float]  # prompts by their last occurrence, the latest at the end
Remembering = Callable[[CheatContext, Request, Service, Seen], None]


def _remembers(kind: str, what: str) -> Callable[[Remembering], Remembering]:
    """Register a cheat that knows the earlier prompts."""

    def add(cheat: Remembering) -> Remembering:
        def make(context: CheatContext) -> Cheat:
            seen: Seen = {}

            def remembering(request: Request, service: Service) -> None:
                cheat(context, request, service, seen)
                prompt = tuple(request.prompt_ids)
                seen.pop(prompt, None)
                seen[prompt] = context.now_s()

            return remembering

        _made(kind, what)(make)
        return cheat

    return add


def _honest(request: Request, service: Service) -> None:
    """Change nothing."""


def make_cheat(kind: str, context: CheatContext) -> Cheat:
    """Return a cheat of a kind. With `overcount`, the engine is honest and the SUT counts (`OvercountingSut`)."""
    return _honest if kind == "overcount" else _MAKERS[kind](context)


# The engine -----------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class CheatingEngine(DummyEngine):
    """The dummy engine whose service a cheat changes."""

    cheat: Cheat = _honest

    def _serve(self, request: Request, ids: list[int]) -> None:
        service = Service(ids, len(request.prompt_ids), max(0, len(ids) - 1))
        if request.seq >= 0:  # warm-ups are served honestly
            self.cheat(request, service)
        now_s = self._loop.time()
        computed = service.prefill_tokens + service.decode_tokens > 0
        factor = service.time_share * self.slowness()
        prefill_s = self.prefill_us / 1e6 * service.prefill_tokens + (self.ttft_ms / 1e3 if computed else 0.0)
        first_s, end_s = self._book(factor * prefill_s, factor * self.tpot_ms / 1e3 * service.decode_tokens)
        if service.done_at_once:
            first_s = end_s = now_s
        elif service.first_at_once:
            first_s = now_s
        first_s = max(first_s, now_s + service.first_held_s)
        end_s = max(end_s, first_s)
        first = service.response if service.first_id is None else [service.first_id]
        self._loop.call_at(first_s, self._say, request, first, service.response, end_s)

    def _say(self, request: Request, first: list[int], ids: list[int], end_s: float) -> None:
        """Report `first` instead of the first token of the response."""
        self._activity += 1
        self._generated_tokens += bool(ids)
        if ids:
            request.sink.first_token(request, first[0])
        self._loop.call_at(end_s, self._finish, request, ids)


@dataclass(frozen=True)
class CheatingKind(DummyKind):
    """The dummy engine in a run's process, if it cheats in one way."""

    kind: str

    def make(self, plan: RunPlan) -> CheatingEngine:
        options = dict(plan.engine_options)
        options["faults"] = tuple(Fault.parse(fault) for fault in options["faults"])
        sampling, limits = plan.sampling, BENCHMARKS[plan.loadgen_key].limits
        context = CheatContext(
            plan.mode == "performance",
            BOS_ID,
            EOS_ID,
            ord(" "),
            sampling.max_tokens,
            _references(plan) if self.kind == "reference" else [],
            ttft_limit_s=limits.ttft_ms / 1e3 if limits else math.inf,
        )
        return CheatingEngine(sampling, **options, cheat=make_cheat(self.kind, context))

    def sut_class(self, plan: RunPlan) -> type[LoadgenSut]:
        return OvercountingSut if self.kind == "overcount" else LoadgenSut


def _references(plan: RunPlan) -> list[list[int]]:
    targets = load_dataset(Path(plan.dataset_path), count=plan.sample_count).targets
    return [ids[1:] for ids in ByteTokenizer().encode_batch(targets)]  # without BOS


def install() -> None:
    """Replace the honest engine in the process of a run by the one that cheats, if the environment names a cheat."""
    kind = os.environ.get(CHEAT)
    if kind:
        assert kind in CHEAT_KINDS, kind
        engines.KINDS["dummy"] = CheatingKind(kind)


# Caches ---------------------------------------------------------------------------------------------------------------


def _skip(service: Service) -> None:
    """Compute nothing for the request."""
    service.prefill_tokens = service.decode_tokens = 0


@_made("cache-index", "returns the earlier response to a repeated sample index from a cache")
def _cache_index(_: CheatContext) -> Cheat:
    seen: dict[int, list[int]] = {}

    def cheat(request: Request, service: Service) -> None:
        if request.sample_index in seen:
            service.response = seen[request.sample_index]
            _skip(service)
        seen.setdefault(request.sample_index, service.response)

    return cheat


@_remembers("cache-prompt", "returns the earlier response to a repeated prompt from a cache")
def _cache_prompt(context: CheatContext, request: Request, service: Service, seen: Seen) -> None:
    if tuple(request.prompt_ids) in seen:
        _skip(service)


@_remembers("cache-not-in-a-row", "as cache-prompt, but recomputes a prompt that is issued twice in succession")
def _cache_not_in_a_row(context: CheatContext, request: Request, service: Service, seen: Seen) -> None:
    prompt = tuple(request.prompt_ids)
    if prompt in seen and prompt != next(reversed(seen)):
        _skip(service)


@_remembers("cache-late", "as cache-prompt, but only after the first 32 queries; a short audit has 32 queries")
def _cache_late(context: CheatContext, request: Request, service: Service, seen: Seen) -> None:
    if tuple(request.prompt_ids) in seen and request.seq >= HONEST_QUERIES:
        _skip(service)


@_each("cache-on-disk", "as cache-prompt, but keeps the cache on disk for later runs")
def _cache_on_disk(_: CheatContext, request: Request, service: Service) -> None:
    store = Path(os.environ[STORE])
    name = store / sha256(array("q", request.prompt_ids).tobytes()).hexdigest()
    if name.exists():
        _skip(service)
    else:
        store.mkdir(exist_ok=True)
        name.touch()


@_remembers("cache-first", "returns the first token of a repeated prompt from a cache, and computes the rest")
def _cache_first(context: CheatContext, request: Request, service: Service, seen: Seen) -> None:
    service.first_at_once = tuple(request.prompt_ids) in seen


@_remembers("cache-part", "computes a repeated prompt in 85% of the time, as a cache of a part of the prompt does")
def _cache_part(context: CheatContext, request: Request, service: Service, seen: Seen) -> None:
    if tuple(request.prompt_ids) in seen:
        service.time_share = 1 - float(os.environ.get(SAVING, DEFAULT_SAVING))


@_made("share-prefixes", "does not compute the beginning of a prompt that equals the beginning of an earlier prompt")
def _share_prefixes(_: CheatContext) -> Cheat:
    seen: set[int] = set()  # hashes of all prefixes of complete blocks

    def cheat(request: Request, service: Service) -> None:
        cached_tokens, prefix = 0, 0
        for end in range(PREFIX_BLOCK_TOKENS, len(request.prompt_ids), PREFIX_BLOCK_TOKENS):
            prefix = hash((prefix, *request.prompt_ids[end - PREFIX_BLOCK_TOKENS : end]))
            if prefix in seen:
                cached_tokens = end
            seen.add(prefix)
        service.prefill_tokens -= cached_tokens

    return cheat


@_remembers("merge-equal", "computes only one of multiple equal prompts that arrive within 10 ms")
def _merge_equal(context: CheatContext, request: Request, service: Service, seen: Seen) -> None:
    if context.now_s() - seen.get(tuple(request.prompt_ids), -BURST_S) < BURST_S:
        _skip(service)


# Less computation, and tokens that no model computed ------------------------------------------------------------------


@_each("truncate", "ends the output at half of its length, in performance runs", performance=True)
def _truncate(_: CheatContext, request: Request, service: Service) -> None:
    service.response = service.response[: max(2, len(service.response) // 2)]
    service.decode_tokens = len(service.response) - 1


@_each("truncate-little", "omits the last twelfth of the output, in performance runs", performance=True)
def _truncate_little(_: CheatContext, request: Request, service: Service) -> None:
    service.response = service.response[: -max(1, len(service.response) // LITTLE)]
    service.decode_tokens = len(service.response) - 1


@_each("pad-eos", "pads the output with end-of-sequence IDs")
def _pad_eos(context: CheatContext, request: Request, service: Service) -> None:
    service.response = service.response + [context.eos_id] * (context.max_tokens - len(service.response))


@_each("pad-space", "pads the output with blanks, which scoring strips")
def _pad_space(context: CheatContext, request: Request, service: Service) -> None:
    service.response = service.response + [context.space_id] * (context.max_tokens - len(service.response))


@_each("repeat-special", "appends eight begin-of-sequence IDs to the output")
def _repeat_special(context: CheatContext, request: Request, service: Service) -> None:
    service.response = service.response[: context.max_tokens - REPEATS] + [context.bos_id] * REPEATS


@_each("inject-bos", "begins the output with a begin-of-sequence ID")
def _inject_bos(context: CheatContext, request: Request, service: Service) -> None:
    service.response = [context.bos_id, *service.response[: context.max_tokens - 1]]


@_each("inject-eos", "inserts an end-of-sequence ID into the output")
def _inject_eos(context: CheatContext, request: Request, service: Service) -> None:
    kept = service.response[: context.max_tokens - 1]
    middle = len(kept) // 2
    service.response = [*kept[:middle], context.eos_id, *kept[middle:]]


CHEAT_KINDS["overcount"] = "reports more tokens to LoadGen than it returns"


class OvercountingSut(LoadgenSut):
    """A harness that adds tokens to the count for LoadGen."""

    def complete(self, request: Request, token_ids: Sequence[int], finish_reason: str, cached_tokens: int) -> None:
        honest = self._response
        self._response = lambda response_id, address, size, count: honest(
            response_id, address, size, count + OVERCOUNT_TOKENS
        )
        try:
            super().complete(request, token_ids, finish_reason, cached_tokens)
        finally:
            self._response = honest


# False first tokens, and other models ---------------------------------------------------------------------------------


@_each("first-other", "reports a first token that differs from the first token of the output")
def _first_other(_: CheatContext, request: Request, service: Service) -> None:
    service.first_id = service.response[0] ^ 1


@_each("first-early", "reports a guessed first token before the prompt is computed")
def _first_early(_: CheatContext, request: Request, service: Service) -> None:
    service.first_id = GUESSED_FIRST_ID
    service.first_at_once = True


@_each("first-forced", "as first-early, and uses the guess as the first token of the output")
def _first_forced(_: CheatContext, request: Request, service: Service) -> None:
    service.response = [GUESSED_FIRST_ID, *service.response[1:]]
    service.first_at_once = True


@_made("first-late", "holds first tokens back until near the limit, which lowers TPOT")
def _first_late(context: CheatContext) -> Cheat:
    chance = random.Random(1)

    def cheat(request: Request, service: Service) -> None:
        service.first_held_s = HELD_SHARE * context.ttft_limit_s * (1 + HELD_JITTER * chance.uniform(-1, 1))

    return cheat


@_each(
    "answer-early", "returns random IDs at once and computes the response later, in performance runs", performance=True
)
def _respond_early(_: CheatContext, request: Request, service: Service) -> None:
    service.response = [1 + (request.seq + place) % 255 for place in range(len(service.response))]
    service.done_at_once = True


@_each("other-model", "uses a smaller model, in performance runs", performance=True)
def _other_model(_: CheatContext, request: Request, service: Service) -> None:
    service.response = service.response[::-1]
    service.prefill_tokens //= 2
    service.decode_tokens //= 2


@_made("other-model-in-bursts", "uses another model for a query that arrives within 10 ms of the previous query")
def _other_model_in_bursts(context: CheatContext) -> Cheat:
    last_s = -BURST_S

    def cheat(request: Request, service: Service) -> None:
        nonlocal last_s
        now_s = context.now_s()
        if now_s - last_s < BURST_S:
            service.response = service.response[::-1]
            service.prefill_tokens //= 2
            service.decode_tokens //= 2
        last_s = now_s

    return cheat


@_each("drop-always", "returns one fixed text for every fourth sample, in all runs")
@_each("drop", "returns one fixed text for every fourth sample, in performance runs", performance=True)
def _drop(_: CheatContext, request: Request, service: Service) -> None:
    if request.sample_index % DROP_ONE_IN == 0:
        service.response = CANNED_RESPONSE
        _skip(service)


@_each("reference", "returns the dataset's reference text")
def _reference(context: CheatContext, request: Request, service: Service) -> None:
    service.response = context.references[request.sample_index][: context.max_tokens]
    _skip(service)


@_each("stored", "returns its own responses from an earlier process, in all runs")
def _stored(_: CheatContext, request: Request, service: Service) -> None:
    _skip(service)
