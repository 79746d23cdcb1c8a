"""Error rates of output_caching in simulated audits: a few here, all of docs/caching-errors.md in `make test-long`."""

from itertools import product

import pytest

from tests.support.simulated.caching_power import (
    CACHES,
    CHEATS,
    DISTURBANCES,
    HONEST,
    SYSTEMS,
    System,
    documented_table,
    is_faster_by_threshold,
    row,
    simulate,
    table,
)

FEW = 5  # audits of each system


def test_simulated_honest_systems_never_fail() -> None:
    for (scenario, slots), disturbance in product(SYSTEMS, DISTURBANCES):
        shares = simulate(System(scenario, slots, 1_000), disturbance, FEW)
        assert shares.share_of("FAIL") == 0, (scenario, slots, disturbance)
        assert disturbance != "idle" or shares.share_of("PASS") == 1


def test_simulated_caches_always_fail() -> None:
    for (scenario, slots), cheat in product(SYSTEMS, CACHES):
        system = System(scenario, slots, 1_000, cheat)
        assert not is_faster_by_threshold(system) or simulate(system, "idle", FEW).share_of("FAIL") == 1, system


def _cells(title: str) -> dict[tuple[str, str], list[str]]:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in documented_table(title).splitlines()[2:]]
    return {(system, what): cells for system, what, *cells in rows}


def test_the_document_states_the_required_error_rates() -> None:
    honest, cheats = _cells(HONEST), _cells(CHEATS)
    assert {what for _, what in honest} == DISTURBANCES.keys()
    assert {what for _, what in cheats} == set(CACHES)
    for (_, what), cells in honest.items():
        for cell in cells:
            failed, undecided = map(float, cell.split("/"))
            assert failed <= 1
            assert what != "idle" or failed + undecided <= 1
    assert all(cell == "–" or float(cell) >= 99 for cells in cheats.values() for cell in cells)


@pytest.mark.long
def test_one_row_of_the_document_equals_the_simulation() -> None:
    assert row("SingleStream", 1, "idle") in documented_table(HONEST)


@pytest.mark.long
@pytest.mark.parametrize("title", [HONEST, CHEATS])
def test_all_tables_of_the_document_equal_the_simulation(title: str) -> None:
    assert documented_table(title) == table(title)
