"""Left out, null, empty, of another type: what is not there must not switch its check off."""

from tests.honest.pair import Pair
from tests.signoff.forge.faults import cover
from tests.signoff.forge.record_faults import each_record
from tests.untrusted.tampering import (
    BOTH,
    Json,
    each_line,
    tampering,
    values,
)

WEIGHTS = {
    "files": 4, "tensors": 291, "parameters": 8030261248, "dtypes": {"BF16": 8030261248}, "precision": "bfloat16",
    "quantized": False, "sparse": False, "shape": {"hidden_size": 4096}, "headers_sha256": "ab" * 32,
}  # fmt: skip


@tampering()
def error_as_a_number(pair: Pair) -> None:
    """An error record whose flag is 1, not true."""

    def change(one: Json) -> Json:
        wrong = one["key"] == "power_begin"
        return one | {"metadata": one["metadata"] | {"is_error": 1}} if wrong else one

    each_line(pair.performance.detail, change)


values(
    {
        "cached-tokens-left-out": {"observed.cached_prompt_tokens": ...},
        "cached-tokens-in-words": {"observed.cached_prompt_tokens": "0"},
        "no-limit-on-tokens": {"plan.sampling.max_tokens": ...},
        "sampling-in-words": {"plan.sampling.temperature": "greedy"},
        "no-host": {"observed.host": {}},
        "no-software": {"observed.software": {}},
        "engine-nobody-knows": {"plan.engine": "my-engine"},
        "no-process": {"pid": None},
        "no-loop-lag": {"observed.loop_lag": {}},
        "contention-of-nothing": {"observed.contention": {}},
        "unknown-field": {"observed.verified_by": "MLCommons"},
        "replicas-that-were-not": {"replicas": [{"pid": 4242}]},
        "start-and-end-left-out": {"start_time_ns": None},
        "unofficial-without-reasons": {"unofficial_reasons": []},
        "unofficial-for-a-blank": {"unofficial_reasons": [" "]},
        "a-commit-in-words": {"observed.harness.git_commit": "unknown"},
        "model-of-an-engine-without-one": {
            "observed.model.weights": WEIGHTS,
            "observed.model.sha256": {"model.safetensors": "ab" * 32},
        },
        "engine-without-configuration": {"engine.configuration": {}},
        "warm-up-left-out": {"engine.warm_up": {}},
        "warm-up-below-nothing": {"engine.warm_up": {"prompts": -1}},
        "patience-below-nothing": {"plan.stall_timeout_s": -1.0},
        "an-error-of-a-finished-leg": {"error": {"message": "x"}},
        "older-version-of-the-record": {"record": 3},
    },
    "manifest.json",
    BOTH,
)


@tampering()
def requests_with_a_field_of_its_own(pair: Pair) -> None:
    each_record(pair.performance, lambda one: one | {"true_ttft_ns": 1})


@tampering(covered=False)
def a_key_twice_in_the_manifest(pair: Pair) -> None:
    """Of which one reader takes the first and another the last."""
    cover(pair.performance)
    text = pair.performance.manifest.read_text()
    pair.performance.manifest.write_text(
        text.replace('"official": false,', '"official": true,\n  "official": false,', 1)
    )


@tampering()
def a_key_twice_in_a_request(pair: Pair) -> None:
    text = pair.performance.requests.read_text()
    pair.performance.requests.write_text(text.replace('"seq":3,', '"output_tokens":128,"seq":3,', 1))
