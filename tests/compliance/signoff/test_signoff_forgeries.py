"""Forgeries that the back-test does not have: whoever makes them knows the source, and mends every file but one."""

import os
import random
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from compliance.finding import find_rule
from compliance.signoff import sign_off
from compliance.signoff.claim import Claim
from compliance.signoff.levers import judge_levers
from compliance.signoff.signoff_verdict import SignOff
from runs.files import write_json
from runs.loadgen.detail_log import read_detail
from runs.record.layout import RunDir
from tests.signoff.forge.faults import inject
from tests.signoff.forge.record_faults import read_records, write_records
from tests.support.signoff_fixtures import FrozenLegs, as_word, evidence

STAMPS = ("issue_ns", "first_token_ns", "complete_ns")
POWER_TIME = "%m-%d-%Y %H:%M:%S.%f"

Records = list[dict[str, Any]]


@pytest.fixture(scope="module")
def legs(tmp_path_factory: pytest.TempPathFactory) -> FrozenLegs:
    return FrozenLegs(tmp_path_factory)


def slugs(verdict: SignOff) -> set[str]:
    """Of what decides the verdict."""
    return {reason.slug for reason in verdict.findings if as_word(reason) == verdict.outcome}


def mend(leg: Path, seed: int = 1) -> Path:
    """Make LoadGen's results, the heartbeat, the hashes and result.json anew around the record."""
    for fault in (["rebuild", seed], ["cover"]):
        inject(RunDir(leg), str(fault[0]), fault[1:], leg)
    return leg


def ran_for(run: RunDir, seconds: float) -> None:
    """Another end of LoadGen's window, of its own clock, and of the leg."""
    values = read_detail(run.detail).values
    begin, end = (datetime.strptime(str(values[key]), POWER_TIME) for key in ("power_begin", "power_end"))
    inject(run, "scale_clock", [seconds / (end - begin).total_seconds()], run.root)
    manifest = orjson.loads(run.manifest.read_bytes())
    last_ns = max(one["complete_ns"] for one in read_records(run))
    write_json(run.manifest, manifest | {"end_time_ns": last_ns + 300_000_000})
    progress = orjson.loads(run.progress.read_bytes())
    write_json(run.progress, progress | {"time_ns": last_ns + 100_000_000})


def test_a_performance_leg_written_from_the_accuracy_leg(legs: FrozenLegs, tmp_path: Path) -> None:
    """A null system's leg with the accuracy leg's answers, at three quarters of its times."""
    leg = legs.copy(tmp_path / "leg", "ss-null", ["adopt", "ss-1"], ["borrow_answers", "ss-acc"])
    run, draw = RunDir(leg), random.Random(3)
    shown = {one["sample_index"]: one for one in read_records(RunDir(legs("ss-acc")))}
    records = sorted(read_records(run), key=lambda one: int(one["seq"]))
    now_ns = start_ns = records[0]["issue_ns"]
    for one in records:
        share, first = 0.75 * draw.uniform(0.985, 1.015), shown[one["sample_index"]]
        for name in STAMPS[1:]:
            one[name] = now_ns + int((first[name] - first["issue_ns"]) * share)
        one["issue_ns"], now_ns = now_ns, one["complete_ns"] + draw.randrange(60_000, 180_000)
    write_records(run, records)
    ran_for(run, (now_ns - start_ns) / 1e9 + 0.004)
    verdict = sign_off("harness", [mend(leg), legs("ss-acc")])
    assert verdict.outcome == "FAIL"
    assert slugs(verdict) & {"settings_contradict_record", "log-records"}


def test_research_legs_called_official(legs: FrozenLegs, tmp_path: Path) -> None:
    faults: list[list[object]] = [
        ["set_manifest", "official", True],
        ["set_manifest", "unofficial_reasons", []],
        ["cover"],
    ]
    pair = [legs.copy(tmp_path / name, name, *faults) for name in ("ss-1", "ss-acc")]
    verdict = sign_off("bundle", pair)
    assert verdict.outcome == "FAIL"
    assert {find_rule(rule).kind for rule in slugs(verdict)} == {"official"}


def record(leg: Path, **values: object) -> None:
    """Write an option of the dummy engine wherever the record keeps it."""
    run = RunDir(leg)
    for name, value in values.items():
        for place in ("plan.engine_options", "engine.configuration"):
            content = orjson.loads(run.manifest.read_bytes())
            first, second = place.split(".")
            if name in content[first][second]:
                inject(run, "set_manifest", [f"{place}.{name}", value], leg)
        inject(run, "set_manifest", [f"asked.dummy_{name}", value], leg)


def test_the_gain_of_a_larger_batch_as_that_of_a_faster_kernel(legs: FrozenLegs, tmp_path: Path) -> None:
    cand = [legs.copy(tmp_path / name, name) for name in ("off-slots-1", "off-slots-2")]
    for leg in cand:
        record(leg, slots=4, tpot_ms=0.1)
    claim = Claim(levers=["tpot_ms"], lever_class="A")
    verdict = sign_off("patch", legs.paths("off-1", "off-2", "off-acc"), cand, claim)
    assert (verdict.outcome, slugs(verdict)) == ("FAIL", {"more_than_the_batch"})


def unasked(legs: FrozenLegs, target: Path, name: str) -> Path:
    return legs.copy(target / name, name, ["unask", "dummy_slots"])


@pytest.mark.parametrize(
    ("prepare", "flagged"), [(unasked, True), (lambda legs, _, name: legs(name), False)], ids=["taken back", "chosen"]
)
def test_a_reference_slowed_by_what_the_candidate_takes_back(
    legs: FrozenLegs, tmp_path: Path, prepare: Callable[[FrozenLegs, Path, str], Path], flagged: bool
) -> None:
    cand = [prepare(legs, tmp_path, name) for name in ("off-slots-1", "off-slots-2")]
    claim = Claim(levers=["slots"], lever_class="B")
    verdict = sign_off("patch", legs.paths("off-1", "off-2", "off-acc"), cand, claim)
    assert ("handicapped_reference" in slugs(verdict)) is flagged
    assert verdict.outcome == ("FLAG" if flagged else "PASS")


@pytest.mark.parametrize(
    ("lever", "slug"), [("OMP_NUM_THREADS", "handicapped_reference"), ("max_num_seqs", "second_knob")]
)
def test_a_reference_slowed_by_a_variable(legs: FrozenLegs, tmp_path: Path, lever: str, slug: str) -> None:
    slow = ["set_manifest", "engine.configuration.environment.OMP_NUM_THREADS", "1"]
    ref, cand = evidence(legs.copy(tmp_path / "ref", "vllm-off", slow)), evidence(legs("vllm-off"))
    found = judge_levers(SignOff("patch", 0.5, "open"), ref, cand, Claim(levers=[lever]))
    assert slug in {one.slug for one in found}


def test_a_draft_model_that_only_the_accuracy_leg_shows(legs: FrozenLegs, tmp_path: Path) -> None:
    accuracy = legs.copy(tmp_path / "acc", "vllm-off-acc", ["set_manifest", "engine.configuration.speculative", True])
    verdict = sign_off("bundle", [legs("vllm-off"), accuracy])
    assert verdict.outcome == "FAIL"
    assert "mechanism_misdeclared" in slugs(verdict)
    assert os.fspath(accuracy) in next(one.where for one in verdict.findings if one.slug == "mechanism_misdeclared")
