"""What honest runs meet: New Year, time zones, summer time, busy machines, memory that others hold. None is refused."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest

from compliance.signoff.parity import one_system_in_both_modes
from compliance.signoff.proofs.clocks import moments_of
from compliance.signoff.proofs.cross_checks import cross_checks
from compliance.signoff.proofs.issued_queries import late_issues
from compliance.signoff.proofs.provenance import one_machine, provenance
from runs.loadgen.detail_log import PREFIX
from runs.record.layout import RunDir
from runs.record.manifest import Manifest, read_manifest, write_manifest
from tests.signoff.forge.faults import set_manifest
from tests.support.editing import loadgen_line
from tests.support.signoff_fixtures import FrozenLegs, evidence


@pytest.fixture(scope="module")
def legs(tmp_path_factory: pytest.TempPathFactory) -> FrozenLegs:
    return FrozenLegs(tmp_path_factory)


def utc_s(*moment: int) -> float:
    return datetime(*moment, tzinfo=UTC).timestamp()  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("start_year", "zone_s", "stamp", "meant"),
    [
        (2026, 0, ("01", "01", "00:10:00"), utc_s(2027, 1, 1, 0, 10)),  # over New Year
        (2026, -3600 * 13, ("01", "01", "11:00:00"), utc_s(2026, 12, 31, 22, 0)),  # a year ahead of UTC
        (2027, 3600 * 8, ("12", "31", "20:00:00"), utc_s(2027, 1, 1, 4, 0)),  # and behind it
        (2028, 0, ("02", "29", "12:00:00"), utc_s(2028, 2, 29, 12, 0)),
        (2026, 3600 * 5, ("11", "01", "01:30:00"), utc_s(2026, 11, 1, 5, 30)),  # clocks were put back meanwhile
    ],
)
def test_a_stamp_without_a_year_means_the_legs_own(
    start_year: int, zone_s: int, stamp: tuple[str, str, str], meant: float
) -> None:
    assert meant in moments_of(stamp, start_year, zone_s)


def test_a_stamp_of_another_day_means_no_moment_of_the_leg() -> None:
    start_s = utc_s(2026, 6, 1, 12)
    assert all(abs(moment_s - start_s) > 3600 for moment_s in moments_of(("06", "03", "12:00:00"), 2026, 0))


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


FORMS = {"test_datetime": "%Y-%m-%dT%H:%M:%SZ", "power_end": "%m-%d-%Y %H:%M:%S.%f"}


def shifted(path: Path, key: str, by_s: int) -> None:
    """Move a time in a detail log."""
    lines = []
    for line in path.read_bytes().splitlines(keepends=True):
        record = orjson.loads(line[len(PREFIX) :])
        if record["key"] == key:
            moment = datetime.strptime(record["value"], FORMS[key]) + timedelta(seconds=by_s)
            record["value"] = moment.strftime(FORMS[key])
            line = loadgen_line(record)
        lines.append(line)
    path.write_bytes(b"".join(lines))


@pytest.mark.parametrize(
    ("key", "by_s", "refused"),
    [
        *(("test_datetime", by_s, False) for by_s in (3600, -34_200, 20_700, 14 * 3600)),
        *(("test_datetime", by_s, True) for by_s in (60, -60, 15 * 3600)),
        *(("power_end", by_s, True) for by_s in (60, 3600)),
    ],
)
def test_loadgen_prints_its_date_in_local_time_and_its_window_in_utc(
    legs: FrozenLegs, tmp_path: Path, key: str, by_s: int, refused: bool
) -> None:
    leg = legs.copy(tmp_path / "leg", "srv-1")
    shifted(leg / "mlperf_log_detail.txt", key, by_s)
    found = {finding.rule for finding in provenance(evidence(leg))}
    assert ("P-5/clock" in found) is refused


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
    manifest.host |= {"hostname": hostname, "boot_id": boot_id}
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
    configuration = dict(manifest.engine["configuration"]) | {"slots": 1}
    manifest.engine["configuration"] = configuration
    manifest.observed["loop_lag"] = {"p99_ms": lag_ms, "worst_ms": lag_ms, "moments": 9, "interval_ms": 1.0}
    foreign_s = foreign * 10
    manifest.observed["contention"] = {
        **{"window_s": 5.0, "usable_cores": 2, "busy_cpu_s": foreign_s, "own_cpu_s": 0.0, "foreign_cpu_s": foreign_s},
        **{"stolen_cpu_s": 0.0, "load_average_start": 1.0, "load_average_end": 1.0},
    }
    write_manifest(RunDir(leg).manifest, manifest)
    found = [finding.severity for finding in cross_checks(evidence(leg)) if finding.rule == "P-7/more_than_the_batch"]
    assert found == ([] if severity is None else [severity])
