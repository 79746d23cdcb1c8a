"""When the core's process is a fork of the run's process, and what a fork waits for."""

import os
import threading

import pytest

from sut.fork import unforked
from sut.vllm.cpu import LIGHT_KV_CACHE_GIB, PRELOAD, START_METHOD, cpu_environment, forks

LIBRARY = "/somewhere/libgomp.so.1"
ALONE = {"distributed_executor_backend": "uni"}


@pytest.mark.parametrize(
    ("options", "variables", "expected"),
    [
        (ALONE, {PRELOAD: LIBRARY}, True),
        (ALONE, {}, False),  # the library would be missing in the fork
        (ALONE, {PRELOAD: "/other.so"}, False),  # the user's own
        (ALONE, {PRELOAD: LIBRARY, START_METHOD: "spawn"}, False),
        ({**ALONE, "data_parallel_size": 2}, {PRELOAD: LIBRARY}, False),
        ({"distributed_executor_backend": "mp"}, {PRELOAD: LIBRARY}, False),
        ({}, {PRELOAD: LIBRARY}, False),
    ],
)
def test_a_lone_core_with_its_library_is_forked(
    options: dict[str, object], variables: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (PRELOAD, START_METHOD):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert forks(options, {PRELOAD: LIBRARY}) is expected


def test_few_queries_of_the_embedded_model_need_a_small_cache() -> None:
    light, usual = (cpu_environment(ALONE, [0, 1], light=value) for value in (True, False))
    assert int(light.pop("VLLM_CPU_KVCACHE_SPACE")) == LIGHT_KV_CACHE_GIB <= int(usual.pop("VLLM_CPU_KVCACHE_SPACE"))
    assert light == usual


def test_a_fork_waits_for_threads_and_leaves_no_lock_taken() -> None:
    began, finish, finished = threading.Event(), threading.Event(), []

    def work() -> None:
        with unforked:
            began.set()
            finish.wait()
            finished.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    began.wait()
    threading.Timer(0.05, finish.set).start()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if finished and unforked.acquire(blocking=False) else 1)
    _, status = os.waitpid(pid, 0)
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
    assert unforked.acquire(blocking=False)
    unforked.release()
