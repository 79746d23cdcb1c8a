"""A sign-off that hangs ends as degraded: no verdict, which the policy closed takes for a no."""

import threading
import time
from typing import Any

import pytest

from compliance.signoff import judge
from compliance.signoff.judge import OutOfTime, time_limit
from runs.errors import ExitCode

SHORT_S = 0.05
LONG_S = 600.0  # nobody waits so long: the limit ends it


def hang(*_: Any) -> None:
    time.sleep(LONG_S)


def test_a_block_that_hangs_is_ended() -> None:
    with pytest.raises(OutOfTime, match=r"no verdict within 0\.05 s"), time_limit(SHORT_S):
        hang()


def hang_twice() -> None:
    try:
        hang()
    except OutOfTime:
        hang()


def test_it_rings_again_for_a_block_that_caught_it() -> None:
    with pytest.raises(OutOfTime), time_limit(SHORT_S):
        hang_twice()


def test_the_outer_limit_counts_and_nothing_rings_after_it() -> None:
    with pytest.raises(OutOfTime, match=r"0\.05 s"), time_limit(SHORT_S), time_limit(LONG_S):
        hang()
    time.sleep(2 * SHORT_S)


def test_another_thread_goes_without() -> None:
    reached = []

    def work() -> None:
        with time_limit(SHORT_S):
            reached.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert reached == [True]


@pytest.mark.parametrize(("scope", "blocks"), [("harness", False), ("bundle", True)])
def test_a_hung_sign_off_is_degraded(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, scope: Any, blocks: bool) -> None:
    monkeypatch.setattr(judge, "_judge", hang)
    verdict = judge.sign_off(scope, [tmp_path], limit_s=SHORT_S)
    assert verdict.outcome == "ERROR"
    assert verdict.error is not None
    assert "no verdict within" in verdict.error.message
    assert verdict.blocks is blocks
    assert verdict.exit_code() == ExitCode.FAILED
