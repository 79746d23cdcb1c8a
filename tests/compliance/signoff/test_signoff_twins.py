"""H-5, H-8 and G-9: answers that were looked up, planted audits and verdicts."""

import json
import os
import shutil
from pathlib import Path

import pytest

from compliance.signoff import sign_off
from compliance.signoff.claim import Claim, PatchVerdict, read_claim
from compliance.signoff.harness import FASTER_FLAG, caching, pace
from runs.files import write_json
from runs.record.layout import RunDir
from tests.signoff.forge.record_faults import shorten_requests
from tests.support.editing import reseal
from tests.support.recorded import recorded
from tests.support.signoff_fixtures import FrozenLegs, as_word, evidence


@pytest.fixture(scope="module")
def legs(tmp_path_factory: pytest.TempPathFactory) -> FrozenLegs:
    return FrozenLegs(tmp_path_factory)


def test_pace_is_compared_at_no_lower_load_and_in_one_direction(legs: FrozenLegs, tmp_path: Path) -> None:
    assert list(pace(evidence(legs("ss-1")), evidence(legs("ss-acc")))) == []
    assert list(pace(evidence(legs("ss-1")), evidence(legs("ss-fast-acc")))) == []  # slower than its accuracy leg
    (reason,) = pace(evidence(legs("ss-fast-1")), evidence(legs("ss-acc")))
    assert (as_word(reason), reason.slug) == ("FLAG", "faster_than_accuracy")
    found = list(pace(evidence(legs("ss-null")), evidence(legs("ss-acc"))))
    assert {as_word(one) for one in found} == {"FAIL"}
    half = legs.copy(tmp_path / "half", "srv-1")
    shorten_requests(RunDir(half), 0.9 / FASTER_FLAG)
    assert [one.slug for one in pace(evidence(half), evidence(legs("srv-acc")))] == ["faster_than_accuracy"]
    lower = legs.copy(tmp_path / "lower", "srv-1", ["set_detail", "effective_target_qps", 100.0])
    shorten_requests(RunDir(lower), 0.9 / FASTER_FLAG)
    assert list(pace(evidence(lower), evidence(legs("srv-acc")))) == []


@pytest.mark.parametrize(("busy", "severity"), [(0.0, "FAIL"), (0.2, "FAIL"), (0.5, "FLAG"), (0.95, "FLAG")])
def test_an_accuracy_leg_is_slower_by_the_cores_that_others_took(
    legs: FrozenLegs, tmp_path: Path, busy: float, severity: str
) -> None:
    fast = legs.copy(tmp_path / "fast", "srv-1")
    shorten_requests(RunDir(fast), 0.15)
    times = {"window_s": 5.0, "usable_cores": 2, "busy_cpu_s": 10 * busy, "own_cpu_s": 0.0, "foreign_cpu_s": 10 * busy}
    more = {"stolen_cpu_s": 0.0, "load_average_start": 9.0, "load_average_end": 9.0}
    accuracy = legs.copy(tmp_path / "accuracy", "srv-acc", ["set_manifest", "observed.contention", times | more])
    (reason,) = pace(evidence(fast), evidence(accuracy))
    assert (as_word(reason), reason.slug) == (severity, "faster_than_accuracy")


def test_an_engine_that_is_done_at_once_is_not_faster_than_our_stamps(legs: FrozenLegs, tmp_path: Path) -> None:
    pair = [legs.copy(tmp_path / name, name) for name in ("srv-1", "srv-acc")]
    for leg, factor in zip(pair, (0.001, 0.1), strict=True):
        shorten_requests(RunDir(leg), factor)
    (reason,) = pace(*(evidence(leg) for leg in pair))
    assert (as_word(reason), reason.slug) == ("FLAG", "faster_than_accuracy")


