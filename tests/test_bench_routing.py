"""The simulation of many replicas behaves as queues do, and its engine model finds the costs it was made of."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from runs.errors import ExecutionError
from scripts.bench.simulation import POLICIES, Policy, Simulation, highest_rate, offline_rate, simulate
from scripts.bench.tools.step_model import Step, StepModel, StepReader, fit, read_steps

MODEL = StepModel(fixed_s=0.006, per_query_s=20e-6, per_token_s=35e-6)
FOUR = Simulation(4, MODEL, 2_048, 256, 2.0, 0.1, seconds=10.0)


def test_a_query_alone_takes_its_own_steps() -> None:
    served = simulate(dataclasses.replace(FOUR, seconds=200.0), "prefill", 0.05)
    tokens = (served.ttft_s - MODEL.fixed_s) / MODEL.per_token_s
    fits = tokens <= FOUR.step_tokens  # in one step
    assert fits.any()
    assert np.allclose(tokens[fits], tokens[fits].round())
    assert np.allclose(served.tpot_s, MODEL.fixed_s + MODEL.per_query_s)


@pytest.mark.parametrize("policy", POLICIES)
def test_more_load_waits_longer_and_every_query_is_served_once(policy: Policy) -> None:
    slow, fast = (simulate(FOUR, policy, share * offline_rate(FOUR)) for share in (0.5, 1.3))
    assert len(slow.ttft_s) == int(0.5 * offline_rate(FOUR) * FOUR.seconds)
    assert (slow.ttft_s > 0).all()
    assert (slow.tpot_s >= MODEL.fixed_s).all()
    assert fast.p99()[0] > slow.p99()[0]
    assert set(slow.replica) == {0, 1, 2, 3}


def test_the_highest_rate_grows_with_the_replicas_and_is_below_what_they_compute() -> None:
    long = dataclasses.replace(FOUR, seconds=60.0)  # a short overload is over before it is too late
    rate = highest_rate(long, "prefill")
    assert 0.5 * offline_rate(FOUR) < rate < 1.1 * offline_rate(FOUR)
    eight = highest_rate(dataclasses.replace(long, replicas=8), "prefill")
    assert 1.8 * rate < eight < 2.4 * rate  # two halves help each other
    assert highest_rate(dataclasses.replace(long, tpot_s=0.001), "prefill") == 0.0


def test_looking_at_the_replicas_beats_taking_turns() -> None:
    turns = simulate(FOUR, "round-robin", 50.0)
    assert list(turns.replica[:5]) == [0, 1, 2, 3, 0]
    interactive = Simulation(8, MODEL, 2_048, 1_024, 0.5, 0.03, seconds=40.0)
    by_turns = highest_rate(interactive, "round-robin")
    for policy in ("prefill", "vllm"):
        assert highest_rate(interactive, policy) > by_turns, policy


def test_a_bound_on_the_queries_of_an_engine_holds() -> None:
    one_at_a_time = dataclasses.replace(FOUR, replicas=1, queries=1)
    served = simulate(one_at_a_time, "open", 2.0)
    assert np.allclose(served.tpot_s, MODEL.fixed_s + MODEL.per_query_s)  # nobody decodes beside


def test_a_fit_finds_the_costs_behind_the_steps(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    queries, tokens = draw.integers(0, 200, 500), draw.integers(1, 2_048, 500) * (draw.random(500) < 0.3)
    queries[(queries == 0) & (tokens == 0)] = 1
    seconds = MODEL.fixed_s + MODEL.per_query_s * queries + MODEL.per_token_s * tokens
    began = np.concatenate([[0.0], np.cumsum(seconds)])
    lines = [f"{at:.9f} {prompt} {decode}\n" for at, prompt, decode in zip(began, tokens, queries, strict=False)]
    (tmp_path / "1.steps").write_text("".join(lines) + "100.0 1 1\n200.0 1 1\n201.")  # then idle; the last was cut
    rows = read_steps(tmp_path)
    assert len(rows) == 499
    found = fit(rows)
    assert found.model.fixed_s == pytest.approx(MODEL.fixed_s, rel=1e-3)
    assert found.model.per_query_s == pytest.approx(MODEL.per_query_s, rel=1e-3)
    assert found.model.per_token_s == pytest.approx(MODEL.per_token_s, rel=1e-3)
    assert found.explained > 0.999
    assert found.p90_error < 1e-3
    with pytest.raises(ExecutionError, match="too few"):
        fit(rows[:5])


def test_steps_are_read_as_a_scheduler_puts_them_together() -> None:
    reader = StepReader()

    def read(
        scheduled: dict[str, int], computed: dict[str, int], new: dict[str, int], over: tuple[str, ...] = ()
    ) -> Step:
        """A step: tokens of each query, those computed before, prompts that are new."""
        news = [SimpleNamespace(req_id=name, prompt_len=length, num_computed_tokens=0) for name, length in new.items()]
        cached = SimpleNamespace(req_ids=list(computed), num_computed_tokens=list(computed.values()))
        return reader.read(
            SimpleNamespace(
                finished_req_ids=set(over),
                scheduled_new_reqs=news,
                scheduled_cached_reqs=cached,
                num_scheduled_tokens=scheduled,
            )
        )

    assert read({"a": 10, "b": 6}, {}, {"a": 10, "b": 20}) == Step({"a": True, "b": False}, 0, 16)
    assert read({"a": 1, "b": 14}, {"a": 10, "b": 6}, {}) == Step({"a": True, "b": True}, 1, 14)
    assert read({"a": 1, "b": 1}, {"a": 11, "b": 20}, {}) == Step({"a": True, "b": True}, 2, 0)
    # b is computed again, with the two tokens it had: no new one before all of that is done
    assert read({"b": 20}, {"b": 0}, {}, ("a",)) == Step({"b": False}, 0, 20)
    assert read({"b": 2}, {"b": 20}, {}) == Step({"b": True}, 0, 2)
    assert read({"a": 4}, {}, {"a": 4}, ("b",)) == Step({"a": True}, 0, 4)  # another query of an earlier name
