"""The assignment of queries to systems in an interleaved run."""

import numpy as np

from runs.ab.twins import assignment, system_of


def test_each_group_has_one_query_for_each_system() -> None:
    groups = assignment(7, 3, 3 * 5000).reshape(-1, 3)
    assert (np.sort(groups, axis=1) == [0, 1, 2]).all()


def test_each_system_is_first_equally_often() -> None:
    first = assignment(1, 2, 20_000)[::2]
    assert 0.48 < first.mean() < 0.52


def test_single_queries_have_the_systems_of_the_assignment() -> None:
    assert [system_of(3, 2, seq) for seq in range(9000)] == assignment(3, 2, 9000).tolist()


def test_another_seed_gives_another_assignment() -> None:
    assert (assignment(1, 2, 100) != assignment(2, 2, 100)).any()
