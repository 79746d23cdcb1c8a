"""Each cheat of the dummy engine does what it says, and the honest dummy's costs are those of what it computes."""

import asyncio
import time
from collections.abc import Callable
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
FULL, HALF = 49 + 49, 24 + 24  # prompt tokens, output tokens after the first


@dataclass
class Sink:
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


def served(
    kind: str, *samples: int, performance: bool = True, now_s: Callable[[], float] = time.monotonic
) -> list[Service]:
    """What a cheat makes of requests for samples, one after the other."""
    context = CheatContext(performance, BOS, EOS, SPACE, LONGEST, references=[[7] * 5, [8] * 200, [9]], now_s=now_s)
    cheat = make_cheat(kind, context)
    services = []
    for seq, sample in enumerate(samples):
        services.append(Service(list(ANSWER), len(PROMPTS[sample]), len(ANSWER) - 1))
        cheat(Request(Sink(), PROMPTS[sample], seq=seq, sample_index=sample), services[-1])
    return services


def costs(services: list[Service]) -> list[int]:
    return [service.prefill_tokens + service.decode_tokens for service in services]


@pytest.mark.parametrize(
    ("kind", "samples", "cost"),
    [
        ("cache-index", (0, 1, 0, 0, 2), [FULL, FULL, 0, 0, FULL]),
        ("cache-prompt", (0, 1, 0, 0, 2), [FULL, FULL, 0, 0, FULL]),
        ("cache-not-in-a-row", (0, 0, 0, 1, 0), [FULL, FULL, FULL, FULL, 0]),
        ("cache-late", (*[0] * HONEST_QUERIES, 0, 1), [FULL] * HONEST_QUERIES + [0, FULL]),
        ("cache-first", (0, 1, 0), [FULL] * 3),
        # 48 of 49 ids are whole blocks of 16; the last id is always computed.
        ("share-prefixes", (0, 1, 0, 2), [FULL, FULL - 48, FULL - 48, FULL]),
        ("stored", (0,), [0]),
    ],
)
def test_what_is_not_computed(kind: str, samples: tuple[int, ...], cost: list[int]) -> None:
    services = served(kind, *samples)
    assert costs(services) == cost
    assert all(service.answer == ANSWER for service in services)
    assert [service.first_at_once for service in services] == [
        kind == "cache-first" and i > 1 for i in range(len(cost))
    ]


def test_a_cache_that_a_later_process_finds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(STORE, str(tmp_path / "store"))
    assert costs(served("cache-on-disk", 0, 1, 0)) == [FULL, FULL, 0]
    assert costs(served("cache-on-disk", 0, 2)) == [0, FULL]


@pytest.mark.parametrize("burst", [True, False])
def test_within_a_burst(burst: bool) -> None:
    """Each look at the clock is later, by much less than a burst or by two."""
    step_s = BURST_S / 100 if burst else BURST_S * 2

    def clock() -> Callable[[], float]:
        times = count(1)
        return lambda: next(times) * step_s

    assert costs(served("merge-equal", 0, 1, 0, now_s=clock())) == [FULL, FULL, 0 if burst else FULL]
    answers = [service.answer for service in served("other-model-in-bursts", 0, 1, now_s=clock())]
    assert answers == [ANSWER, ANSWER[::-1] if burst else ANSWER]


@pytest.mark.parametrize(
    ("kind", "answer", "cost", "always"),
    [
        ("truncate", ANSWER[:25], 49 + 24, False),
        ("truncate-little", ANSWER[:46], 49 + 45, False),
        ("other-model", ANSWER[::-1], HALF, False),
        ("drop", CANNED_ANSWER, 0, False),
        ("drop-always", CANNED_ANSWER, 0, True),
        ("pad-eos", [*ANSWER, *[EOS] * 78], FULL, True),
        ("pad-space", [*ANSWER, *[SPACE] * 78], FULL, True),
        ("repeat-special", [*ANSWER, *[BOS] * 8], FULL, True),
        ("inject-bos", [BOS, *ANSWER], FULL, True),
        ("inject-eos", [*ANSWER[:25], EOS, *ANSWER[25:]], FULL, True),
    ],
)
def test_other_answers(kind: str, answer: list[int], cost: int, always: bool) -> None:
    (service,) = served(kind, 0)
    assert (service.answer, costs([service])) == (answer, [cost])
    assert served(kind, 0, performance=False) == ([service] if always else [Service(ANSWER, 49, 49)])


def test_reference() -> None:
    assert [service.answer for service in served("reference", 0, 1)] == [[7] * 5, [8] * LONGEST]


def test_lies_about_the_first_token() -> None:
    (other,), (early,), (forced,) = served("first-other", 0), served("first-early", 0), served("first-forced", 0)
    assert other.first_id not in (None, ANSWER[0])
    assert not other.first_at_once
    assert (early.first_id, early.first_at_once, early.answer) == (GUESSED_FIRST_ID, True, ANSWER)
    assert (forced.first_at_once, forced.answer) == (True, [GUESSED_FIRST_ID, *ANSWER[1:]])


# The engine -----------------------------------------------------------------------------------------------------------


def run_engine(prompts: list[list[int]], kind: str = "", **options: Any) -> list[Sink]:
    """Serve prompts submitted at once; times count from the submission and are exact: the loop's clock is replaced
    by one that jumps from timer to timer."""

    async def work() -> list[Sink]:
        cheat = make_cheat(kind, CheatContext(True, BOS, EOS, SPACE, LONGEST)) if kind else None
        engine = CheatingEngine(SAMPLING, cheat=cheat, **options) if cheat else DummyEngine(SAMPLING, **options)
        await engine.start()
        sinks = [Sink() for _ in prompts]
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


def near(*seconds: float) -> Any:
    return pytest.approx(seconds, abs=1e-6)


def test_time_is_paid_for_prompt_and_output() -> None:
    (sink,) = run_engine([PROMPT], **MODEL)
    assert (sink.first, sink.done) == near(FIRST_S, WHOLE_S)


def test_slots() -> None:
    sinks = run_engine([PROMPT] * 5, slots=2, **MODEL)
    assert [sink.done for sink in sinks] == near(*(WHOLE_S * turn for turn in (1, 1, 2, 2, 3)))
    assert [sink.done for sink in run_engine([PROMPT] * 5, **MODEL)] == near(*[WHOLE_S] * 5)


@pytest.mark.parametrize(
    ("kind", "first_s", "done_s"),
    [
        ("pad-eos", [FIRST_S, WHOLE_S + FIRST_S], [WHOLE_S, 2 * WHOLE_S]),  # no time but its own
        ("cache-prompt", [FIRST_S, WHOLE_S], [WHOLE_S, WHOLE_S]),
        ("first-early", [0, 0], [WHOLE_S, 2 * WHOLE_S]),
        ("answer-early", [0, 0], [0, 0]),
    ],
)
def test_times_of_a_cheat(kind: str, first_s: list[float], done_s: list[float]) -> None:
    sinks = run_engine([PROMPT] * 2, kind, slots=1, **MODEL)
    assert [sink.first for sink in sinks] == near(*first_s)
    assert [sink.done for sink in sinks] == near(*done_s)
    assert sinks[0].ids[:1] == [sinks[0].first_id] or kind == "first-early"


def test_overcounting_sut() -> None:
    loadgen, recorder, engine = FakeLoadgen(), FakeRecorder(), DummyEngine(SAMPLING)
    loop = asyncio.new_event_loop()
    failures: list[BaseException] = []
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