def test_an_audit_of_output_caching_is_judged_again_from_its_legs(tmp_path: Path) -> None:
    shutil.copytree(recorded() / "caching", tmp_path / "result")
    leg = tmp_path / "result" / "performance" / "run_1"
    folder = tmp_path / "result" / "audit" / "output_caching"
    assert [str(one) for one in caching(evidence(leg)) if one.slug != "caching_audited"] == []

    record = json.loads((folder / "audit_output_caching.json").read_text())
    repeat = next(one["label"] for one in record["legs"] if one["label"].startswith("repeat"))
    manifest = (folder / repeat / "manifest.json").read_bytes()
    other = json.loads(manifest)
    other["plan"]["engine_options"]["slots"] = 9
    seal = RunDir(folder / repeat).seal.read_bytes()
    write_json(folder / repeat / "manifest.json", other)
    forged = {one.slug: one for one in caching(evidence(leg))}["caching_audit_forged"]
    assert "manifest.json was changed after the leg ended" in forged.text
    reseal(RunDir(folder / repeat))
    reasons = {one.slug: one for one in caching(evidence(leg))}
    assert "engine_options.slots 8 / 9" in reasons["caching_audit_forged"].text
    (folder / repeat / "manifest.json").write_bytes(manifest)
    RunDir(folder / repeat).seal.write_bytes(seal)

    write_json(folder / "audit_output_caching.json", {**record, "passed": False, "reason": "repeat-1 was too fast"})
    (reason,) = caching(evidence(leg))
    assert (as_word(reason), reason.slug) == ("FAIL", "caching_audit_failed")
    assert "repeat-1 was too fast" in reason.text
    write_json(folder / "audit_output_caching.json", record)

    shutil.move(folder / repeat, tmp_path / "kept")
    shutil.copytree(folder / "reference", folder / repeat)
    (reason,) = caching(evidence(leg))
    assert (as_word(reason), reason.slug) == ("FAIL", "caching_audit_forged")
    assert "audit.config not engaged" in reason.text
    shutil.rmtree(folder / repeat)
    shutil.move(tmp_path / "kept", folder / repeat)

    write_json(
        folder / "audit_output_caching.json",
        {**record, "legs": [one for one in record["legs"] if one["label"] != repeat]},
    )
    (reason,) = caching(evidence(leg))
    assert "names the legs" in reason.text
    for gone in (repeat, "few", "reference"):  # a leg that did not suit, and its line of the record
        shutil.move(folder / gone, tmp_path / gone)
        kept = [one for one in record["legs"] if one["label"] != gone]
        write_json(folder / "audit_output_caching.json", {**record, "legs": kept})
        (reason,) = caching(evidence(leg))
        assert (as_word(reason), reason.slug) == ("FAIL", "caching_audit_forged")
        shutil.move(tmp_path / gone, folder / gone)
    write_json(folder / "audit_output_caching.json", record)

    shutil.rmtree(folder)
    shutil.copytree(recorded() / "caching-of-one-query" / "audit" / "output_caching", folder)
    (reason,) = caching(evidence(leg))  # one query repeats nothing
    assert (as_word(reason), reason.slug) == ("FLAG", "caching_audit_absent")


def test_a_patch_verdict_counts_only_as_its_legs_say(legs: FrozenLegs, tmp_path: Path) -> None:
    ref, cand = legs.paths("off-1", "off-2", "off-acc"), legs.paths("off-two-1", "off-two-2", "off-two-acc")
    slower = legs.paths("off-cold-1", "off-3")
    for lever, side in (("tpot_ms", legs.paths("off-fast-1", "off-fast-2")), ("slots", slower)):
        record = {"audit_scope": "patch", "verdict": "PASS", "e2e_delta_pct": 900.0, "levers": [lever]}
        paths = {"ref": [str(one) for one in ref], "cand": [str(one) for one in side]}
        write_json(tmp_path / f"{lever}.json", record | paths)
    write_json(
        tmp_path / "claim.json",
        {
            "levers": ["tpot_ms", "slots"],
            "patch_verdicts": [{"lever": name, "verdict_file": f"{name}.json"} for name in ("tpot_ms", "slots")],
        },
    )
    verdict = sign_off("bundle", ref, cand, read_claim(tmp_path / "claim.json"))
    assert verdict.outcome == "FAIL"
    (given,) = verdict.lever_decomposition
    assert (given["lever"], given["verdict"]) == ("tpot_ms", "PASS")
    assert float(given["delta_pct"]) < 100  # not the 900 % that the file says
    (lacking,) = [one for one in verdict.findings if one.slug == "missing_patch_verdict"]
    assert "judged again: FAIL" in lacking.text
    write_json(tmp_path / "slots.json", record | paths | {"ref": paths["ref"] * 200})  # which would take minutes
    verdict = sign_off("bundle", ref, cand, read_claim(tmp_path / "claim.json"))
    assert any("names 602 legs" in one.text for one in verdict.findings if one.slug == "missing_patch_verdict")


def test_a_verdict_file_lies_beside_its_claim_unless_it_says_where(tmp_path: Path) -> None:
    absolute = tmp_path / "elsewhere" / "b.json"
    patches = [{"lever": "a", "verdict_file": "a.json"}, {"lever": "b", "verdict_file": os.fspath(absolute)}]
    write_json(tmp_path / "claim.json", {"patch_verdicts": patches})
    assert read_claim(tmp_path / "claim.json") == Claim(
        patch_verdicts=[
            PatchVerdict(lever="a", verdict_file=tmp_path / "a.json"),
            PatchVerdict(lever="b", verdict_file=absolute),
        ]
    )
