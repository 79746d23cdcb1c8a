"""The options of the dummy engine, and its shortest output."""

from pydantic import BaseModel, ConfigDict

from runs.files.fields import options_in

LONGEST = 1e9  # ms or µs, for an option's maximum
SHORTEST_OUTPUT = 32
_dummy = options_in("dummy", "Dummy engine (no model; for trials and tests of the harness)")


class DummyOptions(BaseModel):
    """Options of the dummy engine."""

    model_config = ConfigDict(defer_build=True)

    dummy_ttft_ms: float = _dummy(
        "Time to first token, in ms. Default: 2; 80 in an audit that compares rates.", "MS", 2.0, ge=0, le=LONGEST
    )
    dummy_tpot_ms: float = _dummy("Time per output token, in ms. Default: 0.05.", "MS", 0.05, ge=0, le=LONGEST)
    dummy_prefill_us: float = _dummy(
        "Time per prompt token, in µs, added to the time to first token. Default: 0.", "US", 0.0, ge=0, le=LONGEST
    )
    dummy_slots: int = _dummy(
        "Maximum number of requests that are computed concurrently; 0 = all. Default: 0; 1 in an audit that compares "
        "rates.",
        "N",
        0,
        ge=0,
    )
    dummy_shortest_tokens: int = _dummy(
        f"Shortest output, in tokens. The prompt decides the length. Default: {SHORTEST_OUTPUT}.",
        "N",
        SHORTEST_OUTPUT,
        ge=1,
    )
    dummy_noise: float = _dummy(
        "Random variation of the speed, per run and per request: relative standard deviation. Default: 0.",
        "SHARE",
        0.0,
        ge=0,
        le=0.5,
    )
    dummy_seed: int | None = _dummy(
        "Random seed of --dummy-noise. Default: a new seed at each start of the engine.", "N", ge=0
    )
    dummy_fault: list[str] = _dummy(
        "Inject a fault at query N. Repeatable. KIND is start, raise, fail, die, swallow, twice, empty or freeze.",
        "KIND[@N]",
        [],
    )
