"""Ways of cheating for the dummy engine, one switch each, to prove which check catches which (docs/red-team.md).

Nothing here is used by an honest run. Each cheat changes what the engine computes for a request, or what it says.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, get_args

from runs.errors import InputError
from sut.dummy_engine import Cheat, Service
from sut.engine import Request
from sut.loadgen_sut import LoadgenSut

CheatKind = Literal[
    "cache-index",
    "cache-prompt",
    "cache-not-in-a-row",
    "share-prefixes",
    "truncate",
    "pad-eos",
    "pad-space",
    "repeat-special",
    "inject-bos",
    "inject-eos",
    "overcount",
    "first-other",
    "first-early",
    "first-forced",
    "answer-early",
    "other-model",
    "drop",
    "drop-always",
    "reference",
]
CHEAT_KINDS: dict[CheatKind, str] = {
    "cache-index": "answers a sample index that it has seen from a cache",
    "cache-prompt": "answers a prompt that it has seen from a cache",
    "cache-not-in-a-row": "as cache-prompt, but computes a prompt again that comes twice in a row",
    "share-prefixes": "computes only the part of a prompt that no earlier prompt began with",
    "truncate": "stops at half of the output in performance legs",
    "pad-eos": "fills the output up with end-of-sequence ids",
    "pad-space": "fills the output up with blanks, which scoring strips",
    "repeat-special": "ends the output with a begin-of-sequence id, eight times",
    "inject-bos": "begins the output with a begin-of-sequence id",
    "inject-eos": "puts an end-of-sequence id into the middle of the output",
    "overcount": "tells LoadGen of more tokens than it returns",
    "first-other": "reports another first token than the output's",
    "first-early": "reports a guessed first token before the prompt is computed",
    "first-forced": "as first-early, and puts the guess into the output",
    "answer-early": "answers with made-up ids at once and computes later, in performance legs",
    "other-model": "uses a smaller model in performance legs",
    "drop": "answers every fourth sample with a canned text in performance legs",
    "drop-always": "answers every fourth sample with a canned text in all legs",
    "reference": "answers with the data set's reference text",
}
CANNED_ANSWER = list(b"The article reports on recent events and the people involved in them.")
GUESSED_FIRST_ID = 1
DROP_ONE_IN = 4
REPEATS = 8
OVERCOUNT_TOKENS = 16
PREFIX_BLOCK_TOKENS = 16  # prefixes are shared in blocks, as engines do


@dataclass(frozen=True)
class CheatContext:
    """What cheats may know. `references`: ids of the reference texts by sample index, for `reference` alone."""

    performance: bool
    bos_id: int
    eos_id: int
    space_id: int
    max_tokens: int
    references: list[list[int]] = field(default_factory=list)


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


def _skip(service: Service) -> None:
    service.prefill_tokens = service.decode_tokens = 0


def _cache_index(_: CheatContext) -> Cheat:
    seen: dict[int, list[int]] = {}

    def cheat(request: Request, service: Service) -> None:
        if request.sample_index in seen:
            service.answer = seen[request.sample_index]
            _skip(service)
        seen.setdefault(request.sample_index, service.answer)

    return cheat


def _cache_prompt(_: CheatContext) -> Cheat:
    seen: set[tuple[int, ...]] = set()

    def cheat(request: Request, service: Service) -> None:
        prompt = tuple(request.prompt_ids)
        if prompt in seen:
            _skip(service)
        seen.add(prompt)

    return cheat


def _cache_not_in_a_row(_: CheatContext) -> Cheat:
    seen: set[tuple[int, ...]] = set()
    last: tuple[int, ...] = ()

    def cheat(request: Request, service: Service) -> None:
        nonlocal last
        prompt = tuple(request.prompt_ids)
        if prompt in seen and prompt != last:
            _skip(service)
        seen.add(prompt)
        last = prompt

    return cheat


def _share_prefixes(_: CheatContext) -> Cheat:
    seen: set[int] = set()  # hashes of all prefixes of whole blocks

    def cheat(request: Request, service: Service) -> None:
        known, prefix = 0, 0
        for end in range(PREFIX_BLOCK_TOKENS, len(request.prompt_ids), PREFIX_BLOCK_TOKENS):
            prefix = hash((prefix, *request.prompt_ids[end - PREFIX_BLOCK_TOKENS : end]))
            if prefix in seen:
                known = end
            seen.add(prefix)
        service.prefill_tokens -= known

    return cheat


def _truncate(context: CheatContext) -> Cheat:
    def cheat(request: Request, service: Service) -> None:
        if context.performance:
            service.answer = service.answer[: max(2, len(service.answer) // 2)]
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


def _drop(context: CheatContext) -> Cheat:
    return _drop_always(context) if context.performance else lambda request, service: None


def _drop_always(_: CheatContext) -> Cheat:
    def cheat(request: Request, service: Service) -> None:
        if request.sample_index % DROP_ONE_IN == 0:
            service.answer = CANNED_ANSWER
            _skip(service)

    return cheat


def _reference(context: CheatContext) -> Cheat:
    def cheat(request: Request, service: Service) -> None:
        service.answer = context.references[request.sample_index][: context.max_tokens]
        _skip(service)

    return cheat


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


_MAKERS: dict[CheatKind, Callable[[CheatContext], Cheat]] = {
    "cache-index": _cache_index,
    "cache-prompt": _cache_prompt,
    "cache-not-in-a-row": _cache_not_in_a_row,
    "share-prefixes": _share_prefixes,
    "truncate": _truncate,
    "pad-eos": _pad_eos,
    "pad-space": _pad_space,
    "repeat-special": _repeat_special,
    "inject-bos": _inject_bos,
    "inject-eos": _inject_eos,
    "first-other": _first_other,
    "first-early": _first_early,
    "first-forced": _first_forced,
    "answer-early": _answer_early,
    "other-model": _other_model,
    "drop": _drop,
    "drop-always": _drop_always,
    "reference": _reference,
}
