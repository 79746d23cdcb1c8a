"""Records of legs from before a field was renamed or given up can still be read."""

from runs.record.manifest import Manifest, ReplicaPlace, ReplicasPlan
from tests.support.submission_manifests import manifest


def test_a_leg_with_a_routing_policy() -> None:
    older = {"routing": "open", "places": [ReplicaPlace()], "cluster": None}
    assert ReplicasPlan.model_validate(older) == ReplicasPlan(places=[ReplicaPlace()])


def test_a_leg_with_refused_connections() -> None:
    content = manifest().model_dump(mode="json") | {"observed": {"refused_connections": 2, "samples_issued": 5}}
    assert Manifest.model_validate(content).observed == {"rejected_connections": 2, "samples_issued": 5}
