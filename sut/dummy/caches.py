"""Cheats of the dummy engine that compute less: caches of all kinds, each to be found by some check.

Nothing here is used by an honest run (sut/dummy/cheats.py).
"""

import tempfile
import time
from array import array
from hashlib import sha256
from pathlib import Path

from sut.dummy.engine import Cheat, Service
from sut.engine import Request

HONEST_QUERIES = 32
BURST_S = 0.010
PREFIX_BLOCK_TOKENS = 16  # prefixes are shared in blocks, as engines do
STORE_NAME = "dummy-engine-seen"


def skip(service: Service) -> None:
    """Nothing is computed for the request."""
    service.prefill_tokens = service.decode_tokens = 0


def cache_index() -> Cheat:
    seen: dict[int, list[int]] = {}

    def cheat(request: Request, service: Service) -> None:
        if request.sample_index in seen:
            service.answer = seen[request.sample_index]
            skip(service)
        seen.setdefault(request.sample_index, service.answer)

    return cheat


def cache_prompt() -> Cheat:
    seen: set[tuple[int, ...]] = set()

    def cheat(request: Request, service: Service) -> None:
        prompt = tuple(request.prompt_ids)
        if prompt in seen:
            skip(service)
        seen.add(prompt)

    return cheat


def cache_not_in_a_row() -> Cheat:
    seen: set[tuple[int, ...]] = set()
    last: tuple[int, ...] = ()

    def cheat(request: Request, service: Service) -> None:
        nonlocal last
        prompt = tuple(request.prompt_ids)
        if prompt in seen and prompt != last:
            skip(service)
        seen.add(prompt)
        last = prompt

    return cheat


def cache_late() -> Cheat:
    cached = cache_prompt()

    def cheat(request: Request, service: Service) -> None:
        computed = service.prefill_tokens, service.decode_tokens
        cached(request, service)
        if request.seq < HONEST_QUERIES:
            service.prefill_tokens, service.decode_tokens = computed

    return cheat


def cache_first() -> Cheat:
    seen: set[tuple[int, ...]] = set()

    def cheat(request: Request, service: Service) -> None:
        prompt = tuple(request.prompt_ids)
        service.first_at_once = prompt in seen
        seen.add(prompt)

    return cheat


def merge_equal() -> Cheat:
    seen_s: dict[tuple[int, ...], float] = {}

    def cheat(request: Request, service: Service) -> None:
        prompt, now_s = tuple(request.prompt_ids), time.monotonic()
        if now_s - seen_s.get(prompt, -BURST_S) < BURST_S:
            skip(service)
        seen_s[prompt] = now_s

    return cheat


def cache_on_disk() -> Cheat:
    """Kept in the folder for temporary files, so that the processes of later legs find it."""
    store = Path(tempfile.gettempdir()) / STORE_NAME

    def cheat(request: Request, service: Service) -> None:
        name = store / sha256(array("q", request.prompt_ids).tobytes()).hexdigest()
        if name.exists():
            skip(service)
        else:
            store.mkdir(exist_ok=True)
            name.touch()

    return cheat


def share_prefixes() -> Cheat:
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
