"""Ways of cheating for the dummy engine, one switch each, to prove which check catches which (docs/red-team.md).

Nothing here is used by an honest run. Each cheat changes what the engine computes for a request, or what it says.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, get_args

from runs.errors import InputError
from sut.dummy.caches import (
    BURST_S,
    cache_first,
    cache_index,
    cache_late,
    cache_not_in_a_row,
    cache_on_disk,
    cache_prompt,
    merge_equal,
    share_prefixes,
    skip,
)
from sut.dummy.engine import Cheat, Service
from sut.engine import Request
from sut.loadgen_sut import LoadgenSut

CheatKind = Literal[
    "cache-index",
    "cache-prompt",
    "cache-not-in-a-row",
    "cache-late",
    "cache-on-disk",
    "cache-first",
    "share-prefixes",
    "merge-equal",
    "truncate",
    "truncate-little",
    "pad-eos",
    "pad-space",
    "repeat-special",
    "inject-bos",
    "inject-eos",
    "overcount",
    "first-other",
    "first-early",
    "first-forced",
    "first-late",
    "answer-early",
    "other-model",
    "other-model-in-bursts",
    "drop",
    "drop-always",
    "reference",
    "stored",
]
CHEAT_KINDS: dict[CheatKind, str] = {
    "cache-index": "answers a sample index that it has seen from a cache",
    "cache-prompt": "answers a prompt that it has seen from a cache",
    "cache-not-in-a-row": "as cache-prompt, but computes a prompt again that comes twice in a row",
    "cache-late": "as cache-prompt, but computes the first 32 queries honestly, as many as a short audit has",
    "cache-on-disk": "as cache-prompt, and keeps on disk what it has seen, for the processes of later legs",
    "cache-first": "reports the first token of a prompt that it has seen from a cache, and computes the rest",
    "share-prefixes": "computes only the part of a prompt that no earlier prompt began with",
    "merge-equal": "computes equal prompts that come within 10 ms once",
    "truncate": "stops at half of the output in performance legs",
    "truncate-little": "leaves out the last twelfth of the output in performance legs",
    "pad-eos": "fills the output up with end-of-sequence ids",
    "pad-space": "fills the output up with blanks, which scoring strips",
    "repeat-special": "ends the output with a begin-of-sequence id, eight times",
    "inject-bos": "begins the output with a begin-of-sequence id",
    "inject-eos": "puts an end-of-sequence id into the middle of the output",
    "overcount": "tells LoadGen of more tokens than it returns",
    "first-other": "reports another first token than the output's",
    "first-early": "reports a guessed first token before the prompt is computed",
    "first-forced": "as first-early, and puts the guess into the output",
    "first-late": "holds first tokens back until the limit is near, so that the others come faster on paper",
    "answer-early": "answers with made-up ids at once and computes later, in performance legs",
    "other-model": "uses a smaller model in performance legs",
    "other-model-in-bursts": "uses another model for a query that comes within 10 ms of the last",
    "drop": "answers every fourth sample with a canned text in performance legs",
    "drop-always": "answers every fourth sample with a canned text in all legs",
    "reference": "answers with the data set's reference text",
    "stored": "answers from its own answers of an earlier process, in all legs",
}
CANNED_ANSWER = list(b"The article reports on recent events and the people involved in them.")
GUESSED_FIRST_ID = 1
HELD_SHARE = 0.875  # of the limit: 1.75 of the 2 s that Server allows, as in published results of v6.1
HELD_JITTER = 0.05  # so much more or less, that it does not show
DROP_ONE_IN = 4
REPEATS = 8
OVERCOUNT_TOKENS = 16
LITTLE = 12  # one part in so many is left out


@dataclass(frozen=True)
class CheatContext:
    """What cheats may know. `references`: ids of the reference texts by sample index, for `reference` alone."""

    performance: bool
    bos_id: int
    eos_id: int
    space_id: int
    max_tokens: int
    references: list[list[int]] = field(default_factory=list)
    ttft_limit_s: float = 2.0


def parse_cheat(text: str) -> CheatKind:
    """One of the kinds.

    Raises:
        InputError: another one.
    """
    if text not in get_args(CheatKind):
        raise InputError(f"--dummy-cheat {text}: unknown kind", f"use one of {', '.join(CHEAT_KINDS)}")
    return text  # type: ignore[return-value]  # membership was checked above


def make_cheats(kinds: list[CheatKind], context: CheatContext) -> tuple[Cheat, ...]:
    """The cheats, in the order given; `overcount` is not among them, since only the SUT counts (`OvercountingSut`)."""
    return tuple(_MAKERS[kind](context) for kind in kinds if kind != "overcount")


class OvercountingSut(LoadgenSut):
    """A harness that adds tokens to the count that it hands to LoadGen."""

    def complete(self, request: Request, token_ids: list[int], finish_reason: str, cached_tokens: int) -> None:
        honest = self._response
        self._response = lambda response_id, address, size, count: honest(
            response_id, address, size, count + OVERCOUNT_TOKENS
        )
        try:
            super().complete(request, token_ids, finish_reason, cached_tokens)
        finally:
            self._response = honest


# Saving computation ---------------------------------------------------------------------------------------------------


def _truncate(context: CheatContext) -> Cheat:
    def cheat(request: Request, service: Service) -> None:
        if context.performance:
            service.answer = service.answer[: max(2, len(service.answer) // 2)]
            service.decode_tokens = len(service.answer) - 1

    return cheat


def _truncate_little(context: CheatContext) -> Cheat:
    def cheat(request: Request, service: Service) -> None:
        if context.performance:
            service.answer = service.answer[: -max(1, len(service.answer) // LITTLE)]
            service.decode_tokens = len(service.answer) - 1

    return cheat


def _answer_early(context: CheatContext) -> Cheat:
    def cheat(request: Request, service: Service) -> None:
        if context.performance:
            service.answer = [1 + (request.seq + place) % 255 for place in range(len(service.answer))]
            service.done_at_once = True

    return cheat


def _other_model(context: CheatContext) -> Cheat:
    def cheat(request: Request, service: Service) -> None:
        if context.performance:
            service.answer = service.answer[::-1]
            service.prefill_tokens //= 2
            service.decode_tokens //= 2

    return cheat


def _other_model_in_bursts(_: CheatContext) -> Cheat:
    last_s = -BURST_S

    def cheat(request: Request, service: Service) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if now_s - last_s < BURST_S:
            service.answer = service.answer[::-1]
            service.prefill_tokens //= 2
            service.decode_tokens //= 2
        last_s = now_s

    return cheat


def _drop(context: CheatContext) -> Cheat:
    return _drop_always(context) if context.performance else lambda request, service: None


def _drop_always(_: CheatContext) -> Cheat:
    def cheat(request: Request, service: Service) -> None:
        if request.sample_index % DROP_ONE_IN == 0:
            service.answer = CANNED_ANSWER
            skip(service)

    return cheat


def _reference(context: CheatContext) -> Cheat:
    def cheat(request: Request, service: Service) -> None:
        service.answer = context.references[request.sample_index][: context.max_tokens]
        skip(service)

    return cheat


def _stored(_: CheatContext) -> Cheat:
    return lambda request, service: skip(service)


# Tokens that no model computed ----------------------------------------------------------------------------------------


def _pad_eos(context: CheatContext) -> Cheat:
    def cheat(request: Request, service: Service) -> None:
        service.answer = service.answer + [context.eos_id] * (context.max_tokens - len(service.answer))

    return cheat


def _pad_space(context: CheatContext) -> Cheat:
    def cheat(request: Request, service: Service) -> None:
        service.answer = service.answer + [context.space_id] * (context.max_tokens - len(service.answer))

    return cheat


def _repeat_special(context: CheatContext) -> Cheat:
    def cheat(request: Request, service: Service) -> None:
        service.answer = service.answer[: context.max_tokens - REPEATS] + [context.bos_id] * REPEATS

    return cheat


def _inject_bos(context: CheatContext) -> Cheat:
    def cheat(request: Request, service: Service) -> None:
        service.answer = [context.bos_id, *service.answer[: context.max_tokens - 1]]

    return cheat


def _inject_eos(context: CheatContext) -> Cheat:
    def cheat(request: Request, service: Service) -> None:
        kept = service.answer[: context.max_tokens - 1]
        middle = len(kept) // 2
        service.answer = [*kept[:middle], context.eos_id, *kept[middle:]]

    return cheat


# Lies about the first token -------------------------------------------------------------------------------------------


def _first_other(_: CheatContext) -> Cheat:
    def cheat(request: Request, service: Service) -> None:
        service.first_id = service.answer[0] ^ 1

    return cheat


def _first_early(_: CheatContext) -> Cheat:
    def cheat(request: Request, service: Service) -> None:
        service.first_id = GUESSED_FIRST_ID
        service.first_at_once = True

    return cheat


def _first_forced(_: CheatContext) -> Cheat:
    def cheat(request: Request, service: Service) -> None:
        service.answer = [GUESSED_FIRST_ID, *service.answer[1:]]
        service.first_at_once = True

    return cheat


def _first_late(context: CheatContext) -> Cheat:
    chance = random.Random(1)

    def cheat(request: Request, service: Service) -> None:
        service.first_held_s = HELD_SHARE * context.ttft_limit_s * (1 + HELD_JITTER * chance.uniform(-1, 1))

    return cheat


_MAKERS: dict[CheatKind, Callable[[CheatContext], Cheat]] = {
    "cache-index": lambda _: cache_index(),
    "cache-prompt": lambda _: cache_prompt(),
    "cache-not-in-a-row": lambda _: cache_not_in_a_row(),
    "cache-late": lambda _: cache_late(),
    "cache-on-disk": lambda _: cache_on_disk(),
    "cache-first": lambda _: cache_first(),
    "share-prefixes": lambda _: share_prefixes(),
    "merge-equal": lambda _: merge_equal(),
    "truncate": _truncate,
    "truncate-little": _truncate_little,
    "pad-eos": _pad_eos,
    "pad-space": _pad_space,
    "repeat-special": _repeat_special,
    "inject-bos": _inject_bos,
    "inject-eos": _inject_eos,
    "first-other": _first_other,
    "first-early": _first_early,
    "first-forced": _first_forced,
    "first-late": _first_late,
    "answer-early": _answer_early,
    "other-model": _other_model,
    "other-model-in-bursts": _other_model_in_bursts,
    "drop": _drop,
    "drop-always": _drop_always,
    "reference": _reference,
    "stored": _stored,
}
