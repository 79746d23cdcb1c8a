"""The dummy engine: equal responses to equal prompts, tokens in time, and each planted fault."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from runs.errors import ExecutionError, InputError, SetupError
from scenarios.launch.plan import prepare
from scenarios.launch.run_config import make_config
from sut.dummy.dummy_engine import DummyEngine
from sut.dummy.dummy_options import SHORTEST_OUTPUT
from sut.dummy.fault import FAULT_KINDS, Fault, FaultKind
from sut.engine import Request
from sut.engines import make_engine
from tests.support.engines.fakes import FakeSink
from tests.support.official import SAMPLING
from tests.support.simulated import virtual_time as virtual

PROMPT = [1, 2, *range(100, 160)]


def serve(engine: DummyEngine, *prompts: list[int]) -> list[FakeSink]:
    """Submit prompts as queries 0, 1, …, in virtual time. Return their sinks."""

    async def work() -> list[FakeSink]:
        await engine.start()
        sinks = [FakeSink() for _ in prompts]
        for seq, (sink, prompt) in enumerate(zip(sinks, prompts, strict=True)):
            engine.submit(Request(sink, prompt, seq=seq))
        await asyncio.sleep(1.0)
        await engine.stop()
        return sinks

    return virtual.run(work())


def engine_with_faults(*faults: str) -> DummyEngine:
    return DummyEngine(SAMPLING, ttft_ms=1, tpot_ms=0.01, faults=tuple(map(Fault.parse, faults)))


def test_a_response_is_a_part_of_the_prompt() -> None:
    engine = DummyEngine(SAMPLING, lead_tokens=2)
    response = engine.response(PROMPT)
    assert response == DummyEngine(SAMPLING, lead_tokens=2).response(list(PROMPT))
    assert response[:60] == PROMPT[2:62][: len(response)]
    assert SHORTEST_OUTPUT <= len(response) <= 128
    lengths = {len(engine.response([1, 2, number])) for number in range(200)}
    assert len(lengths) > 50  # honest counts differ between samples


def test_responses_have_the_requested_lengths() -> None:
    engine = DummyEngine(SAMPLING, shortest_tokens=120)
    assert {len(engine.response([1, 2, number])) for number in range(200)} == set(range(120, 129))
    short = SAMPLING.model_copy(update={"max_tokens": 5})
    assert DummyEngine(short, shortest_tokens=120, lead_tokens=9).response([7, 8]) == [7, 8, 7, 8, 7]


def test_the_first_token_is_reported_before_the_output() -> None:
    engine = DummyEngine(SAMPLING, ttft_ms=1, tpot_ms=0.01)
    before = engine.activity()
    (sink,) = serve(engine, PROMPT)
    response = engine.response(PROMPT)
    assert sink.events == [
        ("first", response[0]),
        ("done", (response, "length" if len(response) == 128 else "stop", 0)),
    ]
    assert engine.activity() == before + 2
    engine.check_alive()


@pytest.mark.parametrize(("slots", "turns"), [(0, [1, 1, 1, 1, 1]), (2, [1, 1, 2, 2, 3])])
def test_a_query_waits_for_a_slot_and_takes_its_computing_time(slots: int, turns: list[int]) -> None:
    costs = {"ttft_ms": 4.0, "tpot_ms": 0.5, "prefill_us": 100.0, "slots": slots}
    served = virtual.issue_all(lambda _: DummyEngine(SAMPLING, **costs), [PROMPT], "Server", [0] * 5, [0] * 5)
    first_ns = 4_000_000 + 100_000 * len(PROMPT)
    whole_ns = first_ns + 500_000 * (len(served[0].ids) - 1)
    assert sorted(response.complete_ns for response in served) == pytest.approx(
        [whole_ns * turn for turn in turns], abs=1000
    )
    assert [response.complete_ns - response.first_ns for response in served] == pytest.approx(
        [whole_ns - first_ns] * 5, abs=1000
    )


def test_dummy_options_are_set_on_the_engine(tmp_path: Path, make_dataset: Callable[..., Path]) -> None:
    options = {"scenario": "Offline", "engine": "dummy", "dataset_path": make_dataset([1, 2, 3], [1, 2, 4])}
    options["output_log_dir"] = tmp_path / "run"
    engine = make_engine(prepare(make_config({**options, "dummy_slots": 3, "dummy_prefill_us": 1.5})).plan)
    assert isinstance(engine, DummyEngine)
    assert (engine.slots, engine.prefill_us) == (3, 1.5)
    for option in ("dummy_slots", "dummy_prefill_us"):
        with pytest.raises(InputError, match=f"--{option.replace('_', '-')} -1"):
            make_config({**options, option: -1})


# Faults -------------------------------------------------------------------------------------------------------------


def test_each_fault_kind_is_documented() -> None:
    assert set(FAULT_KINDS) == set(get_args(FaultKind))
    for kind in FAULT_KINDS:
        assert Fault.parse(kind) == Fault(kind, 0)
        assert Fault.parse(f"{kind}@12") == Fault(kind, 12)


GOOD = ["first", "done"]


@pytest.mark.parametrize(
    ("faults", "kinds"),
    [
        (["fail@1"], [GOOD, ["failed"]]),
        (["die@1"], [[], [], []]),
        (["swallow@1"], [GOOD, []]),
        (["twice"], [["first", "done", "done"]]),
        (["empty"], [["done"]]),
        (["empty@1", "swallow@2"], [GOOD, ["done"], []]),
        (["raise@3"], [GOOD]),
    ],
    ids=str,
)
def test_each_fault_affects_its_queries(faults: list[str], kinds: list[list[str]]) -> None:
    engine = engine_with_faults(*faults)
    sinks = serve(engine, *[PROMPT] * len(kinds))
    assert [[kind for kind, _ in sink.events] for sink in sinks] == kinds
    for sink, expected in zip(sinks, kinds, strict=True):
        if expected == ["failed"]:
            assert "query 1 failed" in str(sink.events[0][1])
        if expected == ["done"]:
            assert sink.events == [("done", ([], "stop", 0))]
    if "die@1" in faults:
        with pytest.raises(ExecutionError, match="died"):
            engine.check_alive()


def test_faults_raise_their_errors() -> None:
    with pytest.raises(SetupError, match="not to start"):
        asyncio.run(engine_with_faults("start").start())
    with pytest.raises(RuntimeError, match="raised at query 1"):
        serve(engine_with_faults("raise@1"), PROMPT, PROMPT)
    for text in ("", "Die", "die@-1", "die@1.5", "@3"):
        with pytest.raises(InputError, match=f"^--dummy-fault {text}: "):
            Fault.parse(text)


def test_noise_changes_the_speed_of_runs_and_of_requests() -> None:
    def times(noise: float, seed: int | None) -> list[float]:
        engine = DummyEngine(SAMPLING, ttft_ms=10, tpot_ms=0, slots=1, noise=noise, seed=seed)
        ends: list[float] = []

        async def work() -> None:
            await engine.start()
            ends.extend(engine._book(engine.slowness(), 0)[1] for _ in range(400))

        virtual.run(work())
        return [later - before for before, later in zip([0.0, *ends], ends, strict=False)]

    assert set(map(round, times(0.0, None))) == {1}
    first, again, reseeded = times(0.05, 1), times(0.05, 1), times(0.05, 2)
    assert first == again
    assert abs(sum(first) - sum(reseeded)) > 1  # the speed of the run
    mean = sum(first) / len(first)
    assert 0.04 < (sum((value / mean - 1) ** 2 for value in first) / len(first)) ** 0.5 < 0.06
