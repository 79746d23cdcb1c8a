"""What honest runs meet: busy machines, memory that others hold. None is refused."""

from pathlib import Path

import orjson
import pytest

from compliance.signoff.harness import one_system_in_both_modes
from compliance.signoff.provenance import one_machine
from compliance.signoff.requests import late_issues, request_checks
from runs.record.layout import RunDir
from runs.record.manifest import Manifest, read_manifest, write_manifest
from runs.record.observed import Contention, LoopLag
from tests.signoff.forge.faults import set_manifest
from tests.support.signoff_fixtures import FrozenLegs, evidence


@pytest.fixture(scope="module")
def legs(tmp_path_factory: pytest.TempPathFactory) -> FrozenLegs:
    return FrozenLegs(tmp_path_factory)


_TOLD = "engine.configuration.environment"


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
        set_manifest(accuracy, f"{_TOLD}.{name}", value)
    found = list(one_system_in_both_modes([evidence(legs("vllm-off")), evidence(accuracy.root)]))
    assert {one.severity for one in found if one.rule == "H-1/other_path"} == ({severity} if severity else set())


def test_a_model_that_lies_elsewhere_is_the_same_by_its_files(legs: FrozenLegs, tmp_path: Path) -> None:
    accuracy = RunDir(legs.copy(tmp_path / "accuracy", "vllm-off-acc"))
    for place in ("plan.model_path", "engine.configuration.model"):
        set_manifest(accuracy, place, "/another/folder")
    found = [*one_system_in_both_modes([evidence(legs("vllm-off")), evidence(accuracy.root)])]
    assert [one for one in found if one.rule == "H-1/other_path"] == []


def test_a_busy_machine_that_issues_late_is_a_flag(legs: FrozenLegs, tmp_path: Path) -> None:
    leg = legs.copy(tmp_path / "leg", "srv-1")
    requests = leg / "requests.jsonl"
    records = [orjson.loads(line) for line in requests.read_bytes().splitlines()]
    for record in records[::20]:
        record["issue_ns"] += 300_000_000
    requests.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    (found,) = late_issues(evidence(leg))
    assert (found.rule, found.severity) == ("B-4/contended", "warning")


def on_machine(legs: FrozenLegs, hostname: str, boot_id: str | None) -> Manifest:
    manifest = read_manifest(RunDir(legs("srv-1")).manifest)
    host = manifest.observed.host.model_copy(update={"hostname": hostname, "boot_id": boot_id})
    manifest.observed.host = host
    return manifest


@pytest.mark.parametrize(
    ("first", "second", "one"),
    [
        (("node", "a"), ("node", "a"), True),
        (("pod-1", "a"), ("pod-2", "a"), True),
        (("localhost", "a"), ("localhost", "b"), False),
        (("node", None), ("node", "b"), True),
        (("localhost", None), ("localhost", None), None),
        (("localhost.localdomain", None), ("localhost.localdomain", None), None),
        (("node-1", None), ("node-2", None), False),
    ],
)
def test_machines_are_told_apart_by_more_than_their_name(
    legs: FrozenLegs, first: tuple[str, str | None], second: tuple[str, str | None], one: bool | None
) -> None:
    assert one_machine(on_machine(legs, *first), on_machine(legs, *second)) is one


@pytest.mark.parametrize(
    ("lag_ms", "foreign", "severity"), [(0.0, 0.0, "error"), (60_000.0, 0.0, None), (0.0, 0.9, "warning")]
)
def test_a_machine_that_others_took_computes_no_larger_batch(
    legs: FrozenLegs, tmp_path: Path, lag_ms: float, foreign: float, severity: str | None
) -> None:
    leg = legs.copy(tmp_path / "leg", "srv-1")
    manifest = read_manifest(RunDir(leg).manifest)
    configuration = dict(manifest.engine.configuration) | {"slots": 1}
    manifest.engine.configuration = configuration
    manifest.observed.loop_lag = LoopLag(p99_ms=lag_ms, worst_ms=lag_ms, moments=9, interval_ms=1.0)
    foreign_s = foreign * 10
    manifest.observed.contention = Contention(
        **{"window_s": 5.0, "usable_cores": 2, "busy_cpu_s": foreign_s, "own_cpu_s": 0.0, "foreign_cpu_s": foreign_s},
        **{"stolen_cpu_s": 0.0, "load_average_start": 1.0, "load_average_end": 1.0},
    )
    write_manifest(RunDir(leg).manifest, manifest)
    found = [finding.severity for finding in request_checks(evidence(leg)) if finding.rule == "P-7/more_than_the_batch"]
    assert found == ([] if severity is None else [severity])
