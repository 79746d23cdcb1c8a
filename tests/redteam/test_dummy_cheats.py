"""Each cheat of the dummy engine does what it says, and the honest dummy's costs are those of what it computes."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from sut.dummy.engine import DummyEngine
from sut.engine import EngineLimits, Request
from sut.feed import Feed
from tests.support.cheats import (
    BURST_S,
    CANNED_ANSWER,
    CHEAT_KINDS,
    GUESSED_FIRST_ID,
    HONEST_QUERIES,
    OVERCOUNT_TOKENS,
    STORE,
    CheatContext,
    CheatingEngine,
    OvercountingSut,
    Service,
    make_cheat,
)
from tests.support.fakes import FakeLoadgen, FakeRecorder, Sample
from tests.support.official import SAMPLING
from tests.support.virtual import JumpingLoop

BOS, EOS, SPACE, LONGEST = 256, 257, 32, 128
ANSWER = list(range(10, 60))
PROMPTS = {0: [*range(100, 148), 1], 1: [*range(100, 148), 2], 2: [*range(50, 99)]}


class NoSink:
    """For requests that never reach an engine."""

    def first_token(self, request: Request, token_id: int) -> None: ...

    def complete(self, request: Request, token_ids: list[int], finish_reason: str, cached_tokens: int) -> None: ...

    def failed(self, request: Request, error: BaseException) -> None: ...


def served(
    kind: str, *samples: int, performance: bool = True, now_s: Callable[[], float] = time.monotonic
) -> list[Service]:
    """What a cheat makes of requests for samples, one after the other."""
    context = CheatContext(performance, BOS, EOS, SPACE, LONGEST, references=[[7] * 5, [8] * 200, [9]], now_s=now_s)
    cheat = make_cheat(kind, context)
    services = []
    for seq, sample in enumerate(samples):
        service = Service(list(ANSWER), len(PROMPTS[sample]), len(ANSWER) - 1)
        cheat(Request(NoSink(), PROMPTS[sample], seq=seq, sample_index=sample), service)
        services.append(service)
    return services


def costs(services: Sequence[Service]) -> list[int]:
    return [service.prefill_tokens + service.decode_tokens for service in services]


FULL = 49 + 49  # prompt tokens, output tokens after the first


def test_every_kind_is_described_and_made() -> None:
    context = CheatContext(True, BOS, EOS, SPACE, LONGEST)
    for kind in CHEAT_KINDS:
        assert callable(make_cheat(kind, context))
        assert CHEAT_KINDS[kind]


@pytest.mark.parametrize("kind", ["cache-index", "cache-prompt"])
def test_caches(kind: str) -> None:
    services = served(kind, 0, 1, 0, 0, 2)
    assert costs(services) == [FULL, FULL, 0, 0, FULL]
    assert all(service.answer == ANSWER for service in services)


def test_cache_that_hides_from_repetition() -> None:
    assert costs(served("cache-not-in-a-row", 0, 0, 0, 1, 0)) == [FULL, FULL, FULL, FULL, 0]


def test_shared_prefixes() -> None:
    # 48 of 49 ids are whole blocks of 16; the last id is always computed.
    services = served("share-prefixes", 0, 1, 0, 2)
    assert [service.prefill_tokens for service in services] == [49, 1, 1, 49]
    assert [service.decode_tokens for service in services] == [49] * 4


@pytest.mark.parametrize("kind", ["truncate", "answer-early", "other-model", "drop"])
def test_cheats_in_performance_legs_only(kind: str) -> None:
    assert served(kind, 0)[0].answer != ANSWER
    assert served(kind, 0, performance=False) == [Service(ANSWER, 49, 49)]


def test_cache_after_some_honest_queries() -> None:
    services = served("cache-late", *[0] * HONEST_QUERIES, 0, 1)
    assert costs(services) == [FULL] * HONEST_QUERIES + [0, FULL]


def test_a_cache_that_a_later_process_finds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(STORE, str(tmp_path / "store"))
    assert costs(served("cache-on-disk", 0, 1, 0)) == [FULL, FULL, 0]
    assert costs(served("cache-on-disk", 0, 2)) == [0, FULL]


def test_first_tokens_from_a_cache() -> None:
    services = served("cache-first", 0, 1, 0)
    assert [service.first_at_once for service in services] == [False, False, True]
    assert costs(services) == [FULL] * 3
    assert all(service.answer == ANSWER for service in services)


def clock(step_s: float) -> Callable[[], float]:
    """Each look at it is `step_s` later."""
    times = count(1)
    return lambda: next(times) * step_s


@pytest.mark.parametrize(("step_s", "later"), [(BURST_S / 100, 0), (BURST_S * 2, FULL)])
def test_equal_prompts_are_merged_within_a_burst(step_s: float, later: int) -> None:
    assert costs(served("merge-equal", 0, 1, 0, now_s=clock(step_s))) == [FULL, FULL, later]


@pytest.mark.parametrize(("step_s", "later"), [(BURST_S / 100, ANSWER[::-1]), (BURST_S * 2, ANSWER)])
def test_another_model_in_bursts(step_s: float, later: list[int]) -> None:
    assert [service.answer for service in served("other-model-in-bursts", 0, 1, now_s=clock(step_s))] == [ANSWER, later]


def test_stored() -> None:
    assert served("stored", 0) == [Service(ANSWER, 0, 0)]


def test_truncate_little() -> None:
    (service,) = served("truncate-little", 0)
    assert (service.answer, service.decode_tokens) == (ANSWER[:46], 45)
    assert served("truncate-little", 0, performance=False) == [Service(ANSWER, 49, 49)]


def test_truncate() -> None:
    (service,) = served("truncate", 0)
    assert (service.answer, service.decode_tokens) == (ANSWER[:25], 24)


def test_answer_early() -> None:
    first, second = served("answer-early", 0, 0)
    assert first.done_at_once
    assert costs([first]) == [FULL]
    assert len(first.answer) == len(ANSWER)
    assert first.answer != second.answer


def test_other_model() -> None:
    (service,) = served("other-model", 0)
    assert len(service.answer) == len(ANSWER)
    assert costs([service]) == [24 + 24]


@pytest.mark.parametrize("performance", [True, False])
def test_drop_always(performance: bool) -> None:
    dropped, answered = served("drop-always", 0, 1, performance=performance)
    assert (dropped.answer, costs([dropped])) == (CANNED_ANSWER, [0])
    assert answered == Service(ANSWER, 49, 49)


def test_reference() -> None:
    assert [service.answer for service in served("reference", 0, 1)] == [[7] * 5, [8] * LONGEST]


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("pad-eos", [*ANSWER, *[EOS] * 78]),
        ("pad-space", [*ANSWER, *[SPACE] * 78]),
        ("repeat-special", [*ANSWER, *[BOS] * 8]),
        ("inject-bos", [BOS, *ANSWER]),
        ("inject-eos", [*ANSWER[:25], EOS, *ANSWER[25:]]),
    ],
)
def test_special_ids(kind: str, answer: list[int]) -> None:
    assert served(kind, 0) == [Service(answer, 49, 49)]


def test_lies_about_the_first_token() -> None:
    (other,), (early,), (forced,) = served("first-other", 0), served("first-early", 0), served("first-forced", 0)
    assert other.first_id not in (None, ANSWER[0])
    assert not other.first_at_once
    assert (early.first_id, early.first_at_once, early.answer) == (GUESSED_FIRST_ID, True, ANSWER)
    assert (forced.first_at_once, forced.answer) == (True, [GUESSED_FIRST_ID, *ANSWER[1:]])


# The engine -----------------------------------------------------------------------------------------------------------


@dataclass
class TimedSink:
    """Notes when what arrived, in seconds of the event loop."""

    first: float = -1.0
    done: float = -1.0
    first_id: int = -1
    ids: list[int] = field(default_factory=list)

    def first_token(self, request: Request, token_id: int) -> None:
        self.first, self.first_id = asyncio.get_running_loop().time(), token_id

    def complete(self, request: Request, token_ids: list[int], finish_reason: str, cached_tokens: int) -> None:
        self.done, self.ids = asyncio.get_running_loop().time(), token_ids

    def failed(self, request: Request, error: BaseException) -> None:
        raise error


def engine_of(kind: str, **options: Any) -> DummyEngine:
    """One that cheats; the honest one for ''."""
    if not kind:
        return DummyEngine(SAMPLING, **options)
    return CheatingEngine(SAMPLING, cheat=make_cheat(kind, CheatContext(True, BOS, EOS, SPACE, LONGEST)), **options)


def run_engine(prompts: list[list[int]], kind: str = "", **options: Any) -> list[TimedSink]:
    """Serve prompts submitted at once; times count from the submission and are exact: the loop's clock is replaced
    by one that jumps from timer to timer."""

    async def work() -> list[TimedSink]:
        engine = engine_of(kind, **options)
        await engine.start()
        sinks = [TimedSink() for _ in prompts]
        for seq, (sink, prompt) in enumerate(zip(sinks, prompts, strict=True)):
            engine.submit(Request(sink, prompt, seq=seq, sample_index=seq))
        while any(sink.done < 0 for sink in sinks):
            await asyncio.sleep(0.001)
        return sinks

    loop = JumpingLoop()
    try:
        return loop.run_until_complete(work())
    finally:
        loop.close()


PROMPT = list(range(100, 200))
MODEL: dict[str, Any] = {"ttft_ms": 4.0, "tpot_ms": 0.5, "prefill_us": 100.0}
LENGTH = len(DummyEngine(SAMPLING).answer(PROMPT))
FIRST_S = 0.004 + 0.0001 * len(PROMPT)
WHOLE_S = FIRST_S + 0.0005 * (LENGTH - 1)


def near(seconds: float) -> Any:
    return pytest.approx(seconds, abs=1e-6)


def test_time_is_paid_for_prompt_and_output() -> None:
    (sink,) = run_engine([PROMPT], **MODEL)
    assert (sink.first, sink.done) == (near(FIRST_S), near(WHOLE_S))


def test_slots() -> None:
    sinks = run_engine([PROMPT] * 5, slots=2, **MODEL)
    assert [sink.done for sink in sinks] == [near(WHOLE_S * turn) for turn in (1, 1, 2, 2, 3)]
    assert [sink.done for sink in run_engine([PROMPT] * 5, **MODEL)] == [near(WHOLE_S)] * 5


def test_a_cheat_changes_no_time_but_its_own() -> None:
    honest = run_engine([PROMPT] * 3, slots=1, **MODEL)
    padded = run_engine([PROMPT] * 3, "pad-eos", slots=1, **MODEL)
    assert [sink.done for sink in padded] == [near(sink.done) for sink in honest]
    assert len(padded[0].ids) == LONGEST


def test_caching_pays() -> None:
    sinks = run_engine([PROMPT] * 4, "cache-prompt", slots=1, **MODEL)
    assert [sink.done for sink in sinks] == [near(WHOLE_S)] * 4


def test_early_first_token() -> None:
    (sink,) = run_engine([PROMPT], "first-early", **MODEL)
    assert (sink.first, sink.first_id, sink.done) == (near(0), GUESSED_FIRST_ID, near(WHOLE_S))
    assert sink.ids[0] != GUESSED_FIRST_ID


def test_early_answer_still_costs_the_slot() -> None:
    early, waiting = run_engine([PROMPT] * 2, "answer-early", slots=1, **MODEL)
    assert (early.done, waiting.done) == (near(0), near(0))

    async def work() -> float:
        engine = engine_of("answer-early", slots=1, **MODEL)
        await engine.start()
        engine.submit(Request(TimedSink(), PROMPT, seq=0, sample_index=0))
        late = TimedSink()
        engine.submit(Request(late, PROMPT))  # a warm-up: served honestly, behind the computation that follows
        while late.done < 0:
            await asyncio.sleep(0.001)
        return late.done

    loop = JumpingLoop()
    assert loop.run_until_complete(work()) == near(2 * WHOLE_S)
    loop.close()


def test_overcounting_sut() -> None:
    loadgen, recorder = FakeLoadgen(), FakeRecorder()
    loop = asyncio.new_event_loop()
    failures: list[BaseException] = []
    engine = DummyEngine(SAMPLING)
    sut = OvercountingSut(
        loadgen,
        loop,
        engine,
        lambda index: PROMPT,
        recorder,  # type: ignore[arg-type]
        report_first_token=True,
        on_failure=failures.append,
        admission=Feed(EngineLimits()),
    )

    async def work() -> None:
        await engine.start()
        sut.issue_queries([Sample(1, 0)])
        while not sut.completed:
            await asyncio.sleep(0.001)

    loop.run_until_complete(work())
    loop.close()
    assert failures == []
    (_, _, first_ids, first_count), (_, _, ids, count) = loadgen.calls
    assert (len(first_ids), first_count) == (1, 1)
    assert (len(ids), count) == (LENGTH, LENGTH + OVERCOUNT_TOKENS)
