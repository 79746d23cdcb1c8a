"""How often output_caching errs, in simulated audits."""

from itertools import product

from tests.support.caching_power import (
    CACHES,
    DISTURBANCES,
    SYSTEMS,
    System,
    acts,
    simulate,
)

FEW = 15  # audits of each system


def test_honest_systems_do_not_fail() -> None:
    for (scenario, slots), disturbance in product(SYSTEMS, DISTURBANCES):
        found = simulate(System(scenario, slots, 1_000), disturbance, FEW)
        assert found.of("FAIL") == 0, (scenario, slots, disturbance)
        assert disturbance != "idle" or found.of("PASS") == 1


def test_caches_fail() -> None:
    for (scenario, slots), cheat in product(SYSTEMS, CACHES):
        system = System(scenario, slots, 1_000, cheat)
        assert not acts(system) or simulate(system, "idle", FEW).of("FAIL") == 1, system
