"""Whether legs are of one system: both modes, an audit, a bundle, its levers; and forgeries of one leg by another."""

import json
import random
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from compliance.evidence.accuracy import verify_accuracy, with_scorer
from compliance.finding import find_rule
from compliance.signoff import sign_off
from compliance.signoff.bundle import foreign_legs, one_system
from compliance.signoff.claim import Claim
from compliance.signoff.evidence import Evidence
from compliance.signoff.harness import FASTER_FLAG, caching, one_system_in_both_modes, pace
from compliance.submission.build import SubmitOutcome
from compliance.verify.find_results import find_results
from runs.accelerators import FACTS
from runs.files import write_json
from runs.loadgen.detail_log import read_detail
from runs.record.layout import CampaignDir, RunDir
from tests.signoff.forge.faults import inject, set_manifest
from tests.signoff.forge.record_faults import shorten_requests
from tests.support.editing import read_records, reseal, write_records
from tests.support.recorded import recorded
from tests.support.signoff_fixtures import FrozenLegs, as_word, evidence, slugs

LEGS = ("ss-1", "ss-acc", "srv-1", "srv-acc")
ANOTHER = {**dict.fromkeys(("vendor", *FACTS)), "name": "another"}  # an accelerator
TWO_YEARS_NS = 2 * 365 * 86_400 * 10**9
POWER_TIME = "%m-%d-%Y %H:%M:%S.%f"
Edit = Callable[[dict[str, Any]], None]


def edited(legs: FrozenLegs, folder: Path, name: str, edit: Edit) -> Path:
    copy = legs.copy(folder / name, name)
    manifest = orjson.loads((copy / "manifest.json").read_bytes())
    edit(manifest)
    write_json(copy / "manifest.json", manifest)
    return copy


def to(place: str, value: object) -> Edit:
    def edit(manifest: dict[str, Any]) -> None:
        *path, last = place.split(".")
        for step in path:
            manifest = manifest[step]
        manifest[last] = value

    return edit


def elsewhere(manifest: dict[str, Any]) -> None:
    """Of a machine of another name; by the boot's id it would be one that was renamed."""
    manifest["observed"]["host"] |= {"hostname": "another", "boot_id": "another"}


def later(manifest: dict[str, Any]) -> None:
    manifest["start_time_ns"] += TWO_YEARS_NS
    manifest["end_time_ns"] += TWO_YEARS_NS


def test_a_bundle_of_two_scenarios_is_one_system(legs: FrozenLegs) -> None:
    assert list(one_system([evidence(path) for path in legs.paths(*LEGS)])) == []


@pytest.mark.parametrize(
    ("changed", "edit", "slug"),
    [
        ("srv-1", elsewhere, "several_systems"),
        ("srv-acc", to("observed.host.cpu", "another"), "several_systems"),
        ("srv-1", to("observed.software.torch", "1.0"), "several_systems"),
        ("srv-acc", to("observed.harness.git_commit", "0" * 40), "several_systems"),
        ("srv-1", to("observed.model.sha256", {"model.safetensors": "0" * 64}), "several_systems"),
        ("srv-acc", to("plan.dataset_sha256", "0" * 64), "several_systems"),
        ("srv-1", to("observed.loadgen.extension_sha256", "0" * 64), "several_systems"),
        ("srv-1", to("observed.accelerators", [ANOTHER]), "several_systems"),
        ("srv-1", to("plan.sampling.temperature", 0.7), "several_systems"),
        ("srv-acc", later, "far_apart"),
    ],
)
def test_a_bundle_of_two_systems(legs: FrozenLegs, tmp_path: Path, changed: str, edit: Edit, slug: str) -> None:
    """Across scenarios: of each pair by itself all may be well."""
    names = ("off-1", "off-acc", "srv-1", "srv-acc")
    paths = [edited(legs, tmp_path, name, edit) if name == changed else legs(name) for name in names]
    found = {finding.slug for finding in one_system([evidence(path) for path in paths])}
    assert found == {slug}


def test_legs_that_explain_a_lever_are_of_the_bundles_scenario_and_system(legs: FrozenLegs, tmp_path: Path) -> None:
    bundle = [evidence(path) for path in legs.paths("off-1", "off-2", "off-acc")]
    assert foreign_legs(legs.paths("off-1", "off-fast-1", "off-acc"), bundle) == ""
    assert "scenario" in foreign_legs(legs.paths("ss-1", "ss-fast-1"), bundle)
    other = edited(legs, tmp_path, "off-fast-1", elsewhere)
    assert "host.hostname" in foreign_legs([legs("off-1"), other], bundle)


@pytest.mark.parametrize(
    ("slug", "edit"),
    [
        ("other_harness", to("observed.harness.git_commit", "a" * 40)),
        ("other_harness", to("observed.harness.version", "9")),
        ("far_apart", later),
    ],
)
def test_legs_that_are_no_submission_are_told_of(legs: FrozenLegs, tmp_path: Path, slug: str, edit: Edit) -> None:
    copy = edited(legs, tmp_path, "off-fast-1", edit)
    reseal(RunDir(copy))
    ref, cand = legs.paths("off-1", "off-2", "off-acc"), [copy, legs("off-fast-2")]
    verdict = sign_off("patch", ref, cand, Claim(levers=["tpot_ms"]))
    told = {one.slug: one.severity for one in verdict.findings}
    assert told[slug] == "warning"
    assert verdict.outcome == "FLAG"


