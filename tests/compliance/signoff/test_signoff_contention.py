"""B-4 on foreign CPU time: which records are believed, and what they mean alone and in a comparison."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from compliance.finding import Finding
from compliance.signoff import sign_off
from compliance.signoff.claim import Claim
from compliance.signoff.provenance import FOREIGN_DIFFERENCE
from compliance.signoff.signoff_verdict import SignOff
from runs.record.observed import FOREIGN_SHARE, Contention
from tests.support.signoff_fixtures import FrozenLegs, as_word

WINDOW_S, CORES = 4.0, 2
With = Callable[[str, float], Path]


@pytest.fixture(scope="module")
def legs(tmp_path_factory: pytest.TempPathFactory) -> FrozenLegs:
    return FrozenLegs(tmp_path_factory)


def record(foreign_share: float, over_s: float = WINDOW_S, **changed: Any) -> dict[str, Any]:
    foreign_s = round(over_s * CORES * foreign_share, 2)
    made = {"window_s": over_s, "usable_cores": CORES, "busy_cpu_s": foreign_s + 1.0, "stolen_cpu_s": 0.0}
    made |= {"own_cpu_s": 1.0, "foreign_cpu_s": foreign_s, "load_average_start": 0.1, "load_average_end": 0.2}
    return made | changed


@pytest.fixture
def beside(legs: FrozenLegs, tmp_path: Path) -> With:
    """A leg beside which others used some share of the cores."""

    def make(name: str, share: float) -> Path:
        requests = [orjson.loads(line) for line in (legs(name) / "requests.jsonl").read_bytes().splitlines()]
        span_ns = max(one["complete_ns"] for one in requests) - min(one["issue_ns"] for one in requests)
        window_s = span_ns / 1e9 + 0.1
        return legs.copy(tmp_path / name, name, ["set_manifest", "observed.contention", record(share, window_s)])

    return make


def contended(verdict: SignOff) -> list[Finding]:
    return [reason for reason in verdict.findings if reason.slug == "contended"]


def test_the_share_is_of_the_time_of_all_usable_cores() -> None:
    found = Contention.model_validate(record(0.25))
    assert found.foreign_share == pytest.approx(2.0 / (4.0 * 2))


@pytest.mark.parametrize("name", sorted(record(0.1)))
@pytest.mark.parametrize("value", [None, -1, float("nan"), float("inf"), "1", "-"])
def test_a_number_that_is_none_is_damage(name: str, value: object) -> None:
    damaged = record(0.1, **{name: value})
    if value == "-":
        damaged.pop(name)
    with pytest.raises(ValidationError, match=name):
        Contention.model_validate(damaged)


@pytest.mark.parametrize(("share", "said"), [(FOREIGN_SHARE - 0.02, "PASS"), (FOREIGN_SHARE + 0.02, "FLAG")])
def test_one_busy_repeat_is_flagged_never_failed(beside: With, legs: FrozenLegs, share: float, said: str) -> None:
    busy = beside("srv-2", share)
    verdict = sign_off("baseline", [beside("srv-1", 0.0), busy, legs("srv-acc")])
    assert verdict.outcome == said
    assert [reason.where for reason in contended(verdict)] == [str(busy / "manifest.json")] * (said == "FLAG")


@pytest.mark.parametrize("scope", ["patch", "profile"])
@pytest.mark.parametrize(
    ("reference", "candidate", "flags"),
    [
        (0.01, 0.02, 0),
        (0.40, 0.41, 0),  # both alike: favours none
        (0.01 + FOREIGN_DIFFERENCE + 0.02, 0.01, 1),
        (0.01, 0.01 + FOREIGN_DIFFERENCE + 0.02, 1),
        (0.40, 0.30, 1),
    ],
)
def test_in_a_comparison_the_difference_counts(
    beside: With, legs: FrozenLegs, scope: Any, reference: float, candidate: float, flags: int
) -> None:
    ref = [beside("ss-1", reference), beside("ss-3", reference), legs("ss-acc")]
    cand = [beside("ss-fast-1", candidate), beside("ss-fast-2", candidate)]
    verdict = sign_off(scope, ref, cand, Claim(levers=["tpot_ms"]))
    found = contended(verdict)
    assert [as_word(reason) for reason in found] == ["FLAG"] * flags
    assert verdict.outcome == ("FLAG" if flags else "PASS")
    for reason in found:
        assert reason.numbers["foreign_shares"] == pytest.approx(sorted((reference, candidate)), abs=0.003)


def test_scenarios_are_not_compared_with_each_other(beside: With) -> None:
    legs = [beside(name, share) for name, share in (("ss-1", 0.0), ("ss-acc", 0.0), ("srv-1", 0.08), ("srv-acc", 0.5))]
    assert contended(sign_off("bundle", legs)) == []


def test_the_times_of_an_accuracy_leg_count_nowhere(beside: With, legs: FrozenLegs) -> None:
    assert sign_off("harness", [legs("ss-1"), beside("ss-acc", 0.6)]).outcome == "PASS"


def test_older_and_short_legs_are_noted(beside: With, legs: FrozenLegs) -> None:
    verdict = sign_off("baseline", [beside("off-1", 0.6), *legs.paths("off-2", "off-acc")])
    (reason,) = [one for one in verdict.findings if one.slug == "contention_not_recorded"]
    assert (verdict.outcome, as_word(reason), reason.numbers) == ("PASS", "NOTE", {"legs": 3})
