"""H-9: the legs of a bundle are of one system, at about one time; and so are those that explain its levers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from compliance.signoff.bundle import foreign_legs, one_system
from compliance.signoff.claim import Claim
from compliance.signoff.judge import sign_off
from runs.accelerators import FACTS
from runs.files import write_json
from runs.record.layout import RunDir
from tests.support.editing import reseal
from tests.support.signoff_fixtures import FrozenLegs, evidence

LEGS = ("ss-1", "ss-acc", "srv-1", "srv-acc")
ANOTHER = {**dict.fromkeys(("vendor", *FACTS)), "name": "another"}  # an accelerator
TWO_YEARS_NS = 2 * 365 * 86_400 * 10**9
Edit = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def legs(tmp_path_factory: pytest.TempPathFactory) -> FrozenLegs:
    return FrozenLegs(tmp_path_factory)


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
