"""The condition for a core process that a fork server creates."""

import pytest

from sut.vllm.cpu import LIGHT_KV_CACHE_GIB, PRELOAD, START_METHOD, computes_alone, cpu_environment

LIBRARY = "/somewhere/libgomp.so.1"
ALONE = {"distributed_executor_backend": "uni"}


@pytest.mark.parametrize(
    ("options", "variables", "expected"),
    [
        (ALONE, {PRELOAD: LIBRARY}, True),
        (ALONE, {}, False),  # the library would be missing in the core
        (ALONE, {PRELOAD: "/other.so"}, False),  # set by the user
        (ALONE, {PRELOAD: LIBRARY, START_METHOD: "spawn"}, False),
        ({**ALONE, "data_parallel_size": 2}, {PRELOAD: LIBRARY}, False),
        ({"distributed_executor_backend": "mp"}, {PRELOAD: LIBRARY}, False),
        ({}, {PRELOAD: LIBRARY}, False),
    ],
)
def test_a_single_core_with_its_library_is_forked_by_the_server(
    options: dict[str, object], variables: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (PRELOAD, START_METHOD):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert computes_alone(options, {PRELOAD: LIBRARY}) is expected


def test_a_trial_of_the_embedded_model_has_a_small_cache() -> None:
    light, usual = (cpu_environment(ALONE, [0, 1], light=value) for value in (True, False))
    assert int(light.pop("VLLM_CPU_KVCACHE_SPACE")) == LIGHT_KV_CACHE_GIB <= int(usual.pop("VLLM_CPU_KVCACHE_SPACE"))
    assert light == usual
