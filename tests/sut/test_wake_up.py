"""LoadGen's threads wake the event loop once for all that has arrived, and no query is left behind."""

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.fakes import Sample
from tests.support.stage import HANDLE, Stage


class Interrupted(deque[Any]):
    """The queue between the threads; lets the other side act in the middle of an operation."""

    def __init__(self) -> None:
        super().__init__()
        self.before_append: Callable[[], None] = lambda: None
        self.after_empty: Callable[[], None] = lambda: None

    def append(self, item: Any) -> None:
        act, self.before_append = self.before_append, lambda: None
        act()
        super().append(item)

    def __len__(self) -> int:
        length = super().__len__()
        if not length:
            act, self.after_empty = self.after_empty, lambda: None
            act()
        return length


def test_one_wake_up_for_all_that_arrived_before_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[Callable[[], None]] = []
    wake = stage.loop.call_soon_threadsafe

    def counted(call: Callable[[], None]) -> Any:
        woken.append(call)
        return wake(call)

    monkeypatch.setattr(stage.loop, "call_soon_threadsafe", counted)
    for place in range(5):
        stage.sut.issue_queries([Sample(HANDLE + 8 * place, 0)])
    stage.turn()
    assert (len(stage.engine.requests), len(woken)) == (5, 1)
    stage.sut.issue_queries([Sample(HANDLE + 40, 0)])
    stage.turn()
    assert (len(stage.engine.requests), len(woken)) == (6, 2)


def test_a_query_that_arrives_when_the_loop_has_just_looked(stage: Stage) -> None:
    stage.sut._arrived = arrived = Interrupted()
    arrived.after_empty = lambda: stage.sut.issue_queries([Sample(HANDLE + 8, 1)])
    stage.sut.issue_queries([Sample(HANDLE, 0)])
    stage.turn()
    stage.turn()
    assert [request.sample_index for request in stage.engine.requests] == [0, 1]


def test_a_query_that_is_put_down_when_the_loop_has_just_looked(stage: Stage) -> None:
    stage.sut._arrived = arrived = Interrupted()
    stage.sut.issue_queries([Sample(HANDLE, 0)])  # the loop is told, and has not begun to look
    arrived.before_append = stage.turn
    stage.sut.issue_queries([Sample(HANDLE + 8, 1)])
    stage.turn()
    assert [request.sample_index for request in stage.engine.requests] == [0, 1]
