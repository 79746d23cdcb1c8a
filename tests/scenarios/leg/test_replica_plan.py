"""What each of several engines is started with."""

from scenarios.leg.config import make_config
from scenarios.leg.replica_plan import plan_engine
from sut.vllm.kind import VllmKind
from sut.vllm.machine import Machine
from tests.support.engine_legs import leg_facts


def test_every_replica_has_the_environment_of_its_own_plan() -> None:
    kind = VllmKind(lambda: Machine("cpu", 0, [0, 1]))
    engine, replicas = plan_engine(kind, make_config({"scenario": "Server", "replicas": "2"}), leg_facts())
    assert engine.environment == {}  # the leg's process computes nothing
    assert replicas is not None
    assert [place.environment["OMP_PLACES"] for place in replicas.places] == ["{0}", "{1}"]
