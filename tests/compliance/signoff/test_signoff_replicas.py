"""The replicas of a leg against its record and each other: an honest leg, and what is done to copies of it."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from compliance.finding import Finding
from compliance.signoff.requests import replicas
from runs.files import write_json
from runs.record.layout import RunDir
from tests.signoff.forge.record_faults import each_record
from tests.support.recorded import recorded
from tests.support.signoff_fixtures import evidence

FIRST_NS, TOKEN_NS = 2_000_000, 1_000_000
Json = dict[str, Any]
Forgery = Callable[[Json], None]  # of the manifest


@pytest.fixture(scope="module")
def leg(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = RunDir(shutil.copytree(recorded() / "replicas", tmp_path_factory.mktemp("replicas") / "run"))
    renumber(run, lambda record: int(record["replica"]))
    return run.root


def findings(run: RunDir, *, contended: bool = False) -> list[Finding]:
    leg = evidence(run.root)
    assert leg.manifest is not None
    assert leg.requests is not None
    return list(replicas(leg, leg.manifest, leg.requests, contended=contended))


def copy_of(leg: Path, target: Path, change: Forgery) -> RunDir:
    run = RunDir(shutil.copytree(leg, target))
    manifest = orjson.loads(run.manifest.read_bytes())
    change(manifest)
    write_json(run.manifest, manifest)
    return run


def renumbered(leg: Path, target: Path, number: Callable[[Json], int], faster: float = 1.0) -> RunDir:
    """A copy whose queries were answered by other replicas, those of replica 0 so much faster."""
    run = copy_of(leg, target, lambda _: None)
    renumber(run, number, faster)
    return run


def renumber(run: RunDir, number: Callable[[Json], int], faster: float = 1.0) -> None:
    """Let each query be answered by a replica in the time that the engine needs, as on a machine without other work."""

    def edit(record: Json) -> Json:
        first_ns = record["issue_ns"] + FIRST_NS
        token_ns = TOKEN_NS / (faster if number(record) == 0 else 1.0)
        end_ns = first_ns + int((record["output_tokens"] - 1) * token_ns)
        return record | {"replica": number(record), "first_token_ns": first_ns, "complete_ns": end_ns}

    each_record(run, edit)


def test_an_honest_leg_has_nothing(leg: Path) -> None:
    assert findings(RunDir(leg)) == []


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda one: one["replicas"][1].update(weights_sha256={"a.safetensors": "0" * 64}), "P-7/replicas_differ"),
    ],
)
def test_a_record_of_another_replica_is_found(change: Forgery, rule: str, leg: Path, tmp_path: Path) -> None:
    assert [(one.rule, one.severity) for one in findings(copy_of(leg, tmp_path / "run", change))] == [(rule, "error")]


def test_a_replica_that_answered_nothing_is_found(leg: Path, tmp_path: Path) -> None:
    found = findings(renumbered(leg, tmp_path / "run", lambda _: 0))
    assert ("P-4/silent_replica", "error") in {(one.rule, one.severity) for one in found}


@pytest.mark.parametrize(("faster", "severity"), [(1.5, None), (3.0, "warning"), (20.0, "error")])
def test_a_replica_that_is_too_fast_is_found(faster: float, severity: str | None, leg: Path, tmp_path: Path) -> None:
    run = renumbered(leg, tmp_path / "run", lambda record: int(record["replica"]), faster)
    expected = [("H-5/replica_too_fast", severity)] if severity else []
    assert [(one.rule, one.severity) for one in findings(run)] == expected
    assert "error" not in {one.severity for one in findings(run, contended=True)}


def test_more_cores_explain_speed(leg: Path, tmp_path: Path) -> None:
    run = renumbered(leg, tmp_path / "run", lambda record: int(record["replica"]), 3.0)
    manifest = orjson.loads(run.manifest.read_bytes())
    for one, cores in zip(manifest["replicas"], ([0, 1], [2]), strict=True):
        one["cores"] = cores
    write_json(run.manifest, manifest)
    assert findings(run) == []  # 1.5 times for its cores


def test_an_uneven_share_alone_is_a_flag(leg: Path, tmp_path: Path) -> None:
    run = renumbered(leg, tmp_path / "run", lambda record: int(record["seq"] % 5 == 0))
    assert [(one.rule, one.severity) for one in findings(run)] == [("H-5/replica_too_fast", "warning")]
