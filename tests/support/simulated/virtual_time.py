"""Runs in virtual time: the system under test and an engine on a loop whose clock jumps from timer to timer.

A driver issues queries as LoadGen would, by the replay of its seeds (`runs/loadgen/schedule.py`). Minutes of real time
take milliseconds here, and the load of the host has no effect. tests/runs/loadgen compares the replay with LoadGen;
tests/redteam compares the verdicts of both drivers.
"""

import asyncio
import ctypes
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from runs.loadgen.schedule import OrderSettings, issue_order, poisson_offsets_ns, shuffled_library
from runs.rounds import CURRENT_ROUND
from sut.dummy.dummy_engine import DummyEngine
from sut.feed import AdmissionControl, Feed
from sut.loadgen_sut import LoadgenSut
from tests.support.engines.fakes import FakeRequestLog, FakeResponse, FakeSample

SEEDS = CURRENT_ROUND.seeds
T = TypeVar("T")


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still while it works, and jumps to the next timer instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        select = self._selector.select  # type: ignore[attr-defined]

        def jump(timeout: float | None = None) -> Any:
            self._now += timeout or 0.0
            return select(0)

        self._selector.select = jump  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._now


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine as `asyncio.run` does, in virtual time."""
    loop = JumpingLoop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


@dataclass
class Answered:
    """One completed query, with times in ns from the start of the test."""

    seq: int
    sample_index: int
    issue_ns: int
    first_ns: int = 0
    complete_ns: int = 0
    first_ids: list[int] = field(default_factory=list)  # reported
    ids: list[int] = field(default_factory=list)
    count: int = 0  # tokens, as reported to LoadGen

    @property
    def ttft_ns(self) -> int:
        return self.first_ns - self.issue_ns

    @property
    def latency_ns(self) -> int:
        return self.complete_ns - self.issue_ns


@dataclass(eq=False)
class VirtualLoadgen:
    """LoadGen's calls and its issuing: all at once, by a schedule, or each query after the previous response."""

    scenario: str  # name of LoadGen: Offline, Server, SingleStream
    order: Sequence[int]  # sample indexes in the order of issue
    offsets_ns: Sequence[int]  # Server: issue times
    loop: JumpingLoop
    QuerySampleResponse = FakeResponse

    def __post_init__(self) -> None:
        self.answered: list[Answered] = []
        self._open = len(self.order)
        self._done = self.loop.create_future()
        self._issue: Callable[[list[FakeSample]], None] = lambda _: None

    def now_ns(self) -> int:
        return round(self.loop.time() * 1e9)

    async def run(self, issue: Callable[[list[FakeSample]], None]) -> None:
        """Issue all queries. Return after the last response."""
        self._issue = issue
        if self.scenario == "Offline":
            self._send(range(len(self.order)))
        elif self.scenario == "SingleStream":
            self._send([0])
        else:
            for seq, offset_ns in enumerate(self.offsets_ns):
                self.loop.call_at(offset_ns / 1e9, self._send, [seq])
        await self._done

    def _send(self, numbers: Sequence[int]) -> None:
        self.answered += [Answered(seq, int(self.order[seq]), self.now_ns()) for seq in numbers]
        self._issue([FakeSample(seq + 1, int(self.order[seq])) for seq in numbers])  # a handle is never 0

    def FirstTokenComplete(self, responses: list[FakeResponse]) -> None:
        for response in responses:
            sample = self.answered[response.id - 1]
            sample.first_ns, sample.first_ids = self.now_ns(), _ids(response)

    def QuerySamplesComplete(self, responses: list[FakeResponse]) -> None:
        for response in responses:
            sample = self.answered[response.id - 1]
            sample.complete_ns, sample.ids, sample.count = self.now_ns(), _ids(response), response.n_tokens
        self._open -= len(responses)
        if not self._open:
            self._done.set_result(None)
        elif self.scenario == "SingleStream":
            self._send([len(self.answered)])


def _ids(response: FakeResponse) -> list[int]:
    return list(memoryview(ctypes.string_at(response.data, response.size)).cast("i"))


def issue_all(
    make_engine: Callable[[JumpingLoop], DummyEngine],
    prompts: Sequence[list[int]],
    scenario: str,
    order: Sequence[int],
    offsets_ns: Sequence[int] = (),
    admission: Callable[[JumpingLoop], AdmissionControl] | None = None,
) -> list[Answered]:
    """Issue all queries through the system under test and an engine. Return the responses by the order of issue.

    Raises:
        BaseException: The reported cause of a failure.
    """
    loop = JumpingLoop()
    loadgen = VirtualLoadgen(scenario, order, offsets_ns, loop)
    engine = make_engine(loop)

    async def run() -> None:
        report = await engine.start()
        failed = loop.create_future()
        sut = LoadgenSut(
            loadgen,
            loop,
            engine,
            prompts.__getitem__,
            FakeRequestLog(),  # type: ignore[arg-type]  # the one method that is used
            report_first_token=scenario != "Offline",
            on_failure=failed.set_exception,
            admission=admission(loop) if admission else Feed(report.limits),
            clock_ns=loadgen.now_ns,
        )
        issuing = asyncio.ensure_future(loadgen.run(sut.issue_queries))
        await asyncio.wait((issuing, failed), return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            issuing.cancel()
            failed.result()

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
    return loadgen.answered


def issue_order_of(
    scenario: str,
    total: int,
    count: int,
    *,
    accuracy: bool = False,
    set_size: int | None = None,
    permutation: bool = True,
    unique: bool = False,
    same_index: int | None = None,
) -> tuple[list[int], list[int]]:
    """Return the samples that LoadGen loads and their order of issue.

    Args:
        total: Samples of the library.
        count: Issued samples; an accuracy run issues each once.
    """
    size = total if accuracy else set_size or total
    loaded = shuffled_library(SEEDS.qsl_rng_seed, size)
    settings = OrderSettings(
        scenario, accuracy, SEEDS.sample_index_rng_seed, 1 if scenario == "Offline" else count, permutation, unique,
        same_index is not None, same_index or 0,
    )  # fmt: skip
    return loaded.tolist(), issue_order(loaded, len(loaded) if accuracy else count, settings).tolist()


def schedule_ns(target_qps: float, count: int) -> list[int]:
    """Return the times at which LoadGen issues the queries of a Server run."""
    return poisson_offsets_ns(SEEDS.schedule_rng_seed, target_qps, count).tolist()