@pytest.mark.parametrize(
    ("pool_tokens", "variable", "severity"),
    [
        (80_444, {}, None),
        (80_284, {}, None),  # as what else holds memory of an accelerator changes
        (60_333, {}, "warning"),
        (60_333, {"VLLM_CPU_KVCACHE_SPACE": "3"}, "warning"),  # a quarter of what was free
        (80_444, {"OMP_NUM_THREADS": "1"}, "error"),
    ],
)
def test_the_memory_that_is_free_at_the_start_is_no_other_system(
    legs: FrozenLegs, tmp_path: Path, pool_tokens: int, variable: dict[str, str], severity: str | None
) -> None:
    accuracy = RunDir(legs.copy(tmp_path / "accuracy", "vllm-off-acc"))
    accuracy.engine_log.write_text(accuracy.engine_log.read_text().replace("80,444 tokens", f"{pool_tokens:,} tokens"))
    for name, value in variable.items():
        set_manifest(accuracy, f"engine.configuration.environment.{name}", value)
    found = list(one_system_in_both_modes([evidence(legs("vllm-off")), evidence(accuracy.root)]))
    assert {one.severity for one in found if one.rule == "H-1/other_path"} == ({severity} if severity else set())


def test_a_model_that_lies_elsewhere_is_the_same_by_its_files(legs: FrozenLegs, tmp_path: Path) -> None:
    accuracy = RunDir(legs.copy(tmp_path / "accuracy", "vllm-off-acc"))
    for place in ("plan.model_path", "engine.configuration.model"):
        set_manifest(accuracy, place, "/another/folder")
    found = [*one_system_in_both_modes([evidence(legs("vllm-off")), evidence(accuracy.root)])]
    assert [one for one in found if one.rule == "H-1/other_path"] == []


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


def test_a_scorer_that_is_given_scores_what_was_verified_no_more(
    legs: FrozenLegs, scorings: list[tuple[str, ...]]
) -> None:
    pair = legs.paths("srv-1", "srv-acc")
    leg = next(leg for result in find_results(pair) for leg in result.legs if leg.mode == "AccuracyOnly")
    with with_scorer(None) as (sources, _):
        verified = verify_accuracy(leg, sources)
        assert len(scorings) == 1
        signed = sign_off("harness", pair, sources=sources)
        assert len(scorings) == 1
    assert signed.outcome == sign_off("harness", pair).outcome == "PASS"
    assert len(scorings) == 2
    assert verified.details["scores"]


@pytest.mark.slow
def test_submit_scores_each_leg_once(
    build: Callable[..., SubmitOutcome], campaign: CampaignDir, scorings: list[tuple[str, ...]]
) -> None:
    outcome = build()
    assert [one.sentence for one in outcome.findings] == []
    assert outcome.signed is not None
    assert outcome.signed.outcome in ("PASS", "FLAG")
    assert len(outcome.judged) == 2
    assert 0 < len(scorings) == len(set(scorings))


def test_the_data_set_of_a_leg_is_at_hand_where_it_is_unchanged(legs: FrozenLegs, tmp_path: Path) -> None:
    copy = legs.copy(tmp_path / "leg", "srv-1")
    leg = find_results([copy])[0].legs[0]
    references = Evidence.of(leg).references
    assert references is not None
    assert leg.manifest is not None
    assert leg.manifest.plan.dataset_sha256 == references.sha256
    manifest = json.loads((copy / "manifest.json").read_bytes())
    manifest["plan"]["dataset_sha256"] = "0" * 64
    (copy / "manifest.json").write_text(json.dumps(manifest))
    assert Evidence.of(find_results([copy])[0].legs[0]).references is None


def test_a_performance_leg_written_from_the_accuracy_leg(legs: FrozenLegs, tmp_path: Path) -> None:
    """A null system's leg with the accuracy leg's answers, at three quarters of its times."""
    leg = legs.copy(tmp_path / "leg", "ss-null", ["adopt", "ss-1"], ["borrow_answers", "ss-acc"])
    run, draw = RunDir(leg), random.Random(3)
    shown = {one["sample_index"]: one for one in read_records(RunDir(legs("ss-acc")))}
    records = sorted(read_records(run), key=lambda one: int(one["seq"]))
    now_ns = start_ns = records[0]["issue_ns"]
    for one in records:
        share, first = 0.75 * draw.uniform(0.985, 1.015), shown[one["sample_index"]]
        for name in ("first_token_ns", "complete_ns"):
            one[name] = now_ns + int((first[name] - first["issue_ns"]) * share)
        one["issue_ns"], now_ns = now_ns, one["complete_ns"] + draw.randrange(60_000, 180_000)
    write_records(run, records)
    values = read_detail(run.detail).values
    begin, end = (datetime.strptime(str(values[key]), POWER_TIME) for key in ("power_begin", "power_end"))
    seconds = (now_ns - start_ns) / 1e9 + 0.004
    for fault in (
        ["scale_clock", seconds / (end - begin).total_seconds()],
        ["set_manifest", "end_time_ns", records[-1]["complete_ns"] + 300_000_000],
        ["rebuild", 1],
    ):
        inject(run, str(fault[0]), fault[1:], leg)
    verdict = sign_off("harness", [leg, legs("ss-acc")])
    assert verdict.outcome == "FAIL"
    assert slugs(verdict) & {"settings_contradict_record", "log-records"}


def test_research_legs_called_official(legs: FrozenLegs, tmp_path: Path) -> None:
    faults: list[list[object]] = [["set_manifest", "official", True], ["set_manifest", "unofficial_reasons", []]]
    verdict = sign_off("bundle", [legs.copy(tmp_path / name, name, *faults) for name in ("ss-1", "ss-acc")])
    assert verdict.outcome == "FAIL"
    assert {find_rule(rule).kind for rule in slugs(verdict)} == {"official"}
